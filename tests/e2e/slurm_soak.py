# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Preempts and breaks the services of a lab with SLURM under constant requests.

    slurm_soak.py SLOT [cycles=20] [events=100] [clients=2] [seed=N]

First the cycles: a job takes the cards of each service in turn, every second time while a stream runs. Then the events,
chosen at random. After each there is one job of each service, and both serve, within the event's bound. Prints a table
of both and what clients saw; ends with 1 if a bound was missed, a request failed, or something is left over.
"""

import collections
import contextlib
import os
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

import requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lab/slurm"))
from slurm_lab import (  # noqa: E402
    FAST,
    NODES,
    REASONING,
    SERVICES,
    Gateway,
    SlurmLab,
    eventually,
    preempt,
)

ENDPOINTS = "/cluster/shared/ai/endpoints"
KEEPER = "llama-slurm-keeper.service"
# Seconds: endpoint gone after a submission (SIGTERM comes within one), other job running in use, own job running again.
GONE, RUNNING, AGAIN = 3, 35, 10
# An other job's seconds on the cards: more than a requeued job has to wait in this lab.
LASTS = 12
# SLURM's --mem with which no server loads its model.
TOO_LITTLE = "50M"
# A file system that responds to nothing, mounted over the share: what a hard NFS mount is without its server.
HANG = """
import ctypes, sys
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % int(sys.argv[1])
sys.exit(ctypes.CDLL(None, use_errno=True).mount(b"hangs", b"/cluster/shared", b"fuse", 0, options))
"""


class Clients:
    """Requests without a stream, one after the other, to both services: what each got, and failures."""

    def __init__(self, gateway, number):
        self.gateway, self.over = gateway, threading.Event()
        self.seen, self.failed = collections.Counter(), []
        # Set while both services may be away at once.
        self.lenient = threading.Event()
        self.threads = [
            threading.Thread(target=self.run, args=(service,), daemon=True)
            for service in SERVICES
            for _one in range(number)
        ]

    def run(self, service):
        while not self.over.is_set():
            began = self.lenient.is_set()
            try:
                self.judge(service, self.gateway.chat(service.model), began)
            except (requests.RequestException, ValueError) as error:
                self.fail(service, repr(error), began)
            time.sleep(0.2)

    def judge(self, service, reply, lenient):
        body = reply.json()
        if reply.status_code == 200 and body["choices"]:
            self.seen["%s: 200 by %s" % (service.name, reply.headers["X-Llama-Service"])] += 1
        elif reply.status_code == 503 and "Retry-After" in reply.headers and service is FAST:
            # No other service in its place.
            self.seen["%s: 503 %s" % (service.name, body["error"]["code"])] += 1
        else:
            self.fail(service, "%d %s" % (reply.status_code, reply.text[:200]), lenient)

    def fail(self, service, why, began):
        if began or self.lenient.is_set():
            self.seen["%s: failed during an event" % service.name] += 1
        else:
            self.failed.append("%s at %s: %s" % (service.name, time.strftime("%T"), why))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_exception):
        self.over.set()
        for thread in self.threads:
            thread.join(60)


class Watch:
    """Looks for two jobs of one service at once, as long as it runs."""

    def __init__(self, lab):
        self.lab, self.over, self.twice = lab, threading.Event(), {}
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.over.is_set():
            for service in SERVICES:
                # Without slurmctld there is no answer.
                with contextlib.suppress(AssertionError, ValueError):
                    found = self.lab.jobs(service.job)
                    if len(found) > 1:
                        # The first look at each pair.
                        pair = service.job, *(number for number, _state, _reason in found)
                        self.twice.setdefault(pair, "%s %s: %s" % (time.strftime("%T"), service.job, found))
            time.sleep(1)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_exception):
        self.over.set()
        self.thread.join(30)


def stream(gateway, service):
    """A request that would last longer than the grace time, in the background."""

    def read():
        with contextlib.suppress(requests.RequestException):
            reply = gateway.chat(service.model, tokens=1900, ignore_eos=True, stream=True)
            collections.deque(reply.iter_lines(), 0)

    threading.Thread(target=read, daemon=True).start()
    time.sleep(1)


def kill(lab, node, program):
    """kill -9 of a program of the job's user; one that is not there is not killed."""
    lab.run(node, "pkill -KILL -u ai -f '%s'" % program)


