# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs SLURM's commands and parses what they print, as SLURM 22.05 prints it. Private to the collection.

All times are seconds since 1970: SLURM_TIME_FORMAT=%s. Fields are separated by a character that no name has, and free
texts of users come last. A line feed in such a text makes a row of its own, so of other users none is asked for.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .._text import Refusal, printable
from .job import COMMENT

# Seconds for a command, bytes and lines of its output.
SECONDS = 10.0
MOST_BYTES = 4 << 20
MOST_ROWS = 10_000
# Codes of refusals: SLURM does not respond, so what was requested may happen nevertheless; it has refused it.
AWAY, REFUSED = "slurm_away", "slurm_refused"
LOST = re.compile(r"contact|connect|timed out|time-?out|temporarily unavailable|zero bytes", re.IGNORECASE)
SEPARATOR = "\x1f"
# The states of a job that has ended; one with another state still counts.
FINAL = frozenset(
    (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
        *("PREEMPTED", "REVOKED", "TIMEOUT"),
    )
)
# States of a job that has no node.
WAITING = frozenset(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"))
COMPLETING = "COMPLETING"
OTHERS = SEPARATOR.join(("%A", "%T", "%r", "%S", "%l", "%V", "%u", "%P", "%q", "%N", "%Y", "%n"))
QUEUE = SEPARATOR.join((OTHERS, "%j", "%k"))
# int() takes more than these digits, and refuses some of what str.isdigit() takes.
NUMBER = re.compile(r"[0-9]{1,11}\Z")
# Seconds of a time limit; a longer one does not count.
LONGEST = 10**10
# Not DerivedExitCode: that of a job that was requeued is of all its runs.
RUNS = (
    "JobIDRaw,State,ExitCode,ReqMem,MaxRSS,Submit,Eligible,Start,End,TimelimitRaw,NodeList,QOS,Partition,User,JobName"
)


class Queued(NamedTuple):
    """A job of squeue. start: of a pending one the expected start; limit: its time limit in seconds, None for no limit;
    planned: the nodes on which a pending one is expected to start, or which it requests."""

    job_id: int
    name: str
    state: str
    reason: str
    start: int | None
    limit: int | None
    comment: str
    user: str
    partition: str
    qos: str
    nodes: str
    planned: str
    submitted: int | None

    @property
    def alive(self) -> bool:
        return self.state not in FINAL

    @property
    def waits(self) -> bool:
        return self.state in WAITING

    @property
    def ends(self) -> int | None:
        """When the time of a running one is over. A preemption moves SLURM's own EndTime."""
        return None if self.start is None or self.limit is None or self.waits else self.start + self.limit

    @property
    def service(self) -> str:
        """The service of a job of the collection, or an empty text."""
        return _commented(self.comment)[0]

    @property
    def digest(self) -> str:
        return _commented(self.comment)[1]


class Ended(NamedTuple):
    """A run of a job, as sacct has it: a job that was requeued has several. step_code, step_signal: the highest of its
    steps; by_uid: the user who cancelled it; end: None while it runs; limit: its time limit in seconds; reason:
    that of squeue."""

    job_id: int
    state: str
    exit_code: int = 0
    signal: int = 0
    step_code: int = 0
    step_signal: int = 0
    by_uid: int | None = None
    req_mem: str = ""
    max_rss: str = ""
    submitted: int | None = None
    eligible: int | None = None
    start: int | None = None
    end: int | None = None
    limit: int | None = None
    nodes: str = ""
    qos: str = ""
    partition: str = ""
    user: str = ""
    name: str = ""
    reason: str = ""

    @property
    def over(self) -> bool:
        return self.state in FINAL or self.state == "REQUEUED"


def _commented(comment: str) -> tuple[str, str]:
    found = COMMENT.match(comment)
    return (found.group(1), found.group(2)) if found else ("", "")


def run(words: Sequence[str], keep: Sequence[int] = (), seconds: float = SECONDS) -> str:
    """The output of a command. keep: descriptors that it inherits. Errors: Refusal."""
    # Variables such as SQUEUE_FORMAT and SBATCH_QOS would change what is asked for.
    given = {name: os.environ[name] for name in ("PATH", "SLURM_CONF") if name in os.environ}
    environment = dict(given, LC_ALL="C", SLURM_TIME_FORMAT="%s")
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            pass_fds=keep,
            start_new_session=True,
        )
    except OSError as error:
        raise Refusal(
            f"{words[0]}: it cannot be run ({error.strerror}), SLURM's commands are needed: install them on this host",
            AWAY,
        ) from None
    try:
        output, errors = _read(process, words[0], time.monotonic() + seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()
    if process.returncode:
        problem = printable(" ".join(errors.split()) or "exit status %d" % process.returncode, 300)
        problem = problem.replace(f"{words[0]}: error: ", "").rstrip(". ")
        # A command that a signal ended may have reached the controller.
        code = AWAY if process.returncode < 0 or LOST.search(errors) else REFUSED
        raise Refusal(f"{words[0]}: SLURM reports {problem!r}: run {' '.join(words[:3])} on this host", code)
    return output


def _read(process: subprocess.Popen[bytes], name: str, until: float) -> tuple[str, str]:
    """Output and errors of a command that ends in time. Errors: Refusal."""
    if not process.stdout or not process.stderr:
        raise ValueError("a command without pipes")
    texts = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
    out, errors = texts
    open_ones = list(texts)
    while open_ones:
        ready = select.select(open_ones, [], [], max(0.0, until - time.monotonic()))[0]
        if not ready:
            break
        for one in ready:
            piece = os.read(one, 1 << 16)
            texts[one] += piece
            if not piece:
                open_ones.remove(one)
        if len(texts[out]) > MOST_BYTES or texts[out].count(b"\n") > MOST_ROWS:
            raise Refusal(
                f"{name}: more than {MOST_BYTES} bytes or {MOST_ROWS} lines seen, fewer are needed: look for jobs by "
                "the thousand, or ask for a shorter time",
                REFUSED,
            )
        texts[errors] = texts[errors][:MOST_BYTES]
    try:
        process.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise Refusal(
            f"{name}: no answer in time, one is needed within {SECONDS:.0f} s: look at slurmctld and slurmdbd", AWAY
        ) from None
    return texts[out].decode("utf-8", "replace"), texts[errors].decode("utf-8", "replace")


def _rows(text: str, count: int) -> list[list[str]]:
    # Only \n ends a line: a user's text may have other separators of str.splitlines().
    return [row for row in (line.split(SEPARATOR, count - 1) for line in text.split("\n")) if len(row) == count]


def moment(text: str) -> int | None:
    """A time of SLURM's; None for N/A, Unknown and None."""
    return int(text) if NUMBER.match(text) else None


def period(text: str) -> int:
    """'10' (minutes), '10:00', '00:00:30', '1-00', '1-00:00:00' -> seconds; 0 for UNLIMITED and anything else."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(map(NUMBER.match, [*parts, days] if dash else parts)) or len(parts) > 3:
        return 0
    # Behind days hours come first, else minutes, unless there are three.
    parts = parts if dash or len(parts) == 3 else ["0", *parts]
    hours, minutes, seconds = map(int, [*parts, "0", "0"][:3])
    total = ((24 * int(days or 0) + hours) * 60 + minutes) * 60 + seconds
    return total if total < LONGEST else 0


def _or_nothing(text: str) -> str:
    return "" if text.startswith("(") else text  # (null)


def jobs(user: str) -> list[Queued]:
    """The jobs of a user that SLURM's controller knows, with those that ended a few minutes ago. Errors: Refusal."""
    return parse_queue(run(["squeue", "-h", "--states=all", "--user=" + user, "-o", QUEUE]))


def everybody() -> list[Queued]:
    """Pending and running jobs of all users that this user may see, without names and comments. Errors: Refusal."""
    return parse_queue(run(["squeue", "-h", "--states=PENDING,RUNNING", "-o", OTHERS]), texts=False)


def parse_queue(text: str, texts: bool = True) -> list[Queued]:
    """texts: whether a row has name and comment."""
    found = []
    for row in _rows(text, 14 if texts else 12):
        job_id, state, reason, start, limit, submitted, user, partition, qos, nodes, planned, given = row[:12]
        name, comment = row[12:] or ("", "")
        if NUMBER.match(job_id):
            found.append(
                Queued(
                    job_id=int(job_id),
                    name=printable(name),
                    state=state,
                    reason="" if reason == "None" else printable(reason, 60),
                    start=moment(start),
                    limit=period(limit) or None,
                    comment=printable(comment),
                    user=printable(user, 60),
                    partition=printable(partition, 60),
                    qos=printable(qos, 60),
                    nodes=_or_nothing(nodes),
                    planned=_or_nothing(planned) or _or_nothing(given),
                    submitted=moment(submitted),
                )
            )
    return found


def runs(ids: Iterable[int]) -> list[Ended]:
    """The runs of jobs, in order. Errors: Refusal, if slurmdbd does not respond."""
    wanted = ",".join(str(one) for one in ids)
    return parse_runs(_sacct("-j", wanted)) if wanted else []


def own_runs(user: str, since: float) -> list[Ended]:
    """The runs of a user's jobs since a time. Errors: Refusal."""
    return parse_runs(_sacct("--user=" + user, "-S", _local(since)))


def runs_on(nodes: Sequence[str], since: float) -> list[Ended]:
    """The runs of all users' jobs on nodes since a time, without their names. Errors: Refusal."""
    return parse_runs(_sacct("-X", "-a", "-N", ",".join(nodes), "-S", _local(since), named=False))


def _local(since: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))


