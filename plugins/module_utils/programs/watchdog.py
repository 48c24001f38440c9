# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""watchdog: finds what systemd cannot see of the heads, workers and rules of this node, and repairs it.

It reads /etc/llama-cluster/watchdog/*.json, whenever they change:
head-SERVICE.json {kind: head, unit, url, rpc_endpoints, api_key_file or null, ubatch, embeddings: true if it only
serves them}, router-SERVICE.json {kind: router, and the same}, rpc-SERVICE.json {kind: rpc, unit, address, port,
head_url}.
"""

from __future__ import annotations

import collections
import glob
import json
import os
import threading
import time
from typing import Any

from .. import _files
from .._node import paths
from .._node.notify import notify, say
from .._text import Refusal
from .._watchdog import samples
from .._watchdog.actions import Limit, Repair, Serves
from .._watchdog.firewall import Firewall
from .._watchdog.head import HeadJudge
from .._watchdog.rounds import HeadRounds, WorkerRounds, head_at
from .._watchdog.worker import WorkerJudge

# Seconds between two rounds of a head's and a worker's watch, and after which a watch that makes no round counts as
# stuck.
HEAD, WORKER, STUCK = 0.5, 1.0, 30
# Seconds between two looks at the configuration.
ROUND = 2


class Watch(threading.Thread):
    """One unit's watch. words: how it is called in the journal."""

    interval = 0.0

    def __init__(self, words: str, unit: str) -> None:
        super().__init__(daemon=True)
        self.words = words
        self.unit = samples.Unit(unit)
        self.limit = Limit()
        self.beat = time.monotonic()
        self._end = threading.Event()
        self._postponed: samples.Process | None = None  # the process whose repair has been put off
        self._hands_off = 0.0  # until then: the unit had a job when it was to be repaired

    def stop(self) -> None:
        self._end.set()

    def run(self) -> None:
        complaint = None
        while not self._end.wait(self.interval):
            try:
                self.round(time.monotonic())
                complaint = None
            except (OSError, Refusal, ValueError) as error:
                # A name that does not resolve, for one. Said once, tried again.
                if str(error) != complaint:
                    complaint = str(error)
                    say(f"{self.words}: cannot be watched: {error}")
            self.beat = time.monotonic()

    def round(self, now: float) -> None:
        raise NotImplementedError

    def repair(self, judge: HeadJudge | WorkerJudge, repair: Repair, now: float) -> None:
        if now < self._hands_off:
            return
        wait = 0 if repair.fact else self.limit.wait(now)
        if wait:
            if self._postponed != self.unit.process:
                self._postponed = self.unit.process
                until = time.strftime("%H:%M:%S", time.localtime(time.time() + wait))
                say(
                    "%s: %s: not repaired again before %s (%d repairs in 10 min)"
                    % (self.words, repair.reason, until, self.limit.count(now))
                )
            return
        if not self.unit.end():
            self._hands_off = now + 2
            return
        say(f"{self.words}: {repair.reason}: restarting it")
        note_repair(self.unit.name, repair.reason)
        if not repair.fact:
            self.limit.acted(now)
        judge.repaired()


class HeadWatch(Watch):
    interval = HEAD
    role = "head"

    def __init__(self, service: str, config: dict[str, Any]) -> None:
        super().__init__(f"{self.role} {service}", config["unit"])
        self._marker = os.path.join(paths.SERVED, config["unit"])
        self._began = time.monotonic()
        self._rounds = HeadRounds(
            self.unit, config, self.role == "router", lambda text: say(f"{self.words} {text}"), self._marked
        )

    def stop(self) -> None:
        super().stop()
        self._rounds.stop()

    def round(self, now: float) -> None:
        for action in self._rounds.actions(now):
            if isinstance(action, Repair):
                self.repair(self._rounds.judge, action, now)
            elif isinstance(action, Serves) and self.unit.process:
                self._mark(self.unit.process[0], action.seconds)
                # For a head older than this watch the load time is unknown.
                known = action.seconds < now - self._began
                say("%s: serves%s" % (self.words, " (loaded in %.1f s)" % action.seconds if known else ""))

    def _mark(self, pid: int, load: float) -> None:
        """For the back-off, and for the next watchdog: this run served."""
        os.makedirs(paths.SERVED, mode=0o755, exist_ok=True)
        with open(self._marker, "w") as stream:
            stream.write("%d %.1f\n" % (pid, load))

    def _marked(self, process: samples.Process) -> float | None:
        """Seconds that the load of a process took that has served before this watch; None for another one."""
        words = samples.read(self._marker).split()
        return float(words[1]) if len(words) == 2 and words[0] == str(process[0]) else None


class RouterWatch(HeadWatch):
    """A router and its loaded models. If a model hangs, the whole router is restarted: it keeps reporting healthy."""

    role = "router"


class WorkerWatch(Watch):
    interval = WORKER

    def __init__(self, service: str, config: dict[str, Any]) -> None:
        super().__init__("worker " + service, config["unit"])
        self._rounds = WorkerRounds(self.unit, config["address"], config["port"], head_at(config["head_url"]))

    def round(self, now: float) -> None:
        for repair in self._rounds.actions(now):
            self.repair(self._rounds.judge, repair, now)


def note_repair(unit: str, reason: str, files: str = paths.REPAIRS_FILES) -> None:
    """For the sampler: how often a unit was repaired since the boot, and why the last time."""
    path = files.replace("*", unit[: -len(".service")])
    try:
        earlier = json.loads(samples.read(path) or "{}").get("count", 0)
        repair = {"count": earlier + 1, "at": round(time.time(), 3), "reason": reason}
        with _files.directory(os.path.dirname(path), 0o755):
            pass
        _files.write_atomically(path, json.dumps(repair).encode("utf-8"), 0o644, durable=False)
    except (OSError, Refusal, ValueError, TypeError, AttributeError) as error:
        say(f"{unit}: its repair is not counted: {error}")


KINDS: dict[str, type[HeadWatch | WorkerWatch]] = {
    "head": HeadWatch,
    "router": RouterWatch,
    "rpc": WorkerWatch,
}


def read_configuration(folder: str = paths.WATCHED) -> dict[str, str]:
    """{path: text} of what is to be watched."""
    return {path: samples.read(path) for path in sorted(glob.glob(os.path.join(folder, "*.json")))}


class Watchdog:
    """Keeps one watch for each file."""

    def __init__(self) -> None:
        self.watches: dict[str, tuple[str, Watch | None]] = collections.OrderedDict()  # by path, with its text

    def apply(self, texts: dict[str, str]) -> None:
        for path in [path for path, (text, _watch) in self.watches.items() if texts.get(path) != text]:
            _text, watch = self.watches.pop(path)
            if watch:
                watch.stop()
        for path, text in texts.items():
            if path not in self.watches:
                self.watches[path] = (text, self._start(path, text))

    @staticmethod
    def _start(path: str, text: str) -> Watch | None:
        service = os.path.basename(path)[: -len(".json")].partition("-")[2]
        try:
            config = json.loads(text)
            watch = KINDS[config["kind"]](service, config)
        except (ValueError, KeyError, TypeError, Refusal) as error:
            say(
                "%s: cannot be used (%s: %s): run site.yml with --tags rpc,head,router again"
                % (path, type(error).__name__, error)
            )
            return None
        watch.start()
        return watch

    def stuck(self, now: float) -> list[str]:
        """Words of the watches that make no more rounds."""
        return [watch.words for _text, watch in self.watches.values() if watch and now - watch.beat > STUCK]


def main() -> None:
    watchdog = Watchdog()
    firewall = Firewall(say, note_repair)
    shown: list[str] | None = None
    while True:
        watchdog.apply(read_configuration())
        watched = [watch.words for _text, watch in watchdog.watches.values() if watch]
        if watched != shown:
            shown = watched
            notify("READY=1\nSTATUS=watches %s" % (", ".join(watched) or "nothing yet"))
        stuck = watchdog.stuck(time.monotonic())
        if stuck:
            say(f"watchdog: no more looks at {', '.join(stuck)}")
        else:
            notify("WATCHDOG=1")
        # Sees at once when the kernel says that the rules have changed.
        firewall.round(ROUND)


if __name__ == "__main__":
    main()
