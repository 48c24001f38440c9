"""Kills workers and heads of the lab at random and counts what comes back and what stays behind.

    python tests/benchmarks/recovery/soak.py [--cycles 100] [--seed N]

Needs the lab of `make lab` (LLAMA_LAB_SLOT as there). Each cycle kills one process or several at once with kill -9,
while the head is idle or in the middle of an answer, and waits until another head has given a token. The last lines
tell the distribution of the recovery times and every process, file descriptor, file, mount and MiB that is there after
the last cycle and was not there after the first ones.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time
import urllib.request

CACHE = pathlib.Path(
    os.environ.get("LLAMA_CLUSTER_CACHE")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "llama-cluster")
)
SLOT = int(os.environ.get("LLAMA_LAB_SLOT") or 0)
HEAD, WORKER = "llama-head-chat.service", "llama-rpc-chat.service"
UNITS = {"node1": HEAD, "node2": WORKER, "node3": WORKER}
VICTIMS = (
    ("node2",),
    ("node3",),
    ("node2", "node3"),
    ("node1",),
    ("node1", "node2"),
    ("node1", "node3"),
    ("node1", "node2", "node3"),
)
# A cycle that has not recovered by then has failed.
DEADLINE = 180
# Cycles before anything is counted: caches fill, directories are made once.
SETTLED_AFTER = 3
SETTLE = 3
# A worker counts its runs that ended within ten seconds, in a file that goes at the first start after one that lasted.
# So before each look all runs last, and end.
LASTED = 12
# Seconds between a recovery and the next kill. Runs that end sooner are waited for longer and longer, up to a minute:
# that is for a service that crashes by itself.
PAUSE = (10, 14)
# Made for the first of those files.
MADE_ONCE = ("/run/llama-cluster/backoff",)
# Allowed growth: resident MiB of one process, MiB of journal a cycle (a load logs some 300 lines).
GROWTH_MIB = 4
JOURNAL_MIB = 1.0

# The watch of the head, on its node, for the duration of this run; below plugins/module_utils.
LIBRARY = "/usr/local/lib/llama-soak"
LENT = (
    *("__init__.py", "_text.py"),
    *("_node/__init__.py", "_node/sock_diag.py", "_node/sockets.py"),
    *("_llama/__init__.py", "_llama/api.py"),
    *("_serving/__init__.py", "_serving/recovery.py"),
)
# Runs there: says that it is in place, then when another head answered.
WATCH = """
import json, sys
sys.path.insert(0, "/usr/local/lib/llama-soak")
from llama_cluster._llama.api import LlamaApi
from llama_cluster._serving.recovery import PROMPT, watch
def armed():
    print("armed", flush=True)
url, pid, timeout, generate = sys.argv[1:]
prompt = PROMPT if generate else None
print(json.dumps(watch(LlamaApi(url), int(pid), int(timeout), armed, lambda: True, prompt)), flush=True)
"""
# The state of a node: processes with descriptors and memory, files where services write, mounts, the journal's
# size.
LOOK = r"""
import collections, json, os, re
found = {"processes": [], "files": [], "mounts": 0, "journal_mib": 0.0}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        name = open("/proc/%s/cmdline" % pid, "rb").read().split(b"\0")
        name = " ".join(os.path.basename(part.decode()) for part in name[:4] if part)
        name = name or "[%s]" % open("/proc/%s/comm" % pid).read().strip()
        if int(pid) == os.getpid():
            continue
        rss = re.search(r"VmRSS:\s+(\d+)", open("/proc/%s/status" % pid).read())
        found["processes"].append([name, len(os.listdir("/proc/%s/fd" % pid)), int(rss.group(1)) / 1024 if rss else 0])
    except (OSError, ValueError):
        continue
for top in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/var/lib/llama-cluster", "/opt/llama-cluster", "/root"):
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if os.path.join(folder, name) != "/run/log"]
        # Names that systemd makes anew for every run count as one.
        anew = r"[0-9a-f]{32}-|-[A-Za-z0-9]{6}\b|invocation:\S+|\d+"
        found["files"] += [re.sub(anew, "#", os.path.join(folder, name)) for name in folders + files]
