# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ten criteria, met, not met and not measurable."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import criteria
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.criteria import Seen, Service
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.results import Results
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.targets import Measured

NOW = "2026-11-26T10:00:00Z"
EARLIER = "2026-11-25T10:00:00Z"
HEAD, WORKER = "llama-head-chat.service", "llama-rpc-chat.service"
RELEASE = "/opt/llama.cpp/releases/b1/bin/llama-server"


def unit(name):
    found = {"name": name, "installed": True, "managed": True, "enabled": True, "active_state": "active"}
    return dict(found, service="chat", arguments=[RELEASE])


def node(name, identity="abc"):
    build = {"current_build": "b1", "build_intact": True, "build_sha256": identity, "build_identity": identity}
    return {"units": [unit(name)], "build": {"of": {"b1": build}}}


REPORT = {
    "measured_at": EARLIER,
    "workers": [{"node": "node2", "layers": 30, "bytes_sent": 9, "bytes_received": 9}],
}


WITH_REPORT = object()


def service(report=WITH_REPORT, wire=None, generates=True, **measured):
    figures = {"rate": 12.7, "first_token": 0.8, "ceiling": 23.9, "evidence": "benchmark", "measured_at": EARLIER}
    return Service(
        measured=Measured("chat", "or1", **dict(figures, **measured)),
        workers=["node2"],
        report=REPORT if report is WITH_REPORT else report,
        wire=wire,
        generates=generates,
    )


def hand(hours, unit=HEAD, restarts="always", **changes):
    units = {unit: restarts}
    found = {"now": 1e6, "at": 1e6 - hours * 3600, "what": "a unit was started", "restart": units, "recovered": None}
    return dict(found, **changes)


SOUND = Seen(
    now=NOW,
    nodes={"node1": node(HEAD), "node2": node(WORKER)},
    missing=[],
    wanted={"node1": [HEAD], "node2": [WORKER]},
    models={"node1": [{"item": {"dest": "/opt/models/m.gguf"}, "there": True}], "node2": []},
    hands={"node1": hand(30), "node2": hand(40, WORKER)},
    decisions={"node1": [1000, 1795600000.0], "node2": None},
    monitoring=True,
    services=[service()],
    kept=Results({}),
)
NAMES = list(criteria.CRITERIA)


def judged(name, **changes):
    return next(one for one in criteria.criteria(SOUND._replace(**changes)) if one.name == name)


def test_a_sound_cluster_meets_all_ten():
    found = criteria.criteria(SOUND)
    assert [(one.name, one.verdict) for one in found] == [(name, "met") for name in NAMES] and len(found) == 10
    assert all(one.value and one.evidence and one.measured_at and not one.needed for one in found)


@pytest.mark.parametrize("name", NAMES[:4])
def test_missing_node_meets_nothing(name):
    found = judged(name, missing=["node1"], nodes={"node2": node(WORKER)}, models={"node2": []})
    assert found.verdict == "not met" and "node1" in found.value and found.needed


def test_two_commits_are_not_one_version():
    found = judged(NAMES[0], nodes={"node1": node(HEAD), "node2": node(WORKER, "def")})
    assert found.verdict == "not met"
    assert found.refusal().startswith("verify: binaries of one version: ") and "node2 has def" in found.value
    assert found.needed.endswith("remove it on those that differ and run with --tags build")


def test_unverified_model_is_not_met():
    hashed = {"node1": {"/opt/models/m.gguf": None}}
    assert judged(NAMES[1], hashed=hashed).value == "1 of 1, hashed just now"
    text = "/opt/models/m.gguf: bytes 0 to 9 have sha256 a, b recorded: run site.yml --tags model"
    found = judged(NAMES[1], hashed={"node1": {"/opt/models/m.gguf": text}})
    assert found.verdict == "not met" and found.evidence == "hashed just now"
    assert found.value == "node1: /opt/models/m.gguf: bytes 0 to 9 have sha256 a, b recorded"
    found = judged(NAMES[1], models={"node1": [{"item": {"dest": "/opt/models/m.gguf"}, "there": False}]})
    assert (found.verdict, found.value) == ("not met", "/opt/models/m.gguf on node1 not whole or not verified")


@pytest.mark.parametrize(
    "changes",
    [
        {"enabled": False},
        {"active_state": "activating"},
        {"managed": False},
        {"stale": True},
    ],
)
def test_a_unit_that_is_not_as_configured(changes):
    nodes = {"node1": node(HEAD), "node2": {**node(WORKER), "units": [dict(unit(WORKER), **changes)]}}
    found = judged(NAMES[2], nodes=nodes)
    assert (found.verdict, found.value) == ("not met", WORKER + " on node2 not running as configured")


def test_a_unit_that_is_not_there():
    assert (
        judged(NAMES[2], nodes={"node1": node(HEAD), "node2": {"units": [], "build": {"of": {}}}}).verdict == "not met"
    )


def worker(**changes):
    return dict(REPORT, workers=[dict(REPORT["workers"][0], **changes)])


