# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a request to its files: names, sizes, digests and headers, before any large transfer. Private to the
collection."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from .._model.describe import check_shards, shard_name, size_problem
from .._model.gguf import Header, read_header
from .._text import Refusal, exact
from .http import Client, attempts
from .hub import Hub, select
from .manifest import is_model_name
from .names import model_name, order_files, piece_name
from .request import SENT, Plan, Request
from .sources import FileSource, HttpSource, Source, make_source, read_range, size_of
from .target import Piece, Span, Target
from .urls import clean_url, same_origin

ANOTHER_SOURCE = "it is not complete at its source, name all of its pieces or use another source"


class _Found(NamedTuple):
    """Sources in order, with needed digests and names; pieces: [{size, sha256}] of the one file instead of digests."""

    sources: Sequence[Source]
    digests: Sequence[str | None]
    names: list[str]
    commit: str | None = None
    pieces: Sequence[dict[str, Any]] = ()


def resolve(request: Request, client: Client, check: bool = False) -> Plan:
    """Find out what to fetch and verify by header and size that it belongs together, before any large transfer.

    -> Plan; raises Refusal.
    """
    if request.bundle:
        found = _resolve_copy(request, request.bundle, [one["name"] for one in request.bundle["files"]], None)
    elif request.copy_of:
        names = [entry.get("name") or os.path.basename(entry["path"]) for entry in request.copy_of["files"]]
        found = _resolve_copy(request, request.copy_of, names, request.copy_of["url"], check)
    elif request.repo:
        found = _resolve_repo(request, request.repo, client)
    else:
        found = _resolve_urls(request)
    if request.bundle or request.copy_of and check:
        # The files may not be there yet: the record is used instead.
        targets = _targets(request, found)
        return Plan(targets, [None] * len(targets), found.commit, (request.bundle or {}).get("gguf"))
    for source in found.sources:
        attempts(functools.partial(source.resolve, client))
    targets = _targets(request, found)
    headers = [_source_header(target, client) for target in targets]
    check_shards(headers, [target.pieces[0].source.name for target in targets])
    return Plan(targets, headers, found.commit)


def _resolve_repo(request: Request, repo: str, client: Client) -> _Found:
    hub = Hub(client, repo, request.endpoint, request.token)
    commit = hub.commit(request.revision)
    chosen = select(hub.files(commit), repo, request.files)
    digests = [entry.sha256 for entry in chosen]
    if request.sha256:
        if len(request.sha256) != len(chosen):
            given = f"{len(request.sha256)} digests given, {repo} has {len(chosen)} files"
            raise Refusal(f"sha256: {given}: give one per file")
        for entry, wanted in zip(chosen, request.sha256):
            if entry.sha256 not in (None, wanted):
                seen = f"the hub reports sha256 {entry.sha256}, {wanted} needed"
                raise Refusal(f"{entry.path}: {seen}: check revision and sha256")
        digests = list(request.sha256)
    sources = [hub.source(commit, entry) for entry in chosen]
    return _Found(sources, digests, [entry.path for entry in chosen], commit)


def _resolve_urls(request: Request) -> _Found:
    sources = [make_source(url) for url in request.urls]
    for source in sources:
        if request.token and isinstance(source, HttpSource) and same_origin(source.url, clean_url(request.endpoint)):
            source.token = request.token
    names = [source.name for source in sources]
    if all(shard_name(name) or piece_name(name) for name in names) and order_files(names) != names:
        raise Refusal(f"urls: {', '.join(names)} are not in order: give them by number")
    if request.sha256 and len(request.sha256) not in (1, len(sources)):
        given = f"{len(request.sha256)} digests given for {len(sources)} urls"
        raise Refusal(f"sha256: {given}: give one per URL, or one of the joined file")
    each = len(request.sha256) == len(sources)
    return _Found(sources, request.sha256 if each else [None] * len(sources), names)


