# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fake SLURM: squeue, sacct, sbatch, scancel and scontrol in a directory, which print as SLURM 22.05 prints.

Tests move its jobs. molecule/slurm runs a real SLURM. As a program: fake_slurm.py DIRECTORY COMMAND [WORD...].
"""

import contextlib
import fcntl
import json
import os
import pwd
import re
import sys
import time
from pathlib import Path

FINAL = ("CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY")
COMMANDS = ("squeue", "sacct", "sbatch", "scancel", "scontrol")
NO_CONTACT = "error: Unable to contact slurm controller (connect failure)"


class FakeSlurm:
    """folder/bin has the commands. Files in the folder change what they do: away: no command reaches the controller;
    no_accounting: sacct does not; refuse: sbatch is refused; slow: sbatch takes a second before and after."""

    def __init__(self, folder):
        self.folder = Path(folder)

    @classmethod
    def install(cls, folder):
        fake = cls(folder)
        commands = fake.folder / "bin"
        commands.mkdir(parents=True)
        for name in COMMANDS:
            path = commands / name
            path.write_text('#!/bin/sh\nexec "%s" -S -E "%s" "%s" %s "$@"\n' % (sys.executable, __file__, folder, name))
            path.chmod(0o755)
        with fake.changing() as queue:
            queue.update(number=10, jobs={}, runs=[], calls=[])
        return fake

    @contextlib.contextmanager
    def changing(self):
        """The queue, written when the block ends."""
        path = self.folder / "queue.json"
        with open(self.folder / "queue.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            queue = json.loads(path.read_text()) if path.exists() else {}
            yield queue
            # A killed command leaves the old one or the new one.
            partial = self.folder / "queue.partial"
            partial.write_text(json.dumps(queue, indent=1))
            partial.rename(path)

    @property
    def queue(self):
        with self.changing() as queue:
            return queue

    def alive(self):
        return [job for job in self.queue["jobs"].values() if job["state"] not in FINAL]

    def calls(self, command):
        return [call for call in self.queue["calls"] if call[0] == command]

    def start(self, job_id, nodes="vasp-02"):
        with self.changing() as queue:
            queue["jobs"][str(job_id)].update(state="RUNNING", reason="None", nodes=nodes, start=int(time.time()))

    def end(self, job_id, state, by="", **fields):
        with self.changing() as queue:
            end(queue, str(job_id), state, by, **fields)

    def requeue(self, job_id, state="REQUEUED"):
        with self.changing() as queue:
            end(queue, str(job_id), state)
            queue["jobs"][str(job_id)].update(state="PENDING", reason="BeginTime", nodes="", start=None)


def end(queue, job_id, state, by="", **fields):
    job = queue["jobs"][job_id]
    run = {"JobIDRaw": job_id, "State": state + (" by " + by if by else ""), "ExitCode": "0:0"}
    run.update(Start=job["start"], End=int(time.time()), NodeList=job["nodes"], Submit=job["submitted"], User="x")
    queue["runs"].append({**run, **fields})
    job["state"] = state


def squeue(queue, words):
    options = dict(word.partition("=")[::2] for word in words if "=" in word and not word.startswith("%"))
    shown = words[words.index("-o") + 1]
    states = options.get("--states", "all").split(",")
    for job_id, job in queue["jobs"].items():
        theirs = options.get("--user", job["user"]) != job["user"]
        if not theirs and (states == ["all"] or job["state"] in states):
            values = {"A": job_id, "T": job["state"], "r": job["reason"], "V": job["submitted"], "k": job["comment"]}
            values.update(S=job["start"] or job.get("expected") or "N/A", l=job["limit"], u=job["user"])
            values.update(
                P=job.get("partition", "gpu_ai"), q="ai", N=job["nodes"], Y="(null)", n="(null)", j=job["name"]
            )
            print(re.sub(r"%(\w)", lambda found, values=values: str(values[found.group(1)]), shown))


def sacct(queue, words):
    options = dict(word.partition("=")[::2] for word in words if word.startswith("--"))
    ids = words[words.index("-j") + 1].split(",")
    for run in queue["runs"]:
        if run["JobIDRaw"] in ids:
            fields = options["--format"].split(",")
            row = [run.get(field) if run.get(field) is not None else "" for field in fields]
            print(options["--delimiter"].join(str(value if value != "" else "Unknown") for value in row))
    for job_id in ids:
        job = queue["jobs"].get(job_id)
        if job and job["state"] not in FINAL:
            row = {"JobIDRaw": job_id, "State": job["state"], "Start": job["start"] or "Unknown", "End": "Unknown"}
            print(options["--delimiter"].join(str(row.get(field, "")) for field in options["--format"].split(",")))


def sbatch(queue, words):
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)", Path(words[-1]).read_text(), re.MULTILINE))
    queue["number"] += 1
    job = {"state": "PENDING", "reason": "Priority", "nodes": "", "start": None}
    job["user"] = pwd.getpwuid(os.geteuid()).pw_name
    job.update(
        limit="1-00:00:00",
        id=queue["number"],
        submitted=int(time.time()),
        comment=options["comment"],
        name=options["job-name"],
    )
    queue["jobs"][str(queue["number"])] = job
    return queue["number"]


def scancel(queue, words):
    job = queue["jobs"].get(words[-1], {"state": "CANCELLED"})
    if job["state"] in FINAL:
        sys.exit("scancel: error: Kill job error on job id %s: Invalid job id specified" % words[-1])
    if "--signal=USR1" in words:
        if job["state"] == "RUNNING":
            end(queue, words[-1], "COMPLETED")
    elif "--state=PENDING" not in words or job["state"] == "PENDING":
        end(queue, words[-1], "CANCELLED", str(os.geteuid()))


def main(folder, command, words):
    fake = FakeSlurm(folder)
    if (fake.folder / "away").exists() or (command == "sacct" and (fake.folder / "no_accounting").exists()):
        sys.exit("%s: %s" % (command, NO_CONTACT))
    if command == "sbatch" and (fake.folder / "refuse").exists():
        sys.exit(
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
        )
    slow = command == "sbatch" and (fake.folder / "slow").exists()
    time.sleep(slow)
    with fake.changing() as queue:
        queue["calls"].append([command, *words])
        answer = {"squeue": squeue, "sacct": sacct, "sbatch": sbatch, "scancel": scancel}[command](queue, words)
    time.sleep(slow)
    if answer is not None:
        print(answer)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
