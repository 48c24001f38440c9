# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The intent of an inventory: its mistakes, and the configuration of nodes, gateways and monitoring hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: intent
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: What an inventory says"
description:
  - Several filters for the playbooks and roles of this collection. They carry no promise.
options:
  _input:
    description: See the function of plugin_utils that the filter calls.
    type: raw
    required: true
"""

EXAMPLES = r"""
"""

RETURN = r"""
_value:
  description: See the function of plugin_utils that the filter calls.
  type: raw
"""

from ansible import context
from ansible.module_utils.common.text.converters import to_text
from ansible.parsing.splitter import parse_kv

from ..plugin_utils._access.gateway import gateway_host
from ..plugin_utils._access.trials import services_on_trial
from ..plugin_utils._filters import with_sentences
from ..plugin_utils._gateway.config import client_configuration, gateway_config
from ..plugin_utils._gateway.plan_lines import gateway_plan_lines
from ..plugin_utils._gateway.tailnet import gateway_tailnet
from ..plugin_utils._intent import check, variables
from ..plugin_utils._intent.builds import node_builds
from ..plugin_utils._intent.gateway import all_hosts
from ..plugin_utils._intent.models import model_fan_out
from ..plugin_utils._intent.monitoring import hosts, monitoring_addresses
from ..plugin_utils._intent.seeds import rpc_seeds
from ..plugin_utils._intent.services import node_rpc, node_serving
from ..plugin_utils._intent.tuned import services_tuned, tune_about, with_tuned
from ..plugin_utils._intent.values import did_you_mean
from ..plugin_utils._monitoring import scrape
from ..plugin_utils._monitoring.scrape import sampler_config


def intent_errors(services, models, groups, hostvars, *more, **options):
    """Types that only a role's argument specs know are reported last, in Ansible's words."""
    found = check.intent_errors(services, models, groups, hostvars, *more, **options)
    return found or variables.mistyped_variables(hostvars, list(dict.fromkeys([*all_hosts(groups), *hosts(groups)])))


def variable_mistakes(hostvars, nodes):
    """With the names given with -e NAME=VALUE, which no variable of Ansible tells from others. A file of -e @FILE may
    hold what is for somebody else."""
    texts = [to_text(text) for text in context.CLIARGS.get("extra_vars") or ()]
    typed = [parse_kv(text) for text in texts if not text.startswith(("@", "{", "["))]
    found = variables.variable_mistakes(hostvars, nodes, {name for given in typed for name in given})
    loose = [given["_raw_params"] for given in typed if "_raw_params" in given]
    return {**found, "loose": variables.loose_words(loose)}


def prometheus_config(services, models, groups, hostvars, settings):
    found = scrape.prometheus_config(services, models, groups, hostvars, settings)
    return {"files": scrape.output_files(found, settings), "secrets": scrape.secret_files(found, settings)}


class FilterModule:
    def filters(self):
        return with_sentences(
            *with_tuned(
                intent_errors,
                variable_mistakes,
                did_you_mean,
                services_tuned,
                tune_about,
                node_serving,
                node_rpc,
                rpc_seeds,
                node_builds,
                services_on_trial,
                model_fan_out,
                gateway_config,
                gateway_host,
                client_configuration,
                gateway_plan_lines,
                gateway_tailnet,
                monitoring_addresses,
                prometheus_config,
                sampler_config,
            )
        )
