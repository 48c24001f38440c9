# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A head or worker that runs with other arguments for a while, to measure it. Private to the collection.

Its unit is made of the deployed unit's file, below paths.RUN_UNITS: it has the same user, sandbox, cards and release. A
timer, armed before the deployed unit stops, starts that one again, which ends the variant: a run that dies leaves
nothing else to do. A head may have a worker beside it, on the loopback: its unit is made of the head's.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import time
from collections.abc import Sequence
from typing import Callable, NamedTuple

from .. import _files
from .._node import paths
from .._node.managed import is_managed_unit
from .._node.systemd_escape import systemd_escape, systemd_words
from .._node.units import COMMAND, VARIANT, installed_name, parse_show, systemctl, systemctl_show
from .._text import Refusal

# Seconds after its timer in which a variant would end by itself.
LATER = 30
LOOPBACK = "127.0.0.1"
PROGRAMS = {"head": "/bin/llama-server", "rpc": "/bin/ggml-rpc-server"}
TIMER = re.compile(r"llama-tune-end-(.+)\.timer\Z")
UNTIL = re.compile(r"^# Until (\S+)$", re.MULTILINE)
# Directives of the deployed unit that are only for it: its restarts, its back-off, its digest, its log's name.
OWN = (
    "#",
    "Description=",
    "Environment=LLAMA_CLUSTER_DIGEST=",
    "ExecStopPost=-/bin/sh -c 'case ",
    "Restart=",
    "RestartSec=",
    "SyslogIdentifier=",
    "TimeoutStartSec=",
)
OWN_STEPS = (" backoff start ", "/digests", "exec ss ")
WAITS = re.compile(r"^(ExecStartPre=\S+ wait_for_workers .*--build \S+)(?: .*)?$")
# Directives of a head's unit that a worker beside it does not need.
OF_HEADS = ("After=", "BindReadOnlyPaths=", "Wants=")
# The worker has the cards.
NO_CARDS = "Environment=CUDA_VISIBLE_DEVICES= GGML_VK_VISIBLE_DEVICES="
NFT = "/usr/sbin/nft"
# RPC has no authentication: on the port only the heads' user may connect and listen. As in firewall.nft.j2, a socket
# without an owner opens nothing.
TABLE = "inet llama_tune"
RULES = """\
add table {table}; delete table {table}; table {table} {{ chain output {{ \
type filter hook output priority -10; policy accept; \
ip daddr {address} tcp dport {port} tcp flags & (syn | ack) == syn meta skuid "{user}" accept; \
ip daddr {address} tcp dport {port} tcp flags & (syn | ack) == syn reject with tcp reset; \
ip daddr {address} tcp dport {port} meta skuid != "{user}" reject with tcp reset; \
ip saddr {address} tcp sport {port} meta skuid "{user}" accept; \
ip saddr {address} tcp sport {port} tcp flags & syn == syn reject with tcp reset; \
ip saddr {address} tcp sport {port} meta skuid != "{user}" reject with tcp reset; \
}}; }}"""
UNIT = """\
# Written by llama_cluster while tune.yml measures.
{lines}
SyslogIdentifier=llama-tune-{service}
Restart=no
TimeoutStartSec={longest}
RuntimeMaxSec={longest}
"""
END_TIMER = """\
# Written by llama_cluster while tune.yml measures.
# Until {until}
[Unit]
Description=End of a measurement of llama.cpp's service {service}

[Timer]
OnActiveSec={seconds}
AccuracySec=1s
"""
# A held node stays down.
END = """\
# Written by llama_cluster while tune.yml measures.
[Unit]
Description=Start the deployed unit of llama.cpp's service {service} after a measurement
ConditionPathExists=!{held}

[Service]
Type=oneshot
ExecStart=/bin/systemctl start --no-block {unit}
"""


class Changed(NamedTuple):
    """How a variant differs from the deployed unit: the arguments of its server, the workers that it waits for, and the
    arguments of a worker on the loopback, none without one."""

    arguments: Sequence[str]
    rpc_endpoints: Sequence[str] = ()
    worker: Sequence[str] = ()


def end_names(service: str) -> tuple[str, str]:
    """The timer that ends a variant, and what it starts."""
    return f"llama-tune-end-{service}.timer", f"llama-tune-end-{service}.service"


def command_words(kind: str, words: Sequence[str], arguments: Sequence[str]) -> list[str] | None:
    """The deployed command with other arguments, a head on loopback; None for another program."""
    found = [number for number, word in enumerate(words) if word.endswith(PROGRAMS[kind])]
    if not found:
        return None
    kept = [str(word) for word in arguments]
    if kind == "head":
        kept = [LOOPBACK if before == "--host" else word for before, word in zip(["", *kept], kept)]
        # As _units/files adds it to a head that numactl binds.
        kept += ["--numa", "numactl"] if found[0] else []
    return [*words[: found[0] + 1], *kept]


