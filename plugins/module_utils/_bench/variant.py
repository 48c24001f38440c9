# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A service's model served another way for a while, to measure what its split costs. Private to the collection.

The unit of its head, with other workers, becomes one below paths.RUN_UNITS: it has the same user, sandbox, cards and
flags, listens on loopback alone, ends by itself and is gone with the next boot. An RPC server on loopback is made of it
too.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

from .. import _files
from .._llama.args import rpc_args
from .._node import paths
from .._node.ours import is_our_unit
from .._node.systemd_escape import systemd_escape, systemd_words
from .._node.units import COMMAND, VARIANT, installed_name
from .._text import Refusal

Run = Callable[..., int]
LOOPBACK = "127.0.0.1"
SERVER, WORKER = "/bin/llama-server", "/bin/ggml-rpc-server"
# What says where layers go; each has a value.
PLACES = ("--rpc", "--split-mode", "--tensor-split")
# Of the head's unit, what is for the head alone: being started again and known by its digest.
OWN = ("Environment=LLAMA_CLUSTER_DIGEST=", "Restart=", "RestartSec=", "TimeoutStartSec=", "Description=", "#")
OWN_STEPS = (paths.PROGRAM, paths.DIGESTS, "exec ss ")
# What an RPC server has no use for.
OF_HEADS = ("BindReadOnlyPaths=", "Wants=", "After=")
# Seconds until workers have to answer.
START = 300
UNIT = """\
# Written by llama_cluster, for as long as a service is measured.
{lines}
Restart=no
TimeoutStartSec={start}
RuntimeMaxSec={seconds}
{own}
"""
# RPC is unauthenticated: everybody else on the node is kept from it. As in firewall.nft.j2 a socket without an owner
# opens nothing.
TABLE = ("inet", "llama_overhead")
RULES = """\
table inet llama_overhead
delete table inet llama_overhead
table inet llama_overhead {{
  chain output {{
    type filter hook output priority -10; policy accept;
    ip daddr {address} tcp dport {port} tcp flags & (syn | ack) == syn meta skuid "{user}" accept
    ip daddr {address} tcp dport {port} tcp flags & (syn | ack) == syn reject with tcp reset
    ip daddr {address} tcp dport {port} meta skuid != "{user}" reject with tcp reset
  }}
}}
"""


class Layers(NamedTuple):
    """Where the layers go. loopback: to an RPC server of the head's own node instead of rpc_endpoints."""

    rpc_endpoints: Sequence[str]
    tensor_split: Sequence[int]
    loopback: bool


def names(service: str) -> tuple[str, str]:
    """The units of a variant: its server, and the RPC server on loopback."""
    return VARIANT % service, f"llama-loopback-{service}.service"


def server_words(words: Sequence[str], layers: Layers) -> list[str]:
    """The command of a head, with other workers or none, on loopback."""
    left = iter(words)
    kept: list[str] = []
    for word in left:
        if word in PLACES:
            next(left)
        elif word == "--host":
            kept += [word, LOOPBACK]
            next(left)
        elif word == "--device" and layers.rpc_endpoints:
            # none: a head that uses no card. It would leave workers out too; its unit shows it no card anyway.
            next(left)
        else:
            kept.append(word)
    if layers.rpc_endpoints:
        kept += ["--rpc", ",".join(layers.rpc_endpoints), "--split-mode", "layer"]
    if layers.tensor_split:
        kept += ["--tensor-split", ",".join(str(count) for count in layers.tensor_split)]
    return kept


def worker_words(words: Sequence[str], port: int) -> list[str]:
    """The command of an RPC server beside a head, of the same release and with its threads."""
    at = [number for number, word in enumerate(words) if word.endswith(SERVER)][0]
    threads = [value for flag, value in zip(words, words[1:]) if flag == "--threads"]
    program = words[at][: -len(SERVER)] + WORKER
    instance = {"address": LOOPBACK, "port": port, "threads": int(threads[0]) if threads else 0}
    return list(words[:at]) + ["/usr/bin/stdbuf", "-oL", program] + rpc_args(instance)


def directive(text: str, name: str) -> str:
    """The value of a line of a unit, empty without one."""
    found = [line.partition("=")[2] for line in text.splitlines() if line.startswith(name + "=")]
    return found[-1] if found else ""


def unit_text(
    text: str, words: Sequence[str], unit: Sequence[str], own: Sequence[str], seconds: int, drop: Sequence[str] = ()
) -> str:
    """A unit made of the head's, `text`: another command, lines of its own in [Unit] and [Service], and without those
    that begin with `drop`. It is started once, not at boot, and ends after that many seconds."""
    start = "ExecStart=" + " ".join(systemd_escape(word, command=True) for word in words)
    kept: list[str] = []
    for line in text.partition("\n[Install]")[0].splitlines():
        steps = line.startswith("ExecStartPre=") and any(step in line for step in OWN_STEPS)
        if steps or line.startswith(OWN + tuple(drop)):
            continue
        kept.append(start if line.startswith("ExecStart=") else line)
        if line == "[Unit]":
            kept += unit
    return UNIT.format(lines="\n".join(kept).strip(), start=START, seconds=seconds, own="\n".join(own))


