# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.gateway import (
    answer_refusals,
    gateway_host,
    gateway_refusals,
    sites,
)


def service(tier=None, state="started", model="big", nodes=("gpu1",), direct=True, **more):
    return {
        "direct": direct,
        "tier": tier,
        "state": state,
        "models": [dict({"name": model, "aliases": [model.upper()], "embeddings": False}, **more)],
        "endpoints": [{"node": node, "address": "10.0.0.31", "port": 8000, "slots": 1} for node in nodes],
    }


CONFIG = {
    "services": {"chat": service("reasoning"), "small": service("fast", model="little"), "single": service(model="x")},
    "routes": {"default": "LITTLE", "tasks": {}},
}
HOST = {
    "address": "10.0.0.5",
    "port": 8000,
    "addresses": ["0.0.0.0"],
    "tls": False,
    "tiers": {"fast": 8080, "reasoning": 8081},
    "clients": [],
    "interface": "2: eth0    inet 10.0.0.5/24 brd 10.0.0.255 scope global eth0",
}
NGINX = """nginx: the configuration file /etc/nginx/nginx.conf syntax is ok
# configuration file /etc/nginx/nginx.conf:
http {
    include /etc/nginx/conf.d/*.conf;
}
# configuration file /etc/nginx/conf.d/llama-cluster.conf:
server {
    listen 0.0.0.0:8000 default_server;
}
# configuration file /etc/nginx/sites-enabled/ai-inference:
server {
    # listen 8000;
    listen 8081;
    listen [::]:8082 ssl;
    listen 10.0.0.5:8080;
}
"""
SOCKET = 'LISTEN 0 511 %s:%d 0.0.0.0:* users:(("%s",pid=77,fd=6))\n'


def host(**changes):
    return gateway_host(CONFIG, dict(HOST, **changes))


def refusals(configuration="", status=127, listeners="", here=None, processes=(), **changes):
    gateway = dict(
        {"here": here or host(), "configuration": configuration, "status": status, "addresses": ["0.0.0.0"]},
        **dict(
            {"missing": [], "readable": [], "leaving": [], "changes": [], "auth": "required", "tailscale": False},
            **dict({"handed_on": []}, **changes),
        ),
    )
    machine = {"addresses": ["10.0.0.5", "100.64.0.1", "8.8.8.8"]}
    node = {"listeners": listeners, "managed_processes": dict(processes), "machine": machine}
    return gateway_refusals("gw", gateway, node)


def test_readable_key_is_refused():
    (refused,) = refusals(readable=["/k.pem"])
    assert refused.startswith("gateway_tls.key: /k.pem on gw seen, which every user there may read, a key of root's")


def test_public_address_needs_keys():
    (refused,) = refusals(auth="log_only")
    assert refused.startswith("gateway_auth: log_only seen with the public address 8.8.8.8 of gw, required is needed")
    assert refusals() == []


def test_ports_of_gateway_and_tiers():
    here = host()
    assert here["ports"] == [8000, 8080, 8081]
    assert {name: tier["service"] for name, tier in here["tiers"].items()} == {"reasoning": "chat", "fast": "small"}
    assert {tier["direct"] for tier in here["tiers"].values()} == {True}
    seeing = gateway_host(dict(CONFIG, services={"chat": service("reasoning", direct=False)}), HOST)
    assert seeing["tiers"]["reasoning"]["direct"] is False
    assert here["urls"] == [
        "http://10.0.0.5:8000/v1",
        "http://10.0.0.5:8081/v1 (tier reasoning)",
        "http://10.0.0.5:8080/v1 (tier fast)",
    ]


def test_one_question_for_each_port():
    assert host()["questions"] == [
        {"url": "http://127.0.0.1:8000/v1", "model": "LITTLE"},
        {"url": "http://127.0.0.1:8081/v1", "model": "big"},
        {"url": "http://127.0.0.1:8080/v1", "model": "little"},
    ]


def test_no_question_without_a_started_text_model():
    services = {"chat": service("reasoning", state="stopped"), "embed": service(model="e", embeddings=True)}
    here = gateway_host(dict(CONFIG, services=services), HOST)
    assert here["questions"] == []
    assert here["tiers"]["reasoning"]["endpoints"] == []


def test_url_omits_the_port_of_https():
    here = host(tls=True, port=443)
    assert here["urls"][0] == "https://10.0.0.5/v1"
    assert here["local"] == "https://127.0.0.1:443"


def test_local_address_of_a_listed_one():
    assert host(addresses=["10.0.0.5"])["local"] == "http://10.0.0.5:8000"
    assert host(addresses=["fd00::5"])["local"] == "http://[fd00::5]:8000"


def test_firewalld_rules_of_clients():
    rules = host(clients=["10.1.0.0/16"], port=8000)["rules"]
    assert len(rules) == 3
    assert rules['rule family="ipv4" source address="10.1.0.0/16" port port="8080" protocol="tcp" accept'] == "eth0"
    assert 'rule family="ipv4" port port="8000" protocol="tcp" accept' in host()["rules"]
    assert set(host(interface="")["rules"].values()) == {""}