def _command(text: str) -> list[str]:
    return systemd_words("".join(COMMAND.findall(text)[:1])) or []


def _rendered(text: str, service: str, words: Sequence[str], own: Sequence[str], drop: Sequence[str]) -> list[str]:
    """The lines of a deployed unit with another command and `own` in [Unit], without those that are only for it."""
    start = "ExecStart=" + " ".join(systemd_escape(word, command=True) for word in words)
    kept: list[str] = []
    for line in text.partition("\n[Install]")[0].splitlines():
        steps = line.startswith("ExecStartPre=") and any(step in line for step in OWN_STEPS)
        if steps or line.startswith((*OWN, *drop)):
            continue
        kept.append(start if line.startswith("ExecStart=") else line)
        if line == "[Unit]":
            kept += own
    return kept


def unit_text(kind: str, service: str, deployed: str, text: str, changed: Changed, seconds: int) -> str | None:
    """The unit of a variant, made of the text of the deployed unit; None if that runs another program."""
    words = command_words(kind, _command(text), changed.arguments)
    if words is None:
        return None
    # Ordered, so that the one that stops has ended before the other one starts.
    own = [f"Description=llama.cpp {kind} of {service}, measured with other settings"]
    own += [f"Conflicts={deployed}", f"Before={deployed}"]
    beside = VARIANT % ("rpc", service)
    own += [f"Requires={beside}", f"After={beside}"] if changed.worker else []
    kept: list[str] = []
    for line in _rendered(text, service, words, own, ()):
        waits = WAITS.match(line)
        if not waits:
            kept.append(line)
        elif changed.rpc_endpoints and not changed.worker:
            kept.append(" ".join([waits.group(1), *changed.rpc_endpoints]))
    if changed.worker:
        release = os.path.basename([word for word in words if word.endswith(PROGRAMS[kind])][0][: -len(PROGRAMS[kind])])
        # As the unit's user, the only one that the rules let through.
        wait = [paths.PROGRAM, "wait_for_workers", "--build", release, *changed.rpc_endpoints]
        kept += [NO_CARDS, "ExecStartPre=" + " ".join(wait)]
    return UNIT.format(lines="\n".join(kept).strip(), service=service, longest=seconds + LATER)


def worker_text(service: str, deployed: str, text: str, arguments: Sequence[str], seconds: int) -> str:
    """The unit of a worker beside a head, made of the text of the head's deployed unit, which has a user and runs
    llama-server."""
    words = _command(text)
    at = [number for number, word in enumerate(words) if word.endswith(PROGRAMS["head"])][0]
    program = words[at][: -len(PROGRAMS["head"])] + PROGRAMS["rpc"]
    # Its log would stay in its buffer until the first client.
    words = [*words[:at], "/usr/bin/stdbuf", "-oL", program, *map(str, arguments)]
    own = [f"Description=llama.cpp RPC worker on the loopback of {service}, while it is measured"]
    own += [f"Conflicts={deployed}", f"Before={deployed}", f"BindsTo={VARIANT % ('head', service)}"]
    kept = _rendered(text, service, words, own, OF_HEADS)
    user = [line.partition("=")[2] for line in kept if line.startswith("User=")][0]
    rules = RULES.format(table=TABLE, address=LOOPBACK, port=port_of(arguments), user=user)
    kept = [line for line in kept if not WAITS.match(line)]
    kept += [f"ExecStartPre=+{NFT} {systemd_escape(rules, command=True)}"]
    kept += [f"ExecStopPost=-+{NFT} delete table {TABLE}", "IPAddressDeny=any", f"IPAddressAllow={LOOPBACK}"]
    return UNIT.format(lines="\n".join(kept).strip(), service=service, longest=seconds + LATER)


def port_of(arguments: Sequence[str]) -> int:
    """The port of a worker. Errors: Refusal."""
    found = [after for flag, after in zip(arguments, arguments[1:]) if flag == "--port"]
    if ("--host", LOOPBACK) not in zip(arguments, arguments[1:]) or not found or not found[0].isdigit():
        raise Refusal(f"worker: {' '.join(arguments)} seen, --host {LOOPBACK} and --port are needed: add them")
    return int(found[0])


