# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The logs of jobs on a node: of the jobs themselves on its disk, of their processes on a share, which may hang.
Private to the collection.

They are the user's files, so root reads them as that user: no link, no file of another user, and only a bounded part.
Each line begins with its time in UTC; a line without one has the time of the line before.
"""

from __future__ import annotations

import calendar
import errno
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .._files import DIRECTORY, FILE, is_trusted, owners
from .._llama.load_log import PARSED, of_model, parse
from .._node.disposable import Disposable
from .._node.journal import MOST_LETTERS, is_chatter
from .._text import printable
from .facts import as_user

# Seconds for a share; bytes that are read of the end of a log, of the beginning of a head's, of all logs of a
# directory, and for the last lines of a head's; logs and jobs that are looked at, the newest first.
DEADLINE, TAIL, BEGINNING, MOST_BYTES, END = 10.0, 1 << 20, 16 << 20, 8 << 20, 4096
MOST_LOGS, MOST_JOBS = 50, 500
# Jobs of a service whose logs stay.
KEPT = 50
STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?Z (.*)")
ROLES = ("head", "router", "rpc")
JOB = re.compile(r"^[1-9][0-9]{0,9}\Z")
# Files of a job in its directory.
LEFT = re.compile(r"^(?:(?:head|router|rpc)-[^/]*\.log|served-[0-9]+)\Z")
# Errors that stay at another attempt.
NEVER = (errno.EROFS, errno.EACCES, errno.EPERM)

Line = dict[str, Any]


def added(
    found: dict[str, Any], jobs: Sequence[Mapping[str, str]], node: str, since: float, most: int, everything: bool
) -> dict[str, Any]:
    """The result of journal.recent() with the lines of jobs; missing: why logs were not read, or empty.

    jobs: [{name: of the job, log_dir: on the share, local_log_dir, user}]; node: its name in SLURM; most: lines.
    """
    child, missing = Disposable(DEADLINE), []
    lines: list[Line] = list(found["lines"])
    names = [one["name"] for one in jobs]
    places = {(one["local_log_dir"], one["user"]): False for one in jobs}
    places.update({(one["log_dir"], one["user"]): True for one in jobs})
    for (folder, user), shared in places.items():

        def read(folder: str = folder, shared: bool = shared) -> list[list[str]]:
            if not os.path.isdir(folder):
                # No job has run here so far.
                return []
            return _shared(folder, node, since) if shared else _local(folder, names, since)

        outcome = child.run(as_user(user, read))
        for unit, text in outcome.value or []:
            # Every second line may be a folded one, which does not count.
            lines += deque(_lines(unit, text, since, everything), maxlen=2 * most + 2)
        missing += [f"{folder}: {outcome.error}"] if outcome.error else []
    lines.sort(key=lambda line: float(line["at"]))
    shown = [at for at, line in enumerate(lines) if not line["folded"]]
    more = len(shown) > most
    return {
        "lines": lines[shown[-most] :] if more else lines,
        "more": more or found["more"],
        "missing": ", ".join(missing),
    }


def load_of(path: str, user: str, model: str | None = None) -> dict[str, Any]:
    """load_log.load_info() of a head or router that is a job of the user, whose log this is."""
    outcome = Disposable(DEADLINE).run(as_user(user, lambda: _read_path(path)))
    # A job that was requeued writes to the log of its earlier runs: the last layout counts.
    plain = [STAMP.sub(r"\3", line) for line in (outcome.value or "").split("\n")]
    info = parse(of_model(reversed(plain), model)[0] if model else filter(PARSED.search, plain))
    lacks = not info["buffers"] or info["layers_total"] is None
    reason = f"{path} has no buffer sizes ({outcome.error or 'none logged'}), they are needed to tell what is where"
    return dict(info, unit=path, reason=reason if lacks else None)


def _read_path(path: str) -> str:
    with JobFolder(os.path.dirname(path)) as folder:
        return _text_of(folder, os.path.basename(path), BEGINNING, from_end=False) or ""


def last_lines(path: str, most: int) -> list[str]:
    """The last lines of the head's log in a job's directory. It may hang. Errors: OSError."""
    with JobFolder(path) as folder:
        names = [name for name in os.listdir(folder) if re.match(r"^(head|router)-[^/]*\.log\Z", name)]
        text = (_text_of(folder, names[0], END) or "") if names else ""
    return [printable(STAMP.sub(r"\3", line), 160) for line in text.split("\n") if line.strip()][-most:]


def remove_old(path: str, most: int, alive: Iterable[int]) -> None:
    """Removes the directories of this user's jobs but for the last jobs, and for jobs that have not ended. It may hang.
    Errors: OSError."""
    kept = set(alive)
    failed: OSError | None = None
    with _Folder(path) as folder:
        with os.scandir(folder) as entries:
            named = [one for one in entries if JOB.match(one.name)]
            # Directories of other users stay, and are not counted.
            found = [int(one.name) for one in named if one.stat(follow_symlinks=False).st_uid in owners()]
        for number in sorted(found, reverse=True)[most:]:
            if number not in kept:
                try:
                    _remove(folder, str(number))
                except OSError as error:
                    if error.errno in NEVER:
                        failed = OSError(error.errno, f"{number}: {error.strerror}")
    if failed:
        raise failed


def remove_older(path: str, job_id: int, most: int) -> None:
    """Removes the own logs of earlier jobs beside that of a job, NAME-JOBID.log, but for the last ones; another name of
    its log keeps all. Errors: OSError."""
    name = os.path.basename(path)
    prefix = name[: -len(f"{job_id}.log")]
    if name != f"{prefix}{job_id}.log" or not prefix:
        return
    with _Folder(os.path.dirname(path)) as folder:
        for one in _own(folder, [prefix[:-1]])[most:]:
            if is_trusted(os.stat(one, dir_fd=folder, follow_symlinks=False)):
                os.unlink(one, dir_fd=folder)


def _own(folder: int, names: Sequence[str]) -> list[str]:
    """The jobs' own logs of a directory, the newest job first."""
    pattern = re.compile(rf"^(?:{'|'.join(map(re.escape, names))})-([0-9]{{1,10}})\.log\Z")
    found = filter(None, map(pattern.match, os.listdir(folder)))
    return [match.group() for match in sorted(found, key=lambda match: int(match.group(1)), reverse=True)]


