# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs of the operators that bear the names of an inventory's, the units that submit these, and their scripts. Private
to the collection."""

from __future__ import annotations

import glob
import itertools
import os
import re
import shlex
from collections.abc import Collection, Sequence
from typing import Any, Callable, NamedTuple

from .. import _files
from .._adoption.gateway import SUBMITS, Places, find_units
from .._adoption.servers import MANAGED, PROPERTIES, Unit, read_text, shown_unit
from .._adoption.steps import Adoption
from .._node.units import Show, parse_show, systemctl_show
from . import ask
from .ask import Queued
from .job import VARIABLE

EXEC_START = re.compile(r"(?m)^\s*ExecStart=[-@:+!|]*(.*)$")
# These run their first argument that is no option nor a variable; a shell runs the text that -c has.
INTERPRETER = re.compile(r"(?:env|(?:ba|da|k|z)?sh|perl|python[0-9.]*)\Z")
OPTION = re.compile(r"-|\w{1,100}=")
COMMAND = re.compile(r"-[a-z]*c\Z")
MOST_NESTED = 4
ROOT = "root"


class Earlier(NamedTuple):
    """units: in the order in which they stop; files: scripts in the place of managed ones; jobs: of slurm_user and of
    the users of these units."""

    units: list[Unit]
    files: list[str]
    jobs: list[Queued]


def find(
    user: str,
    names: Collection[str],
    scripts: Sequence[str],
    places: Places,
    show: Show = systemctl_show,
    queue: Callable[[str], list[Queued]] = ask.jobs,
) -> Earlier:
    """user: slurm_user; names, scripts: of the inventory's jobs. Errors: Refusal, also for a program or a script that
    others than root may change."""
    known = [*names, *(os.path.basename(path) for path in scripts)]
    programs = [path for path in programs_of(places.units) if submits(read_text(path), known)]
    for path in programs:
        _files.check_program(path)
    units = find_units(programs, places) if programs else []
    shown = parse_show(show(units, (*PROPERTIES, "User"))) if units else []
    users = {user, *(one.get("User") or ROOT for one in shown if one["Id"].endswith(".service"))}
    jobs = [job._replace(user=one) for one in sorted(users) for job in queue(one) if job.alive]
    files = [path for path in scripts if os.path.isfile(path) and f"{VARIABLE}=" not in read_text(path)]
    for path in files:
        if not os.path.islink(path):
            os.close(_files.open_file(path))
    return Earlier(
        units=sorted((shown_unit(one, "daemon") for one in shown), key=lambda unit: units.index(unit["name"])),
        files=files,
        jobs=[job for job in jobs if job.name in names and not job.service],
    )


def programs_of(unit_dir: str) -> list[str]:
    """The programs and scripts that services which are not managed run; no other arguments, which any user could have
    named or written."""
    texts = [read_text(path).replace("\\\n", " ") for path in sorted(glob.glob(os.path.join(unit_dir, "*.service")))]
    lines = [line for text in texts if not MANAGED.search(text) for line in EXEC_START.findall(text)]
    return sorted({path for line in lines for path in run_by(line) if path.startswith("/") and os.path.isfile(path)})


def run_by(line: str) -> list[str]:
    """The program of a command line, or the script if it is an interpreter; what follows is not looked at."""
    for _interpreter in range(MOST_NESTED):
        try:
            words = shlex.split(line)
        except ValueError:
            return []
        words = words[words[:1] == ["exec"] :]
        if not words or not INTERPRETER.match(os.path.basename(words[0])):
            return words[:1]
        rest = list(itertools.dropwhile(OPTION.match, words[1:]))
        command = bool(rest) and words[0].endswith("sh") and bool(COMMAND.match(words[-len(rest) - 1]))
        line = re.split("[;&|]", rest[0])[0] if command else shlex.join(rest)
    return []


def submits(text: str, names: Collection[str]) -> bool:
    """Whether a program submits jobs of these names, or these scripts."""
    named = "|".join(map(re.escape, names))
    return bool(SUBMITS.search(text) and named and re.search(rf"(?<![\w.-])(?:{named})(?![\w-])", text))


def look(earlier: Earlier) -> dict[str, Any]:
    """The result of step look of module adoption."""
    lines = [f"{unit['name']} ({unit['enabled'] or 'no state'}): submits jobs, stopped" for unit in earlier.units]
    lines += [f"job {job.job_id} ({job.name}) of {job.user}: cancelled" for job in earlier.jobs]
    lines += [f"{path}: the managed script takes its place" for path in earlier.files]
    return {
        "units": [unit["name"] for unit in earlier.units],
        "jobs": [{"job_id": job.job_id, "nodes": job.nodes} for job in earlier.jobs],
        "lines": lines,
    }


class JobsAdoption(Adoption):
    """Its step stop cancels the jobs once nothing submits others."""

    def __init__(self, directory: str, earlier: Callable[[], Earlier], check: bool, cancel: Callable[..., str]) -> None:
        super().__init__(directory, lambda: (earlier().units, earlier().files, []), check=check)
        self.earlier = earlier
        self.cancel = cancel

    def stop(self, kind: str | None = None) -> None:
        super().stop(kind)
        for job in self.earlier().jobs:
            # A name with a line feed could be the row of another user's job.
            if self._act(f"cancel job {job.job_id} of {job.user}"):
                self.cancel(["scancel", f"--user={job.user}", str(job.job_id)])
