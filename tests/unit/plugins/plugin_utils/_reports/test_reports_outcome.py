# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a switch, and the last lines of playbooks."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.outcome import (
    outcome_lines,
    switch_state,
)

NODES = ["node1", "node2"]
NOTHING = {
    "heads_down": [],
    "unwanted": [],
    "workers_restart": [],
    "workers_start": [],
    "heads_up": ["llama-head-chat.service"],
}
OLD, NEW = "/opt/models/m.Q4_1.gguf", "/opt/models/m.Q8_0.gguf"
RATES = {"requests": 5, "tokens_per_second": 40.0, "prompt_tokens_per_second": 200.0}
UPGRADE = {
    "services": {"embed": {}, "chat": {}},
    "service": "",
    "old_build": "b1-cpu",
    "id": "2026-11-22T00:00:00Z",
    "check_mode": False,
    "idle": False,
    "opened": "",
    "seconds": 4.2,
    "jobs": {},
    "serving": [],
}
FAILED = {"failures": ["chat is slow"], "old_build": "b1-cpu", "undone": True, "check_mode": False, "seconds": 9.1}
FAILED.update(services={"chat": {}}, jobs={}, serving=[])


def files(**more):
    """The fact of a head's node about its models."""
    return {"apply_model_files": dict({"old": OLD, "new": NEW, "wanted": [NEW], "retire": "never"}, **more)}


DOWN, SLOW = {"apply_failure": "chat is down"}, {"apply_failure": "chat is slow"}
UNDONE = {"apply_undone": True}


def snapshot(opened=None, last=None, differs=(), build="b1"):
    """A result of llama_snapshot."""
    open_one, last_one = ({"id": name, "build": build} if name else None for name in (opened, last))
    return {"open": open_one, "last": last_one, "differs": list(differs)}


def still(compared=None, idle=True, **facts):
    """A node that has nothing to do."""
    compared = snapshot("2026-11-22") if compared is None else compared
    return dict({"apply_earlier": snapshot(), "apply_compared": compared, "apply_changes": {"idle": idle}}, **facts)


def state(node1, node2, left=tuple(NODES), **more):
    return switch_state({"node1": node1, "node2": node2}, NODES, left, **more)


@pytest.mark.parametrize(
    ("node1", "node2", "left", "failures"),
    [
        ({}, {}, NODES, []),
        (DOWN, {}, NODES, ["chat is down"]),
        (DOWN, {}, ["node1"], ["chat is down", "node2 cannot be reached any more"]),
        # Also of a node that was lost later.
        (SLOW, {}, ["node2"], ["chat is slow", "node1 cannot be reached any more"]),
        # A node that knows the reason comes first.
        ({"apply_failure": "no reason given"}, DOWN, NODES, ["chat is down", "no reason given"]),
    ],
)
def test_failures_of_nodes_and_lost_nodes(node1, node2, left, failures):
    assert state(node1, node2, left)["failures"] == failures


@pytest.mark.parametrize(
    ("node1", "node2", "left", "undone"),
    [
        (UNDONE, UNDONE, NODES, True),
        (UNDONE, {"apply_undone": False}, NODES, False),
        (UNDONE, {}, NODES, False),
        # One node is lost.
        (UNDONE, UNDONE, ["node1"], False),
        (UNDONE, {**UNDONE, "apply_undo_failure": "no room"}, NODES, False),
    ],
)
def test_all_nodes_must_be_undone(node1, node2, left, undone):
    assert state(node1, node2, left)["undone"] is undone


@pytest.mark.parametrize(
    "node",
    [
        {},
        {"apply_compared": snapshot("2026-11-22")},
        {"apply_changes": {"idle": True}},
        still(idle=False),
        still(snapshot("2026-11-22", differs=["etc/llama-cluster/plan-chat.json"])),
        still(apply_failure="chat is down"),
        # A run that died may have left it so.
        still(apply_earlier=snapshot("2026-11-21")),
        # As in check mode, and after a comparison that failed.
        still(snapshot()),
        still({"failed": True, "msg": "no space left"}),
    ],
)
def test_all_nodes_must_be_idle(node):
    assert state(still(), still())["idle"] is True
    assert (state(still(), node)["idle"], state(node, still())["idle"]) == (False, False)
    assert state(still(), still(), ["node1"])["idle"] is False


