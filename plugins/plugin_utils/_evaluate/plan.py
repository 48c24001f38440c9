# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The questions of an evaluation, and how long they take, before its first request. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._text import Refusal, counted, duration
from .._intent.records import Groups, HostVars, Models
from .._reports.results import Results, label_of, value
from .questions import models_of, questions
from .store import Store
from .tasks import chosen, load

Map = Mapping[str, Any]
# Tokens of an answer while none is known, and samples at most.
ABOUT, MOST = 500, 100


def evaluation_plan(
    heads: Sequence[Map], models: Models, groups: Groups, hostvars: HostVars, kept: Mapping[str, str], options: Map
) -> dict[str, Any]:
    """-> {plan: {directories, store, samples, tasks: names, models: of models_of(), each with left: how many answers
    are missing, tokens and speed: see foretold(), None if not known}, lines: what it will cost}

    heads: of all nodes, without what does not serve. kept: results {path: text}, benchmarks among them. options:
    {directories, store, tasks: words, models: words, limit, samples}, as operators give them. Errors: Refusal."""
    samples, limit = (_number(name, options[name], *bounds) for name, bounds in BOUNDS.items())
    tasks = chosen(load(options["directories"]), options["tasks"], limit)
    found, lines = models_of(heads, models, groups, hostvars, options["models"])
    store, results = Store(options["store"]), Results(kept)
    for one in found:
        asked = list(questions(tasks, one, samples))
        known = [answer for answer in (store.answer(question["key"]) for question in asked) if answer]
        one["left"] = len(asked) - len(known)
        one["tokens"], one["speed"] = foretold(known)
        one["speed"] = one["speed"] or _measured(one, results)
        lines.append(cost(one, asked[0]["max_tokens"] if asked else ABOUT, len(known)))
    if len(found) > 1 and all(one["speed"] for one in found if one["left"]) and any(one["left"] for one in found):
        lines.append(f"together {duration(sum(seconds(one) for one in found))}")
    return {
        "plan": {
            "directories": list(options["directories"]),
            "store": options["store"],
            "samples": samples,
            "tasks": [task["name"] for task in tasks],
            "models": found,
        },
        "lines": lines,
    }


BOUNDS = {"samples": (1, MOST), "limit": (0, 1000)}


def _number(name: str, given: Any, least: int, most: int) -> int:
    try:
        number = int(str(given))
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise Refusal(
            "evaluate: %s %s seen, a number from %d to %d is needed: correct -e %s=" % (name, given, least, most, name)
        )
    return number


def foretold(answers: Sequence[Map]) -> tuple[float | None, float | None]:
    """-> (tokens of an answer, tokens a second with what is before the first one), means; None without answers."""
    good = [one for one in answers if one.get("completion_tokens") and one.get("seconds")]
    if not good:
        return None, None
    tokens, took = (sum(float(one[key]) for one in good) for key in ("completion_tokens", "seconds"))
    return tokens / len(good), tokens / took


def _measured(about: Map, results: Results) -> float | None:
    """Tokens a second of one request, by the latest benchmark of this quant."""
    latest = results.latest("benchmark", label_of(about)) or {}
    if (latest.get("model"), latest.get("quant")) != (about["model"], about["quant"]):
        return None
    rates = [value(cell, "figures.request_tokens_per_second.p50") for cell in latest.get("cells") or []]
    return next((float(rate) for rate in rates if rate), None)


def seconds(about: Map) -> float:
    """How long its missing answers take; its speed is known."""
    return about["left"] * (about["tokens"] or ABOUT) / about["speed"] if about["left"] else 0.0


def cost(about: Map, most: int = ABOUT, known: int = 0) -> str:
    """`NAME: 192 answers of about 500 tokens at 12.7 tokens/s: 2 h 06 min`. most: tokens of an answer; known: how many
    answers are kept already."""
    about = {**about, "tokens": about["tokens"] or min(ABOUT, most)}
    more = f", {counted(known, 'answer')} kept already" if known else ""
    if not about["left"]:
        return f"{about['name']}: nothing to ask{more}"
    what = f"{about['name']}: {counted(about['left'], 'answer')} of about {about['tokens']:.0f} tokens"
    if not about["speed"]:
        return f"{what}, its speed is known after the first one{more}"
    return f"{what} at {about['speed']:.1f} tokens/s: {duration(seconds(about))}{more}"
