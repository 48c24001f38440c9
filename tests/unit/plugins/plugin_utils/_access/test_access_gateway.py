# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.gateway import (
    door_refusals,
    gateway_host,
    gateway_refusals,
    sites,
)


def service(tier=None, state="started", model="big", nodes=("gpu1",), **more):
    return {
        "tier": tier,
        "state": state,
        "models": [dict({"name": model, "aliases": [model.upper()], "embeddings": False}, **more)],
        "endpoints": [{"node": node, "address": "10.0.0.31", "port": 8000, "slots": 1} for node in nodes],
    }


CONFIG = {
    "services": {"chat": service("reasoning"), "small": service("fast", model="little"), "alone": service(model="x")},
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


def told(**changes):
    return gateway_host(CONFIG, dict(HOST, **changes))


def refusals(configuration="", status=127, listeners="", here=None, processes=(), **changes):
    gateway = dict(
        {"here": here or told(), "configuration": configuration, "status": status, "addresses": ["0.0.0.0"]},
        **dict(
            {"missing": [], "readable": [], "leaving": [], "changes": [], "auth": "required", "tailscale": False},
            **dict({"handed_on": []}, **changes),
        ),
    )
    machine = {"addresses": ["10.0.0.5", "100.64.0.1", "8.8.8.8"]}
    node = {"listeners": listeners, "managed_processes": dict(processes), "machine": machine}
    return gateway_refusals("door", gateway, node)


def test_a_key_that_everybody_may_read():
    (refused,) = refusals(readable=["/k.pem"])
    assert refused.startswith("gateway_tls.key: /k.pem on door seen, which everybody there may read, a key of root's")


def test_without_keys_no_address_of_the_host_is_public():
    (refused,) = refusals(auth="log_only")
    assert refused.startswith("gateway_auth: log_only seen with the public address 8.8.8.8 of door, required is needed")
    assert refusals() == []


def test_a_port_for_all_and_one_for_each_tier():
    here = told()
    assert here["ports"] == [8000, 8080, 8081]
    assert {name: tier["service"] for name, tier in here["tiers"].items()} == {"reasoning": "chat", "fast": "small"}
    assert here["urls"] == [
        "http://10.0.0.5:8000/v1",
        "http://10.0.0.5:8081/v1 (tier reasoning)",
        "http://10.0.0.5:8080/v1 (tier fast)",
    ]


def test_every_door_is_asked_once():
    assert told()["questions"] == [
        {"url": "http://127.0.0.1:8000/v1", "model": "LITTLE"},
        {"url": "http://127.0.0.1:8081/v1", "model": "big"},
        {"url": "http://127.0.0.1:8080/v1", "model": "little"},
    ]


def test_nobody_talks_with_what_is_stopped_or_embeds():
    services = {"chat": service("reasoning", state="stopped"), "embed": service(model="e", embeddings=True)}
    here = gateway_host(dict(CONFIG, services=services), HOST)
    assert here["questions"] == []
    assert here["tiers"]["reasoning"]["endpoints"] == []


def test_with_a_certificate_the_usual_port_is_not_said():
    here = told(tls=True, port=443)
    assert here["urls"][0] == "https://10.0.0.5/v1"
    assert here["local"] == "https://127.0.0.1:443"


def test_an_address_of_its_own_is_asked_there():
    assert told(addresses=["10.0.0.5"])["local"] == "http://10.0.0.5:8000"
    assert told(addresses=["fd00::5"])["local"] == "http://[fd00::5]:8000"


def test_firewalld_lets_in_whom_llama_clients_name():
    rules = told(clients=["10.1.0.0/16"], port=8000)["rules"]
    assert len(rules) == 3
    assert rules['rule family="ipv4" source address="10.1.0.0/16" port port="8080" protocol="tcp" accept'] == "eth0"
    assert 'rule family="ipv4" port port="8000" protocol="tcp" accept' in told()["rules"]
    assert set(told(interface="")["rules"].values()) == {""}


def test_the_sites_of_nginx_are_read_by_file():
    assert sites(NGINX) == {
        "/etc/nginx/nginx.conf": set(),
        "/etc/nginx/conf.d/llama-cluster.conf": {8000},
        "/etc/nginx/sites-enabled/ai-inference": {8080, 8081, 8082},
    }


def test_another_site_on_our_ports_is_named():
    listeners = SOCKET % ("0.0.0.0", 8000, "nginx") + SOCKET % ("0.0.0.0", 8081, "nginx")
    assert refusals(NGINX, "0", listeners) == [
        "gateway_tiers.fast: port 8080 of door is that of a site in /etc/nginx/sites-enabled/ai-inference, a free port "
        "is needed: remove that site, or choose another port",
        "gateway_tiers.reasoning: port 8081 of door is that of a site in /etc/nginx/sites-enabled/ai-inference, a free "
        "port is needed: remove that site, or choose another port",
    ]


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "*", "[::]"])
def test_whoever_holds_a_port_is_named(address):
    (sentence,) = refusals(listeners=SOCKET % (address, 8000, "python3"))
    assert sentence.startswith("gateway_port: port 8000 of ")
    assert "is in use by python3 (pid 77), a free port is needed: stop that process or choose another port" in sentence


