# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with SLURM as scenario slurm and `make soak-slurm` use it: commands on its machines, jobs, and the gateway.

Seconds are this machine's monotonic clock; the containers have the same.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import time
from typing import NamedTuple

import requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "callback"))
import entered  # noqa: E402

ADDRESSES = {"c1": 11, "c2": 12, "c3": 13, "ctl": 14}
NODES = ("c1", "c2", "c3")
QUESTION = [{"role": "user", "content": "Name a color."}]
# A job in one of them has its cards or waits for them.
UNDER_WAY = ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED")
LOOK = 0.1


class Service(NamedTuple):
    """A service of molecule/slurm/inventory. nodes: the head's first; program: the name of its server's process."""

    name: str
    job: str
    model: str
    nodes: tuple[str, ...]
    tier: int


REASONING = Service("reasoning", "llama-72b", "smollm2", ("c1", "c3"), 8081)
FAST = Service("fast", "llama-14b", "small", ("c2",), 8080)
SERVICES = (REASONING, FAST)
SCRIPTS = {
    "reasoning": "/cluster/shared/scripts/llama-cpp/run-72b-distributed.slurm",
    "fast": "/cluster/shared/scripts/llama-cpp/run-14b.slurm",
}


class Cycle(NamedTuple):
    """A preemption: seconds since the other job was submitted. gone: no request reaches the service any more; running:
    the other job runs; again and ready: seconds since the cards are free, until the service's job runs and serves."""

    gone: float
    running: float
    again: float
    ready: float


def fields(line):
    """KEY=VALUE words of `scontrol --oneliner show` -> {KEY: value}"""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


class SlurmLab:
    def __init__(self, slot):
        self.slot, self.nodes = slot, entered.Nodes()

    def container(self, name):
        return "llama-lab%d-%s" % (self.slot, name)

    def address(self, name):
        return "10.213.%d.%d" % (self.slot, ADDRESSES[name])

    def run(self, name, command, user="root"):
        """-> (exit status, output) of a shell command on a machine"""
        as_user = () if user == "root" else ("runuser", "-u", user, "--")
        words = self.nodes.words(self.container(name)) or ["docker", "exec", self.container(name)]
        done = subprocess.run(
            [*words, *as_user, "sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout.strip()

    def on(self, name, command, user="root"):
        """-> output of a shell command, which must succeed"""
        status, output = self.run(name, command, user)
        assert status == 0, "%s on %s: status %d: %s" % (command, name, status, output[-2000:])
        return output

    def sbatch(self, nodes, seconds):
        """Submits a job that preempts -> its number"""
        return int(
            self.on(
                "ctl",
                "sbatch --parsable --chdir=/tmp --output=/dev/null --job-name=vasp --partition=gpu_vasp "
                "--qos=vasp_priority --account=lab --nodelist=%s --nodes=%d --ntasks-per-node=1 --mem=500 "
                "--gres=gpu:v100s:1 --wrap 'sleep %d'" % (",".join(nodes), len(nodes), seconds),
                user="vasp",
            )
        )

    def by_hand(self, service, options=""):
        """Holds a service, and submits its script as a person may then -> the job's number"""
        self.on("ctl", "llama-jobs hold %s" % service.name)
        eventually(lambda: not self.jobs(service.job), 60, "%s has ended" % service.job)
        return int(self.on("ctl", "sbatch --parsable %s %s" % (options, SCRIPTS[service.name]), user="ai"))

    def last(self, service):
        """-> why the last run of a service ended, in the keeper's words"""
        last = json.loads(self.on("ctl", "cat /var/lib/llama-cluster-jobs/state.json"))["services"][service.name][
            "last"
        ]
        return "job %d: %s" % (last["job_id"], last["words"]) if last else ""

    def jobs(self, name):
        """-> [(number, state, reason)] of all jobs with that name, by age"""
        lines = self.on("ctl", "squeue --noheader --array --states=all --name=%s --format='%%i|%%T|%%r'" % name)
        found = [line.split("|", 2) for line in lines.splitlines()]
        return sorted((int(number), state, reason) for number, state, reason in found if state in UNDER_WAY)

    def job(self, service):
        """-> number of the service's only job"""
        found = self.jobs(service.job)
        assert len(found) == 1, "%s: %s seen, one job is needed" % (service.job, found)
        return found[0][0]

    def state(self, number):
        """-> state of a job, "" if SLURM does not know it any more"""
        status, output = self.run("ctl", "scontrol --oneliner show job %d" % number)
        return fields(output).get("JobState", "") if status == 0 else ""

    def key(self):
        """The gateway's key for clients."""
        return self.on("ctl", "cat /etc/llama-cluster/gateway/curl-header").split()[-1]

    def processes(self, name):
        """-> command lines of the job user's processes on a machine"""
        return self.run(name, "ps -u ai -o args=")[1].splitlines()


class Gateway:
    """Sends requests as a client."""

    def __init__(self, lab):
        self.host, self.headers = lab.address("ctl"), {"Authorization": "Bearer " + lab.key()}

    def get(self, path, port=8000):
        return requests.get("http://%s:%d%s" % (self.host, port, path), headers=self.headers, timeout=30)

    def chat(self, model, port=8000, tokens=4, timeout=120, **body):
        body = dict({"model": model, "messages": QUESTION, "max_tokens": tokens, "temperature": 0}, **body)
        url = "http://%s:%d/v1/chat/completions" % (self.host, port)
        return requests.post(url, headers=self.headers, json=body, timeout=timeout, stream=bool(body.get("stream")))

    def service(self, service):
        return self.get("/status.json").json()["services"][service.name]

    def ready(self, service):
        """Whether requests reach the service itself; False also if the gateway does not respond."""
        with contextlib.suppress(requests.RequestException, ValueError):
            return any(one["state"] == "ready" for one in self.service(service)["endpoints"])
        return False


def eventually(condition, seconds, what):
    """Waits until condition() is true -> its value and the seconds that it took."""
    began = time.monotonic()
    while True:
        found = condition()
        if found:
            return found, time.monotonic() - began
        assert time.monotonic() - began < seconds, "%s: not so after %d s" % (what, seconds)
        time.sleep(LOOK)


def preempt(lab, gateway, service, seconds, limit=60, meanwhile=lambda: None):
    """One cycle: a job takes all cards of the service for some seconds; meanwhile() is called while it runs -> Cycle"""
    began = time.monotonic()
    number = lab.sbatch(service.nodes, seconds)
    gone = running = None
    while gone is None or running is None:
        now = time.monotonic() - began
        assert now < limit, "%s: gone %s, running %s after %d s" % (service.name, gone, running, now)
        if gone is None and not gateway.ready(service):
            gone = time.monotonic() - began
        if running is None and lab.state(number) == "RUNNING":
            running = time.monotonic() - began
        time.sleep(LOOK)
    meanwhile()
    eventually(lambda: lab.state(number) in ("COMPLETED", ""), seconds + 30, "job %d has ended" % number)
    free = time.monotonic()
    eventually(lambda: lab.state(lab.job(service)) == "RUNNING", limit, "%s runs again" % service.name)
    again = time.monotonic() - free
    eventually(lambda: gateway.ready(service), limit, "%s serves again" % service.name)
    return Cycle(gone, running, again, time.monotonic() - free)
