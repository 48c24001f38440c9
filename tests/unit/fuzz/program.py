# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Damages everything that the collection reads from others: each mutation ends in an answer or in one sentence, soon
and in little memory.

python tests/unit/fuzz/program.py --seed 1 --rounds 1000000 FILE...

FILE: real models, whose headers are damaged besides the made ones. Ends with a table; exit status 1 after the first
mutation that did anything else.
"""

import argparse
import functools
import gc
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections import namedtuple
from pathlib import Path

# A script of its own: pytest's process has threads and must not be forked, nor its memory be limited.
if __package__ in (None, ""):
    sys.path.insert(0, os.path.abspath(__file__).split("/ansible_collections/")[0])
from ansible_collections.thefermisea.llama_cluster.tests.unit.fuzz import answers, models, records
from ansible_collections.thefermisea.llama_cluster.tests.unit.fuzz.damage import bytes_of
from ansible_collections.thefermisea.llama_cluster.tests.unit.fuzz.folder import FOLDER

MEMORY = 64 << 20  # bytes that a mutation may take over what the process has at the start
SECONDS = 1.0  # of CPU time for one mutation
HANG = 10  # seconds of CPU time after which a mutation is not waited for
STUCK = 300  # seconds after which one that does nothing is not: other processes may have the machine
LONGEST_SENTENCE = 1000

Target = namedtuple("Target", "name share seeds damaged read")
"""share: of the rounds, in parts, or None for one round of each seed; seeds(files): what is damaged;
damaged(seed, random): a damaged copy; read(copy): None for an answer, the sentence of a refusal otherwise."""

TARGETS = [
    Target("header", 12, models.header_seeds, bytes_of, models.header),
    Target("shape", 8, models.shape_seeds, models.damaged_parts, models.shape),
    Target("largest headers", None, models.largest_seeds, lambda path, _source: path, models.largest),
    Target("plan", 2, models.shape_seeds, models.damaged_parts, models.plan),
    Target("bundle.json", 3, records.bundle_seeds, records.damaged, records.bundle),
    Target("manifest", 3, records.manifest_seeds, records.damaged, records.manifest),
    Target("snapshot", 2, records.snapshot_seeds, records.damaged, records.snapshot),
    Target("trial", 2, records.trial_seeds, records.damaged, records.trial),
    Target("journal", 2, records.journal_seeds, bytes_of, records.journal),
    Target("build.json", 2, records.build_seeds, records.damaged, records.build),
    Target("removal", 2, records.manifest_seeds, records.damaged, records.removal),
    Target("hub", 3, answers.hub_seeds, answers.damaged, answers.hub),
]
TARGETS += [
    Target(path, 2, answers.seeds_of(path), answers.damaged, answers.served(path))
    for path in ("/health", "/slots", "/metrics", "/props", "/v1/models", "/v1/chat/completions", "/completion")
]


def check(target, data):
    """Reads -> whether it was refused; AssertionError when the refusal is not one sentence."""
    sentence = target.read(data)
    if sentence is not None:
        assert sentence and sentence.isprintable() and len(sentence) <= LONGEST_SENTENCE, (
            "no sentence: %r" % sentence[:300]
        )
    return sentence is not None


def _hurry(sleep, seconds):
    sleep(0 if seconds > 0 else seconds)


def _give_up(number, _frame):
    raise AssertionError("no end in sight (%s)" % signal.Signals(number).name)


def status(name):
    """Bytes of a line of /proc/self/status."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) << 10


def fuzz(target, seeds, source, rounds):
    """-> the row of a target"""
    refused, longest = 0, 0.0
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _give_up)
    gc.collect()
    # Forget the peak of what came before.
    Path("/proc/self/clear_refs").write_text("5")
    start = status("VmRSS")
    for number in range(rounds):
        data = target.damaged(seeds[number % len(seeds)], source)
        signal.setitimer(signal.ITIMER_PROF, HANG)
        signal.alarm(STUCK)
        begun = time.process_time()
        try:
            refused += check(target, data)
            longest = max(longest, time.process_time() - begun)
            assert longest <= SECONDS, "%.2f s" % longest
        except BaseException:
            print("%s, mutation %d: %r" % (target.name, number, data[:2000]), flush=True)
            raise
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.alarm(0)
    return (target.name, rounds, refused, rounds - refused, longest, max(0, status("VmHWM") - start) / float(1 << 20))


def apart(target, options, rounds):
    """The row of a target, from a process of its own: what one needs is not hidden by what another one has left."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            seeds = target.seeds(options.files)
            resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + MEMORY,) * 2)
            row = fuzz(target, seeds, random.Random("%d %s" % (options.seed, target.name)), rounds or len(seeds))
            os.write(writing, json.dumps(row).encode())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        said = stream.read()
    ended = os.waitpid(child, 0)[1]
    if ended or not said:
        sys.exit("%s: not every mutation ended in an answer or a sentence (status %d)" % (target.name, ended))
    return json.loads(said)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10000, help="mutations in all")
    parser.add_argument("--only", action="append", help="a target's name")
    parser.add_argument("files", nargs="*", metavar="FILE")
    options = parser.parse_args()
    # A hub that is asked to wait is not waited for; what time.sleep() refuses is still refused.
    time.sleep = functools.partial(_hurry, time.sleep)
    # Made here, so that it is gone when this process ends, not with the first of the others.
    FOLDER.path()
    targets = [target for target in TARGETS if not options.only or target.name in options.only]
    parts = sum(target.share or 0 for target in targets)
    begun = time.monotonic()
    rows = []
    for target in targets:
        row = apart(target, options, -(-options.rounds * target.share // parts) if target.share else None)
        rows.append(row)
        # At once: a long round that is stopped has told what it found.
        print(
            "%s: %d of %d refused, longest %.2f s, most %.1f MiB, after %.0f s"
            % (row[0], row[2], row[1], row[4], row[5], time.monotonic() - begun),
            flush=True,
        )
    rows.append(
        ["all"]
        + [sum(row[column] for row in rows) for column in (1, 2, 3)]
        + [max(row[column] for row in rows) for column in (4, 5)]
    )
    print("\n%-22s %9s %9s %9s %8s %8s" % ("target", "rounds", "refused", "answered", "longest", "most"))
    for row in rows:
        print("%-22s %9d %9d %9d %6.2f s %4.1f MiB" % tuple(row))
    print(
        "seed %d, %.0f s; each held to %.0f s of CPU time and %d MiB over the start"
        % (options.seed, time.monotonic() - begun, SECONDS, MEMORY >> 20)
    )


if __name__ == "__main__":
    main()
