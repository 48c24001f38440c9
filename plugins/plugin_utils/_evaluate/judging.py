# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts of the answers of an evaluation: kept ones, and new ones of the controller or a sandbox. Private to the
collection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .extract import prepared
from .questions import questions
from .store import Store

Map = Mapping[str, Any]
# Answers that the sandbox gets at a time.
BATCH = 8
# Calls module llama_judge: tasks, answers -> its result.
Judge = Callable[[Sequence[Map], Sequence[Map]], Map]


def answers_of(store: Store, tasks: Sequence[Map], plan: Map) -> dict[str, list[dict[str, Any]]]:
    """{name of a model: its answers that are kept}"""
    found: dict[str, list[dict[str, Any]]] = {}
    for about in plan["models"]:
        asked = questions(tasks, about, int(plan["samples"]))
        known = ((question, store.answer(question["key"])) for question in asked)
        # Another model of the same files may have been asked before.
        found[about["name"]] = [
            {**answer, "model": about["name"], "task": question["task"], "sample": question["sample"]}
            for question, answer in known
            if answer
        ]
    return found


class Verdicts:
    """The verdicts of answers. found: {key of an answer: its verdict}; by: what judges programs, in words, empty
    without any; new: how many were not kept."""

    def __init__(self, store: Store, tasks: Sequence[Map], judge: Judge) -> None:
        self.store, self.judge = store, judge
        self.tasks = {task["name"]: task for task in tasks}
        self.by, self.new = "", 0
        self.found: dict[str, dict[str, Any]] = {}

    def steps(self, answers: Sequence[Map]) -> Iterator[int]:
        """Finds the verdicts of all, each is kept as soon as it is there. Yields how many answers are left after each
        batch. Errors: as judge."""
        ready = prepared(list(self.tasks.values()), answers)
        self.found = {one["answer"]: one for one in ready["verdicts"]}
        if not ready["answers"]:
            return
        by_key = {one["key"]: one for one in answers}
        known = self.judge([], [])
        self.by = ", ".join(filter(None, (known["rustc"], known.get("clippy"), known["way"])))
        left = []
        for program in ready["answers"]:
            kept = self.store.verdict(by_key[program["answer"]], self.tasks[program["task"]]["digest"], self.by)
            if kept:
                self.found[program["answer"]] = kept
            else:
                left.append(program)
        while left:
            batch, left = left[:BATCH], left[BATCH:]
            names = {program["task"] for program in batch}
            given = self.judge([one for one in ready["tasks"] if one["name"] in names], batch)
            for program, verdict in zip(batch, given["verdicts"], strict=True):
                self.found[program["answer"]] = verdict
                digest = self.tasks[program["task"]]["digest"]
                self.store.keep_verdict(by_key[program["answer"]], digest, self.by, verdict)
                self.new += 1
            yield len(left)
