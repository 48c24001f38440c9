# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of a plan about the gateway."""

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._gateway.plan_lines import gateway_plan_lines
from ansible_collections.thefermisea.llama_cluster.tests.unit import intents

GROUPS = dict(intents.GROUPS, llama_gateway=["ctl"])
ROUTES = {"default": "big", "tasks": {"chat": "Big"}}
SERVICES = {"reasoning": dict(intents.SERVICES["reasoning"], tier="reasoning")}


def lines(groups=None, only="", **facts):
    hostvars = dict(intents.HOSTVARS, ctl=dict({"ansible_host": "10.0.0.5"}, **facts))
    return gateway_plan_lines(SERVICES, intents.MODELS, groups or GROUPS, hostvars, ROUTES, only=only)


def test_gateway_with_tls_and_keys():
    tls = {"certificate": "/e/fullchain.pem", "key": "/e/privkey.pem"}
    keys = {"laptop": "s3cret-of-laptop", "ci": "s3cret-of-ci"}
    found = lines(gateway_tls=tls, gateway_address="llm.example.org", gateway_keys=keys)
    assert found[:4] == [
        "gateway: https://llm.example.org/v1 on ctl, tiers reasoning http://llm.example.org:8081/v1 (reasoning)",
        "  TLS: /e/fullchain.pem, key /e/privkey.pem",
        "  names: reasoning = big, Big; default big; tasks chat -> Big",
        "  keys: laptop, ci",
    ]
    assert [line.partition(":")[0] for line in found[4:]] == ["note"]
    assert "s3cret" not in "".join(found)


def test_without_tls_and_keys():
    found = lines(gateway_port=8200)
    assert found[0].startswith("gateway: http://10.0.0.5:8200/v1 on ctl")
    assert found[1] == "  TLS: none, plain HTTP"
    assert found[3] == "  keys: one, which site.yml generates on the host"
    assert lines(gateway_auth="log_only")[3] == "  keys: not needed (gateway_auth: log_only)"
    assert lines(gateway_auth="log_only", gateway_keys={"ci": "k"})[3].endswith(", known to the log: ci")


def test_services_without_a_gateway():
    assert lines(intents.GROUPS) == [
        "no gateway, clients come to each service: reasoning http://10.0.0.31:8000/v1",
    ]


def test_address_known_only_to_a_run():
    assert lines(gateway_address="{{ ansible_facts.default_ipv4.address }}")[0].startswith("gateway: http://10.0.0.5")


def test_no_lines_for_a_single_service():
    assert lines(only="reasoning") == []