def test_first_open_snapshot_is_continued():
    first, second = ({"apply_earlier": snapshot(name, "2026-11-0%d" % day)} for name, day in (("b", 1), ("a", 2)))
    found = state(first, second)
    assert (found["opened"], found["last"]) == ("a", "2026-11-02")
    found = state({"apply_earlier": snapshot(last="2026-11-01")}, {"apply_earlier": {"failed": True}})
    assert (found["opened"], found["last"]) == ("", "2026-11-01")
    assert (state({}, {})["opened"], state({}, {})["last"]) == ("", "")


@pytest.mark.parametrize(
    "earlier,current,build",
    [
        (snapshot(), "b2", "b2"),
        (snapshot("2026-11-21"), "b2", "b1"),
        (snapshot("2026-11-21", build=None), "b2", "b2"),
        (snapshot(), None, "none"),
        (None, "b2", "none"),
    ],
)
def test_old_build_is_of_the_earlier_run(earlier, current, build):
    node = {"apply_earlier": earlier, "apply_before": {"current_build": current}}
    assert state({key: value for key, value in node.items() if value}, {})["old_build"] == build
    assert state({"apply_earlier": snapshot()}, {})["old_build"] == state({}, {}, [])["old_build"] == "none"


@pytest.mark.parametrize(
    ("node1", "node2", "left", "becomes"),
    [
        (still(idle=False), still(idle=False), NODES, "closed"),
        (still(), still(), NODES, "dropped"),
        # Something is still to be undone.
        (still(idle=False, **DOWN), still(idle=False), NODES, "opened"),
        (still(**DOWN, **UNDONE), still(idle=False), NODES, "opened"),
        (still(**UNDONE), still(**UNDONE), ["node1"], "opened"),
        (still(**DOWN, **UNDONE), still(**UNDONE), NODES, "dropped"),
        ({**SLOW, **UNDONE}, {**SLOW, **UNDONE, "apply_undo_failure": "no room"}, NODES, "opened"),
        # Also if the old model is to go: it has not gone yet, or is back.
        (still(idle=False, **files(retire="after"), **DOWN), still(idle=False), NODES, "opened"),
    ],
)
def test_snapshot_has_its_next_state(node1, node2, left, becomes):
    assert state(node1, node2, left)["snapshot"] == becomes


@pytest.mark.parametrize(
    "retire,wanted,becomes,retired",
    [
        ("never", [NEW], "closed", []),
        ("after", [NEW], "dropped", ["node1"]),
        ("first", [NEW], "dropped", ["node1"]),
        # Another service has it, or it is the one that was asked for.
        ("after", [OLD, NEW], "dropped", []),
    ],
)
def test_unneeded_model_is_retired_on_request(retire, wanted, becomes, retired):
    found = state(dict(still(idle=False), **files(retire=retire, wanted=wanted)), still())
    assert (found["snapshot"], found["retired"]) == (becomes, retired)


# An upgrade


def upgraded(node1=None, **run):
    words = {"chat": "b2-cpu", "embed": run.pop("other", "b2-cpu")}
    units = [
        {"service": service, "arguments": ["/opt/llama.cpp/releases/%s/bin/llama-server" % build]}
        for service, build in words.items()
    ]
    facts = {"ansible_facts": {"llama_node": {"units": units}}}
    hostvars = {"node1": dict({"apply_changes": NOTHING, **facts}, **node1 or {}), "node2": {}}
    return outcome_lines(hostvars, "upgraded", NODES, dict(UPGRADE, **run))


def test_upgrade_names_builds_of_its_services():
    assert upgraded(other="b3-cpu")[0].startswith("chat, embed: b2-cpu, b3-cpu serves, ")
    single = upgraded(other="b3-cpu", service="embed", services={"embed": {}})
    assert single[0].startswith("embed: b3-cpu serves, ")


