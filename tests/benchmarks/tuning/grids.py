"""Recorded and planted grids, and races over them."""

import json
import math
import random

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._tune.race import BASELINE, SCORES, tune_round

__all__ = ["SCORES", "about", "planted", "race", "read", "regret"]
PLANTED = 20


def read(path):
    found = json.loads(path.read_text())
    found["records"] = [dict(zip(found["columns"], row, strict=True)) for row in found["records"]]
    # In a grid of another combination it is a candidate as any.
    found["candidates"] = {_renamed(name): changes for name, changes in found["candidates"].items()}
    found["records"] = [dict(one, name=_renamed(one["name"])) for one in found["records"]]
    return found


def _renamed(name):
    return "recorded as deployed" if name == BASELINE else name


def about(found):
    rounds = max(one["round"] for one in found["records"])
    return (
        found["at"],
        found["model"],
        found["build"],
        found["cpu"],
        len(found["candidates"]),
        rounds,
        found["seconds"],
    )


def race(candidates, measure, goal):
    """-> (what tune_round says at the end, measurements). measure(name, number): a record"""
    records = []
    while True:
        found = tune_round(candidates, records, goal)
        if found["finished"]:
            return found, len(records)
        records += [dict(measure(name, found["round"]), name=name, round=found["round"]) for name in found["alive"]]


def regret(recorded, goal, chance, noise):
    """-> (regret, cost as a part of the whole grid's) of one grid. noise: of a measurement around the first round's
    figures; None for the rounds as they were recorded."""
    names = list(recorded["candidates"])
    deployed = chance.choice(names)
    seen = {(one["name"], one["round"]): one for one in recorded["records"]}
    rounds = sorted({number for _name, number in seen})
    true = {name: _true(seen, name, rounds if noise is None else rounds[:1]) for name in names}
    drawn = {}

    def measure(name, number):
        name = deployed if name == BASELINE else name
        if noise is None:
            # One recorded round for all: the rest of the machine's work is common to them.
            return seen[name, drawn.setdefault(number, chance.choice(rounds))]
        factor = drawn.setdefault(number, chance.gauss(0, 3 * noise)) + chance.gauss(0, noise)
        found = {key: true[name][key] * math.exp(factor) for key in SCORES.values()}
        return {**found, "first_token_s": true[name]["first_token_s"] / math.exp(factor), "error": ""}

    candidates = [{"name": BASELINE, "axis": "", "changes": {}}]
    for name in names:
        if name != deployed:
            candidates.append({"name": name, "axis": "combination", "changes": recorded["candidates"][name]})
    found, cost = race(candidates, measure, goal)
    # Only what may be chosen, with the race's bounds on a first token and on one request.
    allowed = [one for one in true.values() if one is true[deployed] or _allowed(one, true[deployed], goal)]
    best = max(one[SCORES[goal]] for one in allowed)
    chosen = true[deployed if found["best"] == BASELINE else found["best"]]
    return 1 - chosen[SCORES[goal]] / best, cost / (len(names) * len(rounds))


def _true(seen, name, rounds):
    """The geometric means of a combination's figures."""
    found = {}
    for key in (*SCORES.values(), "first_token_s"):
        logs = [math.log(seen[name, number][key]) for number in rounds if seen[name, number][key]]
        found[key] = math.exp(sum(logs) / len(logs))
    return found


def _allowed(one, deployed, goal):
    single = one[SCORES["single"]] / deployed[SCORES["single"]]
    return one["first_token_s"] <= 1.25 * deployed["first_token_s"] and (goal == "single" or single >= 0.95)


def planted(seed):
    """-> [(words, grids that ended right, grids)]"""
    return [
        ("the best of 24, 4 % of noise", sum(_planted(seed, n) for n in range(PLANTED)), PLANTED),
        ("one change on each of two axes", sum(_two_axes(seed, n) for n in range(PLANTED)), PLANTED),
        ("a second run: nothing is better", sum(_tie(seed, n, 1.0) for n in range(PLANTED)), PLANTED),
        ("ties keep what is deployed", sum(_tie(seed, n, 1.005) for n in range(PLANTED)), PLANTED),
    ]


def _single(names, axis="combination"):
    found = [{"name": name, "axis": axis, "changes": {"threads": number}} for number, name in enumerate(names)]
    return [{"name": BASELINE, "axis": "", "changes": {}}, *found]


def _noisy(true, chance, sd=0.04):
    slower = {}

    def measure(name, number):
        # A whole round may be slower, and each measurement for itself.
        common = slower.setdefault(number, chance.gauss(0, 3 * sd))
        rate = true(name) * math.exp(common + chance.gauss(0, sd))
        return {"tokens_per_second": rate, "first_token_s": 1 / rate, "error": "", "memory_mib": None}

    return measure


def _planted(seed, number):
    chance = random.Random(f"planted {seed} {number}")
    names = ["c%d" % one for one in range(23)]
    best = chance.choice(names)
    rates = {name: chance.uniform(0.6, 1.05) for name in names} | {BASELINE: 1.0, best: 1.25}
    found, _cost = race(_single(names), _noisy(rates.get, chance), "single")
    return found["best"] == best


def _two_axes(seed, number):
    chance = random.Random(f"axes {seed} {number}")
    axes = {"threads": (1.0, chance.uniform(1.15, 1.4), 0.8), "batch_size": (1.0, 0.9, chance.uniform(1.15, 1.3))}
    rates, candidates = {BASELINE: 1.0}, [{"name": BASELINE, "axis": "", "changes": {}}]
    for axis, gains in axes.items():
        for value, gain in enumerate(gains[1:], 1):
            candidates.append({"name": f"{axis} {value}", "axis": axis, "changes": {axis: value}})
            rates[f"{axis} {value}"] = gain
    measure = _noisy(lambda name: rates[name], chance)
    first, _cost = race(candidates, measure, "single")
    changes = {key: value for one in first["combine"] for key, value in one["changes"].items()}
    return changes == {"threads": 1, "batch_size": 2}


def _tie(seed, number, most):
    chance = random.Random(f"tie {seed} {number} {most}")
    names = ["c%d" % one for one in range(23)]
    rates = {name: chance.uniform(0.9, most) for name in names} | {BASELINE: 1.0}
    found, _cost = race(_single(names), _noisy(rates.get, chance), "single")
    return found["best"] == BASELINE
