# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an answer to its verdict: compile it, compile the task's tests against it, run them. Private to the collection.

All of rustc's steps are one sandbox, the program is another one, and gets there over this process's pipes. rustc runs
nothing of an answer's: it is a library without macros that run (`--crate-type rlib`), and without unsafe code.
"""

from __future__ import annotations

import collections
import concurrent.futures
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

from .._text import Refusal, counted, printable
from .exchange import Outcome
from .harness import cases_of, crate, refused_crate
from .sandbox import TASK, WORK, Way, run

RUST = "rust"
# CPU seconds of one process; seconds of a clock, so that a busy host does not fail a right answer.
COMPILE_CPU, RUN_CPU = 60, 20
COMPILE_SECONDS, RUN_SECONDS = 240, 40
# Bytes of diagnostics of one step, of a program, of all that the compiling sandbox returns, of a run's output.
MOST_SAID, MOST_PROGRAM = 256 << 10, 32 << 20
MOST_COMPILED = MOST_PROGRAM + 4 * MOST_SAID + 4096
MOST_OUTPUT = 64 << 10
# At once, as sandboxes have one core each.
SIDE_BY_SIDE = 4
# The exit status after SIGKILL and SIGXCPU: of a shell and an engine's client, and of systemd-run.
KILLED = (137, 152, 255)
# rustc 1.63 does not count it as unsafe code.
UNSAFE_MACRO = "global_asm"
# A name that is missing in refused.rs is refused with every answer, as is one of std that the answer has too.
UNRESOLVED = {"E0405", "E0412", "E0425", "E0432", "E0433", "E0463", "E0659"}
VERSIONS = """
echo ready
rustc --version
clippy-driver --version
"""
# Arguments: the sizes of the sources on stdin, the last one 0 without refused.rs. Each step's part of the output is
# `NAME STATUS SIZE`, a line, and so many bytes. An answer can include files: it is compiled before the tests are there.
# It can also have files linked: its own text could be a script for the linker.
COMPILE = f"""
cd {WORK} && >part || exit
exec 2>/dev/null
ulimit -t {COMPILE_CPU}
echo ready
part() {{
    head -c "$4" "$3" >part
    echo "$1 $2 $(wc -c <part)"
    cat part
}}
head -c "$1" >answer.rs
lib='--edition 2021 --error-format json --crate-type rlib'
rustc $lib --crate-name answer -F unsafe_code -C codegen-units=1 answer.rs -o libanswer.rlib \\
    </dev/null 2>said
status=$?
part answer $status said {MOST_SAID}
[ $status = 0 ] || exit 0
if command -v clippy-driver >/dev/null; then
    clippy-driver $lib --crate-name linted --force-warn clippy::all --emit metadata answer.rs -o linted.rmeta \\
        </dev/null 2>said
    part clippy $? said {MOST_SAID}
fi
rm answer.rs
head -c "$2" >judged.rs
head -c "$3" >refused.rs
if [ "$3" != 0 ]; then
    rustc $lib --crate-name refused --extern answer=libanswer.rlib --emit metadata refused.rs -o refused.rmeta 2>said
    part refused $? said {MOST_SAID}
fi
rustc --edition 2021 --error-format json --crate-name judged --extern answer=libanswer.rlib -C codegen-units=1 \\
    -C strip=symbols judged.rs -o judged 2>said
