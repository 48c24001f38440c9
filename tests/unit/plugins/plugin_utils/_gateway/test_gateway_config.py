# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gateway.json for inventories, plans and measured prompts."""

import base64
import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import unserved
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._gateway.config import UNSERVED, gateway_config

GROUPS = {
    "all": ["node1", "node2", "node3", "ctl"],
    "llama_nodes": ["node1", "node2", "node3"],
    "llama_gateway": ["ctl"],
}
HOSTVARS = {
    "node1": {"ansible_host": "10.0.0.31", "llama_fabric_address": "10.100.0.31"},
    "node2": {"ansible_host": "10.0.0.32", "llama_fabric_address": "10.100.0.32"},
    "node3": {"ansible_host": "bastioned", "llama_address": "10.0.0.33"},
    "ctl": {
        "ansible_host": "ctl",
        "llama_address": "10.0.0.5",
        "llama_routes": {"default": "Big", "tasks": {"fix": "small", 7: "big"}},
    },
}
MODELS = {
    "big": {"aliases": ["Big"], "quants": {"Q8_0": {"size": 77 * 10**9}}},
    "small": {"aliases": ["Small", "small-coder"], "temperature": 0.7, "quants": {"Q4_K_M": {"size": 10**9}}},
    "texts": {"embeddings": True, "quants": {"Q8_0": {"size": 10**8}}},
    "huge": {
        "aliases": ["Huge"],
        "parameters": 671e9,
        "quants": {"Q5_K_M": {"bits_per_weight": 5.7}, "F16": {"size": 10**13}},
    },
}
SERVICES = {
    "reasoning": {
        "model": "big",
        "quant": "Q8_0",
        "head": "node1",
        "workers": "node2",
        "port": 8000,
        "rpc_port": 50052,
        "ctx_size": 8192,
        "parallel": 2,
        "tier": "reasoning",
        "fallback": "fast",
    },
    "fast": {
        "kind": "router",
        "head": "node2,node3",
        "models": {"small": {"quant": "Q4_K_M", "parallel": 4}},
        "port": 8080,
        "slot_ctx_size": 4096,
        "tier": "fast",
    },
    "embed": {"model": "texts", "quant": "Q8_0", "head": "node3", "port": 8001},
}


def configured(services=None, settings=None, **variables):
    hostvars = dict(HOSTVARS, ctl=dict(HOSTVARS["ctl"], **variables))
    found = gateway_config(services or SERVICES, MODELS, GROUPS, hostvars, "ctl", settings)
    assert json.loads(json.dumps(found, sort_keys=True)) == found, "it is written to a file"
    return found


def changed(name, **settings):
    return dict(SERVICES, **{name: dict(SERVICES[name], **settings)})


def test_services_with_models_and_endpoints():
    found = configured()
    assert found["services"]["reasoning"] == {
        "kind": "server",
        "tier": "reasoning",
        "models": [
            {
                "name": "big",
                "aliases": ["Big"],
                "quant": "Q8_0",
                "build": "b11434",
                "slot_ctx_size": 4096,
                "embeddings": False,
            }
        ],
        "endpoints": [{"node": "node1", "address": "10.0.0.31", "port": 8000, "slots": 2}],
        "state": "started",
        "launcher": "systemd",
        "direct": True,
        "fallback": "fast",
        "timeout": 7200.0,
        "queue": 64,
        "patience": 60,
    }
    router = found["services"]["fast"]
    assert router["endpoints"] == [
        {"node": "node2", "address": "10.0.0.32", "port": 8080, "slots": 4},
        {"node": "node3", "address": "10.0.0.33", "port": 8080, "slots": 4},
    ]
    assert [(one["name"], one["aliases"], one["slot_ctx_size"]) for one in router["models"]] == [
        ("small", ["Small", "small-coder"], 4096)
    ]
    (texts,) = found["services"]["embed"]["models"]
    assert texts["embeddings"] is True and texts["slot_ctx_size"] == 512  # of a micro-batch


def test_pictures_and_adapters_need_the_engine():
    files = {"mmproj": {"files": ["mmproj.gguf"]}, "loras": {"tone": {"files": ["tone.gguf"]}}}
    models = dict(MODELS, big=dict(MODELS["big"], **files), small=dict(MODELS["small"], **files))

    def direct(reasoning, model):
        services = changed("reasoning", **reasoning)
        services["fast"] = dict(SERVICES["fast"], models={"small": dict(SERVICES["fast"]["models"]["small"], **model)})
        found = gateway_config(services, models, GROUPS, HOSTVARS, "ctl")["services"]
        return [found[name]["direct"] for name in ("reasoning", "fast", "embed")]

    assert direct({}, {}) == [False, False, True]
    assert direct({"mmproj": False}, {"mmproj": False}) == [True, True, True]
    assert direct({"mmproj": False, "lora": {"tone": 1.0}}, {"mmproj": "cpu"}) == [False, False, True]