def require_free(port: int) -> None:
    """Errors: Refusal."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            seen = "in use" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
            words = "a free port is needed for a worker on the loopback: stop what listens there"
            raise Refusal(f"{LOOPBACK}:{port}: {seen}, {words}") from None


class Variants:
    """The variants of this node. root: directory that stands for /, in tests."""

    def __init__(
        self,
        root: str = "/",
        run: Callable[..., None] = systemctl,
        show: Callable[..., str] = systemctl_show,
        clock: Callable[[], float] = time.time,
        free: Callable[[int], None] = require_free,
    ) -> None:
        self.root, self.run, self.show, self.clock, self.free = root, run, show, clock, free
        self.units = self._path(paths.UNITS)

    def report(self) -> list[dict[str, str]]:
        """-> {service, until} of each that is measured. Errors: Refusal."""
        known = [service for service in self._services() if self._waits(end_names(service)[0])]
        return [{"service": service, "until": self._until(service)} for service in known]

    def start(self, kind: str, service: str, changed: Changed, seconds: int, run: str = "") -> str:
        """Stops the deployed unit, or the variant of before, and starts a variant, without waiting until it serves ->
        its name. run: the id of the run that holds the node's lock. Errors: Refusal, OSError."""
        # A task of a run that died may still go on, while the next run has ended its variants.
        if run and (_files.text_of(self._path(paths.RUN_LOCK)) or "").partition(" ")[0] != run:
            raise Refusal(f"{paths.RUN_LOCK}: the lock of another run seen, the own one is needed: run tune.yml again")
        deployed = installed_name(kind, service, self.units)
        path = os.path.join(self.units, deployed)
        text = unit_text(kind, service, deployed, _files.text_of(path) or "", changed, seconds)
        if not is_managed_unit(path) or text is None:
            raise Refusal(f"{path}: no unit of the collection seen, that of the {kind} is needed: run site.yml")
        if os.path.lexists(self._path(paths.HELD)):
            raise Refusal(f"{paths.HELD}: a held node seen, one that takes part is needed: return it first")
        name, beside = (VARIANT % (one, service) for one in (kind, "rpc"))
        texts = {name: text}
        if changed.worker:
            if not os.path.exists(self._path(NFT)):
                raise Refusal(f"{NFT}: missing, it is needed for a worker on the loopback: install nftables")
            texts[beside] = worker_text(service, deployed, _files.text_of(path) or "", changed.worker, seconds)
        timer, end = end_names(service)
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.clock() + seconds))
        words = {"service": service, "seconds": seconds, "until": until, "unit": deployed, "held": paths.HELD}
        for file, content in {end: END.format(**words), timer: END_TIMER.format(**words), **texts}.items():
            _files.write_atomically(self._path(paths.RUN_UNITS, file), content.encode("utf-8"), 0o644)
        self.run("daemon-reload")
        # First, so that each later step may be the last one.
        self.run("restart", timer)
        # Also the worker of the candidate before.
        there = [one for one in dict.fromkeys((name, beside)) if os.path.lexists(self._path(paths.RUN_UNITS, one))]
        self.run("stop", deployed, *there)
        if changed.worker:
            self.free(port_of(changed.worker))
            # Which says why it fails: a head without it would only be inactive.
            self.run("start", beside)
        self.run("start", "--no-block", name)
        return name

    def end(self, service: str = "", check: bool = False) -> list[str]:
        """Starts the deployed units, which ends their variants, of one service or all -> the services. Errors: Refusal,
        OSError."""
        ended = [one for one in self._services() if service in ("", one)]
        for one in [] if check else ended:
            timer, end = end_names(one)
            kinds = [kind for kind in PROGRAMS if os.path.lexists(self._path(paths.RUN_UNITS, VARIANT % (kind, one)))]
            for kind in kinds:
                self.run("stop", VARIANT % (kind, one))
                deployed = installed_name(kind, one, self.units)
                held = os.path.lexists(self._path(paths.HELD))
                if not held and is_managed_unit(os.path.join(self.units, deployed)):
                    self.run("start", "--no-block", deployed)
            # The files last, by which a run that continues finds it.
            self.run("stop", timer)
            for name in [VARIANT % (kind, one) for kind in kinds] + [end, timer]:
                os.unlink(self._path(paths.RUN_UNITS, name))
            self.run("daemon-reload")
        return ended

    def _services(self) -> list[str]:
        names = _files.names_in(self._path(paths.RUN_UNITS))
        return [found.group(1) for found in map(TIMER.match, sorted(names)) if found]

    def _waits(self, timer: str) -> bool:
        return any(one.get("SubState") in ("waiting", "running") for one in parse_show(self.show([timer])))

    def _until(self, service: str) -> str:
        text = _files.text_of(self._path(paths.RUN_UNITS, end_names(service)[0])) or ""
        return ([*UNTIL.findall(text), ""])[0]

    def _path(self, path: str, *parts: str) -> str:
        return os.path.join(self.root, path.lstrip("/"), *parts)