status=$?
part tests $status said {MOST_SAID}
[ $status = 0 ] && part program 0 judged {MOST_PROGRAM}
"""
RUN = f"""
cd {WORK} && >judged || exit
exec 2>/dev/null
ulimit -t {RUN_CPU}
echo ready
head -c "$1" >judged
chmod 500 judged
exec ./judged
"""
COMMAND = f"""
cd {TASK} || exit
exec 2>/dev/null
ulimit -t {COMPILE_CPU}
echo ready
exec "$@"
"""


class Step(NamedTuple):
    """A part of what the compiling sandbox returns."""

    status: int
    data: bytes


class Verdict(NamedTuple):
    """The verdict of an answer, as docs/evaluation.md has it."""

    answer: str
    passes: bool
    compiles: bool | None
    reason: str
    errors: Mapping[str, int]
    lines: int
    clippy_warnings: int | None

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()


# Runs a script in a sandbox: user, script and arguments, stdin, bytes of output, seconds, directory of the task.
Runner = Callable[[int, Sequence[str], bytes, int, int, str], Outcome]


def runner(way: Way) -> Runner:
    """Sandboxes of this way."""
    return lambda *arguments: run(way, *arguments)


def versions(start: Runner) -> tuple[str, str | None]:
    """-> the versions of rustc, and of clippy, if there is one. Errors: Refusal without rustc."""
    said = start(65534, (VERSIONS,), b"", MOST_OUTPUT, RUN_SECONDS, "").output.decode("utf-8", "replace").splitlines()
    if not said or not said[0].startswith("rustc "):
        raise Refusal("judging: the sandbox has no rustc, one is needed: name an image that has it")
    return printable(said[0]), printable(said[1]) if len(said) > 1 else None


def verdicts(
    tasks: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]], start: Runner
) -> list[dict[str, Any]]:
    """One verdict for each answer, in their order. Errors: Refusal."""
    named = {task["name"]: task for task in tasks}
    unknown = sorted({one["task"] for one in answers} - set(named))
    if unknown:
        raise Refusal(f"judging: task {unknown[0]} is of an answer, and not among the tasks: add it to them")
    with concurrent.futures.ThreadPoolExecutor(min(SIDE_BY_SIDE, os.cpu_count() or 1)) as pool:
        found = pool.map(lambda one: judge(named[one["task"]], one["answer"], one["source"], start), answers)
        return [one.as_dict() for one in found]


def lines_of(text: str) -> int:
    """Lines that are not blank."""
    return sum(1 for line in text.split("\n") if line.strip())


def judge(task: Mapping[str, Any], key: str, source: str, start: Runner) -> Verdict:
    """The verdict of one answer. source: the program that it has; for a task with a command all of its content."""
    lines = lines_of(source)
    if task["judge"] != RUST:
        verdict = Verdict(key, False, None, "", {}, lines, None)
        return by_command(verdict, task, source, start)
    verdict = Verdict(key, False, False, "", {}, lines, None)
    if UNSAFE_MACRO in source:
        return verdict._replace(reason=f"does not compile: {UNSAFE_MACRO} is unsafe code")
    return by_tests(verdict, task, source, start)


def by_command(verdict: Verdict, task: Mapping[str, Any], content: str, start: Runner) -> Verdict:
    """A task's own command has the last word: its exit status."""
    script = (COMMAND, *task["judge"])
    ended = start(65534, script, content.encode(), MOST_OUTPUT, COMPILE_SECONDS, task["dir"])
    reason = _broken_off(ended, COMPILE_SECONDS) or f"{task['judge'][0]} ended with status {ended.status}"
    passes = ended.status == 0
    return verdict._replace(passes=passes, reason="" if passes else reason)


