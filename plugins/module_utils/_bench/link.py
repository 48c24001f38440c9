# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much the link between two nodes carries: iperf3 on both ends, each a transient unit of systemd without any
privilege, which ends by itself. Private to the collection."""

import json
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from .._node.facts import environment, said
from .._text import Refusal, printable

UNIT = "llama-link.service"
STREAMS = 8
# Seconds beside the measurement itself: to connect, and to exchange results.
BESIDE = 30
# Seconds until the server listens.
LISTENS = 10.0
# Milliseconds for the connection: a firewall that drops packets says nothing.
CONNECT = 5000
# From this version of iperf3 on each stream has a thread of its own.
THREADS = (3, 16)
# Percent of a processor from which on one thread for all streams is the limit.
FULL = 95
CONFINED = (
    "DynamicUser=yes",
    "CapabilityBoundingSet=",
    "PrivateDevices=yes",
    "ProtectHome=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
    "MemoryMax=512M",
    "TasksMax=64",
)


def serve(address: str, port: int, peer: str, seconds: int) -> None:
    """Has iperf3 listen for one measurement of `peer` and for nobody else; it listens already when this returns. One
    that an interrupted run has left is ended first. Errors: Refusal."""
    program = _program()
    end()
    if _listens(address, port):
        raise Refusal(
            "acceptance_link_port: %d of %s is in use on %s, a free port is needed: set another one"
            % (port, address, os.uname().nodename)
        )
    # Also where no firewall filters: the kernel hands the unit packets of its peer alone.
    only = ["--unit=" + UNIT, "--property=IPAddressDeny=any", "--property=IPAddressAllow=" + peer]
    command = _confined(seconds, only) + [program, "--server", "--one-off", "--bind", address, "--port", str(port)]
    status, output = _ran(command)
    deadline = time.monotonic() + LISTENS
    while not status and not _listens(address, port) and time.monotonic() < deadline:
        time.sleep(0.1)
    if status or not _listens(address, port):
        end()
        raise Refusal(
            "%s: iperf3 does not listen at %s port %d on %s (%s), it is needed there: see journalctl -u %s"
            % (UNIT, address, port, os.uname().nodename, output or "no reason given", UNIT)
        )


def measure(own: str, address: str, port: int, seconds: int, reverse: bool) -> dict[str, Any]:
    """As parse(), of what is sent from `own` to the server at `address`, or the other way. Errors: Refusal."""
    command = _confined(seconds, ["--wait", "--pipe"]) + [_program(), "--client", address, "--port", str(port)]
    command += ["--bind", own, "--parallel", str(STREAMS), "--time", str(seconds), "--interval", "0", "--json"]
    command += ["--connect-timeout", str(CONNECT)] + ["--reverse"] * reverse
    try:
        return parse(said(command)[1])
    except Refusal as refusal:
        raise Refusal(
            "llama_fabric_address: no measurement between %s and %s port %d (%s), an answer of iperf3 is needed: "
            "firewalld is told by this run, any other firewall has to let %s in there"
            % (own, address, port, refusal, own)
        ) from None


def end() -> None:
    """Ends the server; nothing where there is none."""
    said(["systemctl", "stop", UNIT])


def parse(text: str) -> dict[str, Any]:
    """-> {gbit_per_second: what arrived, retransmits: None where the system does not tell, limited: percent of a
    processor where one was busy with all streams and so was the limit, else None}, by the JSON of iperf3's client.
    Errors: Refusal with what iperf3 says."""
    try:
        told = json.loads(text)
        if told.get("error"):
            raise Refusal(f"iperf3: {printable(str(told['error']))}")
        sums = told["end"]
        arrived = float(sums["sum_received"]["bits_per_second"])
        retransmits = sums["sum_sent"].get("retransmits")
        processors = sums.get("cpu_utilization_percent") or {}
        busiest = max(float(processors.get(name) or 0) for name in ("host_total", "remote_total"))
        version = _version(str(told["start"]["version"]))
        if not (math.isfinite(arrived) and math.isfinite(busiest)):
            raise ValueError("no finite number")
        retransmits = None if retransmits is None else int(retransmits)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise Refusal("iperf3 says nothing that can be read: %s" % (printable(text.strip()) or "no output")) from None
    return {
        "gbit_per_second": round(arrived / 1e9, 3),
        "retransmits": retransmits,
        "limited": round(busiest) if busiest >= FULL and version < THREADS else None,
    }


def _version(text: str) -> tuple[int, ...]:
    """'iperf 3.12' -> (3, 12)."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def _program() -> str:
    found = shutil.which("iperf3", path=environment()["PATH"])
    if found is None:
        raise Refusal(
            "iperf3: not found on %s, it is needed on both ends of a link: install the package iperf3 there"
            % os.uname().nodename
        )
    return found


def _confined(seconds: int, options: Sequence[str]) -> list[str]:
    limit = "RuntimeMaxSec=%d" % (seconds + BESIDE)
    return ["systemd-run", "--quiet", "--collect", *options] + ["--property=" + one for one in CONFINED + (limit,)]


def _ran(command: Sequence[str]) -> tuple[int, str]:
    """(exit status, what it says, on one line)."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(), check=False)
    return done.returncode, printable(" ".join(done.stdout.decode("utf-8", "replace").split()))


def _listens(address: str, port: int) -> bool:
    return bool(said(["ss", "-Hltn", "src", "%s:%d" % (address, port)])[1].strip())