def run(command: Sequence[str], given: str | None = None, needed: bool = True) -> int:
    """Status of a command. Errors: Refusal where it fails and is needed."""
    try:
        process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output = process.communicate((given or "").encode("utf-8"))[0].decode("utf-8", "replace")
        status = process.returncode
    except OSError as error:
        output, status = os.strerror(error.errno or 0), 127
    if status and needed:
        raise Refusal(
            "%s: failed (%s), its success is needed to serve another way: see journalctl -xe on the node"
            % (" ".join(command), " ".join(output.split()) or status)
        )
    return status


def free_port() -> int:
    """A port that nobody listens at on loopback."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


class Variant:
    """Of a service on this node. root: where / is, other than in tests."""

    def __init__(self, service: str, root: str = "/", run: Run = run, find_port: Callable[[], int] = free_port) -> None:
        self.service, self.run, self.find_port = service, run, find_port
        self.root = root
        self.units = names(service)

    def start(self, layers: Layers, seconds: int) -> dict[str, Any]:
        """Starts it, without waiting until it serves; the head has to be stopped. -> {unit, rpc_endpoints}. Errors:
        Refusal, OSError."""
        self.end()
        head, text = self._head_unit(), self._head()
        words = systemd_words("".join(COMMAND.findall(text)[:1])) or []
        user = directive(text, "User")
        if not user or not any(word.endswith(SERVER) for word in words):
            raise Refusal(
                f"{head}: no command of the collection seen, one is needed to serve another way: run site.yml"
            )
        server, worker = self.units
        # Whoever finds it there after a run that died starts the head, which ends it first.
        ends = ["Conflicts=" + head, "Before=" + head]
        texts = {}
        if layers.loopback:
            port = self.find_port()
            self.run(["nft", "-f", "-"], RULES.format(address=LOOPBACK, port=port, user=user))
            # As workers have it: whoever takes it over reaches nobody.
            own = ["IPAddressDeny=any", "IPAddressAllow=" + LOOPBACK]
            own.append("ExecStopPost=-+/usr/sbin/nft delete table " + " ".join(TABLE))
            # A server that loses its worker aborts: it stops first.
            told = [f"Description=llama.cpp RPC on loopback of {self.service}, while it is measured"]
            told += ends + ["Before=" + server]
            texts[worker] = unit_text(text, worker_words(words, port), told, own, seconds, OF_HEADS)
            layers = layers._replace(rpc_endpoints=["%s:%d" % (LOOPBACK, port)])
        release = [word[: -len(SERVER)] for word in words if word.endswith(SERVER)][0]
        wait = [paths.PROGRAM, "wait_for_workers", "--build", os.path.basename(release)] + list(layers.rpc_endpoints)
        steps = ["ExecStartPre=" + " ".join(wait)] if layers.rpc_endpoints else []
        told = [f"Description=llama.cpp of {self.service} served another way, while it is measured"]
        texts[server] = unit_text(text, server_words(words, layers), told + ends, steps, seconds)
        for name, content in texts.items():
            _files.write_atomically(self._path(paths.RUN_UNITS, name), content.encode("utf-8"), 0o644)
        self.run(["systemctl", "daemon-reload"])
        self.run(["systemctl", "start", "--no-block"] + sorted(texts))
        return {"unit": server, "rpc_endpoints": list(layers.rpc_endpoints)}

    def end(self) -> bool:
        """-> whether there was anything to end. Errors: Refusal, OSError."""
        there = [name for name in self.units if os.path.lexists(self._path(paths.RUN_UNITS, name))]
        if there:
            self.run(["systemctl", "stop"] + there)
            self.run(["systemctl", "reset-failed"] + there, needed=False)
            for name in there:
                os.unlink(self._path(paths.RUN_UNITS, name))
            self.run(["systemctl", "daemon-reload"])
        # Last: without it everybody would reach what still runs.
        ruled = not self.run(["nft", "list", "table"] + list(TABLE), needed=False)
        if ruled:
            self.run(["nft", "delete", "table"] + list(TABLE))
        return bool(there) or ruled

    def _head_unit(self) -> str:
        return installed_name("head", self.service, self._path(paths.UNITS))

    def _head(self) -> str:
        path = self._path(paths.UNITS, self._head_unit())
        if not is_our_unit(path):
            raise Refusal(f"{path}: no unit of the collection seen, the head's is needed: run site.yml")
        return _files.read(path).decode("utf-8", "replace")

    def _path(self, path: str, *parts: str) -> str:
        return os.path.join(self.root, path.lstrip("/"), *parts)
