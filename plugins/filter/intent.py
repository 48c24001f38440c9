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
from ..plugin_utils._gateway.client_files import client_file
from ..plugin_utils._gateway.config import gateway_config
from ..plugin_utils._gateway.plan_lines import gateway_plan_lines
from ..plugin_utils._gateway.tailnet import tailnet
from ..plugin_utils._intent.builds import node_builds
from ..plugin_utils._intent.check import intent_errors
from ..plugin_utils._intent.gateway import all_hosts
from ..plugin_utils._intent.models import fan_out
from ..plugin_utils._intent.monitoring import allowed, hosts
from ..plugin_utils._intent.services import node_rpc, node_serving
from ..plugin_utils._intent.values import near
from ..plugin_utils._intent.variables import mistyped_variables, variable_mistakes
from ..plugin_utils._monitoring.scrape import (
    output_files,
    prometheus_config,
    sampler_config,
    sampler_renewed,
    secret_files,
)


def errors(services, models, groups, hostvars, *more, **options):
    """Types that only a role's argument specs know are reported last, in Ansible's words."""
    found = intent_errors(services, models, groups, hostvars, *more, **options)
    return found or mistyped_variables(hostvars, list(dict.fromkeys([*all_hosts(groups), *hosts(groups)])))


def _typed():
    """The names given with -e NAME=VALUE, which no variable of Ansible tells from others. A file of -e @FILE may hold
    what is for somebody else."""
    texts = [to_text(text) for text in context.CLIARGS.get("extra_vars") or ()]
    return {name for text in texts if not text.startswith(("@", "{", "[")) for name in parse_kv(text)}


def whole(services, models, groups, hostvars, settings):
    found = prometheus_config(services, models, groups, hostvars, settings)
    return {"files": output_files(found, settings), "secrets": secret_files(found, settings)}


class FilterModule:
    def filters(self):
        return with_sentences(
            intent_errors=errors,
            variable_mistakes=lambda hostvars, nodes: variable_mistakes(hostvars, nodes, _typed()),
            did_you_mean=near,
            node_serving=node_serving,
            node_rpc=node_rpc,
            node_builds=node_builds,
            services_on_trial=services_on_trial,
            model_fan_out=fan_out,
            gateway_config=gateway_config,
            gateway_host=gateway_host,
            client_configuration=client_file,
            gateway_plan_lines=gateway_plan_lines,
            gateway_tailnet=tailnet,
            monitoring_addresses=allowed,
            prometheus_config=whole,
            sampler_config=sampler_config,
            sampler_renewed=sampler_renewed,
        )