def test_settings_of_the_gateway():
    found = configured()
    assert {key: value for key, value in found.items() if key not in ("services", "unserved")} == {
        "version": 1,
        "routes": {"default": "Big", "tasks": {"fix": "small", "7": "big"}},
        "unknown_model": "404",
        "auth": "required",
        "registry": None,
        "base_urls": ["http://10.0.0.5:8000"],
        "tiers": {"fast": {"port": 8080}, "reasoning": {"port": 8081}},
    }
    found = configured(
        {"reasoning": dict(SERVICES["reasoning"], fallback=None)},
        gateway_tls={"certificate": "/c", "key": "/k"},
        gateway_tiers={"fast": 1, "reasoning": "9081"},
        gateway_queue="9",
        gateway_patience="0",
        gateway_auth="log_only",
        gateway_unknown_model="default",
        gateway_registry_dir="/shared/endpoints",
    )
    assert found["base_urls"] == ["https://10.0.0.5"] and found["tiers"] == {"reasoning": {"port": 9081}}
    assert (found["auth"], found["unknown_model"]) == ("log_only", "default")
    assert (found["services"]["reasoning"]["queue"], found["services"]["reasoning"]["patience"]) == (9, 0)
    assert found["registry"] == {"hosts": {"node1": "10.0.0.31", "node2": "10.0.0.32", "node3": "10.0.0.33"}}


def test_role_variables_come_before_host_variables():
    settings = {"port": 9000, "tls": False, "address": "fd00::5", "routes": {}, "queue": 3, "registry_dir": ""}
    found = configured(settings=settings, gateway_queue=9, gateway_registry_dir="/shared", gateway_port=1)
    assert found["base_urls"] == ["http://[fd00::5]:9000"]
    assert found["routes"] == {"default": None, "tasks": {}}
    assert found["services"]["embed"]["queue"] == 3 and found["registry"] is None


def test_slot_context_is_the_least_planned():
    parts = [{"model": "small", "slot_ctx_size": tokens} for tokens in (4000, 3000)]
    plan = {"services": {"fast": parts, "embed": [{"model": "texts", "slot_ctx_size": 2048}]}}
    found = configured(settings={"plan": plan})["services"]
    assert [found[name]["models"][0]["slot_ctx_size"] for name in ("reasoning", "fast", "embed")] == [4096, 3000, 512]


@pytest.mark.parametrize(
    ("seconds", "timeout"),
    [(1024.0, 2700.0), (40960.0, 1.5 * 4096 * 10), ("nonsense", 7200.0)],
)
def test_timeout_allows_a_full_prompt(seconds, timeout):
    kept = {"tokens": 4096, "seconds": seconds, "inputs": [1], "measured_at": "2026-11-24T00:00:00Z"}
    assert configured(settings={"prompts": {"reasoning": kept}})["services"]["reasoning"]["timeout"] == timeout
    # The slowest replica counts.
    quick = dict(kept, seconds=1.0)
    assert configured(settings={"prompts": {"reasoning": [quick, kept]}})["services"]["reasoning"]["timeout"] in (
        (timeout, 2700.0) if timeout == 7200.0 else (timeout,)
    )


def test_unserved_models_have_their_reason():
    assert configured()["unserved"] == {"huge": UNSERVED, "Huge": UNSERVED}
    found = configured({"embed": SERVICES["embed"]}, settings={"plan": {"unserved": {"huge": "too large"}}})["unserved"]
    assert found == {
        **dict.fromkeys(["big", "Big", "small", "Small", "small-coder"], UNSERVED),
        **dict.fromkeys(["huge", "Huge"], "too large"),
    }


def test_name_leads_to_the_started_service():
    services = dict(SERVICES, aside=dict(SERVICES["reasoning"], port=8009, rpc_port=50053, tier=None, fallback=None))
    services["reasoning"] = dict(SERVICES["reasoning"], state="stopped")
    found = configured(services)["services"]
    assert [one["name"] for one in found["aside"]["models"]] == ["big"]
    assert found["reasoning"]["models"] == [] and found["reasoning"]["state"] == "stopped"