@pytest.mark.parametrize(
    "node, jobs, opened",
    [
        ({"opened": "a"}, {"opened": "a"}, "a"),
        ({"last": "a"}, {"opened": "a"}, "a"),
        ({"opened": "a"}, {"last": "a"}, "a"),
        # The run died before the nodes had one.
        ({"last": "a"}, {"opened": "b"}, ""),
        ({}, {"opened": "b"}, ""),
    ],
)
def test_snapshot_of_jobs_belongs_to_the_nodes(node, jobs, opened):
    facts = {"apply_earlier": snapshot(**node), "apply_jobs_earlier": {"results": [snapshot(**jobs)]}}
    assert switch_state({"node1": facts}, ["node1"], ["node1"])["opened"] == opened


def test_old_build_is_of_the_units():
    words = ["/opt/llama.cpp/releases/b1-cpu/bin/llama-server"]
    other = ["/opt/llama.cpp/releases/b2-cuda/bin/llama-server"]
    units = [{"service": "chat", "arguments": words}, {"service": "embed", "arguments": other}]
    node = {"apply_earlier": snapshot(), "apply_before": {"current_build": "b1-cpu", "units": units}}
    assert switch_state({"node1": node}, ["node1"], ["node1"])["old_build"] == "b1-cpu, b2-cuda"
    assert switch_state({"node1": node}, ["node1"], ["node1"], "embed")["old_build"] == "b2-cuda"


MEASURED = {
    "apply_changes": dict(NOTHING, heads_down=["llama-head-chat.service"]),
    "upgrade_measured": {"chat": RATES},
    "upgrade_baseline": {"chat": dict(RATES, tokens_per_second=30.0, build="b1-cpu")},
    "upgrade_unmeasured": {"embed": "busy, 1 of 1 slots work"},
}
LEFT_TO_DO = [
    "rollback.yml puts b1-cpu of 2026-11-22T00:00:00Z back",
    "what was given with -e belongs in the inventory, or the next site.yml switches back",
]


@pytest.mark.parametrize(
    ("facts", "run", "lines"),
    [
        (
            MEASURED,
            {},
            [
                "b2-cpu serves, nothing served for 4.2 s",
                "chat: 40.0 tokens/s, prompts 200.0 tokens/s (median of 5); before: 30.0 and 200.0 with b1-cpu",
                "embed: its speed was not measured (busy, 1 of 1 slots work) and may be lower than before: measure it "
                "when it is idle",
                *LEFT_TO_DO,
            ],
        ),
        (
            {},
            {"opened": "2026-11-21T00:00:00Z"},
            ["b2-cpu serves, which finishes what an earlier run began", *LEFT_TO_DO],
        ),
        ({}, {}, ["b2-cpu serves, no head had to restart", *LEFT_TO_DO]),
        ({}, {"idle": True, "check_mode": True}, ["check mode, b1-cpu serves on; what would change is shown above"]),
        ({}, {"idle": True}, ["nothing to do, b2-cpu serves with the inventory's configuration"]),
    ],
)
def test_upgrade_ends_with_what_serves(facts, run, lines):
    first, *others = upgraded(facts, **run)
    assert [first.partition("chat, embed: ")[2], *others] == lines


@pytest.mark.parametrize(
    "facts,run,sentence",
    [
        ({}, {}, "upgrade: chat is slow: rolled back, b1-cpu serves again, 9.1 s after the switch began"),
        ({}, {"seconds": ""}, "upgrade: chat is slow: rolled back, b1-cpu serves again"),
        ({}, {"undone": False, "check_mode": True}, "upgrade: chat is slow: nothing was changed, this is check mode"),
        (
            {"node2": "no space left"},
            {"undone": False},
            "upgrade: chat is slow: the old one is not back either (no space left), correct this and run rollback.yml",
        ),
        (
            {"node1": "no space left", "node2": "no space left"},
            {"undone": False},
            "upgrade: chat is slow: the old one is not back either (no space left), correct this and run rollback.yml",
        ),
        (
            {},
            {"undone": False},
            "upgrade: chat is slow: the old one is not back either (see above), correct this and run rollback.yml",
        ),
    ],
)
def test_failed_upgrade_is_one_sentence(facts, run, sentence):
    hostvars = {node: {"apply_undo_failure": facts[node]} if node in facts else {} for node in NODES}
    assert outcome_lines(hostvars, "upgrade_failed", NODES, dict(FAILED, **run)) == [sentence]


