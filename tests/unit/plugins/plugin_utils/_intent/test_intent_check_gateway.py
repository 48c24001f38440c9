# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes of the gateway, and the clients of heads behind one."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import check
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.services import node_rpc, node_serving
from ansible_collections.thefermisea.llama_cluster.tests.unit import intents

GROUPS = dict(intents.GROUPS, llama_gateway=["ctl"])
MODELS = {
    **intents.MODELS,
    "small": {"repo": "some/small", "aliases": ["Small"], "quants": {"Q8_0": {"files": ["s.gguf"]}}},
    "texts": {"repo": "some/texts", "embeddings": True, "quants": {"Q8_0": {"files": ["t.gguf"]}}},
}
BIG = intents.SERVICES["reasoning"]
SMALL = {"model": "small", "quant": "Q8_0", "head": "node2", "port": 8001}
TEXTS = {"model": "texts", "quant": "Q8_0", "head": "node3", "port": 8002}
ROUTER = {"kind": "router", "head": "node2", "models": {"small": "Q8_0"}, "port": 8003}


def hostvars(on="ctl", **variables):
    own = {"ctl": {"ansible_host": "ctl", "llama_address": "10.0.0.5"}}
    found = {**intents.HOSTVARS, **own}
    return dict(found, **{on: dict(found[on], **variables)})


def reported(services=None, groups=None, routes=None, on="ctl", **variables):
    services = {"reasoning": BIG, **(services or {})}
    return check.intent_errors(services, MODELS, groups or GROUPS, hostvars(on, **variables), routes)


def test_a_gateway_without_a_mistake():
    services = {"reasoning": dict(BIG, tier="reasoning", fallback="fast"), "fast": dict(SMALL, tier="fast")}
    assert reported(services, routes={"default": "big"}, gateway_unknown_model="default", gateway_auth="log_only") == []
    assert reported({"router": dict(ROUTER, tier="fast", fallback="reasoning")}) == []
    assert reported(gateway_unknown_model=404, gateway_tls={"certificate": "/c.pem", "key": "/k.pem"}) == []
    assert reported({"reasoning": dict(BIG, tier="deep")}, gateway_tiers={"deep": "8090"}) == []


def test_tier_and_fallback_are_for_a_gateway():
    for groups in (intents.GROUPS, dict(GROUPS, llama_gateway=[])):
        assert reported({"reasoning": dict(BIG, tier="fast", fallback="x")}, groups) == [
            "llama_services.reasoning.%s: seen without a gateway, a host in group llama_gateway is needed for it: add "
            "one in hosts.yml or drop the key" % key
            for key in ("tier", "fallback")
        ]


@pytest.mark.parametrize(
    ("services", "sentence"),
    [
        (
            {"reasoning": dict(BIG, tier="fsat")},
            "llama_services.reasoning.tier: fsat is not in gateway_tiers, one of fast, reasoning is needed, did you "
            "mean fast?",
        ),
        (
            {"reasoning": dict(BIG, tier="fast"), "fast": dict(SMALL, tier="fast")},
            "llama_services.fast.tier: fast seen for reasoning too, one service for each tier is needed: drop one of "
            "them",
        ),
        (
            {"reasoning": dict(BIG, fallback="reasoning")},
            "llama_services.reasoning.fallback: itself seen, another service is needed: name another one or drop the "
            "key",
        ),
        (
            {"fast": dict(SMALL, fallback="reasonin")},
            "llama_services.fast.fallback: reasonin is no service, one of reasoning, fast is needed, did you mean "
            "reasoning?",
        ),
        (
            {"reasoning": dict(BIG, fallback="fast"), "fast": dict(SMALL, fallback="reasoning")},
            "llama_services.reasoning.fallback: the circle reasoning -> fast -> reasoning seen, an end is needed: drop "
            "one of them",
        ),
        (
            {"fast": dict(SMALL, fallback="embed"), "embed": TEXTS},
            "llama_services.fast.fallback: embed seen, which is for embeddings, one for chat is needed, as fast is: "
            "name another one or drop the key",
        ),
        (
            {"embed": dict(TEXTS, fallback="reasoning")},
            "llama_services.embed.fallback: reasoning seen, which is for chat, one for embeddings is needed, as embed "
            "is: name another one or drop the key",
        ),
        (
            {"fast": SMALL, "router": ROUTER},
            "llama_services.router.models: small seen as a name of fast too, a name of only one service is needed "
            "behind a gateway: give one of them names of its own, such as names: [router], or make both one service "
            "with replicas",
        ),
    ],
)
def test_what_services_get_wrong_behind_a_gateway(services, sentence):
    assert reported(services) == [sentence]


