"""The drill table of docs/benchmarks.md: every drill on the lab, and drills of a loaded service again with a load
slowed down to about a minute.

    python tests/benchmarks/recovery/table.py [--fast-only] [--drills NAME,NAME]

Needs the lab of `make lab` (LLAMA_LAB_SLOT as there). The load is slowed on the head's fabric interface (tc tbf), which
also carries the answers' few bytes.
Ends with status 1 when a drill failed or did not run.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
CACHE = pathlib.Path(
    os.environ.get("LLAMA_CLUSTER_CACHE")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "llama-cluster")
)
SLOT = int(os.environ.get("LLAMA_LAB_SLOT") or 0)
HEAD = "llama-lab%d-node1" % SLOT
# 92 MiB of weights in about 60 s.
SLOW = ("rate", "13mbit", "burst", "32kb", "latency", "400ms")
# The faults of a start are about what comes before the load.
SLOWED = (
    "worker_kill_generating,worker_kill_idle,head_kill,workers_both,head_and_worker,worker_stop_generating,worker_stop_idle,worker_host_gone,"
    "fabric_partition,node_restart"
)
DEADLINE = 600
PARTS = ("detection", "held", "restart", "load", "total")


def drill(names):
    """Runs drill.yml -> (its results by name, whether all is well); a drill that failed is in them."""
    command = [
        ".venv/bin/ansible-playbook",
        "playbooks/drill.yml",
        "-i",
        "inventories/lab",
        "-e",
        "drill_deadline=%d" % DEADLINE,
    ]
    report = CACHE / "reports" / ("llama-lab%d" % SLOT) / "drill-chat.json"
    report.unlink(missing_ok=True)
    status = subprocess.call(command + (["-e", "drills=" + names] if names else []), cwd=REPOSITORY, stdout=sys.stderr)
    results = {one["drill"]: one for one in json.loads(report.read_text())["drills"]} if report.exists() else {}
    return results, status == 0 and bool(results) and all(one["result"] != "failed" for one in results.values())


def fabric_interface():
    shown = json.loads(subprocess.check_output(["docker", "exec", HEAD, "ip", "-j", "address"]))
    return next(
        one["ifname"] for one in shown if any(address["local"].startswith("10.214.") for address in one["addr_info"])
    )


def slowly(names):
    interface = fabric_interface()
    subprocess.check_call(["docker", "exec", HEAD, "tc", "qdisc", "replace", "dev", interface, "root", "tbf", *SLOW])
    try:
        return drill(names)
    finally:
        subprocess.check_call(["docker", "exec", HEAD, "tc", "qdisc", "del", "dev", interface, "root"])


def cell(result, part):
    value = (result.get("phases") or {}).get(part) if result else None
    return "" if value is None else "%.2f" % value if value < 10 else "%.1f" % value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast-only", action="store_true")
    parser.add_argument("--drills", default="")
    arguments = parser.parse_args()
    fast, well = drill(arguments.drills)
    slow, slow_well = ({}, True) if arguments.fast_only else slowly(arguments.drills or SLOWED)
    print("| drill | %s | slow load: %s |" % (" | ".join(PARTS), " | ".join(PARTS)))
    print("|---%s|" % ("|---:" * 2 * len(PARTS)))
    for name, result in fast.items():
        cells = [cell(result, part) for part in PARTS] + [cell(slow.get(name), part) for part in PARTS]
        print(
            "| `%s` | %s |%s"
            % (name, " | ".join(cells), "" if result["result"] != "failed" else " failed: " + result["reason"])
        )
    print(
        "\n".join(
            "slow, failed: %s: %s" % (name, one["reason"]) for name, one in slow.items() if one["result"] == "failed"
        )
    )
    if not (well and slow_well):
        print("recovery: drill.yml failed, or it ran no drill: its output above says why", file=sys.stderr)
    return int(not (well and slow_well))


if __name__ == "__main__":
    sys.exit(main())