def test_a_port_that_a_service_gives_up_before_it_is_free():
    """A service moves to another port and the gateway takes its place, in one run."""
    listeners, managed = SOCKET % ("10.0.0.5", 8000, "llama-server"), {"77": "llama-head-chat.service"}
    assert refusals(listeners=listeners, processes=managed, changes=["rpc", "head", "router"]) == []
    assert refusals(listeners=listeners, processes=managed, changes=["rpc"]) == [
        "gateway_port: port 8000 of 10.0.0.5 is that of our llama-head-chat.service, which this run does not move "
        "before the port is needed, a free one is needed: run site.yml --tags rpc,head,router first, or choose another "
        "port"
    ]
    assert "adopt.yml" in refusals(listeners=listeners, changes=["head"])[0], "one that is not managed"


def test_of_another_address_nobody_is_in_the_way():
    here = told(addresses=["10.0.0.5"])
    assert refusals(listeners=SOCKET % ("127.0.0.1", 8000, "x"), here=here, addresses=["10.0.0.5"]) == []


HANDLER = {"handler": "https:443 / -> http://127.0.0.1:8080", "port": 8080}


@pytest.mark.parametrize(
    ("addresses", "more", "listeners", "said"),
    [
        (["10.0.0.5"], {}, "", True),
        # nginx gives it up when it reads our site.
        (["10.0.0.5"], {}, SOCKET % ("0.0.0.0", 8080, "nginx"), True),
        (["10.0.0.5"], {}, SOCKET % ("127.0.0.1", 8080, "other"), False),
        (["10.0.0.5"], {"tailscale": True}, "", False),
        (["10.0.0.5", "127.0.0.1"], {}, "", False),
        (["0.0.0.0"], {}, "", False),
        (["10.0.0.5"], {"handed_on": [dict(HANDLER, port=3000)]}, "", False),
    ],
)
def test_tailscale_hands_nothing_to_a_port_where_nobody_listens(addresses, more, listeners, said):
    more = dict({"handed_on": [HANDLER]}, **more)
    found = refusals(listeners=listeners, here=told(addresses=addresses), addresses=addresses, **more)
    assert (
        found
        == [
            "gateway_tailscale: false, and tailscale serve of door hands https:443 / -> http://127.0.0.1:8080 on, "
            "where nginx will not listen (gateway_addresses has 10.0.0.5): set gateway_tailscale to true, or remove "
            "that handler with tailscale serve"
        ]
        * said
    )


def test_a_configuration_that_nginx_refuses_is_said():
    assert refusals('nginx: [emerg] unknown directive "sever"\n', 1) == [
        'door: nginx refuses its configuration as it is (nginx: [emerg] unknown directive "sever"), a sound one is '
        "needed: correct it until `nginx -t` is content"
    ]


def test_a_certificate_has_to_be_there():
    assert refusals(missing=["/etc/ssl/door.pem"]) == [
        "gateway_tls: no file /etc/ssl/door.pem on door, the certificate and its key are needed there: have them "
        "issued and copied, then run again"
    ]


def test_a_door_that_does_not_answer_is_said():
    asked = [
        {"stdout": '{"ok": 1}\n200', "item": {"url": "http://a"}},
        {"stdout": '{"error": "loading\x1b"}\n503', "item": {"url": "http://b"}},
        {"stdout": "\n000", "stderr": "curl: (7) refused", "item": {"url": "http://c"}},
    ]
    first, second = door_refusals("door", asked)
    assert first.startswith("door: status 503 of http://b seen (") and "\x1b" not in first
    assert second.startswith("door: status 000 of http://c seen (curl: (7) refused), an answer is needed: ")
