"""What the programs of this folder say of themselves, their tables, and the record of each run."""

import json
import os
import pathlib
import subprocess
import time

REPORTS = pathlib.Path("/reports")


def versions():
    """What ran, in words."""
    nginx = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr.split("/")[-1].strip()
    haproxy = subprocess.run(["haproxy", "-v"], capture_output=True, text=True, check=True).stdout.split()[2]
    python = ".".join(map(str, os.sys.version_info[:3]))
    commit = os.environ.get("BENCH_COMMIT", "unknown")
    machine = "%s, %d cores, load %.1f before" % (processor(), os.cpu_count(), os.getloadavg()[0])
    return "%s, commit %s, %s, nginx %s, HAProxy %s, Python %s" % (
        time.strftime("%Y-%m-%d", time.gmtime()),
        commit,
        machine,
        nginx,
        haproxy.partition("-")[0],
        python,
    )


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def table(head, rows):
    lines = ["| %s |" % " | ".join(head), "|%s|" % "|".join(["---"] + ["--:"] * (len(head) - 1))]
    return "\n".join(lines + ["| %s |" % " | ".join(map(str, row)) for row in rows])


def keep(name, content):
    (REPORTS / (name + ".json")).write_text(json.dumps(content, indent=1, default=str))
