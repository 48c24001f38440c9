# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""times.py DIRECTORY: all drill-SERVICE.json of a directory as one table for docs/benchmarks.md."""

import json
import pathlib
import sys

PHASES = ("detection", "restart", "load", "total")


def main(directory):
    print("| service | drill | %s |\n|---|---|%s" % (" | ".join(PHASES), "---:|" * len(PHASES)))
    for path in sorted(pathlib.Path(directory).glob("drill-*.json")):
        service, _dot, node = path.stem[len("drill-") :].partition(".")
        for drill in json.loads(path.read_text())["drills"]:
            found = [drill["phases"].get(phase) for phase in PHASES]
            times = " | ".join("" if seconds is None else "%.2f" % seconds for seconds in found)
            print("| `%s`%s | `%s` | %s |" % (service, " on " + node if node else "", drill["drill"], times))


if __name__ == "__main__":
    main(*sys.argv[1:])
