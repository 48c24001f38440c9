"""Runs on the host that judges, as module llama_judge does there: reads {image, tasks, answers} from stdin and prints
what the module returns."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from plugins.module_utils._judge import judge, sandbox  # noqa: E402

# Only this test shortens the seconds of CPU that a program may run, so that an endless one takes no 20 of them.
LIMIT = "ulimit -t %d\n"


def main():
    given = json.load(sys.stdin)
    script = judge.RUN.replace(LIMIT % judge.RUN_CPU, LIMIT % 3)
    assert script != judge.RUN
    judge.RUN = script
    with sandbox.found_way(given["image"]) as way:
        start = judge.runner(way)
        rustc, _clippy = judge.versions(start)
        verdicts = judge.verdicts(given["tasks"], given["answers"], start)
    print(json.dumps({"verdicts": verdicts, "rustc": rustc, "way": way.name}))


if __name__ == "__main__":
    main()
