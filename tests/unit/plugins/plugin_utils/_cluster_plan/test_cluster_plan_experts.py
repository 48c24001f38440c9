# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services with experts in main memory, together with all others of the inventory."""

import json
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.table import lines
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import services as intent_services
from ansible_collections.thefermisea.llama_cluster.tests.unit.mixture import (
    GROUPS,
    HEADERS,
    MODELS,
    SERVICE,
    node,
    planned,
)
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import kept

DOCS = Path(__file__).resolve().parents[5] / "docs"

HOSTVARS = {"node1": {"ansible_host": "10.0.0.1"}}


def words(plan, **keys):
    """The flags for experts on the head's command line."""
    services = {"chat": dict(SERVICE, **keys)}
    given = json.loads(json.dumps(plan)) if plan else None
    (head,) = intent_services.head_instances(services, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models", given)
    flags = [word for word in head.args if "cpu-moe" in word]
    return head.cpu_moe, flags, head.args[head.args.index(flags[0]) + 1] if flags == ["--n-cpu-moe"] else None


def one_service(memory_mib=257000, **keys):
    """The plan of a service that may name its cards."""
    return planned(memory_mib, services={"chat": dict(SERVICE, **keys)})


def layers(plan):
    return plan["services"]["chat"][0]["cpu_moe"]


def test_number_and_both_sums_are_in_table():
    plan = planned(cpu_moe="auto")
    assert plan["refused"] == []
    card, main = plan["services"]["chat"][0]["devices"]
    assert lines(plan)[-1] == (
        "  experts of %d of 94 layers in main memory: %d MiB of weights on the GPUs, %d MiB there"
        % (layers(plan), card["weights_mib"], main["weights_mib"])
    )
    assert any(line.split()[:3] == ["node1", "main", "-"] for line in lines(plan))


def test_table_of_page_is_what_is_printed():
    item = {"model": "qwen3-235b-a22b", "quant": "Q4_K_M"}
    services = {"thinker": dict(SERVICE, **item, head="gpu3", slot_ctx_size=16384, cpu_moe="auto")}
    groups = {"all": ["gpu3"], "llama_nodes": ["gpu3"]}
    card = node(cards=(24576,))
    card.update(devices=[dict(one, node="gpu3") for one in card["devices"]], main=dict(card["main"], node="gpu3"))
    models = {"qwen3-235b-a22b": MODELS["moe"]}
    *printed, prompt = memory_plan(services, models, groups, {"gpu3": card}, [dict(HEADERS[0], item=item)])["lines"]
    assert prompt.startswith("thinker: how long a full prompt takes is not known yet")
    assert "\n".join(printed) in (DOCS / "plan.md").read_text()
    assert printed[-1].strip() in (DOCS / "inventory.md").read_text()


def test_number_of_plan_reaches_command_line():
    plan = planned(cpu_moe="auto")
    assert words(plan, cpu_moe="auto") == (layers(plan), ["--n-cpu-moe"], str(layers(plan)))
    assert words(planned(cpu_moe="auto", cards=(200000,)), cpu_moe="auto") == (0, [], None)
    # A number in the inventory needs no plan.
    for plan in (planned(cpu_moe=12), None):
        assert words(plan, cpu_moe=12) == (12, ["--n-cpu-moe"], "12")
    for plan in (planned(cpu_moe="all"), None):
        assert words(plan, cpu_moe="all") == ("all", ["--cpu-moe"], None)
    assert words(None, cpu_moe="auto") == (None, [], None)
    assert words(None) == (0, [], None)


def test_a_second_run_changes_nothing():
    """Also where less of the card is in use by then."""
    first = planned(cpu_moe="auto", cards=(24576,))
    again = planned(cpu_moe="auto", cards=(24576,), previous=kept(first))
    assert again["services"] == first["services"] and again["unchanged"] == ["chat"]
    (line,) = again["lines"]
    assert line.endswith("planned as before: node1 0-93 (94), experts of %d layers in main memory" % layers(first))
    busy = planned(cpu_moe="auto")
    busy["services"]["chat"][0].update(cpu_moe=layers(busy) + 5)
    assert layers(planned(cpu_moe="auto", previous=kept(busy))) == layers(busy)
    # A kernel's update leaves less of main memory.
    assert layers(planned(cpu_moe="auto", memory_mib=256999, previous=kept(busy))) == layers(busy)
    # Made for something else.
    assert layers(planned(cpu_moe="auto", cards=(32511,), previous=kept(busy))) == layers(busy) - 5
    assert layers(planned(cpu_moe="all", previous=kept(busy))) == 94


def test_without_a_header_an_earlier_number_holds():
    first = planned(cpu_moe="auto")
    for headers in ((), [{"item": {"model": "moe", "quant": "Q4_K_M"}, "msg": "https://hub: cannot be reached"}]):
        plan = planned(cpu_moe="auto", headers=headers, previous=kept(first))
        assert (plan["refused"], layers(plan)) == ([], layers(first))
        assert words(plan, cpu_moe="auto")[0] == layers(first)
    (sentence,) = planned(cpu_moe="auto", headers=())["refused"]
    assert sentence.startswith("llama_services.chat.cpu_moe: auto seen without a plan of moe Q4_K_M (")
    # A number needs none, unless everything has to be planned.
    assert planned(cpu_moe=12, headers=())["refused"] == []
    (sentence,) = planned(cpu_moe=12, headers=(), complete=True)["refused"]
    assert sentence == (
        "llama_services.chat: not planned, cpu_moe is for experts, its header was not read, and its header in "
        "llama_models names none: drop cpu_moe, or add expert_count and what belongs to it there"
    )
    # As of a dense model.
    (sentence,) = planned(cpu_moe="auto", model="big", headers=())["refused"]
    assert sentence.endswith("or give the number of layers, or drop cpu_moe where the model has no experts")


def test_without_a_header_a_description_tells_the_experts():
    header = {
        "architecture": "qwen3moe",
        "block_count": 94,
        "context_length": 40960,
        "embedding_length": 4096,
        "head_count": 64,
        "head_count_kv": 4,
        "key_length": 128,
        "vocab_size": 151936,
        "expert_count": 128,
        "expert_used_count": 8,
        "expert_feed_forward_length": 1536,
    }
    models = {"moe": dict(MODELS["moe"], header=header)}

    def estimated(wish, previous=(), **more):
        described = {"moe": dict(models["moe"], header=dict(header, **more))}
        services = {"chat": dict(SERVICE, cpu_moe=wish)}
        return memory_plan(services, described, GROUPS, {"node1": node()}, (), None, previous)

    plan = estimated("auto")
    assert plan["refused"] == []
    assert plan["lines"][0].endswith(", ESTIMATED from llama_models, its header was not read")
    # The other weights are estimated wider than in the file.
    real = layers(planned(cpu_moe="auto"))
    assert real <= layers(plan) <= real + 3
    assert layers(estimated("all")) == 94
    # With a header it was planned better: that stays.
    first = planned(cpu_moe="auto")
    assert layers(estimated("auto", kept(first))) == real
    assert estimated("auto", kept(plan))["unchanged"] == ["chat"]
    (title, *_rest) = estimated("all", assumed=True)["lines"]
    assert title.endswith(", ESTIMATED from assumed figures in llama_models, its header was not read")


def test_services_share_main_memory_too():
    one = dict(SERVICE, cpu_moe="all")
    single = planned(services={"chat": one})
    needed = single["services"]["chat"][0]["devices"][1]["total_mib"]
    both = {"chat": one, "code": dict(one, port=8001)}
    plan = planned(services=both, memory_mib=2 * needed)
    assert plan["refused"] == []
    assert plan["services"]["code"][0]["devices"][1]["free_mib"] == needed
    (sentence,) = planned(services=both, memory_mib=2 * needed - 1)["refused"]
    assert (
        "%d MiB are needed on main of node1 and %d MiB are there beside chat (%d MiB)"
        % (
            needed,
            needed - 1,
            needed,
        )
        in sentence
    )


def test_cardless_service_and_experts_share_main_memory():
    """Whichever of both is planned first."""
    experts, without = dict(SERVICE, cpu_moe="all"), dict(SERVICE, model="big", port=8001, cards=[])
    kept = planned(services={"a": experts})["services"]["a"][0]["devices"][1]["total_mib"]
    whole = planned(services={"a": without})["services"]["a"][0]["devices"][0]["total_mib"]
    for first, second, taken in ((experts, without, kept), (without, experts, whole)):
        plan = planned(services={"a": first, "b": second}, memory_mib=kept + whole)
        assert plan["refused"] == []
        row = plan["services"]["b"][0]["devices"][-1]
        assert (row["device"], row["free_mib"]) == ("main", kept + whole - taken)
        assert "b shares main memory with a, all of them fit" in plan["sharing"]
        (sentence,) = planned(services={"a": first, "b": second}, memory_mib=kept + whole - 1)["refused"]
        assert "MiB are there beside a (%d MiB)" % taken in sentence


def test_stopped_service_takes_no_main_memory():
    needed = planned(cpu_moe="all")["services"]["chat"][0]["devices"][1]["total_mib"]
    runs, stopped = dict(SERVICE, cpu_moe="all"), dict(SERVICE, cpu_moe="all", port=8001, state="stopped")
    plan = planned(services={"chat": runs, "old": stopped}, memory_mib=needed)
    assert plan["refused"] == [] and plan["services"]["chat"][0]["devices"][1]["free_mib"] == needed
    assert (
        "old: stopped, not counted; it does not fit beside what runs, %d MiB are needed on main of node1 and 0 MiB are "
        "there beside chat (%d MiB)" % (needed, needed) in plan["sharing"]
    )


@pytest.mark.parametrize("name", ["minimax", "z-minimax"])
def test_flexible_service_is_placed_last(name):
    """Whatever it is called."""
    services = {name: dict(SERVICE, cpu_moe="auto"), "qwen36": dict(SERVICE, model="big", port=8001)}
    plan = planned(services=services, cards=(40000,))
    assert plan["refused"] == []
    assert plan["services"][name][0]["cpu_moe"] > layers(planned(cpu_moe="auto", cards=(40000,)))


def test_memory_max_below_experts_is_refused():
    row = planned(cpu_moe="all")["services"]["chat"][0]["devices"][1]
    needed = row["total_mib"] - row["margin_mib"]
    for given, said in (("%dM" % needed, 0), ("%dM" % (needed - 1), 1), ("1T", 0), ("%dK" % (needed << 10), 0)):
        assert len(planned(cpu_moe="all", memory_max=given)["refused"]) == said
    assert len(planned(cpu_moe="all", memory_max="2G", cards=())["refused"]) == 1


@pytest.mark.parametrize("mode", ["none", "mlock", "mmap+mlock", "mmap", "auto"])
def test_memory_max_below_weights_is_refused(mode):
    keys = {"model": "big", "cards": [], "load_mode": mode}
    (row,) = one_service(**keys)["services"]["chat"][0]["devices"]
    needed = row["kv_mib"] + row["compute_mib"] + row["weights_mib"]
    assert one_service(memory_max="%dM" % (needed + 1), **keys)["refused"] == []
    (sentence,) = one_service(memory_max="%dM" % (needed - 2), **keys)["refused"]
    assert sentence.startswith("llama_services.chat.memory_max: %dM seen, at least the " % (needed - 2))
    assert one_service(memory_max="4G", **keys)["refused"]


def test_experts_in_main_memory_are_not_hopeless():
    def hopeless(**keys):
        return planned(**keys)["hopeless"]

    assert hopeless(cpu_moe="auto") == [] == hopeless(cpu_moe="auto", memory_mib=None)
    assert "memory of node1: choose " in hopeless()[0]
    (sentence,) = hopeless(cpu_moe="auto", memory_mib=64000)
    assert "of GPU and main memory of node1" in sentence


@pytest.mark.parametrize(
    "keys",
    [
        {"model": "big"},
        {"model": "big", "cards": []},
        {"cpu_moe": "all"},
        {"cpu_moe": "auto"},
        {"cpu_moe": "auto", "cards": [0]},
    ],
)
def test_main_memory_for_prompts_is_counted(keys):
    """With what there is already of the head, else as a row of its own."""
    without, found = one_service(**keys)["services"]["chat"][0], one_service(cache_ram=8192, **keys)
    before, after = without["devices"][-1], found["services"]["chat"][0]["devices"][-1]
    if before["device"] != "main":
        before = dict(without["host"], total_mib=sum(without["host"].values()) + 1024)
    assert after["device"] == "main" and found["refused"] == []
    assert after["kv_mib"] == before["kv_mib"] + 8192
    assert 0 <= before["total_mib"] + 8192 - after["total_mib"] <= 2, "each of them is rounded"
    assert one_service(after["total_mib"], cache_ram=8192, **keys)["refused"] == []
    (sentence,) = one_service(after["total_mib"] - 1, cache_ram=8192, **keys)["refused"]
    assert "%d MiB are needed on main of node1" % after["total_mib"] in sentence and "drop cache_ram" in sentence
    (sentence,) = one_service(memory_max="8191M", cache_ram=8192, **keys)["refused"]
    assert sentence.startswith("llama_services.chat.memory_max: 8191M seen, at least the ")


@pytest.mark.parametrize("wish", ["auto", "all", 12])
def test_a_node_without_a_card_has_one_memory(wish):
    plan = planned(cpu_moe=wish, cards=())
    assert (plan["refused"], layers(plan)) == ([], 0)
    assert [row["device"] for row in plan["services"]["chat"][0]["devices"]] == ["main"]
    assert "experts" not in " ".join(lines(plan))
