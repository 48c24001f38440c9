# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an answer to its verdict. The scripts of the sandbox run in a directory, with stand-ins for rustc and clippy."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._judge import judge
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._judge.exchange import Outcome, exchange
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._judge.harness import (
    Case,
    cases_of,
    crate,
    refused_crate,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

TESTS = "use answer::*;\n#[test]\nfn one() {\n}\n\n#[test]\n#[should_panic]\nfn two() {\n}\n"
TASK = {"name": "fix/a", "judge": "rust", "tests": TESTS, "refused": None, "dir": None}
# A line of the answer asks for this: `// MESSAGES STEP`, `// passes COUNT`, `// then SHELL`.
RUSTC = r"""#!/bin/sh
case "$1" in --version) echo "${0##*/} 1.63.0"; exit ;; esac
while [ $# -gt 0 ]; do
    case "$1" in
        --crate-name) step=$2 ;;
        -o) out=$2 ;;
    esac
    shift
done
# Only the first steps have the answer's text.
case $step in
    answer) cp answer.rs kept.rs; [ ! -e judged.rs ] || exit 5 ;;
    linted) ;;
    *) [ ! -e answer.rs ] || exit 6 ;;
esac
if said=$(grep "^// said $step " kept.rs); then
    echo "${said#// said "$step" }" >&2
    ! grep -q "^// fails $step" kept.rs || exit 1
fi
count=$(sed -n 's,^// passes ,,p' kept.rs)
{ echo '#!/bin/sh'; echo "head -n ${count:-9}"; sed -n 's,^// then ,,p' kept.rs; } >"$out"
"""


def said(step, code, message="wrong", level="error"):
    """A line of an answer after which a step has this message."""
    return "// said %s %s\n" % (step, json.dumps({"message": message, "code": code and {"code": code}, "level": level}))


@pytest.fixture(name="start")
def fixture_start(tmp_path, monkeypatch):
    programs, work = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    for name in ("rustc", "clippy-driver"):
        (programs / name).write_text(RUSTC)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % programs)

    def start(_user, script, given, most, seconds, folder):
        text = script[0].replace("cd /judge", "cd %s" % work).replace("cd /task", "cd %s" % folder)
        ended = exchange(["sh", "-c", text, "judge", *script[1:]], given, most, seconds)
        assert ended.output.startswith(b"ready\n")
        return ended._replace(output=ended.output[len(b"ready\n") :])

    start.programs, start.work = programs, work
    return start


def verdict(start, source="", task=None):
    return judge.judge(task or TASK, "key", source, start)


def test_all_tests_pass(start):
    source = "// a\n\n" + said("linted", "clippy::needless_return", level="warning")
    found = verdict(start, source + "// then exit 0")
    assert found.as_dict() == {
        "answer": "key",
        "passes": True,
        "compiles": True,
        "reason": "",
        "errors": {},
        "lines": 3,
        "clippy_warnings": 1,
    }


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("// passes 1", "1 test of 2 failed, the first one is two"),
        ("// passes 0", "2 tests of 2 failed, the first one is one"),
        ("// passes 0\n// then exit 0", "2 tests of 2 failed, the first one is one"),
        (
            "// passes 0\n// then echo 'test one ... ok'; echo 'test two ... ok'",
            "2 tests of 2 failed, the first one is one",
        ),
        ("// then exit 3", "it ended with status 3"),
        ("// then exit 137", "it was killed: it took too much time or memory"),
        ("// then exec cat /dev/zero", "it printed more than allowed"),
    ],
)
def test_run_without_every_token_does_not_pass(start, source, reason):
    found = verdict(start, source)
    assert (found.passes, found.compiles, found.reason, found.errors) == (False, True, reason, {})


def test_errors_of_the_answer_are_counted(start):
    source = said("answer", "E0382", "use of moved value: `x`").replace("// said answer ", "", 1)
    lines = [source.strip(), json.dumps({"message": "again", "code": {"code": "E0382"}, "level": "error"})]
    lines += [json.dumps({"message": "1 warning", "code": None, "level": "warning"}), '{"message": "cut o']
    assert len(judge.messages("\n".join(lines).encode())) == 3
    found = verdict(start, said("answer", "E0382", "use of moved value: `x`") + "// fails answer")
    assert (found.passes, found.compiles, found.errors) == (False, False, {"E0382": 1})
    assert found.reason == "does not compile: E0382: use of moved value: `x`"


def test_lint_is_no_error_code(start):
    found = verdict(start, said("answer", "unsafe_code", "usage of an `unsafe` block\x1b[31m") + "// fails answer")
    assert found.errors == {} and found.reason.endswith("unsafe_code: usage of an `unsafe` block?[31m")


def test_global_asm_is_not_compiled():
    found = judge.judge(TASK, "key", 'core::arch::global_asm!("");', None)
    assert (found.passes, found.compiles) == (False, False) and "global_asm" in found.reason


def test_other_signature_is_an_error_of_tests(start):
    found = verdict(start, said("judged", "E0061") + "// fails judged")
    assert (found.passes, found.compiles, found.errors) == (False, True, {"E0061": 1})
    assert found.reason == "its tests do not compile with it: E0061: wrong"