def test_longer_fallback_circle_is_reported_once():
    services = {"a": dict(SMALL, fallback="reasoning"), "reasoning": dict(BIG, fallback="b")}
    models = {**MODELS, "other": MODELS["small"] | {"aliases": []}}
    services["b"] = dict(SMALL, model="other", port=8005, fallback="c")
    services["c"] = dict(SMALL, model="third", port=8006, fallback="b")
    models["third"] = models["other"]
    (sentence,) = check.intent_errors(services, models, GROUPS, hostvars())
    assert sentence.startswith("llama_services.b.fallback: the circle b -> c -> b seen")


def test_services_of_one_model_need_own_names():
    long = dict(SMALL, head="node3", port=8004)
    (sentence,) = reported({"fast": SMALL, "long": long})
    assert ": give one of them names of its own, such as names: [long], or " in sentence
    assert reported({"fast": SMALL, "long": dict(long, names=["small-long"])}, routes={"default": "small-long"}) == []
    (sentence,) = reported({"fast": SMALL, "long": dict(long, names=["small-long", "Small"])})
    assert sentence.startswith("llama_services.long.names: Small seen as a name of fast too")


def test_name_of_service_that_is_stopped_is_free():
    assert reported({"fast": SMALL, "router": dict(ROUTER, state="stopped")}) == []


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"gateway_tls": {"certificate": "/c.pem"}},
            "gateway_tls: no key seen, both files are needed: write {certificate: PATH, key: PATH}, or drop the "
            "variable for plain HTTP",
        ),
        (
            {"gateway_tls": {"certificate": "c.pem", "key": "/k"}},
            "gateway_tls.certificate: 'c.pem' seen, an absolute path without spaces is needed: correct it",
        ),
        (
            {"gateway_tls": "/c.pem"},
            "gateway_tls: '/c.pem' seen, a map is needed: write {certificate: PATH, key: PATH}",
        ),
        (
            {"gateway_tls": {"certificate": "/c", "key": "/k", "certifcate": "/c"}},
            "gateway_tls.certifcate: unknown key, did you mean certificate?",
        ),
        (
            {"gateway_auth": "log-only"},
            "gateway_auth: 'log-only' seen, one of required, log_only is needed, did you mean log_only?",
        ),
        (
            {"gateway_unknown_model": "default"},
            "gateway_unknown_model: default seen without llama_routes.default, a model that answers is needed: name it "
            "there",
        ),
        (
            {"gateway_auth": "log_only", "gateway_addresses": ["10.0.0.5", "8.8.8.8"]},
            "gateway_auth: log_only seen with the public address 8.8.8.8 of ctl, required is needed, or anybody could "
            "use the models: set it, or name private gateway_addresses",
        ),
        (
            {"gateway_auth": "log_only", "llama_address": "8.8.8.8"},
            "gateway_auth: log_only seen with the public address 8.8.8.8 of ctl, required is needed, or anybody could "
            "use the models: set it, or name private gateway_addresses",
        ),
        ({"gateway_auth": "log_only", "gateway_addresses": ["100.64.0.5", "192.168.1.5", "0.0.0.0", "fd00::5"]}, None),
        ({"gateway_auth": "required", "gateway_addresses": ["8.8.8.8"]}, None),
        (
            {"gateway_addresses": ["ctl"]},
            "gateway_addresses: 'ctl' seen, addresses of ctl are needed: write [10.0.0.5]",
        ),
        (
            {"gateway_addresses": "10.0.0.5"},
            "gateway_addresses: '10.0.0.5' seen, a list of addresses is needed: write [10.0.0.5]",
        ),
        (
            {"llama_address": None},
            "llama_gateway: ctl comes to its nodes from ctl, an IPv4 address is needed: give it llama_address in "
            "hosts.yml",
        ),
        *(
            (
                {"gateway_max_body": wrong},
                "gateway_max_body: %s seen, a size up to 256m is needed: write 32m" % seen,
            )
            for wrong, seen in (("32MB", "'32MB'"), (0, "0"), ("257m", "'257m'"), ("1g", "'1g'"))
        ),
        *(({"gateway_max_body": size}, None) for size in ("32m", "256M", "1048576", 65536, "800k")),
        *(
            ({name: wrong}, "%s: %s seen, 0 to %d is needed: choose another number" % (name, wrong, most))
            for name, most in (("gateway_queue", 100000), ("gateway_patience", 3600))
            for wrong in (-1, most + 1)
        ),
        ({"gateway_queue": "1m"}, "gateway_queue: '1m' seen, a whole number is needed: write only digits"),
        ({"gateway_patience": True}, "gateway_patience: True seen, a whole number is needed: correct it"),
        ({"gateway_patience": 2.5}, "gateway_patience: 2.5 seen, a whole number is needed: correct it"),
        *(({"gateway_patience": sound}, None) for sound in (0, "0", 60, "3600")),
        ({"gateway_port": 0}, "gateway_port: 0 seen, 1 to 65535 is needed: choose another number"),
        (
            {"gateway_tiers": [8080]},
            "gateway_tiers: a list of 1 seen, a map of tier to port is needed: write {fast: 8080}",
        ),
    ],
)
def test_what_a_host_of_the_gateway_gets_wrong(variables, sentence):
    assert reported(**variables) == ([sentence] if sentence else [])


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"a": "s3cret-1", "b": "s3cret-2"}, None),
        ({"a": ["s3cret-1", "s3cret-3"], "b": ("s3cret-2",)}, None),
        (["s3cret"], "gateway_keys: no map seen, a map of name to key is needed: write NAME: KEY"),
        (
            {"a": "s3cret", "b": ["s3cret-2", "s3cret"]},
            "gateway_keys.b: the key of a seen, one of its own is needed, or the log could not tell them apart: choose "
            "another",
        ),
        (
            {"a b": "s3cret"},
            "gateway_keys.a b: the name stands in the log, letters, digits, dots and dashes are needed: rename it",
        ),
        *(
            (
                {"a": wrong},
                'gateway_keys.a: no plain text seen, a key or a list of keys of letters, digits and punctuation but ", '
                "$ and \\, and no # in front, is needed: choose another key",
            )
            for wrong in (
                *("", None, "s3cret key", 7, "s3cret$http_host", 's3cret"', "s3cret\\"),
                *([], ["s3cret", 7], ["s3cret", None], [["s3cret"]], {"key": "s3cret"}, ["s3cret", "s3cret key"]),
            )
        ),
    ],
)
def test_the_keys_of_clients_are_never_shown(keys, sentence):
    found = reported(gateway_keys=keys)
    assert found == ([sentence] if sentence else []) and "s3cret" not in "".join(found)


