# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deploys on this machine's card, on three nodes in namespaces, and asserts what only a card can show.

    python3 tests/card/run.py [--cpu | --vulkan] [--only PART,...] [--keep] [--minutes N] [--prepared DIR]
        [--state DIR] [--results DIR]

Needs root, util-linux, Python 3.9 and what tests/card/prepare.sh made (.card); with a card its driver and CUDA's
runtime libraries; no network, container engine or systemd. --vulkan is for a card of AMD or Intel, with the kernel's
driver. --cpu does the same with a CPU build where there is no card: what needs one is left out and said. With --keep
the nodes stay, and a part that passed for the same content and machine is not run again; --only runs parts again on
nodes that stayed.
Each part writes its result into the JSON file of this machine as soon as it is done. Ends with 0 where all passed, with
1 where one failed, with 2 where nothing could be started.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import parts  # noqa: E402
from graphics import graphics  # noqa: E402
from machine import CHECKOUT, Failed, Machine  # noqa: E402

# That of the machine code in the build: H100, H200.
CAPABILITY = "9.0"
STATE = "/var/lib/llama-card-test"


def card():
    """-> {card, driver, cuda} of this machine"""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"]
    name, driver, capability = (
        subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    )
    if capability != CAPABILITY:
        raise Failed(
            "%s: compute capability %s seen, %s is needed: tests/card/compile.sh compiles for no other, see"
            " docs/benchmarks.md" % (name, capability, CAPABILITY)
        )
    whole = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=True).stdout
    cuda = re.search(r"CUDA Version: *([0-9.]+)", whole)
    return {"card": name, "driver": driver, "cuda": cuda.group(1) if cuda else ""}


def card_of_mesa(prepared):
    """-> {card, driver, cuda} of this machine's first card that is not NVIDIA's; the driver is Mesa's, of the nodes"""
    found = graphics()
    if not found:
        raise Failed("/sys/class/drm: no card of AMD or Intel with a render node seen, one is needed: try --cpu")
    try:
        mesa = json.loads((prepared / "prepared.json").read_text())["mesa"]
    except (OSError, ValueError, KeyError):
        raise Failed(
            "%s: no nodes with Mesa's drivers, they are needed: run make card WHAT=prepare ARGS=--vulkan first"
            % prepared
        ) from None
    name = found[0]["name"] or "%s %s" % (found[0]["vendor"], found[0]["device_id"])
    return {"card": word(name).replace("-", " ")[:60].strip(), "driver": mesa, "cuda": ""}