def scancel(lab, chance):
    service = chance.choice(SERVICES)
    lab.on("ctl", "scancel %d" % lab.job(service))
    if chance.random() < 0.5:
        # Before the keeper has seen it: the last word counts.
        lab.run("ctl", "llama-jobs resume %s" % service.name)
        return
    eventually(lambda: not lab.jobs(service.job), 60, "%s has ended" % service.job)
    held = "%s: held" % service.name
    eventually(lambda: held in lab.on("ctl", "llama-jobs list"), 30, "%s is held" % service.name)
    time.sleep(3)
    assert not lab.jobs(service.job), "%s was submitted again" % service.job
    lab.on("ctl", "llama-jobs resume %s" % service.name)


def memory_limit(lab, chance):
    """A job with too little memory, submitted as a person may."""
    service = chance.choice(SERVICES)
    number = lab.by_hand(service, "--mem=%s" % TOO_LITTLE)
    killed = "job %d: out of memory: " % number
    eventually(lambda: lab.last(service).startswith(killed), 120, "%s is killed for its memory" % service.job)
    lab.on("ctl", "llama-jobs resume %s" % service.name)


def kill_server(lab, chance):
    kill(lab, chance.choice(("c1", "c2")), "llama-server")


def kill_worker(lab, _chance):
    kill(lab, "c3", "ggml-rpc-server")


def kill_step(lab, chance):
    kill(lab, chance.choice(NODES), "slurm_task")


def kill_batch(lab, chance):
    kill(lab, chance.choice(("c1", "c2")), "slurm_batch")


def kill_keeper(lab, _chance):
    lab.on("ctl", "systemctl kill --kill-who=all --signal=KILL %s" % KEEPER)


def kill_slurmd(lab, chance):
    node = chance.choice(NODES)
    lab.on(node, "systemctl kill --kill-who=main --signal=KILL slurmd")
    time.sleep(3)
    lab.on(node, "systemctl start slurmd")


def kill_slurmctld(lab, chance):
    lab.on("ctl", "systemctl kill --signal=KILL slurmctld")
    time.sleep(chance.uniform(1, 15))
    lab.on("ctl", "systemctl start slurmctld")
    eventually(lambda: lab.run("ctl", "squeue -h")[0] == 0, 30, "slurmctld responds")


def power_loss(lab, chance):
    container = lab.container(chance.choice(NODES))
    subprocess.check_call(["docker", "kill", container], stdout=subprocess.DEVNULL)
    time.sleep(chance.uniform(1, 20))
    subprocess.check_call(["docker", "start", container], stdout=subprocess.DEVNULL)


def share_hangs(lab, chance):
    """On all machines at once."""
    held = []
    machines = ("ctl", *NODES)
    try:
        for name in machines:
            lab.nodes.look_up(lab.container(name))
            descriptor = os.open("/dev/fuse", os.O_RDWR)
            held.append(descriptor)
            enter = ["nsenter", "--target", str(lab.nodes.known[lab.container(name)][1]), "--mount"]
            subprocess.check_call([*enter, "python3", "-c", HANG, str(descriptor)], pass_fds=[descriptor])
        time.sleep(chance.uniform(5, 30))
    finally:
        for name in machines:
            lab.run(name, "umount --lazy -t fuse /cluster/shared")
        for descriptor in held:
            os.close(descriptor)


# Event -> seconds within which both services serve again. A run that ended before it served is waited for: the first
# time 10 s. SLURM looks at a node that vanished after SlurmdTimeout, and at most twice as long.
EVENTS = {
    scancel: 60,
    memory_limit: 45,
    kill_server: 60,
    kill_worker: 60,
    kill_step: 60,
    kill_batch: 90,
    kill_keeper: 30,
    kill_slurmd: 60,
    kill_slurmctld: 60,
    power_loss: 150,
    share_hangs: 60,
}


def serving(lab, gateway):
    """Whether each service has one running job and serves."""
    with contextlib.suppress(AssertionError, ValueError):
        return all(
            [state for _number, state, _reason in lab.jobs(service.job)] == ["RUNNING"] and gateway.ready(service)
            for service in SERVICES
        )
    return False


