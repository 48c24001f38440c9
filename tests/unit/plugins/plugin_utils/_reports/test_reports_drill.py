# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.timeline import noticed
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import drill as reports_drill

HEAD, WORKER = "llama-head-chat.service", "llama-rpc-chat.service"


def event(at, unit, kind, text=""):
    return {"at": at, "unit": unit, "kind": kind, "text": text}


def node(unit, started_at, *events):
    return {"events": list(events), "units": {unit: {"started_at": started_at}}}


ANSWERED = {"answered_at": 110.0}
RESTART, START = {"kind": "restart"}, {"kind": "start"}
ROUTER = "llama-router-turns.service"
EXITED = event(100.5, HEAD, "exited")
SEEN_LATE = [event(100.5, WORKER, "started")]


def on_head(*events, started_at=0):
    return {"h": node(HEAD, started_at, *events)}


@pytest.mark.parametrize(
    ("drill", "restored_at", "nodes", "recovery", "expected"),
    [
        # A killed worker is noticed by its head.
        (
            RESTART,
            None,
            {
                "w": node(WORKER, 100.3, event(100.01, WORKER, "exited"), event(100.25, WORKER, "started")),
                "v": node(WORKER, 50.0),
                "h": node(HEAD, 101.0, event(100.5, HEAD, "repair"), event(100.9, HEAD, "started")),
            },
            {"answered_at": 104.5, "client": None},
            {
                "detection": 0.5,
                "held": None,
                "restart": 0.5,
                "load": 3.5,
                "total": 4.5,
                "noticed_by": ["w " + WORKER, "h " + HEAD],
                "client_cut": None,
            },
        ),
        # A router loads too.
        (
            RESTART,
            None,
            {"h": node(ROUTER, 100.4, event(100.01, ROUTER, "exited"), event(100.4, ROUTER, "started"))},
            {"answered_at": 101.0, "client": None},
            {"restart": 0.39, "load": 0.6, "total": 1.0},
        ),
        # A client was cut off.
        (
            RESTART,
            None,
            on_head(event(100.01, HEAD, "exited"), started_at=100.25),
            {"answered_at": 101.0, "client": {"cut_at": 100.02}},
            {"client_cut": 0.02, "detection": 0.01, "total": 1.0},
        ),
        # An absent worker counts from its return; its own systemd, which knew at once, does not help the head.
        (
            {"kind": "away"},
            130.0,
            {
                "w": node(WORKER, 130.2, event(100.1, WORKER, "exited")),
                "h": node(HEAD, 132.0, event(112.0, HEAD, "repair"), event(131.0, HEAD, "started")),
            },
            {"answered_at": 135.0},
            {"detection": 12.0, "held": 30.0, "restart": 2.0, "load": 3.0, "total": 5.0},
        ),
        # A harmless fault has no detection.
        (
            START,
            115.0,
            {
                "w": node(WORKER, 100.3, event(100.01, WORKER, "exited"), event(100.25, WORKER, "started")),
                "h": node(HEAD, 100.5, event(100.02, HEAD, "exited")),
            },
            {"answered_at": 103.0},
            {"detection": None, "held": 15.0, "total": 3.0, "load": 2.5},
        ),
        # A start after the answer does not count.
        (
            RESTART,
            115.0,
            on_head(
                *(event(100.02, HEAD, "exited"), event(100.5, HEAD, "started"), event(115.5, HEAD, "exited")),
                event(116.0, HEAD, "started"),
                started_at=116.0,
            ),
            {"answered_at": 103.0},
            {"detection": 0.02, "restart": 0.48, "load": 2.5, "total": 3.0},
        ),
        # Lost rules need no restart.
        (
            {"kind": "firewall"},
            None,
            {"w": node(WORKER, 50.0, event(101.7, None, "firewall", "rules were gone: loaded again"))},
            {},
            {"detection": 1.7, "restart": None, "load": None, "total": 1.7},
        ),
        # Without an answer there is no total.
        (
            RESTART,
            None,
            on_head(started_at=50.0),
            {"answered_at": None},
            {"detection": None, "load": None, "total": None},
        ),
        (
            RESTART,
            None,
            on_head(EXITED, event(500.5, HEAD, "started")),
            {"answered_at": None},
            {"detection": 0.5, "restart": 400.0, "load": None, "total": None},
        ),
        # An event after the fault is no notice.
        (RESTART, 100.5, on_head(EXITED, event(107.0, HEAD, "started")), ANSWERED, {"noticed_by": []}),
        (RESTART, 100.6, on_head(EXITED, event(107.0, HEAD, "started")), ANSWERED, {"noticed_by": ["h " + HEAD]}),
        # A start counts between the break and the answer.
        *(
            (RESTART, None, on_head(EXITED, event(at, HEAD, "started")), ANSWERED, {"restart": restart})
            for at, restart in ((100.0, None), (100.75, 0.25), (110.0, None), (110.5, None))
        ),
        # The last of several, and the start of the running process by systemd.
        (
            RESTART,
            None,
            on_head(EXITED, event(101.5, HEAD, "started"), event(100.75, HEAD, "started")),
            ANSWERED,
            {"load": 8.5},
        ),
        (RESTART, None, on_head(EXITED, started_at=103.5), ANSWERED, {"load": 6.5}),
        (
            RESTART,
            None,
            {
                "h": node(HEAD, 103.0, event(101.0, HEAD, "exited")),
                "w": node(WORKER, 104.0, event(100.5, WORKER, "exited")),
            },
            ANSWERED,
            {"detection": 1.0, "restart": 3.0, "load": 7.0, "total": 10.0, "noticed_by": ["w " + WORKER, "h " + HEAD]},
        ),
        # An answer during the fault counts from the break.
        (RESTART, 110.0, on_head(EXITED, event(103.0, HEAD, "started")), ANSWERED, {"total": 10.0}),
        (
            RESTART,
            109.0,
            on_head(EXITED, event(103.0, HEAD, "started")),
            ANSWERED,
            {"total": 1.0, "held": 9.0, "restart": -6.0},
        ),
        # The first notice of a start counts.
        (
            START,
            None,
            {
                name: node(WORKER, 0, *SEEN_LATE, event(at, WORKER, "exited"))
                for name, at in (("a", 102.0), ("b", 101.0))
            },
            ANSWERED,
            {"detection": 1.0},
        ),
        # Seconds have three decimals.
        (
            RESTART,
            None,
            on_head(event(100.12345, HEAD, "exited"), event(101.0, HEAD, "started")),
            ANSWERED,
            {"detection": 0.123},
        ),
    ],
)
def test_phases_of_a_break(drill, restored_at, nodes, recovery, expected):
    found = reports_drill.phases(drill, 100.0, restored_at, nodes, recovery)
    assert {name: found[name] for name in expected} == expected


