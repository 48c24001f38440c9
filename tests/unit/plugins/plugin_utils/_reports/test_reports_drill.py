# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.timeline import noticed
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import drill as reports_drill

HEAD, WORKER = "llama-head-chat.service", "llama-rpc-chat.service"


def event(at, unit, kind, text=""):
    return {"at": at, "unit": unit, "kind": kind, "text": text}


def node(unit, started_at, *events):
    return {"events": list(events), "units": {unit: {"started_at": started_at}}}


def test_killed_worker_is_noticed_by_its_head():
    nodes = {
        "w": node(WORKER, 100.3, event(100.01, WORKER, "exited"), event(100.25, WORKER, "started")),
        "v": node(WORKER, 50.0),
        "h": node(HEAD, 101.0, event(100.5, HEAD, "repair"), event(100.9, HEAD, "started")),
    }
    found = reports_drill.phases({"kind": "restart"}, 100.0, None, nodes, {"answered_at": 104.5, "client": None})
    assert found == {
        "detection": 0.5,
        "held": None,
        "restart": 0.5,
        "load": 3.5,
        "total": 4.5,
        "noticed_by": ["w llama-rpc-chat.service", "h llama-head-chat.service"],
        "client_cut": None,
    }


def test_router_has_a_load():
    router = "llama-router-turns.service"
    nodes = {"h": node(router, 100.4, event(100.01, router, "exited"), event(100.4, router, "started"))}
    found = reports_drill.phases({"kind": "restart"}, 100.0, None, nodes, {"answered_at": 101.0, "client": None})
    assert (found["restart"], found["load"], found["total"]) == (0.39, 0.6, 1.0)


def test_client_was_cut_off():
    nodes = {"h": node(HEAD, 100.25, event(100.01, HEAD, "exited"))}
    found = reports_drill.phases(
        {"kind": "restart"}, 100.0, None, nodes, {"answered_at": 101.0, "client": {"cut_at": 100.02}}
    )
    assert (found["client_cut"], found["detection"], found["total"]) == (0.02, 0.01, 1.0)


def test_absent_worker_counts_from_its_return():
    nodes = {
        # The dead node's own systemd knew at once, which does not help the head.
        "w": node(WORKER, 130.2, event(100.1, WORKER, "exited")),
        "h": node(HEAD, 132.0, event(112.0, HEAD, "repair"), event(131.0, HEAD, "started")),
    }
    found = reports_drill.phases({"kind": "away"}, 100.0, 130.0, nodes, {"answered_at": 135.0})
    assert (found["detection"], found["held"], found["restart"], found["load"], found["total"]) == (
        12.0,
        30.0,
        2.0,
        3.0,
        5.0,
    )


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


def test_harmless_fault_has_no_detection():
    nodes = {
        "w": node(WORKER, 100.3, event(100.01, WORKER, "exited"), event(100.25, WORKER, "started")),
        "h": node(HEAD, 100.5, event(100.02, HEAD, "exited")),
    }
    found = reports_drill.phases({"kind": "start"}, 100.0, 115.0, nodes, {"answered_at": 103.0})
    assert (found["detection"], found["held"], found["total"], found["load"]) == (None, 15.0, 3.0, 2.5)


def test_start_after_the_answer_does_not_count():
    nodes = {
        "h": node(
            HEAD,
            116.0,
            event(100.02, HEAD, "exited"),
            event(100.5, HEAD, "started"),
            event(115.5, HEAD, "exited"),
            event(116.0, HEAD, "started"),
        )
    }
    found = reports_drill.phases({"kind": "restart"}, 100.0, 115.0, nodes, {"answered_at": 103.0})
    assert (found["detection"], found["restart"], found["load"], found["total"]) == (0.02, 0.48, 2.5, 3.0)


def test_lost_rules_have_no_restart():
    nodes = {"w": node(WORKER, 50.0, event(101.7, None, "firewall", "rules were gone: loaded again"))}
    found = reports_drill.phases({"kind": "firewall"}, 100.0, None, nodes, {})
    assert (found["detection"], found["restart"], found["load"], found["total"]) == (1.7, None, None, 1.7)


def test_missing_answer_has_no_total():
    nodes = {"h": node(HEAD, 50.0)}
    found = reports_drill.phases({"kind": "restart"}, 100.0, None, nodes, {"answered_at": None})
    assert (found["detection"], found["load"], found["total"]) == (None, None, None)


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


def timed(events, **given):
    """phases() of one head with these events, a restart that was broken at 100."""
    run = dict({"drill": {"kind": "restart"}, "broken_at": 100.0, "restored_at": None}, **given)
    nodes = run.pop("nodes", {"h": node(HEAD, 0, *events)})
    return reports_drill.phases(nodes=nodes, recovery=run.pop("recovery", {"answered_at": 110.0}), **run)


def test_event_after_the_fault_is_no_notice():
    exited, started = event(105.0, HEAD, "exited"), event(107.0, HEAD, "started")
    assert timed([exited, started], restored_at=105.0)["noticed_by"] == []
    assert timed([exited, started], restored_at=105.1)["noticed_by"] == ["h " + HEAD]


def test_start_counts_between_break_and_answer():
    exited = event(100.5, HEAD, "exited")
    for at, restart in ((100.0, None), (100.75, 0.25), (110.0, None), (110.5, None)):
        assert timed([exited, event(at, HEAD, "started")])["restart"] == restart, at
    # The last of several, and the start of the running process by systemd.
    starts = [event(at, HEAD, "started") for at in (101.5, 100.75)]
    assert timed([exited, *starts])["load"] == 8.5
    assert timed([], nodes={"h": node(HEAD, 103.5, exited)})["load"] == 6.5


def test_every_start_counts_without_an_answer():
    found = timed([event(100.5, HEAD, "exited"), event(500.5, HEAD, "started")], recovery={"answered_at": None})
    assert (found["detection"], found["restart"], found["load"], found["total"]) == (0.5, 400.0, None, None)


def test_last_start_is_the_restart():
    nodes = {
        "h": node(HEAD, 103.0, event(101.0, HEAD, "exited")),
        "w": node(WORKER, 104.0, event(100.5, WORKER, "exited")),
    }
    found = timed([], nodes=nodes)
    assert (found["detection"], found["restart"], found["load"], found["total"]) == (1.0, 3.0, 7.0, 10.0)
    assert found["noticed_by"] == ["w " + WORKER, "h " + HEAD]


def test_answer_during_the_fault_counts_from_break():
    events = [event(100.5, HEAD, "exited"), event(103.0, HEAD, "started")]
    assert timed(events, restored_at=110.0)["total"] == 10.0
    later = timed(events, restored_at=109.0)
    assert (later["total"], later["held"], later["restart"]) == (1.0, 9.0, -6.0)


def test_first_notice_of_a_start_counts():
    nodes = {name: node(WORKER, 0, event(at, WORKER, "exited")) for name, at in (("a", 102.0), ("b", 101.0))}
    for seen in nodes.values():
        seen["events"].insert(0, event(100.5, WORKER, "started"))
    assert timed([], drill={"kind": "start"}, nodes=nodes)["detection"] == 1.0


def test_seconds_have_three_decimals():
    assert timed([event(100.12345, HEAD, "exited"), event(101.0, HEAD, "started")])["detection"] == 0.123


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