def test_sites_of_nginx_by_file():
    assert sites(NGINX) == {
        "/etc/nginx/nginx.conf": set(),
        "/etc/nginx/conf.d/llama-cluster.conf": {8000},
        "/etc/nginx/sites-enabled/ai-inference": {8080, 8081, 8082},
    }


def test_other_site_on_the_ports_is_refused():
    listeners = SOCKET % ("0.0.0.0", 8000, "nginx") + SOCKET % ("0.0.0.0", 8081, "nginx")
    assert refusals(NGINX, "0", listeners) == [
        "gateway_tiers.fast: port 8080 of gw is that of a site in /etc/nginx/sites-enabled/ai-inference, a free port "
        "is needed: remove that site, or choose another port",
        "gateway_tiers.reasoning: port 8081 of gw is that of a site in /etc/nginx/sites-enabled/ai-inference, a free "
        "port is needed: remove that site, or choose another port",
    ]


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "*", "[::]"])
def test_holder_of_a_port_is_named(address):
    (sentence,) = refusals(listeners=SOCKET % (address, 8000, "python3"))
    assert sentence.startswith("gateway_port: port 8000 of ")
    assert "is in use by python3 (pid 77), a free port is needed: stop that process or choose another port" in sentence


def test_port_of_a_moved_service_is_free():
    """A service moves to another port and the gateway takes its place, in one run."""
    listeners, managed = SOCKET % ("10.0.0.5", 8000, "llama-server"), {"77": "llama-head-chat.service"}
    assert refusals(listeners=listeners, processes=managed, changes=["rpc", "head", "router"]) == []
    assert refusals(listeners=listeners, processes=managed, changes=["rpc"]) == [
        "gateway_port: port 8000 of 10.0.0.5 belongs to our llama-head-chat.service, which this run does not move "
        "before it needs the port, a free one is needed: run site.yml --tags rpc,head,router first, or choose another "
        "port"
    ]
    assert "adopt.yml" in refusals(listeners=listeners, changes=["head"])[0], "one that is not managed"


def test_listener_at_another_address_is_ignored():
    here = host(addresses=["10.0.0.5"])
    assert refusals(listeners=SOCKET % ("127.0.0.1", 8000, "x"), here=here, addresses=["10.0.0.5"]) == []


HANDLER = {"handler": "https:443 / -> http://127.0.0.1:8080", "port": 8080}


@pytest.mark.parametrize(
    ("addresses", "more", "listeners", "expected"),
    [
        (["10.0.0.5"], {}, "", True),
        # nginx releases it with the new configuration.
        (["10.0.0.5"], {}, SOCKET % ("0.0.0.0", 8080, "nginx"), True),
        (["10.0.0.5"], {}, SOCKET % ("127.0.0.1", 8080, "other"), False),
        (["10.0.0.5"], {"tailscale": True}, "", False),
        (["10.0.0.5", "127.0.0.1"], {}, "", False),
        (["0.0.0.0"], {}, "", False),
        (["10.0.0.5"], {"handed_on": [dict(HANDLER, port=3000)]}, "", False),
    ],
)
def test_handler_without_a_listener_is_refused(addresses, more, listeners, expected):
    more = dict({"handed_on": [HANDLER]}, **more)
    found = refusals(listeners=listeners, here=host(addresses=addresses), addresses=addresses, **more)
    assert (
        found
        == [
            "gateway_tailscale: false, and tailscale serve of gw hands https:443 / -> http://127.0.0.1:8080 on, "
            "where nginx will not listen (gateway_addresses has 10.0.0.5): set gateway_tailscale to true, or remove "
            "that handler with tailscale serve"
        ]
        * expected
    )


def test_refused_nginx_configuration_is_reported():
    assert refusals('nginx: [emerg] unknown directive "sever"\n', 1) == [
        'gw: nginx refuses its current configuration (nginx: [emerg] unknown directive "sever"), a valid one is '
        "needed: correct it until `nginx -t` is content"
    ]


def test_missing_certificate_is_refused():
    assert refusals(missing=["/etc/ssl/gw.pem"]) == [
        "gateway_tls: no file /etc/ssl/gw.pem on gw, the certificate and its key are needed there: have them "
        "issued and copied, then run again"
    ]


def test_missing_answer_is_refused():
    asked = [
        {"stdout": '{"ok": 1}\n200', "item": {"url": "http://a"}},
        {"stdout": '{"error": "loading\x1b"}\n503', "item": {"url": "http://b"}},
        {"stdout": "\n000", "stderr": "curl: (7) refused", "item": {"url": "http://c"}},
    ]
    first, second = answer_refusals("gw", asked)
    assert first.startswith("gw: status 503 of http://b seen (") and "\x1b" not in first
    assert second.startswith("gw: status 000 of http://c seen (curl: (7) refused), an answer is needed: ")
