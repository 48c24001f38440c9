# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A head or worker that runs with other arguments for a while, to measure it. Private to the collection.

Its unit is made of the deployed unit's file, below paths.RUN_UNITS: it has the same user, sandbox, cards and release. A
timer, armed before the deployed unit stops, starts that one again, which ends the variant: a run that dies leaves
nothing else to do.
"""

from __future__ import annotations

import os
import re
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
    """How a variant differs from the deployed unit: the arguments of its server, and the workers that it waits for."""

    arguments: Sequence[str]
    rpc_endpoints: Sequence[str] = ()


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


def unit_text(kind: str, service: str, deployed: str, text: str, changed: Changed, seconds: int) -> str | None:
    """The unit of a variant, made of the text of the deployed unit; None if that runs another program."""
    words = command_words(kind, systemd_words("".join(COMMAND.findall(text)[:1])) or [], changed.arguments)
    if words is None:
        return None
    kept: list[str] = []
    for line in text.partition("\n[Install]")[0].splitlines():
        waits = WAITS.match(line)
        if line.startswith(OWN) or line.startswith("ExecStartPre=") and any(step in line for step in OWN_STEPS):
            continue
        if line.startswith("ExecStart="):
            kept.append("ExecStart=" + " ".join(systemd_escape(word, command=True) for word in words))
        elif waits:
            kept += [" ".join([waits.group(1), *changed.rpc_endpoints])] if changed.rpc_endpoints else []
        else:
            kept.append(line)
        if line == "[Unit]":
            # Ordered, so that the one that stops has ended before the other one starts.
            kept += [f"Description=llama.cpp {kind} of {service}, measured with other settings"]
            kept += [f"Conflicts={deployed}", f"Before={deployed}"]
    return UNIT.format(lines="\n".join(kept).strip(), service=service, longest=seconds + LATER)


class Variants:
    """The variants of this node. root: directory that stands for /, in tests."""

    def __init__(
        self,
        root: str = "/",
        run: Callable[..., None] = systemctl,
        show: Callable[..., str] = systemctl_show,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.root, self.run, self.show, self.clock = root, run, show, clock
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
        name = VARIANT % (kind, service)
        timer, end = end_names(service)
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.clock() + seconds))
        words = {"service": service, "seconds": seconds, "until": until, "unit": deployed, "held": paths.HELD}
        for file, content in ((end, END.format(**words)), (timer, END_TIMER.format(**words)), (name, text)):
            _files.write_atomically(self._path(paths.RUN_UNITS, file), content.encode("utf-8"), 0o644)
        self.run("daemon-reload")
        # First, so that each later step may be the last one.
        self.run("restart", timer)
        self.run("stop", deployed, name)
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
