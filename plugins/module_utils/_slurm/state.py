# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keeper's configuration, and what it knows of the jobs. Private to the collection.

CONFIG: {user: whose jobs they are, directory: the keeper's own, partitions_yield: partitions to which all services give
way, registry_dir: of the registry of endpoints, or an empty text, services: {SERVICE: {wanted, name: of the job,
script, digest, grace: seconds, log_dir, suffix: of its file in the registry, record: the constant part of that file,
nodes: [NAME, the head's first]}}}

state.json in the directory, for every user: {version, at: when it was written, slurm: {state: ok or away, since},
services: {SERVICE: the fields of Known}}. Times are seconds since 1970.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from .._files import read as read_file
from .._files import read_trusted, text_of, write_atomically
from .._text import Refusal, printable
from .job import NAME

VERSION = 1
STATE = "state.json"
# No jobs of these.
NOT_OF = ("root",)
# Requests of persons: SERVICE.hold and SERVICE.resume in the directory.
REQUESTS = ("hold", "resume")
MOST_BYTES, MOST_SERVICES, MOST_TEXT = 1 << 20, 200, 300
PENDING, RUNNING, COMPLETING, NONE = STATES = ("pending", "running", "completing", "none")
OK, AWAY = "ok", "away"
# A state that is older was left by a keeper that does not run any more; seconds.
OLD = 90
# Bounds of Retry-After, and its value if nothing is known; seconds.
SOONEST, LATEST, UNKNOWN = 5, 600, 60
PATH = re.compile(r"^/[^\x00-\x1f\x7f]{1,4000}\Z")
DAY = 86400


class Service(NamedTuple):
    wanted: bool
    name: str
    script: str
    digest: str
    grace: int
    log_dir: str
    suffix: str
    record: dict[str, Any]
    nodes: list[str]


class Config(NamedTuple):
    user: str
    directory: str
    partitions_yield: list[str]
    registry_dir: str
    services: dict[str, Service]


class Known(NamedTuple):
    """A service's job, as the keeper knows it.

    held: {by, at}, if a person holds it; next_job: one that waits until the time of job_id is over; reason, expected:
    SLURM's for a job that waits; ends: its time limit; serves: whether it is ready; served: since when this run of it
    is or was; grace: that of the job's script; last: {job_id, code, words, at, digest} of the last run that ended;
    next_submit: when the next job may be submitted; window: {partition, node, at}, a job that wants one of its nodes;
    failures: jobs in a row that did not serve a minute; yields: the partition to which it gives way; asked: {job:
    {code, words, how, at}} which the keeper has asked to end; submitting: since when the outcome of a submission is not
    known; open: [{job_id, since, started, served, requeued, digest}], runs that ended and for which SLURM has not said
    why.
    """

    wanted: bool = False
    held: dict[str, Any] | None = None
    job_id: int | None = None
    next_job: int | None = None
    state: str = NONE
    digest: str = ""
    nodes: str = ""
    reason: str = ""
    started: int | None = None
    ends: int | None = None
    expected: int | None = None
    serves: bool = False
    served: float | None = None
    grace: int = 0
    last: dict[str, Any] | None = None
    next_submit: float | None = None
    window: dict[str, Any] | None = None
    failures: int = 0
    yields: str = ""
    asked: dict[str, dict[str, Any]] = {}
    submitting: float | None = None
    open: list[dict[str, Any]] = []


State = dict[str, Known]


def config_of(text: str) -> Config:
    """The keeper's configuration. Errors: Refusal."""
    try:
        given = json.loads(text)
        services = {
            str(service): Service(**{field: one[field] for field in Service._fields})
            for service, one in given["services"].items()
        }
        config = Config(**{field: given[field] for field in Config._fields if field != "services"}, services=services)
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        raise _unusable(f"{type(error).__name__}: {printable(error)}") from None
    for entry, sound in (
        ("user", _name(config.user) and config.user not in NOT_OF),
        ("directory", _path(config.directory)),
        ("partitions_yield", isinstance(config.partitions_yield, list) and all(map(_name, config.partitions_yield))),
        ("registry_dir", config.registry_dir == "" or _path(config.registry_dir)),
        ("services", len(services) <= MOST_SERVICES),
    ):
        if not sound:
            raise _unusable(entry)
    for service, one in services.items():
        if not (_name(service) and _sound(one)):
            raise _unusable(f"services.{printable(service)}")
    return config


def configuration(path: str) -> Config:
    """Errors: Refusal, OSError."""
    return config_of(read_file(path).decode("utf-8", "replace"))


def _unusable(entry: str) -> Refusal:
    return Refusal(f"jobs.json: it cannot be used ({entry}): run site.yml with --tags slurm again")


def _name(value: Any) -> bool:
    return isinstance(value, str) and bool(NAME.match(value))


def _path(value: Any) -> bool:
    return isinstance(value, str) and bool(PATH.match(value))


def _sound(one: Service) -> bool:
    texts = all(map(_name, (one.name, one.digest, one.suffix))) and _path(one.script) and _path(one.log_dir)
    numbers = isinstance(one.grace, int) and 0 < one.grace <= DAY
    nodes = isinstance(one.nodes, list) and 0 < len(one.nodes) <= 64 and all(map(_name, one.nodes))
    return texts and numbers and nodes and isinstance(one.wanted, bool) and isinstance(one.record, dict)


def public(state: Mapping[str, Known], now: float, away: float | None) -> dict[str, Any]:
    """state.json. away: since when SLURM does not respond."""
    slurm = {"state": AWAY if away is not None else OK, "since": away}
    return {
        "version": VERSION,
        "at": now,
        "slurm": slurm,
        "services": {service: known._asdict() for service, known in sorted(state.items())},
    }


def write(directory: str, content: Mapping[str, Any], durable: bool) -> None:
    """Errors: Refusal, OSError."""
    data = (json.dumps(content, indent=1, sort_keys=True) + "\n").encode("ascii")
    write_atomically(os.path.join(directory, STATE), data, 0o644, durable=durable)


def read(directory: str) -> dict[str, Any]:
    """state.json, {} without one that can be used. The user whose jobs they are could write anything into it: texts are
    made printable, and what has another form is left out."""
    text = text_of(os.path.join(directory, STATE))
    try:
        given = json.loads(text) if text and len(text) <= MOST_BYTES else {}
        at, slurm, services = float(given["at"]), dict(given["slurm"]), dict(given["services"])
        sound = given["version"] == VERSION and _number(given["at"]) and len(services) <= MOST_SERVICES
        known = {name: _known(one) for name, one in services.items() if _name(name)} if sound else {}
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError, AttributeError):
        return {}
    since: Any = slurm.get("since")
    away = None if slurm.get("state") != AWAY else float(since) if _number(since) else at
    return public(known, at, away) if sound else {}


def requests(directory: str, kind: str) -> dict[str, dict[str, Any]]:
    """{service: {by, at}} of the requests of a kind. Files of other users do not count. Errors: OSError."""
    found = {}
    for name in sorted(os.listdir(directory))[:MOST_SERVICES]:
        service, dot, ending = name.rpartition(".")
        if ending != kind or not _name(service):
            continue
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            given = json.loads(read_trusted(os.path.join(directory, name), MOST_TEXT))
            if isinstance(given["by"], str) and _number(given["at"]):
                found[service] = {"by": printable(given["by"], 60), "at": float(given["at"])}
    return found


def request(directory: str, service: str, kind: str, by: str, now: float) -> None:
    """Leaves a request for the keeper, and removes one that it did not take yet. Errors: Refusal, OSError."""
    for other in REQUESTS:
        withdraw(directory, service, other)
    data = json.dumps({"by": by, "at": now}).encode("ascii")
    write_atomically(os.path.join(directory, f"{service}.{kind}"), data, 0o600)


def withdraw(directory: str, service: str, kind: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, f"{service}.{kind}"))


def known_of(content: Mapping[str, Any]) -> State:
    """The services of read()."""
    return {name: Known(**one) for name, one in (content.get("services") or {}).items()}


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12


def _clean(value: Any) -> Any:
    """A value of one level."""
    if isinstance(value, str):
        return printable(value, MOST_TEXT)
    return value if value is None or isinstance(value, bool) or _number(value) else None


def _row(value: Any) -> dict[str, Any]:
    return {printable(key, 60): _clean(one) for key, one in list(value.items())[:20]} if isinstance(value, dict) else {}


# Rows with their texts; each has a time `at` too.
NEEDED = {"held": ("by",), "last": ("code", "words"), "window": ("partition", "node")}


def _known(given: Any) -> Known:
    found: dict[str, Any] = {}
    for field, default in Known._field_defaults.items():
        value = given.get(field, default)
        if field in NEEDED:
            row = _row(value)
            texts = all(isinstance(row.get(key), str) for key in NEEDED[field])
            found[field] = row if texts and _numbers(row, "at") else None
        elif field == "asked":
            pairs = list(value.items())[:100] if isinstance(value, dict) else []
            found[field] = {key: _row(one) for key, one in pairs if key.isdigit() and _numbers(one, "at")}
        elif field == "open":
            rows = value[:100] if isinstance(value, list) else []
            found[field] = [_row(one) for one in rows if _numbers(one, "job_id", "since")]
        elif field == "state":
            found[field] = value if value in STATES else NONE
        elif default is None:
            found[field] = value if _number(value) else None
        else:
            value = _clean(value)
            found[field] = value if isinstance(value, type(default)) else default
    return Known(**found)


def _numbers(one: Any, *keys: str) -> bool:
    return isinstance(one, dict) and all(_number(one.get(key)) for key in keys)


def moment(at: float, now: float) -> str:
    """A time of day in words, with the day if it is not near."""
    form = "%H:%M" if abs(at - now) < DAY / 2 else "%a %H:%M" if abs(at - now) < 6 * DAY else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(at))


def sentence(known: Known, now: float, away: float | None = None) -> str:
    """A service's job in words, for operators and clients."""
    job = f"job {known.job_id}"
    if away is not None:
        seen = f", {job} was {known.state} then" if known.job_id is not None else ""
        return f"SLURM has not responded since {moment(away, now)}{seen}"
    if known.state in (RUNNING, COMPLETING):
        where = f"{job} runs on {known.nodes}" + (f" since {moment(known.started, now)}" if known.started else "")
        ends = known.state == COMPLETING or str(known.job_id) in known.asked
        # Not now: SLURM has asked it to end, or its share hangs.
        without = f", and does not serve {'now' if known.served else 'yet'}"
        return where + (", and ends" if ends else ", and serves" if known.serves else without)
    if known.state == PENDING:
        expected = f", expected {moment(known.expected, now)}" if known.expected and known.expected > now else ""
        return f"{job} waits{f' ({known.reason})' if known.reason else ''}{expected}"
    if not known.wanted:
        return "no job, and none is wanted"
    if known.held:
        return f"held by {known.held['by']} since {moment(known.held['at'], now)}, see llama-jobs resume"
    if known.open:
        return "job {job_id} has ended, SLURM has not said why yet".format(**known.open[-1])
    if known.yields:
        return f"no job, it gives way to jobs of partition {known.yields}"
    ended = f" (the last one: {known.last['words']})" if known.last and known.failures else ""
    if known.next_submit and known.next_submit > now:
        return f"no job, the next one is submitted at {moment(known.next_submit, now)}{ended}"
    return f"no job, the next one is about to be submitted{ended}"


def ahead(known: Known, now: float) -> str:
    """The job that wants a node of a service, in words; empty if no such job is known."""
    if not known.window or known.window["at"] < now:
        return ""
    return "a job of partition {partition} wants {node} at {}".format(
        moment(known.window["at"], now), **{key: known.window[key] for key in ("partition", "node")}
    )


def retry_after(known: Known, now: float) -> int:
    """Seconds after which a client may ask again."""
    at = known.expected if known.state == PENDING else known.next_submit
    if known.held and known.state == NONE:
        return LATEST
    return UNKNOWN if at is None or at <= now else int(min(max(at - now, SOONEST), LATEST))
