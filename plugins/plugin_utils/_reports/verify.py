# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The acceptance report: the ten criteria and both readings of the targets. Private to the collection."""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.utils.unsafe_proxy import wrap_var

from .._intent.records import Groups, HostVars, Models, Services
from .criteria import MET, NOT_MET, Criterion, criteria
from .gathered import gathered
from .page import page
from .results import FORMAT, files_of
from .table import table
from .targets import Reading, link_reading, readings

WIDTH = 19


def criteria_report(
    hostvars: HostVars,
    groups: Groups,
    services: Services,
    models: Models,
    models_dir: str,
    texts: Mapping[str, str],
    now: str,
) -> dict[str, Any]:
    """-> {files: to keep, lines: to print, refused: a sentence for each criterion that is not met}; see
    gathered.gathered(). Marked as unsafe, because it is kept as a fact: ansible-core 2.18 would read a server's words
    in it as expressions."""
    seen = gathered(hostvars, groups, services, models, models_dir, texts, now)
    judged = criteria(seen)
    rows = [row for one in seen.services if one.generates for row in readings(one.measured)]
    if any(one.workers for one in seen.services):
        rows.append(link_reading(seen.kept.latest("link")))
    result = {
        "format": FORMAT,
        "kind": "report",
        "measured_at": now,
        "criteria": [one._asdict() for one in judged],
        "readings": [row._asdict() for row in rows],
        "figures": {
            one.measured.label: {
                "model": one.measured.model,
                "quant": one.measured.quant,
                "tokens_per_second": one.measured.rate,
                "ceiling": one.measured.ceiling,
                "first_token": one.measured.first_token,
                "measured_at": one.measured.measured_at,
            }
            for one in seen.services
        },
    }
    report = {
        "files": {**files_of("verify", result), "report.html": page(result, seen.kept)},
        "lines": lines(judged, rows, seen.kept.unreadable),
        "refused": [one.refusal() for one in judged if one.verdict == NOT_MET],
    }
    return wrap_var(report)


def lines(judged: Sequence[Criterion], rows: Sequence[Reading], unreadable: Sequence[str]) -> list[str]:
    met = [one for one in judged if one.verdict == MET]
    found = [f"acceptance: {len(met)} of {len(judged)} criteria met"]
    found += ["%-*s %s: %s" % (WIDTH, one.verdict, one.name, one.value) for one in judged]
    found += table(
        ("service", "what", "measured", "by the notes", "what it means", "verdict"),
        [(row.service, row.metric, row.value, row.noted, row.meant, row.judged) for row in rows],
    )
    return found + [f"not read: {path}, not a result" for path in unreadable]