def _sacct(*words: str, named: bool = True) -> str:
    # A name with a line feed in it would be a row of its own.
    shown = RUNS if named else RUNS.replace("JobName", "Cluster")
    return run(["sacct", "-n", "-P", "-D", "--delimiter=" + SEPARATOR, "--format=" + shown, *words])


def parse_runs(text: str) -> list[Ended]:
    found: list[Ended] = []
    last: dict[int, int] = {}  # the latest run of a job in found
    for row in _rows(text, 15):
        number, _dot, step = row[0].partition(".")
        if not NUMBER.match(number):
            continue
        job_id = int(number)
        if not step:
            found.append(_run(job_id, row))
            last[job_id] = len(found) - 1
        elif job_id in last:
            # Only steps have these two.
            whole = found[last[job_id]]
            rss = max(whole.max_rss, printable(row[4], 20), key=size)
            # The batch script's own exit code is that of its job.
            ended = (0, 0) if step in ("batch", "extern") else _pair(row[2])
            whole = whole._replace(
                max_rss=rss, step_code=max(whole.step_code, ended[0]), step_signal=max(whole.step_signal, ended[1])
            )
            # If the script outlives the step, only the step has the state.
            memory = row[1] == "OUT_OF_MEMORY" and whole.state == "FAILED"
            found[last[job_id]] = whole._replace(state=row[1]) if memory else whole
    return found