def test_gateway_on_node_needs_ports_of_its_own():
    def on(node, services=None, **variables):
        return reported(services, dict(GROUPS, llama_gateway=[node]), on=node, **variables)

    taken = "%s: %d on %s is taken by %s, a port of its own is needed: choose another"
    assert on("node1") == [taken % ("gateway_port", 8000, "node1", "llama_services.reasoning.port")]
    assert on("node1", gateway_port=8010) == on("node3") == []
    assert on("node2", gateway_port="50052") == [
        taken % ("gateway_port", 50052, "node2", "llama_services.reasoning.rpc_port")
    ]
    router = {"router": dict(ROUTER, tier="fast", port=8080)}
    assert on("node2", router) == [taken % ("gateway_tiers.fast", 8080, "node2", "llama_services.router.port")]
    # A tier that no service names has no port.
    assert on("node2", {"router": dict(ROUTER, port=8080)}) == []
    assert on("node3", {"reasoning": dict(BIG, tier="fast")}, gateway_port=8080) == [
        taken % ("gateway_tiers.fast", 8080, "node3", "gateway_port")
    ]
    assert on(
        "node3",
        {"reasoning": dict(BIG, tier="fast")},
        gateway_tls={"certificate": "/c", "key": "/k"},
        gateway_tiers={"fast": 443},
    ) == [taken % ("gateway_tiers.fast", 443, "node3", "gateway_port")]


SERVED = {"reasoning": BIG, "fast": dict(SMALL, head="node1,node2"), "off": dict(TEXTS, head="node1", state="stopped")}


def clients(node, groups=None, on="ctl", **variables):
    return node_serving(SERVED, MODELS, node, groups or GROUPS, hostvars(on, **variables), "/m")["clients"]


def access(node, groups=None, on="ctl", **variables):
    return node_rpc(SERVED, node, groups or GROUPS, hostvars(on, **variables))["access"].get("clients")


def test_without_gateway_nothing_is_as_it_was_not():
    assert clients("node1", intents.GROUPS) == []
    assert clients("node1", intents.GROUPS, on="node1", llama_clients=["10.9.0.0/16"]) == ["10.9.0.0/16"]
    assert access("node1", intents.GROUPS) is None


def test_gateway_hosts_and_workers_may_use_head_ports():
    workers = ["10.0.0.32/32", "10.100.0.32/32", "10.0.0.33/32", "10.100.0.33/32"]
    assert clients("node1") == ["10.0.0.5/32", *workers]
    assert clients("node2") == ["10.0.0.5/32"]
    assert clients("node2", on="node2", llama_clients=["10.9.0.0/16"]) == ["10.9.0.0/16", "10.0.0.5/32"]
    assert access("node2") == ["10.0.0.5/32:8001"]
    ports = {one.rpartition(":")[2] for one in access("node1")}
    assert ports == {"8000", "8001"}, "what is stopped has no port"
    assert access("node3") == []


def test_a_node_that_is_the_gateway_reaches_itself():
    groups = dict(GROUPS, llama_gateway=["node2"])
    # An empty list would admit the head's whole network.
    assert clients("node2", groups) == ["127.0.0.0/8"]
    assert access("node2", groups) == ["127.0.0.0/8:8001"]
    assert clients("node2", groups, on="node2", llama_clients=["10.9.0.0/16"]) == ["10.9.0.0/16"]
