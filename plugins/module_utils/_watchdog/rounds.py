# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One round over a head or a worker: the sample, and what its judge decides. Private to the collection."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Mapping
from typing import Any, Callable, Optional
from urllib.parse import urlsplit

from . import samples
from .actions import Action, Probe, Repair
from .head import HeadJudge, Process
from .worker import WorkerJudge

End = tuple[str, int]
# Seconds between two looks at an idle head, and for a worker's head to answer.
LOOK_ANYWAY, KNOCK = 30, 1
# Where the kernel keeps dumps of devices for some minutes, how many are looked at, and the drivers of cards among them.
DUMPS, DUMPS_MOST, DUMPED = "/sys/class/devcoredump", 64, ("amdgpu", "xe")


class JobProcess:
    """A child process in the place of a unit: this program itself decides about its end."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.process: Process | None = None
        self.state: str | None = None

    def look(self, _now: float) -> Process | None:
        """Identity of the process, None when it has ended."""
        seen = samples.process_state(self._pid)
        self.process = (self._pid, seen[1]) if seen else None
        self.state = seen[0] if seen else None
        return self.process

    def age(self) -> float | None:
        """Seconds since the process started, None without one."""
        return samples.age_of(self.process)


class HeadRounds:
    """A head or a router. config: {url, api_key_file or None, rpc_endpoints, ubatch, embeddings, reranking}; say: for
    what cannot be seen; load_of: seconds that the load of a process took which has served before, else None."""

    def __init__(
        self,
        subject: samples.Unit | JobProcess,
        config: Mapping[str, Any],
        router: bool,
        say: samples.Say,
        load_of: Callable[[Process], Optional[float]] = lambda process: None,
    ) -> None:
        self.subject, self.judge = subject, HeadJudge(config["ubatch"])
        self._load_of = load_of
        self.api = (samples.RouterApi if router else samples.HeadApi)(
            config["url"],
            config["api_key_file"],
            say,
            config.get("embeddings", False),
            config.get("reranking", False),
        )
        self.links = samples.Links(config["rpc_endpoints"])
        self.looker = samples.Looker(self.api)
        self._prober = samples.Prober(self.api)
        self.known: Process | None = None
        self.looked: Any = None  # what had moved when the last look was asked for
        self.looker.start()

    def stop(self) -> None:
        self.looker.stop()

    def actions(self, now: float) -> list[Action]:
        """Returns what is due; probes are asked here."""
        process = self.subject.look(now)
        self.api.pid = process[0] if process else 0
        load = self._load_of(process) if process and process != self.known else None
        if process and load is not None:
            self.judge.already_serves(process, load)
        self.known = process
        links, received, sent = self.links.look() if process else ({}, None, None)
        look, probe = self.looker.of(process), self._prober.of(process)
        up = all(state == "up" for state in links.values())
        # Each look is a line in the head's journal: while nothing goes to its workers or comes back, the last one still
        # holds.
        settled = (
            up
            and look is not None
            and not self.judge.working
            and (process, received, sent) == self.looked
            and now - look["at"] < LOOK_ANYWAY
        )
        if process and not settled:
            self.looked = (process, received, sent)
            self.looker.ask(process, may_sleep=not up or not links)
        sample = {
            "now": now,
            "process": process,
            "age": self.subject.age() if process else None,
            "links": links,
            "received": received,
            "look": look,
            "settled": settled,
            "probe": probe,
            "resets": card_resets(),
        }
        due = self.judge.decide(sample)
        if any(isinstance(action, Probe) for action in due):
            self._prober.ask()
        return [action for action in due if not isinstance(action, Probe)]


class WorkerRounds:
    """A worker. head: where its head listens, None where that cannot be looked at."""

    def __init__(self, subject: samples.Unit | JobProcess, address: str, port: int, head: End | None) -> None:
        self.subject, self.judge = subject, WorkerJudge()
        self._address, self._port, self._head = address, port, head

    def actions(self, now: float) -> list[Repair]:
        """The repair that is due, in a list."""
        sample: dict[str, Any] = {"now": now, "process": self.subject.look(now), "state": self.subject.state}
        if sample["process"]:
            waiting, serving = samples.clients(self._address, self._port)
            head = listens(self._head) if waiting and serving and self._head else None
            sample.update(waiting=waiting, serving=serving, head=head)
        return self.judge.decide(sample)


def card_resets(folder: str = DUMPS) -> frozenset[str]:
    """Names of the dumps that drivers of cards have made at resets and the kernel still has; readable by all users."""
    found = set()
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder))[:DUMPS_MOST]:
            with contextlib.suppress(OSError):
                driver = os.readlink(os.path.join(folder, name, "failing_device/driver"))
                found.update([name] * (os.path.basename(driver) in DUMPED))
    return frozenset(found)


def head_at(url: str | None) -> End | None:
    """Where a worker's head listens, None for one that only its own node reaches."""
    head = urlsplit(url or "")
    return (head.hostname, head.port) if head.hostname and head.port and not _loopback(head.hostname) else None


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listens(address: End) -> bool | None:
    """Whether a process listens there; None if unknown."""
    try:
        socket.create_connection(address, timeout=KNOCK).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return None
    return True
