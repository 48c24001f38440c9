# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a registry of endpoints: one for each llama-server, in a directory that nodes and gateway share.

Private to the collection. JOBID-SUFFIX.json contains the fields that operators' own tools read: job_id (a number),
model, tier, node, host, head_node, port, endpoint, started_at. Workers are in llama_workers: readers of rpc_workers
request /health of them, which a worker does not answer.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from .._text import Refusal, printable

VERSION = 1
# WAITING: of a service whose job waits for SLURM. No server is there; the keeper of the jobs writes the file.
LOADING, READY, DRAINING, WAITING = "loading", "ready", "draining", "waiting"
STATES = (LOADING, READY, DRAINING, WAITING)
NAME = re.compile(r"^(0|[1-9][0-9]{0,9})-([A-Za-z0-9][A-Za-z0-9_.-]{0,99})\.json\Z")
WORD = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
# A record has a few hundred bytes.
MOST_BYTES = 64 << 10
# Seconds between two writes of a file, and the number of missed writes after which it no longer counts.
HEARTBEAT, LONGEST_HEARTBEAT, BEATS = 10, 60, 3
# SLURM has no such job numbers, and they fit 32 bits: for endpoints that systemd runs.
NO_JOB = 1 << 31
NEXT_STEP = "restart what writes the file, or remove it"


class Endpoint(NamedTuple):
    """A llama-server in a file, or the place where it will be. node: its name in the list of hosts; address: from that
    list; why, retry_after: only of a waiting one, a sentence for clients and the seconds after which they may ask
    again."""

    service: str
    node: str
    address: str
    port: int
    state: str
    slots: int | None
    slot_ctx_size: int | None
    models: list[str]
    tier: str | None
    build: str | None
    quant: str | None
    job_id: int
    heartbeat: int
    why: str | None
    retry_after: int | None

    def as_dict(self) -> dict[str, Any]:
        """The endpoint in registry.json."""
        return {name: value for name, value in self._asdict().items() if name != "heartbeat"}


def unusable(error: Exception, tags: str) -> str:
    """The sentence for an unusable configuration of a program."""
    why = f"{type(error).__name__}: {printable(error)}"
    return f"the configuration cannot be used ({why}): run site.yml with --tags {tags} again"


def _whole(lowest: int, highest: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


def _text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()


def _texts(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= 200 and all(_text(one) for one in value)


def _word(value: Any) -> bool:
    return isinstance(value, str) and bool(WORD.match(value))


def _or_null(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


# (field, check, accepted values), in the order of the checks.
FIELDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("version", _whole(VERSION, VERSION), str(VERSION)),
    ("job_id", _whole(0, 2**32 - 1), "a whole number below 4294967296"),
    ("service", _word, "the name of a service"),
    ("host", _text, "the name of a node"),
    ("port", _whole(1, 65535), "a port from 1 to 65535"),
    ("state", lambda value: value in STATES, ", ".join(STATES[:-1]) + " or " + STATES[-1]),
    ("models", _texts, "a list of names"),
    ("tier", _or_null(_word), "a name or null"),
    ("slots", _or_null(_whole(1, 4096)), "a number from 1 to 4096 or null"),
    ("slot_ctx_size", _or_null(_whole(1, 2**31)), "a number of tokens or null"),
    ("build", _or_null(_text), "a name or null"),
    ("quant", _or_null(_text), "a name or null"),
    ("heartbeat", _whole(1, LONGEST_HEARTBEAT), "a number of seconds from 1 to 60"),
)
# Fields that a waiting endpoint may have.
OF_WAITING: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("why", _or_null(_text), "a sentence of at most 200 characters or null"),
    ("retry_after", _or_null(_whole(1, 600)), "a number of seconds from 1 to 600 or null"),
)


def job_number(node: str, service: str) -> int:
    """The job_id of an endpoint without a job, by node and service."""
    return NO_JOB | zlib.crc32(f"{node}/{service}".encode("utf-8"))


def file_name(job_id: int, suffix: str) -> str:
    return "%d-%s.json" % (job_id, suffix)


def encode(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, indent=1, sort_keys=True) + "\n").encode("ascii")


def parse(name: str, text: bytes, hosts: Mapping[str, str]) -> Endpoint:
    """The endpoint in a file. hosts: {name: address} of the allowed machines; an address in the file is ignored.
    Errors: Refusal."""
    try:
        record = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise Refusal(f"{name}: no JSON object seen, one is needed: {NEXT_STEP}")
    waits = record.get("state") == WAITING
    record.update({field: record.get(field) if waits else None for field, _check, _needed in OF_WAITING})
    for field, check, needed in (*FIELDS, *OF_WAITING):
        if field not in record:
            raise Refusal(f"{name}: no {field} seen, {needed} is needed: {NEXT_STEP}")
        if not check(record[field]):
            seen = printable(json.dumps(record[field]), 60)
            raise Refusal(f"{name}.{field}: {seen} seen, {needed} is needed: {NEXT_STEP}")
    found = NAME.match(name)
    if not found or int(found.group(1)) != record["job_id"]:
        raise Refusal(
            "%s.job_id: %d seen, the number of the file's name is needed: %s" % (name, record["job_id"], NEXT_STEP)
        )
    if not record["job_id"] and not waits:
        raise Refusal(f"{name}.job_id: 0 seen, the number of a job is needed, unless it is {WAITING}: {NEXT_STEP}")
    node = _node(record["host"], hosts)
    if node is None:
        raise Refusal(
            f"{name}.host: {printable(record['host'], 60)} seen, a node of the inventory is needed: add the node to "
            "the inventory and run site.yml with --tags gateway, or remove the file"
        )
    fields = {field: record[field] for field in Endpoint._fields if field not in ("node", "address")}
    return Endpoint(node=node, address=hosts[node], **fields)


def _node(host: str, hosts: Mapping[str, str]) -> str | None:
    """The node with this host name, with or without its domain, or this address; None if unknown."""
    if host in hosts:
        return host
    matching = (
        node for node, address in hosts.items() if host == address or "." not in node and host.startswith(node + ".")
    )
    return next(matching, None)