def _remove(folder: int, name: str) -> None:
    """Removes the directory of a job. A file of another kind keeps it. Errors: OSError."""
    with JobFolder(name, folder) as own:
        for log in filter(LEFT.match, os.listdir(own)):
            os.unlink(log, dir_fd=own)
        os.rmdir(name, dir_fd=folder)


class _Folder:
    """A directory as a descriptor. Links on the way are part of the inventory's path."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_DIRECTORY)

    def __enter__(self) -> int:
        return self.descriptor

    def __exit__(self, *_error: object) -> None:
        os.close(self.descriptor)


class JobFolder(_Folder):
    """The directory of a job, which no other user has made or may write. Errors: OSError."""

    def __init__(self, path: str, above: int | None = None) -> None:
        self.descriptor = os.open(path, DIRECTORY, dir_fd=above)
        seen = os.fstat(self.descriptor)
        if seen.st_uid not in owners() or seen.st_mode & 0o022:
            os.close(self.descriptor)
            raise OSError(errno.EPERM, "another user may write it", path)


def _text_of(folder: int, name: str, most: int, from_end: bool = True, since: float = 0.0) -> str | None:
    """The text of a log, empty for an older one, None for another file or one of another user."""
    try:
        descriptor = os.open(name, os.O_RDONLY | FILE, dir_fd=folder)
    except OSError:
        return None
    with open(descriptor, "rb") as stream:
        seen = os.fstat(descriptor)
        if not is_trusted(seen):
            return None
        if seen.st_mtime < since:
            return ""
        if from_end:
            stream.seek(max(0, seen.st_size - most))
        return stream.read(min(most, seen.st_size)).decode("utf-8", "replace")


def _bounded(logs: Iterator[tuple[str, str | None]]) -> list[list[str]]:
    """The texts of the first logs."""
    texts, number, size = [], 0, 0
    for unit, text in logs:
        number += text is not None
        if text:
            texts.append([unit, text[-(MOST_BYTES - size) :]])
            size += len(texts[-1][1])
        if number >= MOST_LOGS or size >= MOST_BYTES:
            break
    return texts


def _local(path: str, names: Sequence[str], since: float) -> list[list[str]]:
    """The job's own log: NAME-JOBID.log."""
    with _Folder(path) as folder:
        found = [(name.rpartition("-")[2].partition(".")[0], name) for name in _own(folder, names)]
        return _bounded((f"job {int(number)}", _text_of(folder, name, TAIL, since=since)) for number, name in found)


def _shared(path: str, node: str, since: float) -> list[list[str]]:
    """The logs of this node's processes: JOBID/ROLE-NODE.log."""
    with _Folder(path) as folder:
        ids = [int(name) for name in os.listdir(folder) if JOB.match(name)]
        return _bounded(_of_jobs(folder, sorted(ids, reverse=True), node, since))


def _of_jobs(folder: int, ids: Sequence[int], node: str, since: float) -> Iterator[tuple[str, str | None]]:
    jobs = 0
    for number in ids:
        try:
            with JobFolder(str(number), folder) as own:
                for role in ROLES:
                    yield f"job {number} {role}", _text_of(own, f"{role}-{node}.log", TAIL, since=since)
        except OSError:
            continue
        jobs += 1
        if jobs >= MOST_JOBS:
            return


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
