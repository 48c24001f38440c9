# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama-jobs list | hold SERVICE | resume SERVICE | report [--since 7d]: the jobs of services.

list: a line for each service. hold: its job ends after the requests that run, and no other is submitted; resume: the
next one is. report: how long jobs ran, and how long the jobs that took their cards waited, by SLURM's accounting.
root becomes the user whose jobs they are before it touches a file of theirs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from .._monitor.view import show
from .._node import paths
from .._node.disposable import Disposable
from .._slurm import ask, facts, logs, reasons, report, state
from .._slurm.facts import become
from .._slurm.state import Config
from .._text import Refusal

# Seconds for the keeper to take a request.
TAKEN = 15.0
# Seconds for the logs.
SHARE = 3.0


def listed(config: Config, now: float) -> list[str]:
    """A line for each service."""
    content = state.read(config.directory)
    words, known = facts.sentences(content, now), state.known_of(content)
    found = []
    if facts.mistrust(content, now):
        found.append("the keeper does not run: see systemctl status llama-slurm-keeper; what it knew last:")
    for service in sorted({*config.services, *known}):
        one = known.get(service, state.Known())
        before = (
            "; the run before: {words}, {}".format(state.moment(one.last["at"], now), **one.last) if one.last else ""
        )
        found.append(f"{service}: {words.get(service, 'not known')}{before if one.state != state.NONE else ''}")
        found += _crash(config, service, one)
    return found or ["no service has jobs: see launcher in llama_services"]


def _crash(config: Config, service: str, known: state.Known) -> list[str]:
    """The last lines of a head that crashed. Its log is open to root and the user only, and its share may hang."""
    last, own = known.last, config.services.get(service)
    if not last or last["code"] != reasons.CRASHED or not own:
        return []
    folder = os.path.join(own.log_dir, str(last.get("job_id")))
    lines = Disposable(SHARE).run(lambda: logs.last_lines(folder, reasons.LAST_LINES)).value
    return [f"  {line}" for line in lines or []]


def requested(config: Config, service: str, kind: str, person: str) -> str:
    """Leaves a request, and waits for the keeper to take it. Errors: Refusal."""
    if service not in config.services:
        names = ", ".join(sorted(config.services)) or "no service"
        raise Refusal(f"{service}: no service by SLURM, one of these is needed: {names}")
    if os.geteuid() != facts.uid_of(config.user):
        raise Refusal(f"{service}: user {person} seen, root or {config.user} is needed: use sudo")
    state.request(config.directory, service, kind, person, time.time())
    until = time.monotonic() + TAKEN
    while time.monotonic() < until:
        if service not in state.requests(config.directory, kind):
            return f"{service}: {'held' if kind == 'hold' else 'resumed'}"
        time.sleep(0.2)
    raise Refusal(
        f"{service}: the keeper has not taken the request in {TAKEN:.0f} s, it does when it runs, SLURM responds and "
        "no job of the service is ending: see llama-jobs list, and systemctl status llama-slurm-keeper"
    )


def reported(config: Config, since: str, now: float) -> list[str]:
    """Errors: Refusal."""
    begin = now - report.seconds_of(since)
    nodes = sorted({node for one in config.services.values() for node in one.nodes})
    names = {one.name: service for service, one in config.services.items()}
    others = ask.runs_on(nodes, begin) if nodes else []
    return report.lines(report.rows(ask.own_runs(config.user, begin), others, names, begin, now), begin)


def main(arguments: list[str] | None = None) -> int | str:
    parser = argparse.ArgumentParser(prog="llama-jobs", description="Services that run as jobs of SLURM.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="list|hold|resume|report")
    commands.add_parser("list", help="what the job of each service does")
    for kind, text in (("hold", "end a service's job and submit no other"), ("resume", "submit its jobs again")):
        commands.add_parser(kind, help=text).add_argument("service")
    reports = commands.add_parser("report", help="how long jobs ran, and who waited for their cards")
    reports.add_argument("--since", default="7d", help="7d, 12h or 30m (default: 7d)")
    given = parser.parse_args(arguments)
    try:
        config = state.configuration(paths.KEEPER_CONFIG)
        person = become(config.user)
        if given.command == "list":
            found = listed(config, time.time())
        elif given.command == "report":
            found = reported(config, given.since, time.time())
        else:
            found = [requested(config, given.service, given.command, person)]
    except FileNotFoundError as error:
        return f"llama-jobs: {error.filename}: no such file, one is needed: run site.yml with --tags slurm"
    except (Refusal, OSError) as error:
        return f"llama-jobs: {error}"
    show("".join(line + "\n" for line in found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
