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
def test_the_reason_is_one_line(result, reason):
    assert failure_reason(result) == reason


def test_attributes_that_were_private_before_are_found():
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
def test_what_ansible_wraps_around_a_message_goes(text, bare):
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


def shown(*results):
    failures = Failures()
    for one in results:
        failures.add(one)
    return failures.take(), FAILURE in failures.said.values()


ASSERT, OWN = "ansible.builtin.assert", "thefermisea.llama_cluster.gguf_fetch"


def test_refusal_is_shown_once():
    sentence = "llama_services.chat.port: 0 seen, 1 to 65535 is needed: choose another number"
    assert shown(failed(sentence, "n1", action=ASSERT), failed(sentence, "n2", action=ASSERT)) == ([sentence], False)
    assert shown(failed("one\n\n  two", action=ASSERT)) == (["one", "two"], False)
    assert shown(failed("", action=ASSERT)) == (["no reason given"], False)


def test_other_failure_has_task_and_hosts():
    assert shown(failed("no space", "n1"), failed("no space", "n2"), failed("busy", "n2")) == (
        ["n1, n2: Do it: no space", "n2: Do it: busy"],
        True,
    )
    assert shown(failed("n1: no space", action=OWN)) == (["n1: no space"], True), "the sentence names the host itself"
    assert shown(failed("no space", action=OWN)) == (["n1: no space"], True)


def test_preflight_refuses_whatever_its_tasks_are():
    assert shown(failed("no space\nleft", role="preflight")) == (["no space; left"], False)
    assert shown(failed("no space", role="head_server")) == (["n1: Do it: no space"], True)


def test_last_lines_of_errors_are_shown():
    errors = "\n".join("e%d" % number for number in range(9))
    assert shown(failed("rc 1", stderr=errors)) == (["n1: Do it: rc 1\ne4\ne5\ne6\ne7\ne8"], True)
    assert shown(failed("rc 1", stderr="a", module_stderr="b")) == (["n1: Do it: rc 1\na\nb"], True)
    lines = "\n".join("m%d" % number for number in range(9))
    assert shown(failed(lines)) == (["n1: Do it: m0\nm4\nm5\nm6\nm7\nm8"], True)


def test_only_failed_items_are_shown():
    items = [
        {"ansible_loop_var": "item", "msg": "fine"},
        {"ansible_loop_var": "item", "msg": "bad", "failed": True},
        {"ansible_loop_var": "item", "msg": "worse", "exception": "Traceback"},
        {"msg": "no item of a loop", "failed": True},
        "numactl",
    ]
    assert shown(failed("All items completed", results=items)) == (["n1: Do it: bad", "n1: Do it: worse"], True)
    assert shown(failed("All items completed", results=items[:1])) == (["n1: Do it: All items completed"], True)
    assert shown(failed(None, censored="hidden")) == (["n1: Do it: hidden"], True)
    assert shown(failed(None)) == (["n1: Do it: no reason given"], True)


def test_failed_expression_has_its_task():
    """The task had not begun: every host says the same."""
    message = "Finalization of task args for 'x' failed: 'port' is undefined\nmore of it"
    assert shown(failed(message, "n1"), failed(message, "n2")) == (["Do it: 'port' is undefined; more of it"], True)
    own = "Error while resolving value: The filter plugin 'thefermisea.llama_cluster.x' failed: no plan"
    assert shown(failed(own)) == (["no plan"], True)


def test_what_was_shown_is_not_shown_again():
    failures = Failures()
    for name, lines in (("n1", ["n1: Do it: busy"]), ("n2", []), ("n3", [])):
        failures.add(failed("busy", name))
        assert failures.take() == lines
    assert failures.take() == []


def test_lost_host_is_named_with_the_reason():
    failures = Failures()
    failures.add_unreachable(failed("Task failed: no route\nto host", "n1"))
    assert failures.take() == ["n1: no route; to host"]


FAIL, RAW, PING = "ansible.builtin.fail", "ansible.builtin.raw", "ansible.builtin.ping"


def kinds(*results, noted=()):
    """The kinds of refusals after these results."""
    failures = Failures()
    for one, how in noted:
        failures.note(one, **how)
    for one in results:
        failures.add(one)
    return list(failures.said.values())


VALUE = "llama_services.chat.port: 0 seen, 1 to 65535 is needed: choose another number"
DOWN = "n1: no answer from 10.0.0.1 over ssh: try `ssh n1` on this machine"


def test_refusal_before_any_host_is_a_mistake():
    assert kinds(failed(VALUE, action=FAIL), failed("switch_model: no service given", action=FAIL)) == [MISTAKE] * 2
    looked = [(failed("", "localhost", action=PING), {}), (failed("", action="ansible.builtin.set_fact"), {})]
    looked.append((failed("", action=PING, _ansible_delegated_vars={"ansible_delegated_host": "localhost"}), {}))
    assert kinds(failed("switch_model: no service given", action=FAIL), noted=looked) == [MISTAKE]


def test_refusal_after_a_host_is_a_finding():
    asked = [(failed("", action=PING), {})]
    assert kinds(failed("n1: port 8000 is in use", action=FAIL, role="preflight"), noted=asked) == [FINDING]
    # The same words of preflight and of verify.
    assert kinds(failed(VALUE, action=FAIL, role="preflight"), noted=asked) == [MISTAKE]
    assert kinds(failed(VALUE, action=FAIL, path="roles/gateway/tasks/preflight.yml:3"), noted=asked) == [MISTAKE]
    assert kinds(failed(VALUE, action=FAIL, role="acceptance"), noted=asked) == [FINDING]


def test_a_host_that_did_not_answer_is_neither():
    silent = [(failed("", action=RAW), {"unreachable": True})]
    assert kinds(failed(DOWN, action=FAIL, role="preflight"), noted=silent) == [SILENT]
    # As a container that does not run.
    silent = [(failed("", action=RAW), {"failed": True})]
    assert kinds(failed(DOWN, action=FAIL, role="preflight"), noted=silent) == [SILENT]
    # A host without root for us has answered.
    lets_in = [(failed("", action=RAW), {}), (failed("", action=RAW), {"failed": True})]
    assert kinds(failed("n1: sudo asks for a password", action=FAIL, role="preflight"), noted=lets_in) == [FINDING]
    failures = Failures()
    failures.add_unreachable(failed("no route", "n1"))
    assert failures.of_kind(SILENT) == ["n1: no route"]


def test_failed_template_is_no_mistake():
    """Such as under an ansible.cfg of the operator's own."""
    message = "Error while resolving value for 'that': 'x' is undefined"
    assert kinds(failed(message, action=ASSERT, role="preflight")) == [FAILURE]


def test_counted_findings_are_added():
    failures = Failures()
    failures.note(failed("", action=PING))
    failures.add(failed("7 findings", action=FAIL))
    assert (failures.take(), failures.findings()) == ([], 7)
    failures.add(failed("n1: 3 findings more", action=FAIL))
    assert (failures.take(), failures.findings()) == (["n1: 3 findings more"], 8)