# All endings

SWITCH = {"service": "chat", "quant": "Q8_0", "was": "Q8_0", "park": "", "check_mode": False, "services": {"chat": {}}}
SWITCH_FAILED = {**SWITCH, "failures": ["chat is down"], "undone": True}
TRIAL = {"service": "chat", "quant": "Q8_0", "was": "Q4_1", "until": "2026-11-24T08:00:12Z", "state": "running"}
TRIAL.update(at="", reason="")
ROLLBACK = {"id": "2026-11-22", "seconds": 3.5}
KEEP = {"service": "chat", "was": "Q4_1", "check_mode": False}
TO_WRITE = (
    "the inventory says Q4_1: set the quant of llama_services.chat to Q8_0 there, or the next site.yml switches back"
)
STAYS = "chat: m.Q8_0.gguf serves, /opt/models/m.Q4_1.gguf stays on "


def restored(changes, build="b1-cpu-5f27", results=None, units=("llama-head-chat.service",)):
    answers = [{"item": {"service": "chat"}, "reason": "it answered 2 tokens in 0.1 s"}] if results is None else results
    facts = {"apply_restored": {"open": {"build": build, "units": list(units)}}, "apply_changes": changes}
    return {"node1": dict(facts, apply_answers={"results": answers}), "node2": dict(facts, apply_changes=NOTHING)}


def kept(*trials):
    return {"node1": {"switch_model_kept": {"trials": list(trials)}}, "node2": {"switch_model_kept": {}}}


def switched(node2=None, **more):
    return {"node1": files(**more), "node2": node2 or {}}


def units(*services, kind="rpc", active_state="active"):
    """The facts of a node with units of these services."""
    found = [
        {"name": "llama-%s-%s.service" % (kind, name), "kind": kind, "service": name, "active_state": active_state}
        for name in services
    ]
    return {"ansible_facts": {"llama_node": {"units": found}}}


def holding(*services, **states):
    """The run of maintenance.yml with node2."""
    return {"node": "node2", "services": {name: {"state": states.get(name, "started")} for name in services}}


SILENT = [
    {"item": {"name": "llama-head"}, "state": "ready", "reason": "it answered"},
    {"item": {"name": "old"}, "state": "busy", "reason": "1 of 1 slots at work"},
    {"item": {"name": "mute"}, "state": "down", "reason": "connection refused"},
    {"item": {"name": "skipped"}, "skipped": True},
]
REPLICAS = {"node1": units("embed", kind="head"), "node2": units("chat", "embed", kind="head")}
DEAD = dict(REPLICAS, node1=units("embed", kind="head", active_state="failed"))
RETURN = "patch and reboot node2, then run maintenance.yml -e node=node2 -e state=return"


