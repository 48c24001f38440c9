"""Judges the tasks of evaluate.yml that rustc judges by their own answers: each reference passes, each mutant fails.

python tests/gates/tasks.py [KIND|KIND/NAME ...]      all of them, if none is named

All references are modules of one crate, and all mutants of another one, so that rustc runs twice for most tasks. Only
refused.rs, which must not compile, needs the answer as a crate of its own. RUSTC: the compiler, else rustc.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from plugins.module_utils._judge.judge import UNRESOLVED  # noqa: E402

TASKS = ROOT / "roles/acceptance/files/tasks"
RUSTC = [os.environ.get("RUSTC", "rustc"), "--edition", "2021", "--cap-lints", "allow", "-C", "codegen-units=1"]
MODULE = """
mod %s {
    pub mod answer {
%s
    }
    mod tests {
        use super::answer;
%s
    }
}
"""
LINE = re.compile(r"^test (\w+)::tests::\S+ \.\.\. (ok|FAILED)$", re.MULTILINE)
SECONDS = 120


def identifier(task):
    return "_".join(task.relative_to(TASKS).parts)


def tested(tasks, answer, folder):
    """{identifier: ["ok" or "FAILED" of each test]}"""
    source = folder / (answer + ".rs")
    source.write_text(
        "".join(
            MODULE % (identifier(task), (task / (answer + ".rs")).read_text(), (task / "tests.rs").read_text())
            for task in tasks
        )
    )
    program = folder / answer
    subprocess.run([*RUSTC, "--test", "-o", program, source], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=SECONDS, check=False)
    found = {identifier(task): [] for task in tasks}
    for name, verdict in LINE.findall(done.stdout):
        found[name].append(verdict)
    if sum(map(len, found.values())) == 0:
        sys.exit("tasks: no test of %s ran: %s" % (answer, done.stdout[-2000:] + done.stderr[-2000:]))
    return found


def refused(task, answer, folder):
    """The errors of refused.rs with this answer: their codes, None for one without a code; empty if it compiles."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
    library = folder / "libanswer.rmeta"
    subprocess.run(
        [*RUSTC, "--crate-type", "lib", "--crate-name", "answer", "--emit=metadata", "-o", library, task / answer],
        check=True,
    )
    done = subprocess.run(
        [*RUSTC, "--crate-type", "lib", "--crate-name", "refused", "--emit=metadata", "--error-format=json"]
        + ["-o", folder / "librefused.rmeta", "--extern", "answer=%s" % library, task / "refused.rs"],
        capture_output=True,
        text=True,
        check=False,
    )
    messages = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    return [(one.get("code") or {}).get("code") for one in messages if one.get("level") == "error"]


def rust(tasks, folder):
    """Sentences on what is wrong with these tasks."""
    wrong = []
    refusing = [task for task in tasks if (task / "refused.rs").exists()]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        both = pool.map(lambda answer: tested(tasks, answer, folder), ("reference", "mutant"))
        errors = dict(zip(refusing, pool.map(lambda task: refused(task, "reference.rs", folder), refusing)))
        references, mutants = both
    for task in tasks:
        name = "/".join(task.relative_to(TASKS).parts)
        count = len(re.findall(r"^#\[test\]$", (task / "tests.rs").read_text(), re.MULTILINE))
        if references[identifier(task)] != ["ok"] * count:
            passed = references[identifier(task)].count("ok")
            wrong.append("%s: the reference passes %d of %d tests" % (name, passed, count))
        fails = mutants[identifier(task)] != ["ok"] * count
        if task in refusing:
            codes = {code for code in errors[task] if code}
            if not codes or codes & UNRESOLVED:
                wrong.append("%s: refused.rs with the reference: %s" % (name, sorted(codes) or "no error with a code"))
            fails = fails or not refused(task, "mutant.rs", folder)
        if not fails:
            wrong.append("%s: the mutant passes" % name)
    return wrong


def main():
    named = tuple(sys.argv[1:]) or ("",)
    every = sorted(path.parent for path in TASKS.glob("*/*/tests.rs"))
    tasks = [task for task in every if "/".join(task.relative_to(TASKS).parts).startswith(named)]
    if not tasks:
        sys.exit("tasks: none of %s in %s" % (" ".join(sys.argv[1:]) or "them", TASKS))
    with tempfile.TemporaryDirectory() as folder:
        wrong = rust(tasks, pathlib.Path(folder))
    print("tasks: %d judged by %s, %d wrong" % (len(tasks), RUSTC[0], len(wrong)))
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