def word(text):
    """As a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--cpu", action="store_true", help="with a CPU build, on a machine without a card")
    which.add_argument("--vulkan", action="store_true", help="on a card of AMD or Intel")
    parser.add_argument("--only", default="", help="parts to run, with commas: " + ", ".join(parts.PARTS))
    parser.add_argument("--keep", action="store_true", help="leave the nodes running")
    parser.add_argument("--minutes", type=float, help="end after so many, 8 with a card; what passed is kept")
    parser.add_argument("--prepared", type=Path, help="a directory; .card, with --vulkan .card/vulkan")
    parser.add_argument("--state", type=Path, default=Path(STATE))
    parser.add_argument("--results", type=Path, help="a directory; tests/card/results, with --cpu .card/results")
    arguments = parser.parse_args()
    wanted = [one for one in arguments.only.split(",") if one]
    unknown = [one for one in wanted if one not in parts.PARTS]
    if unknown:
        parser.error("%s: no part, %s are needed" % (", ".join(unknown), ", ".join(parts.PARTS)))
    if os.geteuid():
        parser.error("user %d seen, root is needed: namespaces, mounts and devices are root's" % os.geteuid())
    # Also where the session ends that it was started from, unless nohup says otherwise.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    kind = "cpu" if arguments.cpu else "vulkan" if arguments.vulkan else "cuda"
    prepared = (arguments.prepared or CHECKOUT / (".card/vulkan" if arguments.vulkan else ".card")).resolve()
    machine = Machine(prepared, arguments.state.absolute(), kind)
    try:
        if arguments.cpu:
            known = {"card": "none", "driver": "", "cuda": ""}
        else:
            known = card_of_mesa(prepared) if arguments.vulkan else card()
    except Failed as error:
        print("card: %s" % error)
        return 2
    except (OSError, subprocess.CalledProcessError) as error:
        print("card: nvidia-smi does not answer (%s), a card and its driver are needed: try --cpu" % error)
        return 2
    try:
        build = parts.build_of(machine)
        machine.own()
    except Failed as error:
        print("card: %s" % error)
        return 2
    folder = arguments.results or (prepared / "results" if arguments.cpu else CHECKOUT / "tests/card/results")
    path = folder / ("%s.json" % word("-".join(filter(None, [known["card"], known["driver"], build]))))
    result = {"schema": 1, "mode": "cpu" if arguments.cpu else "card", **known, "build": build}
    result.update(version="b11434", kernel=platform.release(), nodes=3, parts={})
    commit = parts.content()
    try:
        kept = json.loads(path.read_text())
        same = {name: kept.get(name) == result[name] for name in ("mode", "driver", "build", "kernel")}
        if all(same.values()) and kept.get("content") == commit and machine.up():
            result["parts"] = kept["parts"]
    except (OSError, ValueError, KeyError):
        pass
    result.update(date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), content=commit)
    began, failed = time.monotonic(), []
    limit = 60 * (arguments.minutes or (0 if arguments.cpu else 8))
    signal.setitimer(signal.ITIMER_REAL, limit)
    state = parts.State(machine)
    try:
        for name, part in parts.PARTS.items():
            done = result["parts"].get(name, {})
            if wanted and name not in wanted or not wanted and done.get("ok"):
                continue
            if name != "boot" and not machine.up():
                print("card: no nodes run, they are needed for %s: run it without --only first, with --keep" % name)
                return 2
            found = one_part(part, state)
            result["parts"][name] = found
            folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(result, indent=1) + "\n")
            partial.replace(path)
            show(name, found)
            failed += [] if found["ok"] else [name]
            if name in ("boot", "deploy") and not found["ok"]:
                break
    except KeyboardInterrupt:
        over = limit and time.monotonic() - began >= limit
        failed.append("%g minutes are over" % (limit / 60) if over else "interrupted")
        print(failed[-1])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not arguments.keep:
            machine.remove()
    print(
        "%s: %d of %d parts passed in %.1f minutes%s"
        % (
            path,
            sum(one["ok"] for one in result["parts"].values()),
            len(parts.PARTS),
            (time.monotonic() - began) / 60,
            ", failed: " + ", ".join(failed) if failed else "",
        )
    )
    return 1 if failed else 0


def one_part(part, state):
    state.checks, state.figures = [], {}
    started = time.monotonic()
    try:
        part(state)
    except Failed as error:
        state.check("it runs to its end", False, str(error))
    except Exception as error:  # a fault of the test itself is a failed check of its part, the others go on
        traceback.print_exc()
        state.check("it runs to its end", False, "%s: %s" % (type(error).__name__, error))
    for name, figure in state.figures.items():
        state.figures[name] = "not seen" if figure is None else figure
    ok = bool(state.checks) and all(one["ok"] is not False for one in state.checks)
    seconds = round(time.monotonic() - started, 1)
    return {"ok": ok, "seconds": seconds, "checks": state.checks, "figures": state.figures}


def show(name, found):
    print("%-10s %-6s %6.1f s" % (name, "ok" if found["ok"] else "FAILED", found["seconds"]), flush=True)
    for one in found["checks"]:
        sign = {True: "ok", False: "FAILED", None: "-"}[one["ok"]]
        print("    %-6s %s: %s" % (sign, one["what"], one["seen"]), flush=True)
    for figure in found["figures"].items():
        print("           %s: %s" % figure, flush=True)


if __name__ == "__main__":
    sys.exit(main())
