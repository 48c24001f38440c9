# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import types

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.failures import (
    FAILURE,
    FINDING,
    MISTAKE,
    NO_REASON,
    SILENT,
    Failures,
    failure_reason,
    is_rescued,
    of,
    unwrapped,
)


@pytest.mark.parametrize(
    "result,reason",
    [
        ({"failed": True, "msg": "no space left"}, "no space left"),
        ({"failed": True, "msg": "two\n  lines of it\n"}, "two lines of it"),
        ({"failed": True, "msg": "Task failed: Module failed: no space left"}, "no space left"),
        (
            {
                "failed": True,
                "msg": "All items completed",
                "results": [{"msg": "fine"}, {"failed": True, "msg": "chat is down"}],
            },
            "chat is down",
        ),
        (
            {
                "failed": True,
                "msg": "All items completed",
                "results": [{"failed": True, "msg": "first"}, {"failed": True, "msg": "second"}],
            },
            "first",
        ),
        # An item whose failure says nothing, and a module whose results are no items of a loop.
        (
            {"failed": True, "msg": "One or more items failed", "results": [{"failed": True}]},
            "One or more items failed",
        ),
        ({"failed": True, "msg": "no such package", "results": ["numactl"]}, "no such package"),
        ({"failed": True, "msg": ""}, NO_REASON),
        ({"failed": True, "rc": 1}, NO_REASON),
        ({}, NO_REASON),
        (None, NO_REASON),
    ],
)
def test_reason_is_one_line(result, reason):
    assert failure_reason(result) == reason


def test_attributes_of_ansible_2_18_are_found():
    assert of(types.SimpleNamespace(task=1, _task=2), "task") == 1
    assert of(types.SimpleNamespace(_task=2), "task") == 2


def block(number, parent=None, rescue=(), always=()):
    return types.SimpleNamespace(_uuid=number, _parent=parent, rescue=list(rescue), always=list(always))


def test_failure_in_a_block_is_rescued():
    """The task, the block around it, and a block around that one."""
    task = types.SimpleNamespace(_uuid=1, _parent=None)
    assert not is_rescued(task)
    task._parent = block(2)
    assert not is_rescued(task)
    task._parent = block(2, rescue=[block(8)])
    assert is_rescued(task)
    # In the rescue itself and in the always of a block nothing leads back to it.
    for place in ("rescue", "always"):
        own = {"rescue": [block(8)], **{place: [block(8), task]}}
        task._parent = block(2, **own)
        assert not is_rescued(task)
        task._parent = block(2, parent=block(3, rescue=[block(9)]), **own)
        assert is_rescued(task), "the block around it has a rescue too"
        inner = block(2)
        inner._parent = block(3, rescue=[inner], always=[])
        task._parent = inner
        assert not is_rescued(task)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("no space left", "no space left"),
        ("Task failed: Action failed: Module failed: no space left", "no space left"),
        ("gone. gone", "gone"),
        ("gone. gone.", "gone. gone."),
        ("bad\n\nThe error appears to be in 'x.yml': line 1\n\nmore", "bad"),
        ("The filter plugin 'a.b.c' failed: no plan", "no plan"),
    ],
)
def test_words_of_ansible_are_removed(text, bare):
    assert unwrapped(text) == bare


def failed(msg, host="n1", name="Do it", action="ansible.builtin.command", role=None, path="x.yml:1", **returned):
    """A result as the callback gets it."""
    of_role = role and types.SimpleNamespace(get_name=lambda include_role_fqcn: role)
    return types.SimpleNamespace(
        task=types.SimpleNamespace(resolved_action=action, action=action, _role=of_role, get_path=lambda: path),
        host=types.SimpleNamespace(get_name=lambda: host),
        result=dict(returned, msg=msg),
        task_name="%s : %s" % ("role", name),
    )


ASSERT, OWN = "ansible.builtin.assert", "thefermisea.llama_cluster.gguf_fetch"


PORT = "llama_services.chat.port: 0 seen, 1 to 65535 is needed: choose another number"
EXPRESSION = "Finalization of task args for 'x' failed: 'port' is undefined\nmore of it"
FILTER = "Error while resolving value: The filter plugin 'thefermisea.llama_cluster.x' failed: no plan"
NINE = "\n".join("m%d" % number for number in range(9))
ITEMS = [
    {"ansible_loop_var": "item", "msg": "fine"},
    {"ansible_loop_var": "item", "msg": "bad", "failed": True},
    {"ansible_loop_var": "item", "msg": "worse", "exception": "Traceback"},
    {"msg": "no item of a loop", "failed": True},
    "numactl",
]