@pytest.mark.parametrize(
    ("one", "verdict", "value"),
    [
        (service(worker(bytes_sent=0)), "not met", "chat: worker node2 holds 30 layers and moved 0 bytes"),
        (service(worker(layers=0)), "not met", "chat: worker node2 holds 0 layers and moved 9 bytes"),
        (service(worker(bytes_sent=None)), "not measurable here", "chat: its bytes were not counted"),
        (service(None), "not measurable here", "chat: no answer of it was kept"),
        # The split proof counts more than the bytes of one answer.
        (
            service(worker(bytes_sent=0), wire={"verdict": "true", "measured_at": EARLIER}),
            "met",
            "1 service with 1 worker",
        ),
        (
            service(wire={"verdict": "refused", "measured_at": EARLIER, "sentences": ["node2 idles"]}),
            "not met",
            "chat: node2 idles",
        ),
        (service(wire={"verdict": "refused", "measured_at": EARLIER}), "not met", "chat: refused"),
    ],
)
def test_every_worker_works_or_does_not(one, verdict, value):
    found = judged(NAMES[3], services=[one])
    assert (found.verdict, found.value) == (verdict, value)
    assert (found.measured_at is None) == (one.report is None)


@pytest.mark.parametrize(
    ("changes", "verdict", "value"),
    [
        ({"rate": 10.8}, "met", "chat 10.8 tokens/s, 45.2 % of the ceiling"),
        ({"rate": 10.7}, "not met", "chat 10.7 tokens/s, 44.8 % of the ceiling"),
        ({"ceiling": None, "no_ceiling": "no plan"}, "not measurable here", "chat 12.7 tokens/s, no plan"),
        ({"rate": None}, "not measurable here", "chat not measured"),
    ],
)
def test_throughput_is_judged_by_what_memory_allows(changes, verdict, value):
    found = judged(NAMES[4], services=[service(**changes)])
    assert (found.verdict, found.value) == (verdict, value)


def test_slow_service_of_two_is_named():
    slow = service(rate=2.0)
    slow = slow._replace(measured=slow.measured._replace(label="slow"))
    found = judged(NAMES[4], services=[service(), slow])
    assert (found.verdict, found.value) == ("not met", "slow 2.0 tokens/s, 8.4 % of the ceiling")


@pytest.mark.parametrize(("seconds", "verdict"), [(4.99, "met"), (5.0, "not met"), (None, "not measurable here")])
def test_the_first_token_comes_in_five_seconds(seconds, verdict):
    assert judged(NAMES[6], services=[service(first_token=seconds)]).verdict == verdict


def test_what_embeds_generates_nothing():
    embeds = service(generates=False, rate=None, first_token=None)
    assert judged(NAMES[4], services=[embeds]).value == "no service generates"
    assert judged(NAMES[6], services=[service(), embeds]).value == "chat 0.80 s"


def test_a_unit_that_systemd_would_not_start_again():
    # Workers of one service have one name, on each node.
    wanted = {"node1": [HEAD], "node2": [WORKER], "node3": [WORKER]}
    hands = {"node1": hand(30), "node2": hand(30, WORKER, "on-failure"), "node3": hand(30, WORKER)}
    found = judged(NAMES[5], wanted=wanted, hands=hands)
    assert (found.verdict, found.value) == ("not met", WORKER + " on node2 without Restart=always")


def test_seen_recovery_is_named():
    hands = {"node1": hand(30, recovered={"at": 1795600000.0, "unit": HEAD}), "node2": hand(30, WORKER)}
    found = judged(NAMES[5], hands=hands)
    assert found.verdict == "met"
    assert found.value == HEAD + " on node1 was started again by systemd at 2026-11-25T09:46:40Z"


@pytest.mark.parametrize(("seen", "verdict"), [(True, "met"), (False, "not met"), (None, "not measurable here")])
def test_monitoring(seen, verdict):
    assert judged(NAMES[7], monitoring=seen).verdict == verdict


BENCHMARK = {"format": 1, "kind": "benchmark", "service": "chat", "measured_at": EARLIER}


@pytest.mark.parametrize(
    ("written", "texts", "verdict"),
    [
        ([1000, 1795600000.0], {}, "met"),
        (None, {}, "not measurable here"),
        (None, {"a": json.dumps(BENCHMARK)}, "not met"),
    ],
)
def test_decisions_are_written_once_something_was_measured(written, texts, verdict):
    found = judged(NAMES[8], decisions={"node1": written}, kept=Results(texts))
    assert found.verdict == verdict
    assert found.measured_at == ("2026-11-25T09:46:40Z" if written else NOW if texts else None)


@pytest.mark.parametrize(
    ("hours", "verdict", "begins", "ends"),
    [
        (24, "met", "24 of 24 hours", "Z"),
        (500, "met", "24 of 24 hours", "Z"),
        (23.9, "not measurable here", "23 of 24 hours", "not yet"),
        (-1, "not measurable here", "0 of 24 hours", "not yet"),
    ],
)
def test_the_node_with_the_last_hand_decides(hours, verdict, begins, ends):
    found = judged(NAMES[9], hands={"node1": hand(600), "node2": hand(hours)})
    assert found.verdict == verdict
    assert found.value.startswith(begins + ", a unit was started on node2 at ") and found.value.endswith(ends)


def test_unknown_manual_change_is_not_measurable():
    assert judged(NAMES[9], hands={"node1": hand(1, at=None)}).verdict == "not measurable here"
