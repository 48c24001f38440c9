# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The capacity of the link between two nodes, by iperf3 in transient units without privileges. Private to the
collection."""

import json
import os
import shutil
import time
from collections.abc import Sequence
from typing import Any

from .._node.command import environment, said
from .._text import Refusal, printable

UNIT = "llama-link.service"
STREAMS = 8
# Seconds to connect and to exchange results.
BESIDE = 30
# Seconds until the server listens.
LISTENS = 10.0
# Milliseconds for the connection: a firewall may drop packets silently.
CONNECT = 5000
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
    """Starts iperf3 for one measurement by `peer` and returns once it listens. One that an interrupted run left behind
    is stopped first. Errors: Refusal."""
    program = _program()
    end()
    if _listens(address, port):
        raise Refusal(
            "acceptance_link_port: %d of %s is in use on %s, a free port is needed: set another one"
            % (port, address, os.uname().nodename)
        )
    # Without a firewall, too, the unit gets only packets of its peer.
    only = ["--unit=" + UNIT, "--property=IPAddressDeny=any", "--property=IPAddressAllow=" + peer]
    command = _confined(seconds, only) + [program, "--server", "--one-off", "--bind", address, "--port", str(port)]
    status, output = said(command, errors=True)
    deadline = time.monotonic() + LISTENS
    while not status and not _listens(address, port) and time.monotonic() < deadline:
        time.sleep(0.1)
    if status or not _listens(address, port):
        end()
        raise Refusal(
            "%s: iperf3 does not listen at %s port %d on %s (%s), it is needed there: see journalctl -u %s"
            % (UNIT, address, port, os.uname().nodename, printable(" ".join(output.split())) or "no reason given", UNIT)
        )


def measure(own: str, address: str, port: int, seconds: int, reverse: bool) -> dict[str, Any]:
    """parse() of a measurement from `own` to the server at `address`, or in reverse. Errors: Refusal."""
    command = _confined(seconds, ["--wait", "--pipe"]) + [_program(), "--client", address, "--port", str(port)]
    command += ["--bind", own, "--parallel", str(STREAMS), "--time", str(seconds), "--interval", "0", "--json"]
    command += ["--connect-timeout", str(CONNECT)] + ["--reverse"] * reverse
    try:
        return parse(said(command)[1])
    except Refusal as refusal:
        raise Refusal(
            "llama_fabric_address: no measurement between %s and %s port %d (%s), an answer of iperf3 is needed: "
            "this run opens firewalld, any other firewall has to let %s in there" % (own, address, port, refusal, own)
        ) from None


def end() -> None:
    said(["systemctl", "stop", UNIT])


def parse(text: str) -> dict[str, Any]:
    """-> {gbit_per_second: received, retransmits: None if unknown}, from the JSON of iperf3's client. Errors: Refusal
    with iperf3's message."""
    try:
        result = json.loads(text)
        if result.get("error"):
            raise Refusal(f"iperf3: {printable(str(result['error']))}")
        received = round(float(result["end"]["sum_received"]["bits_per_second"]) / 1e9, 3)
        retransmits = result["end"]["sum_sent"].get("retransmits")
        return {"gbit_per_second": received, "retransmits": None if retransmits is None else int(retransmits)}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise Refusal("no readable answer of iperf3: %s" % (printable(text.strip()) or "no output")) from None


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


def _listens(address: str, port: int) -> bool:
    return bool(said(["ss", "-Hltn", "src", "%s:%d" % (address, port)])[1].strip())
