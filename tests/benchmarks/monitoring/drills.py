"""Whether what breaks is told: every drill on a lab with monitoring, for each the first notice and when it fired, and
what doctor.yml says of it afterwards.

    python tests/benchmarks/monitoring/drills.py [--drills NAME,NAME] [--healthy 20]
        [--inventory tests/lab/changes --service small --node node1]

Needs a lab of inventories/lab that site.yml has deployed together with molecule/monitoring/inventory, and
LLAMA_LAB_SLOT of it. Between two drills everything that monitoring remembers is forgotten (Prometheus' data, the
watchdog's counts), so that each notice is this drill's own. wrong_build needs a lab that was upgraded, and
gateway_replica_kill replicas: --inventory is of a lab that was deployed with that one too, --node the replica that
dies. --healthy: runs in which nothing is broken (requests, a prompt that fills a slot, a restart by site.yml, nothing
at all), in which nothing may fire and the doctor may find nothing.
Ends with status 1 where a drill raised nothing or the doctor found nothing, or a healthy run something.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
CACHE = pathlib.Path(
    os.environ.get("LLAMA_CLUSTER_CACHE")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "llama-cluster")
)
SLOT = int(os.environ.get("LLAMA_LAB_SLOT") or 0)
NODES = ["llama-lab%d-node%d" % (SLOT, number) for number in (1, 2, 3)]
WATCHES = NODES[2]
inventory = ["-i", "inventories/lab", "-i", "molecule/monitoring/inventory"]
DRILLS = (
    *("worker_kill_generating", "worker_kill_idle", "head_kill", "head_kill_idle", "workers_both", "head_and_worker"),
    *("worker_stop_generating", "worker_stop_idle", "fabric_partition", "port_taken", "disk_full", "oom_kill"),
    *("model_damaged", "firewall_lost", "gateway_engine_kill", "gateway_nginx_stop"),
)
# Seconds that a drill's notice may take: three scrapes.
ALLOWED = 15


def inside(node, command, check=True):
    line = ["docker", "exec", node, "sh", "-c", command]
    return subprocess.run(line, capture_output=True, text=True, check=check).stdout


def playbook(name, *arguments):
    command = [".venv/bin/ansible-playbook", "playbooks/%s.yml" % name, *inventory, *arguments]
    return subprocess.run(command, cwd=REPOSITORY, stdout=sys.stderr, check=False).returncode


def forget():
    """Nothing of before, and long enough a past for what looks back a scrape or two."""
    for node in NODES:
        inside(node, "rm -f /run/llama-cluster/repairs/*.json")
    inside(WATCHES, "systemctl stop prometheus && rm -rf /var/lib/prometheus/metrics2/* && systemctl start prometheus")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(5)
        up = ask("query", query='count(up{job=~"llama_.*"} == 1)').get("result")
        if up and time.monotonic() > deadline - 35 and not firing():
            return
    raise SystemExit("monitoring: it does not become quiet: %s" % ", ".join(sorted(firing())))


def ask(path, **parameters):
    words = " ".join("--data-urlencode '%s=%s'" % one for one in parameters.items())
    answer = inside(WATCHES, "curl -sS -G %s http://127.0.0.1:9090/api/v1/%s" % (words, path), check=False)
    try:
        return json.loads(answer)["data"]
    except (ValueError, KeyError):
        return {}


def firing():
    """{alert: when it began to be so}"""
    found = {}
    for one in ask("alerts").get("alerts", []):
        if one["state"] == "firing":
            labels = one["labels"]
            found[labels["alertname"]] = labels["severity"]
    return found


class Watch(threading.Thread):
    """Looks every half second for what fires."""

    def __init__(self):
        super().__init__(daemon=True)
        self.over, self.first, self.severity = threading.Event(), {}, {}

    def run(self):
        while not self.over.is_set():
            for name, severity in firing().items():
                self.first.setdefault(name, time.time())
                self.severity[name] = severity
            self.over.wait(0.5)


def doctor(seconds):
    """What doctor.yml finds of the last seconds -> ["rule on node: sentence"]"""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "doctor.json")
        playbook("doctor", "-e", "since=%ds" % (seconds + 20), "-e", "doctor_json=%s" % path)
        if not path.exists():
            return ["doctor.yml did not end"]
        found = json.loads(path.read_text())["findings"]
    return ["%s on %s: %s" % (one["rule"], one["node"], one["sentence"]) for one in found]


def drill(name, service, node):
    """-> (result, [(alert, seconds since the break)])"""
    forget()
    report = CACHE / "reports" / ("llama-lab%d" % SLOT) / ("drill-%s.json" % ".".join(filter(None, (service, node))))
    report.unlink(missing_ok=True)
    watch = Watch()
    watch.start()
    chosen = ["-e", "node=" + node] if node else []
    playbook("drill", "-e", "drills=%s service=%s" % (name, service), "-e", "drill_deadline=300", *chosen)
    time.sleep(10)
    watch.over.set()
    watch.join()
    results = json.loads(report.read_text())["drills"] if report.exists() else []
    if not results or not results[0].get("broken_at"):
        return (results[0]["reason"] if results else "did not run"), [], None
    broken = float(results[0]["broken_at"])
    told = sorted((at - broken, one, watch.severity[one]) for one, at in watch.first.items() if at >= broken)
    return results[0]["result"], told, broken


def requests(count, words=20, tokens=32):
    """Requests to the lab's service, one after the other, on its head's node."""
    body = json.dumps({"messages": [{"role": "user", "content": "word " * words}], "max_tokens": tokens})
    line = "curl -sS -o /dev/null --max-time 300 -H 'Content-Type: application/json' -d @/tmp/body"
    line += " http://10.213.%d.11:8000/v1/chat/completions" % SLOT
    subprocess.run(["docker", "exec", "-i", NODES[0], "sh", "-c", "cat >/tmp/body"], input=body, text=True, check=True)
    for _one in range(count):
        inside(NODES[0], line, check=False)


def restart():
    """As site.yml does it: the head stops before its workers."""
    inside(NODES[0], "systemctl stop llama-head-chat")
    for node in NODES[1:]:
        inside(node, "systemctl restart llama-rpc-chat")
    inside(NODES[0], "systemctl start llama-head-chat")


HEALTHY = (
    ("nothing at all", lambda: time.sleep(25)),
    ("requests, one after the other", lambda: requests(25)),
    ("a prompt that fills a slot", lambda: requests(1, words=3500, tokens=8)),
    ("a restart of head and workers, with its load", restart),
    ("site.yml, which changes nothing", lambda: playbook("site")),
)


def healthy(number):
    name, act = HEALTHY[number % len(HEALTHY)]
    # Nothing of an earlier run may be left; where nothing fires there is nothing to forget.
    if not number or firing():
        forget()
    watch = Watch()
    watch.start()
    began = time.time()
    act()
    time.sleep(20)
    watch.over.set()
    watch.join()
    return name, sorted(watch.first), doctor(time.time() - began)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--drills", default=",".join(DRILLS))
    parser.add_argument("--healthy", type=int, default=0)
    parser.add_argument("--service", default="chat")
    parser.add_argument("--node")
    parser.add_argument("--inventory")
    arguments = parser.parse_args()
    if arguments.inventory:
        inventory.extend(["-i", arguments.inventory])
    well = True
    if arguments.drills:
        print("| drill | first notice | s | others | doctor |", flush=True)
        print("|---|---|--:|---|---|", flush=True)
    for name in filter(None, arguments.drills.split(",")):
        result, told, broken = drill(name, arguments.service, arguments.node)
        first = told[0] if told else None
        found = doctor(time.time() - broken) if broken else []
        well = well and first is not None and first[0] <= ALLOWED and bool(found)
        others = ", ".join("%s %.1f" % (one, seconds) for seconds, one, _severity in told[1:])
        row = (name, first[1] if first else "none (%s)" % result, "%.1f" % first[0] if first else "", others)
        print("| `%s` | %s | %s | %s | %s |" % (*row, "; ".join(found) or "nothing"), flush=True)
    for number in range(arguments.healthy):
        name, fired, found = healthy(number)
        well = well and not fired and not found
        said = (number + 1, name, ", ".join(fired) or "nothing", "; ".join(found) or "nothing")
        print("healthy run %d, %s: %s fired, the doctor found %s" % said, flush=True)
    return int(not well)


if __name__ == "__main__":
    sys.exit(main())