@pytest.mark.parametrize(
    ("ending", "hostvars", "run", "lines"),
    [
        (
            "rolled_back",
            restored(dict(NOTHING, heads_down=["llama-head-chat.service"])),
            ROLLBACK,
            [
                "chat: as of 2026-11-22, b1-cpu-5f27 serves (it answered 2 tokens in 0.1 s), nothing served for 3.5 s",
                "the inventory may still say what was rolled back: set llama_builds (b1-cpu-5f27) and the services as "
                "they were there, or the next site.yml switches again",
            ],
        ),
        (
            "rolled_back",
            restored(NOTHING, None),
            ROLLBACK,
            ["chat: as of 2026-11-22, none serves (it answered 2 tokens in 0.1 s), nothing had to restart", ...],
        ),
        (
            "rolled_back",
            restored(NOTHING, "b1", []),
            ROLLBACK,
            ["no service: as of 2026-11-22, b1 serves (none runs), nothing had to restart", ...],
        ),
        # Only jobs.
        (
            "rolled_back",
            restored(NOTHING, "b1", [], ()),
            ROLLBACK,
            [
                "the inventory may still say what was rolled back: set llama_builds (b1) and the services as they were "
                "there, or the next site.yml switches again"
            ],
        ),
        ("model_switched", switched(), SWITCH, [STAYS + "node1"]),
        ("model_switched", switched(), {**SWITCH, "park": "node2"}, [STAYS + "node2"]),
        ("model_switched", switched(retire="after"), SWITCH, ["chat: m.Q8_0.gguf serves"]),
        # The old file serves another service.
        ("model_switched", switched(wanted=[OLD, NEW]), SWITCH, ["chat: m.Q8_0.gguf serves"]),
        (
            "model_switched",
            switched(),
            {**SWITCH, "check_mode": True},
            ["chat: check mode, m.Q4_1.gguf serves on; what would change is shown above"],
        ),
        ("model_switched", switched(), {**SWITCH, "was": "Q4_1"}, [STAYS + "node1", TO_WRITE]),
        (
            "model_switched",
            {"node1": dict(files(), switch_model_trial={"trials": [TRIAL]})},
            {**SWITCH, "trial": "12h", "was": "Q4_1"},
            [
                "chat: m.Q8_0.gguf serves on trial until 2026-11-24 08:00 UTC, /opt/models/m.Q4_1.gguf stays on node1",
                "then Q4_1 is back by itself, unless switch_model.yml -e service=chat -e keep=true is run before that",
                "the inventory goes on saying Q4_1, and site.yml and others refuse to run until then",
            ],
        ),
        ("model_kept", kept(TRIAL), KEEP, ["chat: Q8_0 is kept, its trial is over", TO_WRITE]),
        ("model_kept", kept(TRIAL), {**KEEP, "was": "Q8_0"}, ["chat: Q8_0 is kept, its trial is over"]),
        ("model_kept", kept(TRIAL), {**KEEP, "check_mode": True}, ["chat: check mode, Q8_0 stays on trial"]),
        ("model_kept", kept(), KEEP, ["chat: not on trial, nothing is to be kept"]),
        *(
            (
                "model_switch_failed",
                switched({"apply_undo_failure": "no space left"}),
                {**SWITCH_FAILED, **run},
                [
                    "llama_services.chat: the new model does not serve (chat is down), %s: see journalctl -t "
                    "llama-head-chat on node1" % end
                ],
            )
            for run, end in (
                ({}, "the old one serves again"),
                ({"park": "node2"}, "m.Q4_1.gguf is back from node2 and serves again"),
                ({"undone": False}, "the old one does not answer either (no space left)"),
                ({"undone": False, "check_mode": True}, "nothing was changed, this is check mode"),
            )
        ),
        ("silent", {"node1": {"adoption_answers": {"results": SILENT}}}, {}, ["mute connection refused"]),
        ("silent", {"node1": {"adoption_answers": {"skipped": True}}}, {}, []),
        (
            "held",
            {"node1": units("chat", kind="head"), "node2": units("chat", "retired")},
            holding("chat", "embed"),
            ["maintenance: node2 is held, chat cannot answer until it returns", RETURN],
        ),
        (
            "held",
            {"node1": units("chat", kind="head"), "node2": units("chat", "retired")},
            holding(),
            ["maintenance: node2 is held, no service waits for it", RETURN],
        ),
        (
            "held",
            {"node1": units(), "node2": units("chat")},
            holding("chat", "embed", chat="stopped"),
            ["maintenance: node2 is held, no service waits for it", RETURN],
        ),
        # The other replicas answer.
        (
            "held",
            REPLICAS,
            holding("chat", "embed"),
            ["maintenance: node2 is held, chat cannot answer until it returns; embed answers on node1", RETURN],
        ),
        (
            "held",
            DEAD,
            holding("chat", "embed"),
            ["maintenance: node2 is held, chat, embed cannot answer until it returns", RETURN],
        ),
    ],
)
def test_ending_has_its_lines(ending, hostvars, run, lines):
    hosts = ["node1"] if ending.startswith("model_switch") else list(hostvars)
    found = outcome_lines(hostvars, ending, hosts, run)
    assert found[: lines.index(...)] == lines[:-1] if ... in lines else found == lines


