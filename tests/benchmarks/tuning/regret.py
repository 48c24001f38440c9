"""The choices of races, as tune.yml has them, against the whole grid, on rounds that record.py recorded.

    python tests/benchmarks/tuning/regret.py [--grids 100] [--seed 1]

Each of the grids takes its rounds from the recorded ones at random, with their noise, and another combination as what
is deployed. The truth is the geometric mean of all recorded rounds; regret is how much slower than its best the choice
is. The cost is a part of that of a whole grid of as many rounds as were recorded. Planted optima are known exactly,
their noise is normal. Ends with status 1 where a bound of docs/tuning.md does not hold.
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

HEAD = "%-8s %6s %12s %12s %12s %10s %8s"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grids", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    wrong = []
    for path in sorted(HERE.glob("recorded-*.json")):
        recorded = grids.read(path)
        print("%s: %s, b%s, %s, %d combinations, %d rounds in %d s" % grids.about(recorded))
        print(
            "%-8s %6s %12s %12s %12s %10s %8s" % ("goal", "grids", "regret p50", "regret p95", "most", "<= 3 %", "cost")
        )
        for goal in grids.SCORES:
            found = [
                grids.regret(recorded, goal, random.Random(f"{given.seed} {n} {goal}")) for n in range(given.grids)
            ]
            regrets, costs = sorted(one[0] for one in found), [one[1] for one in found]
            near = sum(one <= 0.03 for one in regrets) / len(regrets)
            row = (statistics.median(regrets), regrets[math.ceil(len(regrets) * 0.95) - 1], regrets[-1])
            percent = ["%.1f %%" % (100 * one) for one in (*row, near)]
            cost = statistics.mean(costs)
            print("%-8s %6d %12s %12s %12s %10s %7.0f%%" % (goal, len(found), *percent, 100 * cost))
            wrong += [f"{goal}: regret"] * (near < 0.95) + [f"{goal}: cost"] * (max(costs) > 0.5)
    print("%-40s %s" % ("planted", "found"))
    for words, hits, of in grids.planted(given.seed):
        print("%-40s %d of %d" % (words, hits, of))
        wrong += [words] * (hits < of)
    print("; ".join(wrong) or "all bounds hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
