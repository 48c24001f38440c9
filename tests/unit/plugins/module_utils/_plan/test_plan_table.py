# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of a memory plan beside its tables."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import place, table

NOTHING = {
    "services": {},
    "unchanged": [],
    "uncounted": [],
    "unplanned": {},
    "refused": [],
    "sharing": [],
    "ports": {},
    "jobs": {},
}
SHARING = ["chat shares cards with fast:", "  decision: none", "fast shares cards with chat:", "  decision: beside"]


@pytest.mark.parametrize(
    ("unchanged", "only", "shown"),
    [
        ([], "", SHARING),
        (["chat"], "", SHARING[2:]),
        (["fast"], "", SHARING[:2]),
        (["cards", "shares"], "", SHARING),
        ([], "fast", SHARING[2:]),
        (["chat"], "chat", []),
        ([], "fas", []),
    ],
)
def test_sharing_lines_only_for_changed_services(unchanged, only, shown):
    assert table.lines(dict(NOTHING, sharing=SHARING, unchanged=unchanged), only) == shown


@pytest.mark.parametrize(
    ("refused", "only", "shown"),
    [
        ([], "", ["chat: not planned, no header", "fast: not planned, no card"]),
        ([], "fast", ["fast: not planned, no card"]),
        (["llama_services.fast: no card"], "", ["chat: not planned, no header"]),
        (["llama_services.chatty: no card"], "chat", ["chat: not planned, no header"]),
        (["llama_services.fast: no card"], "fast", []),
    ],
)
def test_unplanned_service_is_reported_once(refused, only, shown):
    unplanned = {"fast": "no card", "chat": "no header"}
    assert table.lines(dict(NOTHING, unplanned=unplanned, refused=refused), only) == shown


@pytest.mark.parametrize(
    ("only", "shown"),
    [
        ("", ["ports, by the services' names: chat 18200, fast 18100"]),
        ("fast", ["ports, by the services' names: fast 18100"]),
        ("other", []),
    ],
)
def test_default_ports_are_shown(only, shown):
    assert table.lines(dict(NOTHING, ports={"fast": 18100, "chat": 18200}), only) == shown


@pytest.mark.parametrize(("names", "text"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_memory_that_is_not_counted_is_named(names, text):
    (note,) = table.lines(dict(NOTHING, uncounted=names))
    assert note.startswith("note: %s not counted, " % text)


def service_plan(rows=2, fits=True, host=None, **more):
    devices = [
        place.Row("n%d" % number, "GPU0", "GPU", 9, 9 * number, 9 * number + 8, 900, 90, 8, 7, 1005)
        for number in range(rows)
    ]
    plan = place.Plan(
        *(fits, "split" if rows > 1 else "single", "it fits", devices),
        host or dict.fromkeys(("weights_mib", "kv_mib", "compute_mib"), 0),
        *([9] * rows, [9, 10]),
    )
    given = {"model": "big", "quant": "Q8_0", "ctx_size": 8192, "slot_ctx_size": 8192, "cache_type": "f16"}
    facts = dict(dict(given, service="chat", source="header", layers={}, inputs=[]), **more)
    return place.ServicePlan(plan, **facts)


def test_table_aligns_texts_left_and_numbers_right():
    one = service_plan()
    plan = one.plan._replace(devices=[one.plan.devices[0], one.plan.devices[1]._replace(layers=0, free_mib=4242)])
    assert table.table(one._replace(plan=plan)) == [
        "chat: big Q8_0, 8192 tokens a slot of f16 KV cache",
        "  node  device  layers   weights  KV  compute  margin  total  free",
        "  n0    GPU0    0-8 (9)      900  90        8       7   1005     -",
        "  n1    GPU0    -            900  90        8       7   1005  4242",
        "  MiB; split, it fits",
        "  --tensor-split 9,10",
    ]


def test_what_a_table_says_below_its_rows():
    assert table.table(service_plan(rows=1))[3:] == ["  MiB; single, it fits"]
    assert table.table(service_plan(fits=False))[4:] == ["  MiB; does not fit"]
    host = {"weights_mib": 0, "kv_mib": 0, "compute_mib": 5}
    assert table.table(service_plan(rows=1, host=host))[4:] == [
        "  main memory of the head: 0 MiB of weights and 5 MiB of buffers"
    ]
    assert table.table(service_plan(problem="no answer", source="catalog"))[:2] == [
        "chat: big Q8_0, 8192 tokens a slot of f16 KV cache, ESTIMATED from llama_models, its header was not read",
        "  no answer",
    ]
    assert table.table(service_plan(source="assumed"))[0] == (
        "chat: big Q8_0, 8192 tokens a slot of f16 KV cache, ESTIMATED from assumed figures in llama_models, its "
        "header was not read"
    )


@pytest.mark.parametrize(("total", "slots"), [(8192, ""), (16384, " (2 slots)"), (24576, " (3 slots)")])
def test_slots_are_counted_where_there_are_several(total, slots):
    one = service_plan(ctx_size=total)
    assert table.context_words(one) == "8192 tokens a slot%s of f16 KV cache" % slots


def test_unchanged_service_names_its_layers():
    planned = dict(NOTHING, services={"chat": [service_plan().as_dict()]}, unchanged=["chat"])
    assert table.lines(planned) == [
        "chat: big Q8_0, 8192 tokens a slot of f16 KV cache, planned as before: n0 0-8 (9), n1 9-17 (9)"
    ]
    assert table.lines(planned, "fast") == []


@pytest.mark.parametrize(
    ("idle", "words"), [(["a"], "leave it out of workers"), (["a", "b"], "leave them out of workers")]
)
def test_workers_without_layers_are_left_out(idle, words):
    sentence = table.idle_workers("llama_services.chat.workers", service_plan(), idle)
    assert sentence.startswith("llama_services.chat.workers: %s would hold no layers" % " and ".join(idle))
    assert sentence.endswith(words) and "hold all of big Q8_0" in sentence


@pytest.mark.parametrize(
    ("names", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c", "d"], "a, b, c and d")]
)
def test_names_in_a_sentence(names, text):
    assert table.join(names) == text
