# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of the accounting; molecule/slurm makes them in a real one."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import accounting
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm.accounting import Association, Found
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

QOS = {
    "ai_opportunistic": {"priority": 100, "grace_time": 30, "preempt_mode": "requeue"},
    "vasp_priority": {"priority": 1000, "preempt": ["ai_opportunistic"]},
}
ASSOCIATIONS = [{"user": "ai", "account": "lab", "qos": ["ai_opportunistic"]}]
EMPTY = Found(
    "lab", {"normal": {"priority": 0, "grace_time": 0, "preempt": [], "preempt_mode": "cluster"}}, frozenset(), ()
)
THERE = Found(
    "lab",
    accounting.parse_qos(
        "normal|0|00:00:00||cluster\n"
        "ai_opportunistic|100|00:00:30||requeue\n"
        "vasp_priority|1000|00:00:00|ai_opportunistic|cluster\n"
    ),
    frozenset(["root", "lab"]),
    accounting.parse_associations("lab|root|||normal\nlab|lab|||normal\nlab|lab|ai||ai_opportunistic,normal\n", "lab"),
)


def present(found, qos=None, associations=None):
    return accounting.present(found, *accounting.wanted(QOS if qos is None else qos, associations or ASSOCIATIONS))


def test_nothing_changes_twice():
    changes = present(THERE)
    assert (changes.calls, changes.before, changes.after) == ([], [], [])
    assert changes.created == {"qos": [], "associations": []}


def test_all_is_made():
    changes = present(EMPTY)
    assert [" ".join(call) for call in changes.calls] == [
        "sacctmgr -i add qos ai_opportunistic",
        "sacctmgr -i add qos vasp_priority",
        "sacctmgr -i modify qos where Name=ai_opportunistic set Priority=100 GraceTime=30 PreemptMode=requeue",
        "sacctmgr -i modify qos where Name=vasp_priority set Priority=1000 Preempt=ai_opportunistic",
        "sacctmgr -i add account lab Cluster=lab",
        "sacctmgr -i add user ai Account=lab Cluster=lab QOS=ai_opportunistic",
    ]
    assert changes.created == {"qos": list(QOS), "associations": [{"user": "ai", "account": "lab"}]}


def test_only_what_differs_changes():
    changes = present(THERE, {"ai_opportunistic": {"grace_time": 60, "priority": 100}, "normal": {}})
    assert [" ".join(call) for call in changes.calls] == [
        "sacctmgr -i modify qos where Name=ai_opportunistic set GraceTime=60"
    ]
    assert (changes.before, changes.after) == (
        ["qos ai_opportunistic: GraceTime=30"],
        ["qos ai_opportunistic: GraceTime=60"],
    )


def test_other_qos_of_a_user_stay():
    changes = present(THERE, {}, [{"user": "ai", "account": "lab", "qos": ["vasp_priority"]}])
    (call,) = changes.calls
    assert " ".join(call) == ("sacctmgr -i modify user where Name=ai Account=lab Cluster=lab set QOS+=vasp_priority")
    assert changes.after == ["user ai of account lab: QOS=ai_opportunistic,normal,vasp_priority"]
    assert changes.created["associations"] == []


def test_preempted_qos_are_emptied():
    changes = present(THERE, {"vasp_priority": {"preempt": []}})
    assert changes.calls[0][-1] == "Preempt="


def test_only_named_ones_are_removed():
    changes = accounting.absent(
        THERE, ["ai_opportunistic", "gone"], [Association("ai", "lab"), Association("bob", "lab")]
    )
    assert [" ".join(call) for call in changes.calls] == [
        "sacctmgr -i delete user where Name=ai Account=lab Cluster=lab",
        "sacctmgr -i delete qos where Name=ai_opportunistic",
    ]
    assert accounting.absent(EMPTY, ["ai_opportunistic"], [Association("ai", "lab")]).calls == []


def test_associations_of_other_clusters_are_others():
    assert accounting.parse_associations("other|lab|ai||normal\nlab|lab|ai|gpu|normal\n", "lab") == ()


@pytest.mark.parametrize(
    "qos, associations",
    [
        ({"a b": {}}, []),
        ({"a": 7}, []),
        ({"a": {"priority": "high"}}, []),
        ({"a": {"grace_time": -1}}, []),
        ({"a": {"preempt": "b"}}, []),
        ({"a": {"preempt_mode": "maybe"}}, []),
        ({"a": {"maxjobs": 1}}, []),
        ({}, [{"user": "a", "account": "b,c"}]),
        ({}, [{"user": "a", "account": "b", "qos": ["-x"]}]),
    ],
)
def test_unknown_forms_are_refused(qos, associations):
    with pytest.raises(Refusal, match="needed"):
        accounting.wanted(qos, associations)
