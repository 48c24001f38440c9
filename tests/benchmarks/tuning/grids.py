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
    return found


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


def regret(recorded, goal, chance):
    """-> (regret, cost as a part of the whole grid's) of one grid."""
    names = list(recorded["candidates"])
    deployed = chance.choice(names)
    seen = {(one["name"], one["round"]): one for one in recorded["records"]}
    rounds = sorted({number for _name, number in seen})
    drawn = {}

    def measure(name, number):
        # One recorded round for all: the rest of the machine's work is common to them.
        drawn.setdefault(number, chance.choice(rounds))
        return seen[(deployed if name == BASELINE else name, drawn[number])]

    candidates = [{"name": BASELINE, "axis": "", "changes": {}}]
    for name in names:
        if name != deployed:
            candidates.append({"name": name, "axis": "combination", "changes": recorded["candidates"][name]})
    found, cost = race(candidates, measure, goal)
    truth = {name: sum(math.log(seen[name, number][SCORES[goal]]) for number in rounds) / len(rounds) for name in names}
    # Only what may be chosen: the same bounds on a first token and on one request.
    allowed = [name for name in names if name == deployed or _allowed(seen, rounds, name, deployed, goal)]
    best = max(truth[name] for name in allowed)
    chosen = deployed if found["best"] == BASELINE else found["best"]
    return 1 - math.exp(truth[chosen] - best), cost / (len(names) * len(rounds))


def _allowed(seen, rounds, name, deployed, goal):
    def ratio(key):
        return sum(math.log(seen[name, one][key] / seen[deployed, one][key]) for one in rounds) / len(rounds)

    return ratio("first_token_s") <= math.log(1.25) and (goal == "single" or ratio(SCORES["single"]) >= math.log(0.95))


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
        return {"tokens_per_second": rate, "first_token_s": 1 / rate, "error": "", "peak_mib": None}

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