def _resolve_copy(
    request: Request, copied: dict[str, Any], names: list[str], url: str | None, check: bool = False
) -> _Found:
    """Files that another node, or a bundle, has. Every byte needs a digest; in check mode it may get one later. url:
    None for files that the controller sends."""
    files = copied["files"]
    known = [piece["sha256"] for entry in files for piece in entry["pieces"]]
    if not check and None in known:
        raise Refusal(
            f"copy_of: {names[known.index(None)]} has no sha256 on the node that has it, one is needed: fetch it there "
            "with reverify: full"
        )
    if url and len(known) == len(request.sha256):
        for name, digest, wanted in zip(names * len(known), known, request.sha256):
            if digest not in (None, wanted):
                raise Refusal(f"copy_of: {name} has sha256 {digest}, {wanted} needed: another model is there")
    sources: list[Source] = [FileSource(path + SENT) for _name, path, _size in request.bundled_files()]
    if url:
        sources = [make_source(url.rstrip("/") + "/" + quote(name)) for name in names]
    for source, entry in zip(sources, files):
        source.size = entry["size"]
    if shard_name(names[0]):
        return _Found(sources, [entry["pieces"][0]["sha256"] for entry in files], names, copied["commit"])
    return _Found(sources, [None] * len(files), names, copied["commit"], files[0]["pieces"])


def _targets(request: Request, found: _Found) -> list[Target]:
    base = model_name(found.names)
    if shard_name(base):
        if found.pieces or len(found.digests) > 1 and len(request.sha256) == 1:
            raise Refusal(f"{base}: shards stay separate files: give one sha256 per shard")
        groups = [
            (os.path.join(request.folder(), name.rpartition("/")[2]), [source], [digest])
            for name, source, digest in zip(found.names, found.sources, found.digests)
        ]
    else:
        path = os.path.join(request.dest, base) if request.into_folder else request.dest
        groups = [(path, list(found.sources), list(found.digests))]
    for path, _sources, _digests in groups:
        if not path.endswith(".gguf"):
            raise Refusal(f"dest: {path} does not end in .gguf: llama.cpp and this collection find models by that name")
        # Hubs, URLs and other nodes have a say in it.
        if not is_model_name(os.path.basename(path)):
            raise Refusal(
                f"dest: {path!r} is hidden, has more than 220 bytes or holds what cannot be printed: give the model's "
                "path as dest"
            )
    return [_target(request, found.pieces, *group) for group in groups]


def _target(
    request: Request,
    known: Sequence[dict[str, Any]],
    path: str,
    sources: Sequence[Source],
    digests: Sequence[str | None],
) -> Target:
    base = os.path.basename(path)
    pieces: list[Piece] = []
    offset = 0
    for source in sources:
        pieces.append(Piece(source, offset, size_of(source)))
        offset += size_of(source)
    if known:
        spans, start = [], 0
        for number, one in enumerate(known):
            digest = one["sha256"] and one["sha256"].lower()
            spans.append(Span(start, start + one["size"], digest, f"{base}, piece {number + 1}"))
            start += one["size"]
        if start != offset:
            raise Refusal(f"copy_of: its pieces have {exact(start)}, {base} has {exact(offset)}: run again")
    elif len(request.sha256) == 1 and len(sources) > 1:
        spans = [Span(0, offset, request.sha256[0], base)]
    else:
        spans = [
            Span(one.offset, one.offset + one.size, digest, one.source.name) for one, digest in zip(pieces, digests)
        ]
    # With a digest the content is certain wherever it comes from; without one only the same URL with the same validator
    # may go on.
    identity: list[Any] = [[span.end - span.start, span.sha256] for span in spans]
    if not all(span.sha256 for span in spans):
        identity = [[one.size, one.identity, one.validator or f"unknown at {time.time():f}"] for one in sources]
    return Target(path, pieces, spans, identity)


def _source_header(target: Target, client: Client) -> Header:
    """The header of a target, read from its first source, checked against the sizes of all pieces."""
    first = target.pieces[0].source
    header = read_header(
        lambda offset, length: read_range(first, client, offset, length), first.public, again=ANOTHER_SOURCE
    )
    problem = size_problem(header, target.size, first.public, ANOTHER_SOURCE)
    if problem and len(target.pieces) > 1:
        have = f"{len(target.pieces)} pieces have {exact(target.size)} together, {exact(header.expected_size)} needed"
        problem = (
            f"{os.path.basename(target.path)}: {have} by its header: a piece is missing or belongs to another model"
        )
    if problem:
        raise Refusal(problem)
    return header
