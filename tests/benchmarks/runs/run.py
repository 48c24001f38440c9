"""The cost of a site.yml that changes nothing: the controller's CPU with three nodes and with ten, and how often each
node is asked.

    python tests/benchmarks/runs/run.py [--rounds 3]

Makes two labs of its own beside that of `make lab`, one service over two workers and one over nine, and removes them.
Runs alternate; what is compared is the CPU time of ansible-playbook and all it starts, the engine's command among it.
Fails where a run changes anything, or where ten nodes cost more than 2.2 times what three do.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
ANSIBLE = str(REPOSITORY / ".venv/bin/ansible-playbook")
# Nodes of a lab, by the slot that keeps it apart.
LABS = {5: 3, 6: 10}
LAYERS = 30
ALLOWED = 2.2
# Stands before the engine's command and notes which node it is asked for.
WRAPPER = """#!/bin/sh
echo "$*" >>%s
exec %s "$@"
"""


def inventory(folder, slot):
    """Files that make the lab of a slot one of so many nodes."""
    workers = ["node%d" % number for number in range(2, LABS[slot] + 1)]
    each, more = divmod(LAYERS, len(workers))
    services = yaml.safe_load((REPOSITORY / "inventories/lab/group_vars/all/services.yml").read_text())
    services["llama_services"]["chat"]["tensor_split"] = {
        worker: each + (index < more) for index, worker in enumerate(workers)
    }
    hosts = {
        worker: {"lab_index": 9 + number, "ansible_host": "llama-lab%d-%s" % (slot, worker)}
        for number, worker in enumerate(workers, 3)
    }
    place = folder / str(slot)
    place.mkdir()
    (place / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"llama_rpc": {"hosts": hosts}}}}))
    extra = folder / ("%d.json" % slot)
    extra.write_text(json.dumps(services))
    return ["-i", "inventories/lab", "-i", str(place), "-e", "@%s" % extra]


def play(slot, arguments, playbook="playbooks/site.yml", path=""):
    """-> (CPU seconds, seconds, what it printed)"""
    variables = dict(os.environ, LLAMA_LAB_SLOT=str(slot))
    variables["PATH"] = path + variables["PATH"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [ANSIBLE, playbook, *arguments],
        cwd=REPOSITORY,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit("runs: %s ended with status %d: %s" % (playbook, done.returncode, done.stdout.strip()[-3000:]))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.monotonic() - began, done.stdout


def changed(printed):
    """Whether a run changed anything, by the last line of callback brief, which ansible.cfg names."""
    return not printed.rstrip().rpartition("\n")[2].startswith("no change, ")


def asked(folder, slot, arguments):
    """How often each node is asked in a run: {node: times}."""
    notes = folder / ("asked-%d" % slot)
    wrapper = folder / "bin/docker"
    wrapper.parent.mkdir(exist_ok=True)
    engine = subprocess.check_output(["sh", "-c", "command -v docker"], text=True).strip()
    wrapper.write_text(WRAPPER % (notes, engine))
    wrapper.chmod(0o755)
    play(slot, arguments, path="%s:" % wrapper.parent)
    lines = [line for line in notes.read_text().splitlines() if line.startswith("exec ")]
    return collections.Counter(re.findall(r"llama-lab%d-(node\d+)" % slot, "\n".join(lines)))


def measure(folder, rounds):
    """-> {slot: [(CPU seconds, seconds) of each round]}, {slot: {node: times}}"""
    labs = {slot: inventory(folder, slot) for slot in LABS}
    for slot, arguments in labs.items():
        play(slot, arguments, "molecule/shared/create.yml")
        print("deploying %d nodes" % LABS[slot], flush=True)
        play(slot, arguments)
    found = {slot: [] for slot in LABS}
    for number in range(-1, rounds):
        for slot in sorted(LABS, reverse=bool(number % 2)):
            cpu, seconds, printed = play(slot, labs[slot])
            if changed(printed):
                sys.exit("runs: a second run of %d nodes changed something: %s" % (LABS[slot], printed[-3000:]))
            if number >= 0:  # the first ones fill caches
                found[slot].append((cpu, seconds))
                print("%d nodes: %.1f CPU s, %.1f s" % (LABS[slot], cpu, seconds), flush=True)
    return found, {slot: asked(folder, slot, arguments) for slot, arguments in labs.items()}


def remove(folder):
    for slot in LABS:
        arguments = ["-i", "inventories/lab", "-i", str(folder / str(slot))]
        play(slot, arguments, "molecule/shared/destroy.yml")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            found, times = measure(folder, parser.parse_args().rounds)
        finally:
            remove(folder)
    for slot, runs in found.items():
        cpu, seconds = (statistics.median(run[part] for run in runs) for part in (0, 1))
        each = sorted(set(times[slot].values()))
        print(
            "| %d nodes | %.1f CPU s | %.1f s | each node asked %s times |"
            % (LABS[slot], cpu, seconds, " or ".join(map(str, each)))
        )
    few, many = (statistics.median(cpu for cpu, _seconds in found[slot]) for slot in sorted(LABS))
    print("controller's CPU: %.2f times" % (many / few))
    if many / few > ALLOWED:
        sys.exit("runs: ten nodes cost %.2f times what three do, at most %.1f is wanted" % (many / few, ALLOWED))


if __name__ == "__main__":
    main()