def by_tests(verdict: Verdict, task: Mapping[str, Any], source: str, start: Runner) -> Verdict:
    """The steps of Rust."""
    cases = cases_of(task["name"], task["tests"])
    program = crate(task["tests"], cases, secrets.token_hex(8)).encode()
    texts = [source.encode(), program, refused_crate(task["refused"]).encode() if task["refused"] else b""]
    sizes = [str(len(text)) for text in texts]
    ended = start(65534, (COMPILE, *sizes), b"".join(texts), MOST_COMPILED, COMPILE_SECONDS, "")
    steps = steps_of(ended.output)
    answer, refused, tests = steps.get("answer"), steps.get("refused"), steps.get("tests")
    if not answer or answer.status:
        stopped = _broken_off(ended, COMPILE_SECONDS, "the compiler", answer) or "does not compile"
        return _failed(verdict, stopped, answer)
    verdict = verdict._replace(compiles=True)
    if "clippy" in steps and steps["clippy"].status == 0:
        verdict = verdict._replace(clippy_warnings=clippy_warnings(steps["clippy"].data))
    if not tests or tests.status:
        stopped = _broken_off(ended, COMPILE_SECONDS, "the compiler", tests) or "its tests do not compile with it"
        return _failed(verdict, stopped, tests)
    if task["refused"] and not is_refused(refused):
        return verdict._replace(reason="refused.rs compiles with it, an error is needed")
    if "program" not in steps or len(steps["program"].data) == MOST_PROGRAM:
        return verdict._replace(reason="its program is too large to run")
    tokens = [secrets.token_hex(16) for _case in cases]
    given = steps["program"].data + "".join(f"{token}\n" for token in tokens).encode()
    script = (RUN, str(len(steps["program"].data)))
    ended = start(65533, script, given, MOST_OUTPUT, RUN_SECONDS, "")
    printed = set(ended.output.decode("utf-8", "replace").splitlines())
    failed = [case.name for case, token in zip(cases, tokens) if token not in printed]
    stopped = _broken_off(ended, RUN_SECONDS)
    if failed and not stopped:
        many = f"{counted(len(failed), 'test')} of {len(cases)}"
        return verdict._replace(reason=f"{many} failed, the first one is {failed[0]}")
    if stopped or ended.status != 0:
        return verdict._replace(reason=stopped or f"it ended with status {ended.status}")
    return verdict._replace(passes=True)


def steps_of(output: bytes) -> dict[str, Step]:
    """The complete parts of what the compiling sandbox returned, by name."""
    steps = {}
    while output:
        line, _end, output = output.partition(b"\n")
        words = line.decode("ascii", "replace").split()
        if len(words) != 3 or not (words[1].isdigit() and words[2].isdigit()) or int(words[2]) > len(output):
            break
        steps[words[0]] = Step(int(words[1]), output[: int(words[2])])
        output = output[int(words[2]) :]
    return steps


def messages(data: bytes) -> list[dict[str, Any]]:
    """rustc's messages of --error-format=json; others, and one that was cut off, are left out."""
    found = []
    # Source that is quoted in them may have other separators of lines.
    for line in data.decode("utf-8", "replace").split("\n"):
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(message, dict) and isinstance(message.get("message"), str):
            found.append(message)
    return found


def code_of(message: Mapping[str, Any]) -> str:
    """E0382, clippy::needless_return; '' for a message without one."""
    code = message.get("code")
    return printable(code.get("code") or "", 80) if isinstance(code, dict) else ""


def clippy_warnings(data: bytes) -> int:
    """Warnings of clippy's own lints."""
    return sum(1 for one in messages(data) if one.get("level") == "warning" and code_of(one).startswith("clippy::"))


def is_refused(refused: Step | None) -> bool:
    """Whether refused.rs has not compiled because of an error in it."""
    if refused is None or refused.status == 0:
        return False
    codes = {code_of(one) for one in messages(refused.data) if one.get("level") == "error"}
    return bool(codes - {""}) and not codes & UNRESOLVED


def _failed(verdict: Verdict, reason: str, step: Step | None) -> Verdict:
    """With the codes of a step's errors, and the first of them."""
    found = [one for one in messages(step.data) if one.get("level") == "error"] if step else []
    codes = collections.Counter(code for code in map(code_of, found) if code.startswith("E"))
    if found:
        first = ": ".join(filter(None, (code_of(found[0]), printable(found[0]["message"]))))
        reason = f"{reason}: {first}"
    return verdict._replace(reason=reason, errors=dict(codes))


def _broken_off(ended: Outcome, seconds: int, what: str = "it", step: Step | None = None) -> str:
    """Why a sandbox, or its last step, was ended early, '' if it was not."""
    if ended.long:
        return f"{what} printed more than allowed"
    if ended.late:
        return f"{what} took more than {seconds} s"
    if ended.status in KILLED or step and step.status in KILLED:
        return f"{what} was killed: it took too much time or memory"
    return ""