found["mounts"] = sum(1 for line in open("/proc/self/mounts"))
for top in ("/var/log/journal", "/run/log/journal"):
    for folder, folders, files in os.walk(top):
        found["journal_mib"] += sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in files) / 2**20
print(json.dumps(found))
"""


def container(node):
    return "llama-lab%d-%s" % (SLOT, node)


def on(node, *command, text=None):
    """Output of a command on a node."""
    done = subprocess.run(
        ["docker", "exec", "-i", container(node), *command],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(
            "soak: %s on %s ended with status %d: %s"
            % (" ".join(command)[:80], node, done.returncode, done.stdout.strip()[-400:])
        )
    return done.stdout


def main_pid(node):
    return int(on(node, "systemctl", "show", "-p", "MainPID", "--value", UNITS[node]))


def look():
    """The state of every node."""
    return {node: json.loads(on(node, "python3", "-", text=LOOK)) for node in UNITS}


def lend_library():
    """Copies the collection's own watch to the head's node."""
    for name in LENT:
        source = pathlib.Path(__file__).resolve().parents[3] / "plugins/module_utils" / name
        on("node1", "mkdir", "-p", os.path.dirname("%s/llama_cluster/%s" % (LIBRARY, name)))
        on("node1", "tee", "%s/llama_cluster/%s" % (LIBRARY, name), text=source.read_text() if source.exists() else "")


def url():
    return "http://10.213.%d.11:8000" % SLOT


def wait_until_ready():
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url() + "/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    sys.exit("soak: %s does not answer in %d s, the lab's service is needed: make lab" % (url(), DEADLINE))


def kill(node, pid):
    """-> the node's time of the kill."""
    return float(on(node, "bash", "-c", "date +%%s.%%6N; kill -KILL %d" % pid).split()[0])


def cycle(victims, generating):
    """One break and its recovery -> {seconds, ...}; seconds is None when nothing answered in time."""
    pids = {node: main_pid(node) for node in UNITS}
    command = [
        "docker",
        "exec",
        "-i",
        container("node1"),
        "python3",
        "-B",
        "-c",
        WATCH,
        url(),
        str(pids["node1"]),
        str(DEADLINE),
        "yes" if generating else "",
    ]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = watcher.stdout.readline().strip()
    if line != "armed":
        sys.exit("soak: the head was not to be watched (%s): %s" % (line, watcher.stderr.read()[-600:]))
    with concurrent.futures.ThreadPoolExecutor(len(victims)) as pool:
        broken_at = min(pool.map(lambda node: kill(node, pids[node]), victims))
    result = json.loads(watcher.communicate()[0])
    answered_at = result["answered_at"]
    return {
        "victims": victims,
        "generating": generating,
        "broken_at": broken_at,
        "seconds": round(answered_at - broken_at, 3) if answered_at else None,
        "restarts": {
            node: int(on(node, "systemctl", "show", "-p", "NRestarts", "--value", UNITS[node])) for node in UNITS
        },
    }


def leaked(before, after, cycles):
    """A sentence for each new file, process or mount."""
    found = []
    for node in UNITS:
        first, last = before[node], after[node]
        names = collections.Counter(name for name, _fds, _rss in first["processes"])
        more = collections.Counter(name for name, _fds, _rss in last["processes"]) - names
        found += ["%s: %d more process %s" % (node, count, name) for name, count in more.items()]
        descriptors = {name: fds for name, fds, _rss in first["processes"]}
        memory = {name: rss for name, _fds, rss in first["processes"]}
        for name, fds, rss in last["processes"]:
            if name in descriptors and fds > descriptors[name]:
                found.append("%s: %s has %d descriptors, %d before" % (node, name, fds, descriptors[name]))
            if name in memory and rss > memory[name] + GROWTH_MIB and "systemd-journald" not in name:
                found.append("%s: %s has %.1f MiB, %.1f before" % (node, name, rss, memory[name]))
        files = collections.Counter(last["files"]) - collections.Counter([*first["files"], *MADE_ONCE])
        found += ["%s: %d more of file %s" % (node, count, name) for name, count in files.items()]
        if last["mounts"] > first["mounts"]:
            found.append("%s: %d mounts, %d before" % (node, last["mounts"], first["mounts"]))
        if last["journal_mib"] - first["journal_mib"] > JOURNAL_MIB * cycles + 16:
            found.append(
                "%s: the journal grew by %.0f MiB in %d cycles"
                % (node, last["journal_mib"] - first["journal_mib"], cycles)
            )
    return found


