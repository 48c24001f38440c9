# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a head put where, read from what llama-server logged while it loaded. Private to the collection."""

import re
import subprocess

# In RPC0[host:port] the number is the device's index at that endpoint, 0 for every worker with one card: the endpoint is the key.
BUFFER = re.compile(r"(\S+)\s+(model|KV|compute|output) buffer size =\s+([0-9.]+) MiB")
ENDPOINT = re.compile(r"^[A-Za-z]+\d+\[([^\]]+)\]$")
OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
CELLS = re.compile(r"llama_kv_cache: size =.*?\(\s*(\d+) cells")


class LoadLogError(Exception):
    """One sentence: what could not be read, why, and what to do."""


def parse(text):
    """Lines of llama-server's log -> {buffers, endpoints, layers_offloaded, layers_total, kv_cells}; sizes in MiB.

    A value that is logged twice counts once, the last time: with --fit on a dry run logs 0.00 MiB for everything first.
    """
    sizes = {}
    for device, kind, mib in BUFFER.findall(text):
        sizes[(device, kind)] = float(mib)
    buffers = []
    endpoints = {}
    for (device, kind), mib in sorted(sizes.items()):
        match = ENDPOINT.match(device)
        endpoint = match.group(1) if match else None
        buffers.append({"device": device, "endpoint": endpoint, "kind": kind.lower(), "mib": mib})
        if endpoint:
            totals = endpoints.setdefault(endpoint, {"model_mib": 0.0, "kv_mib": 0.0, "compute_mib": 0.0})
            key = kind.lower() + "_mib"
            totals[key] = round(totals.get(key, 0.0) + mib, 2)
    offloaded = OFFLOADED.findall(text)
    cells = CELLS.findall(text)
    return {
        "buffers": buffers,
        "endpoints": endpoints,
        "layers_offloaded": int(offloaded[-1][0]) if offloaded else None,
        "layers_total": int(offloaded[-1][1]) if offloaded else None,
        "kv_cells": int(cells[-1]) if cells else None,
    }


def unit_log(unit):
    """What the running process of a unit has logged, from its journal; LoadLogError when there is none."""
    pid = _output(["systemctl", "show", "--property=MainPID", unit]).strip().partition("=")[2]
    if not pid or pid == "0":
        raise LoadLogError("%s does not run, a running head is needed: see systemctl status %s" % (unit, unit))
    text = _output(["journalctl", "--no-pager", "--output=cat", "_PID=" + pid, "--unit=" + unit])
    if "buffer size" not in text:
        raise LoadLogError(
            "the journal of %s has no buffer sizes of process %s, the log of its start is needed: "
            "let it finish loading, or restart the unit if the journal has lost it" % (unit, pid)
        )
    return text


def _output(command):
    try:
        return subprocess.check_output(command, stderr=subprocess.STDOUT, universal_newlines=True)
    except OSError as error:
        raise LoadLogError("%s cannot be run (%s): heads are looked up on nodes with systemd only" % (command[0], error.strerror)) from None
    except subprocess.CalledProcessError as error:
        raise LoadLogError("%s answered %r: run as root on the head's node" % (command[0], error.output.strip())) from None