@pytest.mark.parametrize(
    ("results", "lines", "failure"),
    [
        # A refusal is shown once.
        ([failed(PORT, "n1", action=ASSERT), failed(PORT, "n2", action=ASSERT)], [PORT], False),
        ([failed("one\n\n  two", action=ASSERT)], ["one", "two"], False),
        ([failed("", action=ASSERT)], ["no reason given"], False),
        # Another failure has its task and hosts.
        (
            [failed("no space", "n1"), failed("no space", "n2"), failed("busy", "n2")],
            ["n1, n2: Do it: no space", "n2: Do it: busy"],
            True,
        ),
        # The sentence names the host itself.
        ([failed("n1: no space", action=OWN)], ["n1: no space"], True),
        ([failed("no space", action=OWN)], ["n1: no space"], True),
        # Preflight refuses whatever its tasks are.
        ([failed("no space\nleft", role="preflight")], ["no space; left"], False),
        ([failed("no space", role="head_server")], ["n1: Do it: no space"], True),
        # The last lines of errors.
        ([failed("rc 1", stderr=NINE)], ["n1: Do it: rc 1\nm4\nm5\nm6\nm7\nm8"], True),
        ([failed("rc 1", stderr="a", module_stderr="b")], ["n1: Do it: rc 1\na\nb"], True),
        ([failed(NINE)], ["n1: Do it: m0\nm4\nm5\nm6\nm7\nm8"], True),
        # Only failed items.
        ([failed("All items completed", results=ITEMS)], ["n1: Do it: bad", "n1: Do it: worse"], True),
        ([failed("All items completed", results=ITEMS[:1])], ["n1: Do it: All items completed"], True),
        ([failed(None, censored="hidden")], ["n1: Do it: hidden"], True),
        ([failed(None)], ["n1: Do it: no reason given"], True),
        # A failed expression is the same on every host.
        ([failed(EXPRESSION, "n1"), failed(EXPRESSION, "n2")], ["Do it: 'port' is undefined; more of it"], True),
        ([failed(FILTER)], ["no plan"], True),
    ],
)
def test_failure_is_shown(results, lines, failure):
    failures = Failures()
    for one in results:
        failures.add(one)
    assert (failures.take(), FAILURE in failures.said.values()) == (lines, failure)


def test_shown_failure_is_not_repeated():
    failures = Failures()
    for name, lines in (("n1", ["n1: Do it: busy"]), ("n2", []), ("n3", [])):
        failures.add(failed("busy", name))
        assert failures.take() == lines
    assert failures.take() == []


def test_lost_host_is_named_with_the_reason():
    failures = Failures()
    failures.add_unreachable(failed("Task failed: no route\nto host", "n1"))
    assert failures.of_kind(SILENT) == failures.take() == ["n1: no route; to host"]


FAIL, RAW, PING = "ansible.builtin.fail", "ansible.builtin.raw", "ansible.builtin.ping"


DOWN = "n1: no answer from 10.0.0.1 over ssh: try `ssh n1` on this machine"
TEMPLATE = "Error while resolving value for 'that': 'x' is undefined"
AT_HOME = {"_ansible_delegated_vars": {"ansible_delegated_host": "localhost"}}
LOOKED = [
    (failed("", "localhost", action=PING), {}),
    (failed("", action="ansible.builtin.set_fact"), {}),
    (failed("", action=PING, **AT_HOME), {}),
]
ASKED = [(failed("", action=PING), {})]
SUDO = failed("n1: sudo asks for a password", action=FAIL, role="preflight")


@pytest.mark.parametrize(
    ("result", "noted", "kind"),
    [
        # Before any host was contacted.
        (failed(PORT, action=FAIL), (), MISTAKE),
        (failed("switch_model: no service given", action=FAIL), LOOKED, MISTAKE),
        (failed("n1: port 8000 is in use", action=FAIL, role="preflight"), ASKED, FINDING),
        # The same words of preflight and of verify.
        (failed(PORT, action=FAIL, role="preflight"), ASKED, MISTAKE),
        (failed(PORT, action=FAIL, path="roles/gateway/tasks/preflight.yml:3"), ASKED, MISTAKE),
        (failed(PORT, action=FAIL, role="acceptance"), ASKED, FINDING),
        # A host without an answer, as a container that does not run.
        (failed(DOWN, action=FAIL, role="preflight"), [(failed("", action=RAW), {"unreachable": True})], SILENT),
        (failed(DOWN, action=FAIL, role="preflight"), [(failed("", action=RAW), {"failed": True})], SILENT),
        # A host without root for us has answered.
        (SUDO, [(failed("", action=RAW), {}), (failed("", action=RAW), {"failed": True})], FINDING),
        # A template fails under an ansible.cfg of the operator's own.
        (failed(TEMPLATE, action=ASSERT, role="preflight"), (), FAILURE),
    ],
)
def test_refusal_has_a_kind(result, noted, kind):
    failures = Failures()
    for one, how in noted:
        failures.note(one, **how)
    failures.add(result)
    assert list(failures.said.values()) == [kind]


def test_counted_findings_are_added():
    failures = Failures()
    failures.note(failed("", action=PING))
    failures.add(failed("7 findings", action=FAIL))
    assert (failures.take(), failures.findings()) == ([], 7)
    failures.add(failed("n1: 3 findings more", action=FAIL))
    assert (failures.take(), failures.findings()) == (["n1: 3 findings more"], 8)