def summary(done):
    """Distribution of the recovery times by what was killed when -> lines."""
    groups = {"all": done}
    for one in done:
        names = [
            "head" if "node1" in one["victims"] else "",
            {0: "", 1: "worker", 2: "both workers"}[sum(node != "node1" for node in one["victims"])],
        ]
        groups.setdefault(
            "%s, %s" % (" and ".join(filter(None, names)), "generating" if one["generating"] else "idle"), []
        ).append(one)
    lines = ["%-36s %6s %6s %7s %6s %6s" % ("killed", "times", "min s", "median", "p95", "max")]
    for name, group in groups.items():
        seconds = sorted(one["seconds"] for one in group if one["seconds"] is not None)
        if seconds:
            p95 = seconds[min(len(seconds) - 1, int(0.95 * len(seconds)))]
            lines.append(
                "%-36s %6d %6.2f %7.2f %6.2f %6.2f"
                % (name, len(group), seconds[0], statistics.median(seconds), p95, seconds[-1])
            )
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments = parser.parse_args()
    print(
        "soak: %d cycles on llama-lab%d, --seed %d repeats them" % (arguments.cycles, SLOT, arguments.seed), flush=True
    )
    wait_until_ready()
    lend_library()
    try:
        return run(arguments)
    finally:
        on("node1", "rm", "-rf", LIBRARY)


def run(arguments):
    """All cycles, the report and the summary -> whether anything is wrong."""
    chance = random.Random(arguments.seed)
    done, before = [], None
    for number in range(1, arguments.cycles + SETTLED_AFTER + 1):
        victims, generating, pause = chance.choice(VICTIMS), chance.random() < 0.5, chance.uniform(*PAUSE)
        if number in (SETTLED_AFTER, arguments.cycles + SETTLED_AFTER):
            time.sleep(LASTED)
            victims = VICTIMS[-1]
        one = cycle(victims, generating)
        words = "%s %s" % ("+".join(victims), "generating" if generating else "idle")
        print(
            "%3d %-24s %s"
            % (number, words, "NO ANSWER in %d s" % DEADLINE if one["seconds"] is None else "%.2f s" % one["seconds"]),
            flush=True,
        )
        if number > SETTLED_AFTER:
            done.append(one)
        time.sleep(pause)
        if one["seconds"] is None:
            break
        if number == SETTLED_AFTER:
            time.sleep(SETTLE)
            before = look()
    time.sleep(SETTLE)
    after = look()
    found = leaked(before, after, arguments.cycles) if before else []
    recovered = sum(one["seconds"] is not None for one in done)
    report = CACHE / "reports" / ("llama-lab%d" % SLOT) / "soak.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(
        json.dumps(
            {"seed": arguments.seed, "cycles": done, "before": before, "after": after, "leaked": found}, indent=1
        )
    )
    print("\n".join(summary(done)))
    if before:
        for node in UNITS:
            grown = after[node]["journal_mib"] - before[node]["journal_mib"]
            print(
                "%s: %d processes, %d files, %d mounts, journal %+.1f MiB"
                % (node, len(after[node]["processes"]), len(after[node]["files"]), after[node]["mounts"], grown)
            )
    print("\n".join(["leaked: " + one for one in found] or ["leaked: nothing"]))
    print("soak: %d of %d recovered; %s" % (recovered, arguments.cycles, report))
    return recovered < arguments.cycles or bool(found)


if __name__ == "__main__":
    sys.exit(main())