ASKED = {"nodes": ["node1", "node2"], "services": {}, "groups": {}, "verbose": False}


@pytest.mark.parametrize(
    "more,text",
    [
        (
            {},
            "on trial with Q8_0 on node1 until 2026-11-24 08:00 UTC, kept with switch_model.yml -e service=chat -e "
            "keep=true, else Q4_1 is back",
        ),
        (
            {"state": "reverted", "at": "2026-11-24T08:00:13Z"},
            "the trial of Q8_0 on node1 was not kept, reverted to Q4_1 at 2026-11-24 08:00 UTC",
        ),
        (
            {"state": "failed", "at": "2026-11-24T08:00:13Z", "reason": "/opt/models/m.gguf is gone"},
            "the trial of Q8_0 on node1 was not kept, and Q4_1 could not be put back at 2026-11-24 08:00 UTC, "
            "/opt/models/m.gguf is gone",
        ),
    ],
)
def test_status_has_trials(more, text):
    node = {"held": None, "units": [], "current_build": "b1", "trials": [dict(TRIAL, **more)]}
    hostvars = {"node1": {"status_node": node}, "node2": {"status_node": dict(node, trials=[])}}
    assert outcome_lines(hostvars, "status", NODES, ASKED)[0] == "chat: " + text


def test_speed_of_replicas_names_nodes():
    hostvars = {
        "node1": {"upgrade_measured": {"embed": RATES, "chat": RATES}, "upgrade_baseline": {}},
        "node2": {"upgrade_measured": {"embed": RATES}, "upgrade_baseline": {"embed": dict(RATES, build="b1")}},
    }
    lines = outcome_lines(hostvars, "upgraded", NODES, UPGRADE)
    speeds = [line for line in lines if "tokens/s" in line]
    assert [line.partition(":")[0] for line in speeds] == ["chat", "embed on node1", "embed on node2"]
    assert "nothing to compare it with" in speeds[1] and "before: 40.0 and 200.0 with b1" in speeds[2]


def test_stopped_service_is_named_after_an_upgrade():
    services = {"chat": {"state": "stopped"}, "embed": {"state": "started"}}
    lines = outcome_lines({}, "upgraded", [], dict(UPGRADE, services=services))
    assert lines[0].startswith("embed: no build serves") and "chat: stopped, as the inventory says" in lines
    (line,) = outcome_lines({}, "upgraded", [], dict(UPGRADE, services={"chat": {"state": "stopped"}}, idle=True))
    assert line.startswith("no service: nothing to do, ")


def test_status_names_silent_nodes():
    node = {"held": None, "units": [], "current_build": "b1"}
    head = {"service": "chat", "shares": [], "endpoint": "http://10.0.0.1:8000/v1"}
    answer = {"item": head, "state": "ready", "reason": "it answers"}
    hostvars = {"node1": {"status_node": node, "status_heads": {"results": [answer]}}, "node2": {"status_node": node}}
    asked = dict(ASKED, nodes=["node1", "node2", "node3"], groups={"all": ["node1", "node2", "node3"]})
    asked["services"] = {"embed": {"model": "m", "quant": "Q", "head": "node3"}}
    rows = [line.split("  ") for line in outcome_lines(hostvars, "status", ["node1", "node2"], asked)]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["service", "nodes", "state", "endpoint", "what it says"],
        ["chat", "-", "ready", "http://10.0.0.1:8000/v1", "it answers"],
        ["embed", "node3", "no answer", "-", "-"],
    ]