def test_services_of_jobs_have_no_endpoint():
    found = configured(changed("embed", launcher="slurm"))["services"]["embed"]
    assert (found["endpoints"], found["launcher"]) == ([], "slurm")


def device(kind, mib):
    return {"kind": kind, "total_mib": mib}


def test_model_that_fits_nowhere_is_unserved():
    nodes = {
        node: {"devices": [device("GPU", 32510)], "main": device("main", 384000)} for node in GROUPS["llama_nodes"]
    }
    assert unserved(SERVICES, MODELS, GROUPS, nodes) == {
        "huge": "huge Q5_K_M has 671.0 billion weights at 5.7 bits, about 478.1 GB, more than the 102.3 GB that a "
        "service over all nodes may use and the 436.7 GB of node1"
    }
    # It fits one node, and nothing is known about another.
    assert (
        unserved(SERVICES, MODELS, GROUPS, dict(nodes, node2={**nodes["node2"], "main": device("main", 512000)})) == {}
    )
    assert unserved(SERVICES, MODELS, GROUPS, dict(nodes, node2={**nodes["node2"], "main": None})) is None
    assert unserved(SERVICES, MODELS, GROUPS, {"node1": nodes["node1"]}) is None
    plain = {node: {"devices": [device("main", 100000)]} for node in GROUPS["llama_nodes"]}
    assert list(unserved(SERVICES, MODELS, GROUPS, plain)) == ["huge"]
    served = dict(SERVICES, huge=dict(SERVICES["embed"], model="huge", quant="Q5_K_M"))
    assert unserved(served, MODELS, GROUPS, nodes) == {}


def test_partial_run_keeps_the_present_configuration():
    parts = [{"model": "big", "slot_ctx_size": 3000, "node": "node1"}]
    plan = {"services": {"reasoning": parts}, "unplanned": {}, "unserved": {"huge": "too large"}}
    prompt = {"tokens": 2000, "seconds": 10.0, "inputs": [1], "measured_at": "2026-11-01"}
    full = gateway_config(SERVICES, MODELS, GROUPS, HOSTVARS, "ctl", {"plan": plan, "prompts": {"reasoning": prompt}})
    before = base64.b64encode(json.dumps(full).encode()).decode()
    some = {"services": {"reasoning": parts}, "unplanned": {"reasoning": "node2 is not part"}, "unserved": None}
    for plan in ({}, some, {"services": {}, "unplanned": {"reasoning": "both are not part"}, "unserved": None}):
        assert gateway_config(SERVICES, MODELS, GROUPS, HOSTVARS, "ctl", {"plan": plan, "before": before}) == full
    # Another quant takes nothing from the file, and neither does a damaged file.
    other = dict(SERVICES, reasoning=dict(SERVICES["reasoning"], quant="Q4_K_M"))
    models = dict(MODELS, big={"quants": {"Q4_K_M": {"size": 10**9}}})
    (model,) = gateway_config(other, models, GROUPS, HOSTVARS, "ctl", {"before": before})["services"]["reasoning"][
        "models"
    ]
    assert model["slot_ctx_size"] == 4096
    without = gateway_config(SERVICES, MODELS, GROUPS, HOSTVARS, "ctl")
    assert gateway_config(SERVICES, MODELS, GROUPS, HOSTVARS, "ctl", {"before": before[:200]}) == without


@pytest.mark.parametrize(
    ("keys", "tokens"),
    [
        ({}, 4096),
        ({"ubatch_size": 1024}, 1024),
        ({"batch_size": 3000}, 3000),
        ({"ubatch_size": 4096, "batch_size": 4096}, 4096),
        ({"parallel": 2, "slot_ctx_size": 100}, 100),
    ],
)
def test_context_of_embeddings(keys, tokens):
    services = dict(SERVICES, embed=dict(SERVICES["embed"], **{"slot_ctx_size": 4096, **keys}))
    assert configured(services=services)["services"]["embed"]["models"][0]["slot_ctx_size"] == tokens


def test_one_model_in_two_services():
    long = dict(SERVICES["reasoning"], names=["long", "Long"], port=8100, rpc_port=50100)
    services = {**{name: one for name, one in SERVICES.items() if name != "reasoning"}, "long": long}
    found = configured(services=services)
    assert [(one["name"], one["aliases"]) for one in found["services"]["long"]["models"]] == [("long", ["Long"])]
    assert found["unserved"]["big"] == found["unserved"]["Big"] == "it is served as long, Long"
    both = configured(services={**SERVICES, "long": long})
    assert both["services"]["reasoning"]["models"][0]["name"] == "big" and "big" not in both["unserved"]
