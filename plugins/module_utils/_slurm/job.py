# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job in a script: what each of its nodes runs. Private to the collection.

The script exports it as LLAMA_JOB, JSON; only the controller writes it, and the job's user could change it.

{service, digest, user: whose job it is,
 grace: seconds between SIGTERM and the end of a preempted job,
 log_dir: shared, for the logs of tasks, JOBID/ROLE-NODE.log; state_dir: local and the user's, with HOME in it,
 registry: {directory, suffix, url, record}, as registry_writer takes it; null without a registry,
 tasks: {NODE: {
   role: head, router or rpc; exactly one is no rpc,
   argv: [the words of its process, numactl and stdbuf among them],
   environment: {NAME: text},
   address, port: where it listens,
   files: {path: text, or null for an empty directory}: paths that argv, environment and other files name. The task
     makes them in a directory of its own, placed() has the words with those names,
   cache: of rpc, its directory of tensors, empty for none,
   endpoints: [HOST:PORT] of the RPC servers of a head, empty for others,
   build: the release, bNUMBER-..., whose protocol workers speak,
   ubatch, embeddings, reranking: of a head, for the judges of the watchdog}}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from .._text import Refusal, printable

VARIABLE = "LLAMA_JOB"
# Linux takes 128 KiB for one variable.
MOST_BYTES = 120 << 10
MOST_TASKS, MOST_WORDS, MOST_TEXT = 64, 1000, MOST_BYTES
ROLES = ("head", "router", "rpc")
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
VARIABLE_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
ENDPOINT = re.compile(r"^[A-Za-z0-9_.:\[\]-]{1,255}:[0-9]{1,5}\Z")
# A comment of squeue, by which jobs of this collection are known.
COMMENT = re.compile(r"^llama_cluster:([a-z0-9][a-z0-9-]{0,39}):([0-9a-f]{16})\Z")
NEXT_STEP = "run site.yml with --tags slurm again"


class Placed(NamedTuple):
    """The words of a process after its files were placed; files: {path: text, or None for an empty directory}."""

    argv: list[str]
    environment: dict[str, str]
    files: dict[str, str | None]


class Task(NamedTuple):
    """The process of one node."""

    node: str
    role: str
    argv: list[str]
    environment: dict[str, str]
    address: str
    port: int
    files: dict[str, str | None]
    cache: str
    endpoints: list[str]
    build: str
    ubatch: int
    embeddings: bool
    reranking: bool

    def placed(self, folder: str) -> Placed:
        """With its files in a directory, by their last names."""
        names = {path: f"{folder}/{path.rpartition('/')[2]}" for path in self.files}

        def moved(text: str) -> str:
            for path in sorted(names, key=len, reverse=True):
                text = text.replace(path, names[path])
            return text

        files = {names[path]: None if text is None else moved(text) for path, text in self.files.items()}
        environment = {name: moved(text) for name, text in self.environment.items()}
        return Placed([moved(word) for word in self.argv], environment, files)


class Registry(NamedTuple):
    directory: str
    suffix: str
    url: str
    record: dict[str, Any]


class Job(NamedTuple):
    """registry: None without one."""

    service: str
    digest: str
    user: str
    grace: int
    log_dir: str
    state_dir: str
    registry: Registry | None
    tasks: dict[str, Task]

    @property
    def head(self) -> Task:
        """The task that clients talk to."""
        return next(task for task in self.tasks.values() if task.role != "rpc")


def comment(service: str, digest: str) -> str:
    """The comment of a job, which COMMENT reads."""
    return f"llama_cluster:{service}:{digest}"


def parse(text: str) -> Job:
    """The job in a text. Errors: Refusal."""
    if len(text.encode("utf-8", "surrogateescape")) > MOST_BYTES:
        raise _wrong("", "%d bytes" % len(text), "at most %d bytes are" % MOST_BYTES)
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise _wrong("", "no JSON object", "one is")
    tasks = _of(given, "tasks", _map, "a map of node to task")
    if not 0 < len(tasks) <= MOST_TASKS or not all(NAME.match(node) for node in tasks):
        raise _wrong("tasks", "%d nodes" % len(tasks), "1 to %d names of nodes are" % MOST_TASKS)
    found = Job(
        service=_of(given, "service", _name, "a name"),
        digest=_of(given, "digest", lambda one: _name(one) and len(one) == 16, "16 digits"),
        user=_of(given, "user", _name, "a name"),
        grace=_of(given, "grace", _whole(1, 86400), "a number of seconds"),
        log_dir=_of(given, "log_dir", _path, "a path"),
        state_dir=_of(given, "state_dir", _path, "a path"),
        registry=_registry(given.get("registry")),
        tasks={node: _task(node, task) for node, task in tasks.items()},
    )
    if len([task for task in found.tasks.values() if task.role != "rpc"]) != 1:
        raise _wrong("tasks", "another number of heads", "exactly one is")
    return found


def _task(node: str, given: Any) -> Task:
    entry = f"tasks.{node}."
    if not _map(given):
        raise _wrong(entry[:-1], "no map", "one is")

    def of(name: str, check: Callable[[Any], bool], needed: str) -> Any:
        return _of(given, name, check, needed, entry)

    return Task(
        node=node,
        role=of("role", lambda one: one in ROLES, "head, router or rpc"),
        argv=of("argv", lambda one: _words(one) and len(one) > 0 and _path(one[0]), "a path and words"),
        environment=of("environment", _environment, "a map of variables"),
        address=of("address", _line, "an address"),
        port=of("port", _whole(1, 65535), "a port"),
        files=of("files", _files, "a map of path to text or null"),
        cache=of("cache", lambda one: one == "" or _path(one), "a path or nothing"),
        endpoints=of("endpoints", _endpoints, "a list of HOST:PORT"),
        build=of("build", _name, "a release"),
        ubatch=of("ubatch", _whole(0, 2**31 - 1), "a number"),
        embeddings=of("embeddings", lambda one: isinstance(one, bool), "true or false"),
        reranking=of("reranking", lambda one: isinstance(one, bool), "true or false"),
    )


def _registry(given: Any) -> Registry | None:
    if given is None:
        return None
    if not _map(given):
        raise _wrong("registry", "no map", "one is")
    return Registry(
        _of(given, "directory", _path, "a path", "registry."),
        _of(given, "suffix", _name, "a name", "registry."),
        _of(given, "url", _line, "a URL", "registry."),
        dict(_of(given, "record", _map, "a map", "registry.")),
    )


def _of(given: Mapping[str, Any], name: str, check: Callable[[Any], bool], needed: str, entry: str = "") -> Any:
    if name not in given:
        raise _wrong(entry + name, "nothing", f"{needed} is")
    if not check(given[name]):
        raise _wrong(entry + name, printable(json.dumps(given[name]), 60), f"{needed} is")
    return given[name]


def _wrong(entry: str, seen: str, needed: str) -> Refusal:
    where = f"{VARIABLE}.{entry}" if entry else VARIABLE
    return Refusal(f"{printable(where)}: {seen} seen, {needed} needed: {NEXT_STEP}")


def _map(one: Any) -> bool:
    return isinstance(one, dict) and len(one) <= MOST_WORDS


def _text(one: Any) -> bool:
    return isinstance(one, str) and len(one) <= MOST_TEXT and "\0" not in one


def _line(one: Any) -> bool:
    return isinstance(one, str) and 0 < len(one) <= 500 and one.isprintable()


def _name(one: Any) -> bool:
    return isinstance(one, str) and bool(NAME.match(one))


def _path(one: Any) -> bool:
    return _line(one) and one.startswith("/") and ".." not in one.split("/")


def _words(one: Any) -> bool:
    return isinstance(one, list) and len(one) <= MOST_WORDS and all(_text(word) for word in one)


def _environment(one: Any) -> bool:
    return _map(one) and all(VARIABLE_NAME.match(name) and _text(text) for name, text in one.items())


def _files(one: Any) -> bool:
    last = {path.rpartition("/")[2] for path in one} if _map(one) else set()
    sound = _map(one) and all(_path(path) and (text is None or _text(text)) for path, text in one.items())
    return sound and len(last) == len(one) and all(NAME.match(name) for name in last)


def _endpoints(one: Any) -> bool:
    return _words(one) and all(ENDPOINT.match(word) for word in one)


def _whole(lowest: int, highest: int) -> Callable[[Any], bool]:
    return lambda one: isinstance(one, int) and not isinstance(one, bool) and lowest <= one <= highest