def cycles(lab, gateway, number):
    rows, wrong = [], []
    for turn in range(number):
        service, in_use = SERVICES[turn % 2], turn // 2 % 2 == 1
        if in_use:
            stream(gateway, service)
        one = preempt(lab, gateway, service, LASTS)
        rows.append((service.name, "stream" if in_use else "requests", *one))
        print("cycle %d of %d: %s" % (turn + 1, number, " ".join("%s %.1f" % pair for pair in one._asdict().items())))
        if one.gone > GONE or one.running > RUNNING or one.again > AGAIN:
            wrong.append("cycle %d of %s: %s" % (turn + 1, service.name, one))
        eventually(lambda: serving(lab, gateway), 60, "both serve")
    return rows, wrong


def events(lab, gateway, clients, number, chance):
    rows, wrong = collections.defaultdict(list), []
    clients.lenient.set()
    for turn in range(number):
        # Each of them once, then at random.
        event = list(EVENTS)[turn] if turn < len(EVENTS) else chance.choice(list(EVENTS))
        print("event %d of %d: %s" % (turn + 1, number, event.__name__), flush=True)
        event(lab, chance)
        # A killed process may not be missed yet.
        time.sleep(1)
        try:
            rows[event.__name__].append(eventually(lambda: serving(lab, gateway), EVENTS[event], "both serve")[1])
        except AssertionError:
            wrong.append("event %d, %s: %s" % (turn + 1, event.__name__, [lab.jobs(one.job) for one in SERVICES]))
            eventually(lambda: serving(lab, gateway), 900, "both serve")
    return rows, wrong


def left_over(lab):
    """A sentence for each process, registry file or job that should not be there."""
    found = []
    expected = {"c1": ["llama-server"], "c2": ["llama-server"], "c3": ["ggml-rpc-server"]}
    for node, programs in expected.items():
        lines = [one for one in lab.processes(node) if "llama-server" in one or "ggml-rpc-server" in one]
        # A router's model is a llama-server of its own, and is there after the first request.
        most = 2 if node == "c2" else 1
        servers = [one for one in lines if any("/" + program in one.split()[0] for program in programs)]
        if not 1 <= len(servers) <= most:
            found.append("%s: processes %s" % (node, lines))
    names = {"%d-%s.json" % (lab.job(one), suffix) for one, suffix in ((REASONING, "72b"), (FAST, "14b"))}
    files = set(lab.on("ctl", "ls -A %s" % ENDPOINTS).split())
    if files != names:
        found.append("%s: %s seen, %s is needed" % (ENDPOINTS, sorted(files), sorted(names)))
    return found


def table(cycle_rows, event_rows, clients):
    print("\n%-10s %-9s %6s %8s %6s %6s" % ("preempted", "with", "gone", "running", "again", "ready"))
    for name, use, *times in cycle_rows:
        print("%-10s %-9s %6.1f %8.1f %6.1f %6.1f" % (name, use, *times))
    print("\n%-15s %6s %8s %6s %6s" % ("event", "times", "median s", "max", "bound"))
    for event, bound in EVENTS.items():
        seconds = event_rows.get(event.__name__)
        if seconds:
            values = (event.__name__, len(seconds), statistics.median(seconds), max(seconds), bound)
            print("%-15s %6d %8.1f %6.1f %6d" % values)
    print()
    for what, count in sorted(clients.seen.items()):
        print("%6d  %s" % (count, what))


def main(slot, *words):
    asked = {"cycles": 20, "events": 100, "clients": 2, "seed": random.SystemRandom().randrange(10**6)}
    for word in words:
        name, _equals, number = word.partition("=")
        if name not in asked or not number.isdigit():
            sys.exit("soak: %s seen, NAME=NUMBER with a name of %s is needed" % (word, ", ".join(asked)))
        asked[name] = int(number)
    print("soak: %s" % " ".join("%s=%d" % pair for pair in asked.items()), flush=True)
    lab = SlurmLab(int(slot))
    gateway = Gateway(lab)
    eventually(lambda: serving(lab, gateway), 120, "both serve")
    with Clients(gateway, asked["clients"]) as clients, Watch(lab) as watch:
        cycle_rows, wrong = cycles(lab, gateway, asked["cycles"])
        event_rows, more = events(lab, gateway, clients, asked["events"], random.Random(asked["seed"]))
    time.sleep(5)
    wrong += more + clients.failed + list(watch.twice.values()) + left_over(lab)
    table(cycle_rows, event_rows, clients)
    for sentence in wrong:
        print("soak: %s" % sentence)
    print("soak: %d cycles, %d events, %d wrong" % (asked["cycles"], asked["events"], len(wrong)))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