def _run(job_id: int, row: Sequence[str]) -> Ended:
    state, _space, cancelled_by = row[1].partition(" by ")
    exit_code, number = _pair(row[2])
    return Ended(
        job_id=job_id,
        state=state.split(" ")[0],
        exit_code=exit_code,
        signal=number,
        by_uid=int(cancelled_by) if NUMBER.match(cancelled_by) else None,
        req_mem=printable(row[3], 20),
        max_rss=printable(row[4], 20),
        submitted=moment(row[5]),
        eligible=moment(row[6]),
        start=moment(row[7]),
        end=moment(row[8]),
        limit=int(row[9]) * 60 if NUMBER.match(row[9]) else None,
        nodes="" if " " in row[10] else row[10],  # None assigned
        qos=printable(row[11], 60),
        partition=printable(row[12], 60),
        user=printable(row[13], 60),
        name=printable(row[14]),
    )


def _pair(text: str) -> tuple[int, int]:
    """'1:0' -> exit code and signal."""
    code, _colon, number = text.partition(":")
    return moment(code) or 0, moment(number) or 0


def size(text: str) -> float:
    """'12345K', '1.50G', '200Gn' -> bytes, 0 for anything else."""
    found = re.match(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)", text)
    return float(found.group(1)) * 1024 ** " KMGT".index(found.group(2) or " ") if found else 0.0


def show_job(job_id: int) -> dict[str, str]:
    """{key: value} of a job in the controller's memory; a value with a space is cut. Errors: Refusal."""
    return _pairs(run(["scontrol", "-o", "show", "job", str(job_id)]).split())


def show_config() -> dict[str, str]:
    """{key: value} of SLURM's configuration. Errors: Refusal."""
    text = run(["scontrol", "show", "config"])
    return {
        key.strip(): value.strip() for key, mark, value in (line.partition("=") for line in text.split("\n")) if mark
    }


def show(what: str, key: str) -> dict[str, dict[str, str]]:
    """{name: {key: value}} of all partitions or nodes. Errors: Refusal."""
    found = (_pairs(line.split()) for line in run(["scontrol", "-o", "show", what]).split("\n"))
    return {one[key]: one for one in found if key in one}


def _pairs(words: Iterable[str]) -> dict[str, str]:
    return {key: value for key, mark, value in (word.partition("=") for word in words) if mark}


def submit(script: str, keep: Sequence[int] = ()) -> int:
    """Submits a script -> the job's number. Errors: Refusal."""
    text = run(["sbatch", "--parsable", script], keep)
    number = text.strip().split(";")[0]
    if not NUMBER.match(number):
        raise Refusal(f"sbatch: {printable(text, 60)!r} seen, the number of a job is needed: run sbatch {script}", AWAY)
    return int(number)


def cancel(job_id: int, pending: bool = False) -> None:
    """Ends a job; pending: only one that does not run yet. Errors: Refusal."""
    run(["scancel", *(["--state=PENDING"] if pending else []), str(job_id)])


def drain(job_id: int, user: str = "") -> None:
    """Has the tasks of a job end after the requests that run; user: only if it is theirs. Errors: Refusal."""
    run(["scancel", "--signal=USR1", *([f"--user={user}"] if user else []), str(job_id)])
