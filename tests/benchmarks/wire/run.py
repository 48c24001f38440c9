"""Wire truth on the lab: how often a good deployment is called true, and what is said of five that are sabotaged.

    python tests/benchmarks/wire/run.py [--good 20] [--sabotages NAME,NAME]

Needs a lab of inventories/lab that site.yml has deployed, and LLAMA_LAB_SLOT of it. Ends with status 1 where a good
deployment was refused, or a sabotaged one was not, or not with its sentence.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

from sabotages import SABOTAGES, apply

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
SLOT = int(os.environ.get("LLAMA_LAB_SLOT") or 0)
ADDRESSES = {"ethernet": "10.213.%d.13" % SLOT, "fabric": "10.214.%d.13" % SLOT}


def run(node, command):
    line = ["docker", "exec", "llama-lab%d-%s" % (SLOT, node), "bash", "-c", command]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)


def verify():
    """-> (exit status, output, seconds)"""
    started = time.monotonic()
    line = [".venv/bin/ansible-playbook", "playbooks/verify.yml", "-i", "inventories/lab"]
    environment = dict(os.environ, ANSIBLE_NOCOLOR="1", COLUMNS="10000")
    done = subprocess.run(line, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split()), time.monotonic() - started


def sabotaged(name):
    one = SABOTAGES[name]
    apply(one.change, run, ADDRESSES)
    try:
        status, output, seconds = verify()
    finally:
        apply(one.undo, run, ADDRESSES)
    wanted = one.said % ADDRESSES
    refused = status != 0 and wanted in output
    print("| %s | %s | %.0f s | %s |" % (name, "refused" if refused else "NOT REFUSED", seconds, wanted), flush=True)
    if not refused:
        print(output[-3000:], file=sys.stderr)
    return refused


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--good", type=int, default=20)
    parser.add_argument("--sabotages", default=",".join(SABOTAGES))
    given = parser.parse_args()
    true = 0
    for number in range(given.good):
        status, output, seconds = verify()
        true += status == 0
        print("good %d: status %d, %.0f s" % (number + 1, status, seconds), flush=True)
        if status:
            print(output[-3000:], file=sys.stderr)
    print("%d of %d good deployments were true" % (true, given.good))
    print("| sabotage | verdict | seconds | its sentence |\n|---|---|---|---|")
    refused = [sabotaged(name) for name in filter(None, given.sabotages.split(","))]
    return 0 if true == given.good and all(refused) else 1


if __name__ == "__main__":
    sys.exit(main())
