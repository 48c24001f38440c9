# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The logs of jobs on a node: of the jobs themselves on its disk, of their processes on a share, which may hang.
Private to the collection.

They are the user's files, so a reader follows no link of that user, reads no other file and only a bounded part. Each
line begins with its time in UTC; a line without one has the time of the line before.
"""

from __future__ import annotations

import calendar
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .._files import DIRECTORY, FILE
from .._llama.load_log import PARSED, of_model, parse
from .._node.journal import MOST_LETTERS, is_chatter
from .._registry.disposable import Disposable
from .._text import printable

# Seconds for a share; bytes that are read of the end of a log, and of the beginning of a head's; logs and jobs that
# are looked at, the newest first.
DEADLINE, TAIL, BEGINNING = 10.0, 1 << 20, 16 << 20
MOST_LOGS, MOST_JOBS = 50, 500
STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?Z (.*)")
ROLES = ("head", "router", "rpc")

Line = dict[str, Any]


def added(
    found: dict[str, Any], jobs: Sequence[Mapping[str, str]], node: str, since: float, most: int, everything: bool
) -> dict[str, Any]:
    """The result of journal.recent() with the lines of jobs; missing: why logs were not read, or empty.

    jobs: [{name: of the job, log_dir: on the share, local_log_dir}]; node: its name in SLURM; most: lines.
    """
    child, missing = Disposable(DEADLINE), []
    texts: list[list[str]] = []
    names = [one["name"] for one in jobs]
    places = [(one["local_log_dir"], False) for one in jobs] + [(one["log_dir"], True) for one in jobs]
    for folder, shared in dict(places).items():

        def read(folder: str = folder, shared: bool = shared) -> list[list[str]]:
            if not os.path.isdir(folder):
                # No job has run here so far.
                return []
            return _shared(folder, node, since) if shared else _local(folder, names, since)

        outcome = child.run(read)
        texts += outcome.value or []
        missing += [f"{folder}: {outcome.error}"] if outcome.error else []
    lines = [*found["lines"], *(line for unit, text in texts for line in _lines(unit, text, since, everything))]
    lines.sort(key=lambda line: float(line["at"]))
    shown = [at for at, line in enumerate(lines) if not line["folded"]]
    more = len(shown) > most
    return {
        "lines": lines[shown[-most] :] if more else lines,
        "more": more or found["more"],
        "missing": ", ".join(missing),
    }


def load_of(path: str, model: str | None = None) -> dict[str, Any]:
    """load_log.load_info() of a head or router that is a job, whose log this is."""
    outcome = Disposable(DEADLINE).run(lambda: _read_path(path))
    # A job that was requeued writes to the log of its earlier runs: the last layout counts.
    plain = [STAMP.sub(r"\3", line) for line in (outcome.value or "").split("\n")]
    info = parse(of_model(reversed(plain), model)[0] if model else filter(PARSED.search, plain))
    lacks = not info["buffers"] or info["layers_total"] is None
    reason = f"{path} has no buffer sizes ({outcome.error or 'none logged'}), they are needed to tell what is where"
    return dict(info, unit=path, reason=reason if lacks else None)


def _read_path(path: str) -> str:
    with _opened(os.path.dirname(path)) as folder:
        return _text_of(folder, os.path.basename(path), BEGINNING, from_end=False) or ""


class _opened:
    """A directory as a descriptor. Links on the way are part of the inventory's path."""

    def __init__(self, path: str, below: int | None = None) -> None:
        self.descriptor = os.open(path, DIRECTORY if below is not None else os.O_DIRECTORY, dir_fd=below)

    def __enter__(self) -> int:
        return self.descriptor

    def __exit__(self, *_error: object) -> None:
        os.close(self.descriptor)


def _text_of(folder: int, name: str, most: int, from_end: bool = True, since: float = 0.0) -> str | None:
    """The text of a log, None for another file or an older one."""
    try:
        descriptor = os.open(name, os.O_RDONLY | FILE, dir_fd=folder)
    except OSError:
        return None
    with open(descriptor, "rb") as stream:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode) or seen.st_nlink > 1 or seen.st_mtime < since:
            return None
        if from_end:
            stream.seek(max(0, seen.st_size - most))
        return stream.read(most).decode("utf-8", "replace")


def _local(path: str, names: Sequence[str], since: float) -> list[list[str]]:
    """The job's own log: NAME-JOBID.log."""
    pattern = re.compile(rf"^(?:{'|'.join(map(re.escape, names))})-(\d{{1,10}})\.log\Z")
    with _opened(path) as folder:
        ids = {int(found.group(1)): found.group() for found in map(pattern.match, os.listdir(folder)) if found}
        newest = sorted(ids.items(), reverse=True)[:MOST_LOGS]
        texts = [(f"job {number}", _text_of(folder, name, TAIL, since=since)) for number, name in newest]
    return [[unit, text] for unit, text in texts if text]


def _shared(path: str, node: str, since: float) -> list[list[str]]:
    """The logs of this node's processes: JOBID/ROLE-NODE.log."""
    texts: list[list[str]] = []
    with _opened(path) as folder:
        ids = sorted((int(name) for name in os.listdir(folder) if re.match(r"^[1-9]\d{0,9}\Z", name)), reverse=True)
        for number in ids[:MOST_JOBS]:
            try:
                with _opened(str(number), folder) as own:
                    for role in ROLES:
                        text = _text_of(own, f"{role}-{node}.log", TAIL, since=since)
                        texts += [[f"job {number} {role}", text]] if text else []
            except OSError:
                continue
            if len(texts) >= MOST_LOGS:
                break
    return texts


def _lines(unit: str, text: str, since: float, everything: bool) -> Iterator[Line]:
    """Lines of a log; routine ones in a row are one with their number."""
    fold: Line | None = None
    for at, words in _stamped(text.split("\n")):
        if at < since or not words.strip():
            continue
        if not everything and unit.count(" ") > 1 and is_chatter(words):
            if fold is None:
                fold = {"at": at, "unit": unit, "text": "", "folded": 0}
            fold["folded"] += 1
            continue
        if fold is not None:
            yield fold
            fold = None
        yield {"at": at, "unit": unit, "text": printable(words, MOST_LETTERS), "folded": 0}
    if fold is not None:
        yield fold


def _stamped(lines: Iterable[str]) -> Iterator[tuple[float, str]]:
    at = 0.0
    for line in lines:
        found = STAMP.match(line)
        if found:
            try:
                at = calendar.timegm(time.strptime(found.group(1), "%Y-%m-%dT%H:%M:%S")) + float(found.group(2) or 0)
            except ValueError:
                continue
        yield at, found.group(3) if found else line