@pytest.mark.parametrize(
    ("source", "passes"),
    [
        ("", False),
        (said("refused", "E0382") + "// fails refused", True),
        (said("refused", "E0463", "can't find crate") + "// fails refused", False),
        (said("refused", None, "expected item") + "// fails refused", False),
        (said("refused", "E0659") + "// fails refused", False),
        (said("refused", "E0382", level="warning"), False),
    ],
)
def test_refused_program_must_have_an_error(start, source, passes):
    found = verdict(start, source, {**TASK, "refused": "use answer::*;"})
    assert found.passes is passes
    assert found.reason == ("" if passes else "refused.rs compiles with it, an error is needed")


def test_refused_program_has_the_names_of_std():
    text = refused_crate("use answer::*;\nfn main() {}\n")
    assert "macro_rules! println" in text and "primitive::*" in text and "require_alike" not in text


def test_separators_of_unicode_hide_no_message():
    one = {"message": "a\u2028b", "level": "warning", "code": {"code": "clippy::needless_return"}}
    data = json.dumps(one, ensure_ascii=False).encode() + b"\n"
    assert judge.clippy_warnings(data * 2) == 2


def test_separators_of_unicode_are_no_lines(start):
    assert verdict(start, "// a\u2028b\x0bc\n\n// d\n").lines == 2


def test_missing_clippy_is_no_figure(start):
    (start.programs / "clippy-driver").unlink()
    assert verdict(start).clippy_warnings is None
    assert judge.versions(start) == ("rustc 1.63.0", None)


def test_missing_rustc_is_refused(start):
    (start.programs / "rustc").write_text("#!/bin/sh\nexit 127\n")
    with pytest.raises(Refusal, match="has no rustc"):
        judge.versions(start)


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (Outcome(None, b"", True, False, ""), "the compiler took more than 240 s"),
        (Outcome(137, b"", False, False, ""), "the compiler was killed: it took too much time or memory"),
        (Outcome(None, b"answer 0 99999\nx", False, True, ""), "the compiler printed more than allowed"),
        (Outcome(0, b"answer 152 0\n", False, False, ""), "the compiler was killed: it took too much time or memory"),
        (Outcome(2, b"", False, False, ""), "does not compile"),
    ],
)
def test_compiler_without_an_end_does_not_pass(ended, reason):
    found = judge.judge(TASK, "key", "", lambda *_arguments: ended)
    assert (found.passes, found.compiles, found.reason) == (False, False, reason)


@pytest.mark.parametrize("output", [b"answer 0 5\nabcd", b"answer -1 0\n", b"answer 0\n", b"\xff\n", b"a 0 \xc2\xb2\n"])
def test_incomplete_parts_are_left_out(output):
    assert judge.steps_of(b"first 1 2\n{}" + output) == {"first": (1, b"{}")}


def test_command_has_the_last_word(start, tmp_path):
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "judge.sh").write_text('#!/bin/sh\ngrep -q "$1" && exit 0\nexit 4\n')
    (folder / "judge.sh").chmod(0o755)
    task = {"name": "own/a", "judge": ["./judge.sh", "yes"], "tests": None, "refused": None, "dir": str(folder)}
    assert verdict(start, "I say yes.", task).as_dict() == {
        "answer": "key",
        "passes": True,
        "compiles": None,
        "reason": "",
        "errors": {},
        "lines": 1,
        "clippy_warnings": None,
    }
    assert verdict(start, "I say no.", task).reason == "./judge.sh ended with status 4"


def test_verdicts_have_the_order_of_answers(start):
    def quick(_user, script, given, *_rest):
        return Outcome(int(given), b"", False, False, "")

    task = {**TASK, "judge": ["./judge.sh"], "dir": "/task"}
    answers = [{"answer": str(number), "task": "fix/a", "source": str(number % 2)} for number in range(20)]
    found = judge.verdicts([task], answers, quick)
    assert [(one["answer"], one["passes"]) for one in found] == [(str(n), n % 2 == 0) for n in range(20)]
    with pytest.raises(Refusal, match="task fix/b is of an answer"):
        judge.verdicts([task], [{"answer": "1", "task": "fix/b", "source": ""}], quick)


def test_tests_become_functions_of_a_program():
    assert cases_of("fix/a", TESTS) == [Case("one", False), Case("two", True)]
    text = crate(TESTS, cases_of("fix/a", TESTS), "n1")
    assert "#[test]" not in text and "should_panic" not in text
    assert "[(one, false), (two, true)]" in text and "macro_rules! assert_eq" in text
    assert "macro_rules! vec " in text and "primitive::*" in text and text.count("require_alike(left, right)") == 2


@pytest.mark.parametrize(
    "text",
    ["", "fn one() {}", TESTS + "// #[test]\n", TESTS.replace("fn two()", "fn two(a: u8)"), "#[test] #[ignore] fn a()"],
)
def test_tests_of_another_form_are_refused(text):
    with pytest.raises(Refusal, match="task fix/a: tests.rs has"):
        cases_of("fix/a", text)