def test_failed_start_is_noticed_after_the_start():
    drill = {"kind": "start"}
    events = [
        event(100.01, WORKER, "exited"),
        event(100.2, WORKER, "started"),
        event(100.3, WORKER, "scheduled"),
        event(100.6, WORKER, "exited"),
    ]
    assert noticed(events, drill, 100.0) == 100.3
    assert noticed(events[:2], drill, 100.0) is None
    assert noticed(events, drill, 100.7) is None


def test_named_fault_is_noticed():
    drill = {"kind": "start", "says": "another llama.cpp build"}
    events = [
        event(100.2, HEAD, "started"),
        event(100.3, HEAD, "exited"),
        event(101.0, HEAD, "says", "worker a:1 runs another llama.cpp build"),
    ]
    assert noticed(events, drill, 100.0) == 101.0
    assert noticed(events[:2], drill, 100.0) is None


def test_result_is_a_row():
    times = {"detection": 0.014, "held": None, "restart": 0.3, "load": 1.5, "total": 1.81}
    results = [
        {"drill": "head_kill", "result": "recovered", "phases": times},
        {"drill": "worker_stop_idle", "result": "failed", "reason": "no answer"},
    ]
    assert reports_drill.lines(results) == [
        "drill             detection s  restart s  load s  total s  result",
        "head_kill         0.01         0.30       1.50    1.81     recovered",
        "worker_stop_idle  -            -          -       -        failed: no answer",
    ]


def test_report_has_times_and_table():
    nodes = {"h": node(HEAD, 100.25, event(100.01, HEAD, "exited"), event(100.25, HEAD, "started"))}
    recovery = {"answered_at": 101.0, "client": None}
    killed = {"drill": "head_kill", "result": "recovered", "reason": "", "broken_at": 100.0, "restored_at": None}
    soak = {"drill": "three_endpoints", "result": "finished", "reason": "", "seconds": [0.5]}
    early = dict(killed, result="failed", reason="no host", broken_at=None, recovery={}, timelines={})
    catalog = {"head_kill": {"kind": "restart"}, "three_endpoints": {"kind": "soak"}}
    found = reports_drill.drill_report([dict(killed, recovery=recovery, timelines=nodes), soak, early], catalog)
    phases = reports_drill.phases(catalog["head_kill"], 100.0, None, nodes, recovery)
    assert phases["total"] == 1.0
    assert found["drills"] == [
        dict(killed, recovery=recovery, phases=phases, events={"h": nodes["h"]["events"]}),
        soak,
        dict(killed, result="failed", reason="no host", broken_at=None, recovery={}, phases={}, events={}),
    ]
    assert found["lines"] == reports_drill.lines(found["drills"])
    # ansible-core 2.18 gives texts.
    texts = dict(killed, broken_at="100.0", restored_at="", recovery=recovery, timelines=nodes)
    assert reports_drill.drill_report([texts], catalog)["drills"] == found["drills"][:1]


def asked(answers, broken_at="10.0"):
    drill = {"drill": "gateway_engine_kill", "result": "recovered", "reason": "", "restored_at": None}
    result = dict(drill, broken_at=broken_at, answers=answers)
    (found,) = reports_drill.drill_report([result], {"gateway_engine_kill": {"kind": "gateway"}})["drills"]
    return found


def test_longest_gap_of_gateway_clients_is_total():
    found = asked(["9.0 200 0", "11.0 200 0", "10.5 200 0", "12.0 502 0", "14.0 200 0", "15.0 200 18"])
    assert (found["phases"], found["requests"], found["lost"]) == ({"total": 3.0}, 6, 2)
    assert "answers" not in found


def test_gateway_without_answers_has_no_total():
    assert asked(["11.0 000 7"])["phases"] == {} and asked([], "")["phases"] == {}
