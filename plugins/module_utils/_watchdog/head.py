# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides from samples when a head is restarted, and when it is probed with a token. Private to the
collection.

A head that has lost a connection to a worker can never answer again: that is a fact. A head in which nothing moves is a
judgement, and a long prompt looks like it between two micro-batches: so its deadline is learned from the very process
that is judged.
"""

from __future__ import annotations

from typing import Any

from .actions import Action, Probe, Repair, Serves

Process = tuple[int, int]
Look = dict[str, Any]
LastProbe = dict[str, Any]
# Seconds without a sign of progress after which a head is judged to hang: while its slowest step is unknown, and at
# least.
UNKNOWN, LEAST = 120, 10
# A head gets so many times its slowest step so far, and this part of the seconds that its load took: a network that
# comes back is waited for longer where a restart costs more.
MARGIN, LOAD_PART = 4, 0.1
# Seconds between two tokens from an idle head whose cache holds no client's prompt, and since it was used for
# anything else.
PROBE_CLEAN, PROBE_USED = 7, 900
# Samples further apart than that many seconds say nothing of what was between them: the machine, or this program, stood
# still.
GAP = 5
# Tokens that the one word of a probe has at most, whatever the tokenizer. A client may read a probe's seed in /slots
# and use it too: a request that short is no slower than the probe.
PROBE_TOKENS = 8
# Answers 5xx in a row to probes after which a head is judged to be broken.
ERRORS = 3


def _is_probe(slot: dict[str, Any], seed: int | None) -> bool:
    """Whether a slot at work has a probe of this seed. An embedding has none: it is as short, and gives no token."""
    return slot["prompt"] <= PROBE_TOKENS and (not slot["decoded"] if seed is None else slot["seed"] == seed)


class HeadJudge:
    """One head. ubatch: tokens of a micro-batch of its prompts."""

    def __init__(self, ubatch: int) -> None:
        self.ubatch = ubatch
        self.working = True  # it has to be looked at again and again
        self._process: Process | None = None

    def _begin(self, process: Process, load: float | None = None) -> None:
        self._process = process
        self._serving = load is not None
        self._least: float = LEAST
        if load is not None:
            self._loaded_in(load)
        self.working = True
        self._done = False
        self._seen_at: float | None = None
        self._look_at: float | None = None
        self._linked: set[str] = set()
        self._lost: dict[str, float] = {}  # endpoint: when it was first seen without its connection
        self._busy = self._probing = self._generating = self._knows_prompts = False
        # task: (tokens of its prompt that were taken, those before them or None where that was not seen)
        self._prompts: dict[int | None, tuple[int, int | None]] | None = None
        self._signs: Any = None
        self._received: int | None = None
        self._moved_at: float | None = None  # the last sign of progress, or the last time that nothing had to move
        self._progress_at: float | None = None  # the last sign of progress
        self._others = 0  # tokens that were computed for anybody else
        self._total: int | None = 0  # tokens that were computed at all
        self._used_at: float | None = None  # when that last changed; None while the cache holds no client's prompt
        self._resets: frozenset[str] | None = None  # of cards of this node, that drivers have recorded
        self.slowest = 0.0

    def _loaded_in(self, seconds: float) -> None:
        self._least = min(UNKNOWN, max(LEAST, LOAD_PART * seconds))

    def already_serves(self, process: Process, load: float) -> None:
        """The process has answered before this watchdog started. load: seconds that its load took."""
        self._begin(process, load)

    def decide(self, sample: dict[str, Any]) -> list[Action]:
        """The actions that are due: Serves, Probe and Repair.

        sample: {now; process: identifies the running process, None when it is not to be touched; age: its seconds;
        links: {endpoint: 'up', 'closed' (by the worker) or 'gone'}; received: bytes from its workers, or None;
        look: {at, health, slots (those at work), counters, requests, total, sleeping, silent} or None; settled: whether
        nothing can have happened since;
        probe: the last one of this process or None, see Prober; resets: names of the resets of this node's cards}
        """
        now, look = sample["now"], sample["look"]
        if sample["process"] is None:
            self._process = None
            return []
        if sample["process"] != self._process:
            self._begin(sample["process"])
        stood_still = self._seen_at is None or now - self._seen_at > GAP
        self._seen_at = now
        if look is not None and look["at"] == self._look_at:
            look = None
        if look is not None:
            self._look_at = look["at"]
        actions: list[Action] = []
        if not self._serving:
            if look is None or look["health"] != 200:
                return []
            self._serving = True
            # For a head that served before this watch, this is more than its load.
            self._loaded_in(sample["age"])
            actions.append(Serves(sample["age"]))
        if self._done:
            return []
        lost = self._lost_worker(sample["links"], look, now)
        if lost:
            return actions + [Repair(f"lost its connection to RPC worker {lost}", fact=True)]
        if look is not None:
            self._read(look, sample["probe"], now)
        # A llama-server that lost its card to a reset reports that it is well, and answers each request with an error.
        if self._resets is not None and sample["resets"] - self._resets:
            self._used_at = None
        self._resets = sample["resets"]
        probe = sample["probe"]
        if probe is not None and probe["errors"] >= ERRORS:
            return [
                Repair(
                    "it says that it is well, but has answered %d to the last %d requests for one token"
                    % (probe["status"], probe["errors"])
                )
            ]
        still = self._still(sample, stood_still)
        if still is not None:
            words = "it says that it is well, but nothing has moved for %.0f s (its slowest step so far took %.1f s)"
            return [Repair(words % (still, self.slowest))]
        return actions + self._ask(sample)

    def repaired(self) -> None:
        """The process was ended: no more decisions about it."""
        self._done = True

    def _lost_worker(self, links: dict[str, str], look: Look | None, now: float) -> str | None:
        for endpoint, state in sorted(links.items()):
            if state == "up":
                self._linked.add(endpoint)
                self._lost.pop(endpoint, None)
            elif state == "closed":
                # The worker closed a connection that the head still holds: certain, even if it was never seen up.
                return endpoint
            elif endpoint in self._linked:
                # A head that goes to sleep closes all connections: the next look decides.
                since = self._lost.setdefault(endpoint, now)
                if look is not None and look["at"] > since and not look["sleeping"]:
                    return endpoint
        return None

    def _read(self, look: Look, probe: LastProbe | None, now: float) -> None:
        """Updates running requests and the use of the cache from a new look."""
        at_work = look["slots"] or []
        self._busy = bool(at_work or look["silent"] or look["requests"])
        # Only while a probe waits for its answer, or has waited in vain.
        asked = probe if probe is not None and (probe["ended"] is None or probe["silent"]) else None
        self._probing = bool(at_work) and asked is not None and all(_is_probe(slot, asked["seed"]) for slot in at_work)
        self._generating = bool(at_work) and all(slot["decoded"] for slot in at_work)
        computed = self._learn(at_work)
        if self._busy:
            # A request that ends without a token and without a batch has put nothing into the cache: it was refused, or
            # the head is broken.
            if computed and not self._probing:
                self._used_at = now
        elif look["total"] is not None and (
            probe is None or (probe["ended"] is not None and look["at"] > probe["ended"])
        ):
            others = look["total"] - (probe["explained"] if probe else 0)
            # Builds that do not count embeddings do not count the probe's either.
            if look["total"] != self._total and others != self._others:
                self._others, self._used_at = others, now
            self._total = look["total"]

    def _learn(self, at_work: list[dict[str, Any]]) -> bool:
        """Notes when a full micro-batch of a prompt has been computed from beginning to end: then the slowest step is
        known.

        Returns whether anything was computed for those at work.
        """
        earlier, self._prompts = self._prompts, {}
        computed = False
        for slot in at_work:
            task, taken = slot["task"], slot["taken"]
            # The start of requests that run at the first sample is unknown.
            last, before = (taken, None) if earlier is None else earlier.get(task, (taken, 0))
            if taken > last or slot["decoded"]:
                # The server has computed the tokens that it took before.
                self._knows_prompts = self._knows_prompts or (before is not None and last - before >= self.ubatch)
                last, before = taken, last
                computed = True
            self._prompts[task] = (last, before)
        return computed

    def _still(self, sample: dict[str, Any], stood_still: bool) -> float | None:
        """Seconds for which nothing has moved, when that is too long; None when all is well."""
        now, look, probe = sample["now"], sample["look"], sample["probe"]
        signs = (
            look and look["counters"],
            look and [(slot["task"], slot["taken"], slot["decoded"]) for slot in look["slots"] or []],
        )
        moved = self._signs is not None and signs != self._signs
        moved = moved or (None not in (self._received, sample["received"]) and sample["received"] != self._received)
        self._signs, self._received = signs, sample["received"]
        # A token that does not come is work, whatever the server says of its slots.
        asked = (
            probe is not None
            and (probe["ended"] is None or probe["silent"])
            and not (self._progress_at and self._progress_at > probe["at"])
        )
        self.working = self._busy or asked
        if stood_still or self._moved_at is None or not self.working:
            self._moved_at = now
        if moved:
            self.slowest = max(self.slowest, now - self._moved_at)
            self._moved_at = self._progress_at = now
        still = now - self._moved_at
        return still if still >= self.deadline(asked and not self._busy) else None

    def deadline(self, asked: bool = False) -> float:
        """Seconds without a sign of progress that are still well."""
        # The first step of a process may be a slow one.
        known = self._knows_prompts or (self._progress_at is not None and (asked or self._probing or self._generating))
        return max(self._least if known else UNKNOWN, MARGIN * self.slowest)

    def _ask(self, sample: dict[str, Any]) -> list[Action]:
        now, look, probe = sample["now"], sample["look"], sample["probe"]
        if not sample["settled"] or look["health"] != 200 or look["sleeping"] or look["total"] is None:
            return []
        if probe is not None and (probe["ended"] is None or look["at"] < probe["ended"]):
            return []
        if self._used_at is not None:
            if now - self._used_at < PROBE_USED:
                return []
            self._used_at = None  # from here on the cache holds the watchdog's own prompt
        elif probe is not None and now - probe["at"] < PROBE_CLEAN:
            return []
        return [Probe()]
