"""The choices of races, as tune.yml has them, against the whole grid, on rounds that record.py recorded.

    python tests/benchmarks/tuning/regret.py [--grids 100] [--seed 1]

Each grid has another combination as what is deployed. With noise in percent, its truth is the recorded first round, to
which normal noise is added, and three times as much that is common to a round; as recorded, rounds are drawn from the
recorded ones, and the truth is their geometric mean. Regret is how much slower the choice is than the best of the
truth, cost the measurements as a part of the whole grid's, of as many rounds as were recorded. Planted optima have 4 %
of noise. Ends with status 1 where a bound does not hold: 95 of 100 within 3 %, at half the cost, all planted ones.
"""

import argparse
import math
import pathlib
import random
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2] / ".collections"), str(HERE)]

import grids  # noqa: E402

HEAD = "%-12s %-8s %6s %11s %11s %8s %8s %9s"
# The bounds hold for these.
NOISE = (0.01, 0.02)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grids", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    wrong = []
    for path in sorted(HERE.glob("recorded-*.json")):
        recorded = grids.read(path)
        print("%s: %s, b%s, %s, %d combinations, %d rounds in %d s" % grids.about(recorded))
        print(HEAD % ("noise", "goal", "grids", "regret p50", "regret p95", "<= 3 %", "cost", "most cost"))
        for noise in (*NOISE, 0.04, None):
            for goal in grids.SCORES:
                chances = [random.Random(f"{given.seed} {number} {goal} {noise}") for number in range(given.grids)]
                found = [grids.regret(recorded, goal, chance, noise) for chance in chances]
                regrets, costs = sorted(one[0] for one in found), [one[1] for one in found]
                near = sum(one <= 0.03 for one in regrets) / len(regrets)
                row = [statistics.median(regrets), regrets[math.ceil(len(regrets) * 0.95) - 1], near]
                row = ["%.1f %%" % (100 * one) for one in (*row, statistics.mean(costs), max(costs))]
                words = "as recorded" if noise is None else f"{100 * noise:.0f} %"
                print(HEAD % (words, goal, len(found), *row))
                if noise in NOISE:
                    wrong += [f"{words} {goal}: regret"] * (near < 0.95)
                    wrong += [f"{words} {goal}: cost"] * (statistics.mean(costs) > 0.5)
    print("%-40s %s" % ("planted", "found"))
    for words, hits, of in grids.planted(given.seed):
        print("%-40s %d of %d" % (words, hits, of))
        wrong += [words] * (hits < of)
    print("; ".join(wrong) or "all bounds hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
