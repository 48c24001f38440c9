# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a request to what is fetched: names, sizes, digests and headers, before any large transfer. Private to the
collection."""

import functools
import os
import time
from collections.abc import Sequence
from typing import Any, Optional
from urllib.parse import quote

from .._model.describe import check_shards, shard_name, size_problem
from .._model.gguf import Header, read_header
from .._text import Refusal, exact
from .http import Client, attempts
from .hub import Hub, select
from .manifest import is_model_name
from .names import model_name, order_files, piece_name
from .request import Plan, Request
from .sources import HttpSource, Source, make_source, read_range, size_of
from .target import Piece, Span, Target
from .urls import clean_url, same_origin

ANOTHER_SOURCE = "it is not whole at its source, name all of its pieces or use another source"
Digests = Sequence[Optional[str]]
# Sources, needed digests, names, commit.
Found = tuple[list[Source], Digests, list[str], Optional[str]]


def resolve(request: Request, client: Client, check: bool = False) -> Plan:
    """Find out what to fetch and prove by header and size that it belongs together, before any large transfer.

    -> Plan; raises Refusal.
    """
    pieces = request.pieces
    if request.copy_of:
        sources, digests, names, pieces = _resolve_copy(request, request.copy_of, check)
        commit = request.copy_of["commit"]
    elif request.repo:
        sources, digests, names, commit = _resolve_repo(request, request.repo, client)
    else:
        sources, digests, names, commit = _resolve_urls(request)
    if request.copy_of and check:
        # A node serves its files only while they are copied; what it said of them has to do.
        targets = _targets(request, sources, digests, names, pieces)
        return Plan(targets, [None] * len(targets), commit)
    for source in sources:
        attempts(functools.partial(source.resolve, client))
    targets = _targets(request, sources, digests, names, pieces)
    headers = [_source_header(target, client) for target in targets]
    check_shards(headers, [target.pieces[0].source.name for target in targets])
    return Plan(targets, headers, commit)


def _resolve_repo(request: Request, repo: str, client: Client) -> Found:
    hub = Hub(client, repo, request.endpoint, request.token)
    commit = hub.commit(request.revision)
    chosen = select(hub.files(commit), repo, request.files, request.quant)
    digests: Digests = [entry.sha256 for entry in chosen]
    if request.sha256:
        if len(request.sha256) != len(chosen):
            raise Refusal(
                f"sha256: {len(request.sha256)} digests given, {repo} has {len(chosen)} files: give one per file"
            )
        for entry, wanted in zip(chosen, request.sha256):
            if entry.sha256 not in (None, wanted):
                raise Refusal(
                    f"{entry.path}: the hub says sha256 {entry.sha256}, {wanted} needed: check revision and sha256"
                )
        digests = request.sha256
    return [hub.source(commit, entry) for entry in chosen], digests, [entry.path for entry in chosen], commit


def _resolve_urls(request: Request) -> Found:
    sources = [make_source(url) for url in request.urls]
    for source in sources:
        if request.token and isinstance(source, HttpSource) and same_origin(source.url, clean_url(request.endpoint)):
            source.token = request.token
    names = [source.name for source in sources]
    if all(shard_name(name) or piece_name(name) for name in names) and order_files(names) != names:
        raise Refusal(f"urls: {', '.join(names)} are not in order: give them by number")
    digests = request.sha256 if len(request.sha256) == len(sources) else [None] * len(sources)
    if request.sha256 and len(request.sha256) not in (1, len(sources)):
        raise Refusal(
            "sha256: %d digests given for %d urls: give one per URL, or one of the joined file"
            % (len(request.sha256), len(sources))
        )
    return sources, digests, names, None


def _resolve_copy(
    request: Request,
    copied: dict[str, Any],
    check: bool,
) -> tuple[list[Source], Digests, list[str], list[dict[str, Any]]]:
    """As the others, with the pieces of the one file instead of a commit. Every byte must be provable, in check mode it
    may become so."""
    files = copied["files"]
    names = [os.path.basename(entry["path"]) for entry in files]
    known = [piece["sha256"] for entry in files for piece in entry["pieces"]]
    if not check and None in known:
        raise Refusal(
            "copy_of: %s has no sha256 on the node that has it, one is needed: fetch it there with reverify: full"
            % names[known.index(None)]
        )
    if len(known) == len(request.sha256):
        for name, digest, wanted in zip(names * len(known), known, request.sha256):
            if digest not in (None, wanted):
                raise Refusal(f"copy_of: {name} has sha256 {digest}, {wanted} needed: another model is there")
    sources = [make_source(copied["url"].rstrip("/") + "/" + quote(name)) for name in names]
    for source, entry in zip(sources, files):
        source.size = entry["size"]
    if shard_name(names[0]):
        return sources, [entry["pieces"][0]["sha256"] for entry in files], names, []
    return sources, [None] * len(files), names, files[0]["pieces"]


def _targets(
    request: Request,
    sources: Sequence[Source],
    digests: Digests,
    names: list[str],
    known: list[dict[str, Any]],
) -> list[Target]:
    base = model_name(names)
    if shard_name(base):
        if known or len(digests) > 1 and len(request.sha256) == 1:
            raise Refusal(f"{base}: shards stay separate files: give one sha256 per shard")
        folder = request.folder()
        groups: list[tuple[str, Sequence[Source], Digests]] = []
        groups += [(os.path.join(folder, source.name), [source], [digest]) for source, digest in zip(sources, digests)]
    else:
        path = os.path.join(request.dest, base) if request.into_folder else request.dest
        groups = [(path, sources, digests)]
    for path, _sources, _digests in groups:
        if not path.endswith(".gguf"):
            raise Refusal(f"dest: {path} does not end in .gguf: llama.cpp and this collection find models by that name")
        # Hubs, URLs and other nodes have a say in it.
        if not is_model_name(os.path.basename(path)):
            raise Refusal(
                "dest: %r is hidden, has more than 220 bytes or holds what cannot be printed: give the model's path as "
                "dest" % path
            )
    return [_target(request, known, *group) for group in groups]


def _target(
    request: Request,
    known: list[dict[str, Any]],
    path: str,
    sources: Sequence[Source],
    digests: Digests,
) -> Target:
    pieces: list[Piece] = []
    offset = 0
    for source in sources:
        pieces.append(Piece(source, offset, size_of(source)))
        offset += size_of(source)
    spans = [
        Span(piece.offset, piece.offset + piece.size, digest, piece.source.name)
        for piece, digest in zip(pieces, digests)
    ]
    if known:
        spans, start = [], 0
        for number, piece in enumerate(known):
            spans.append(
                Span(
                    start,
                    start + piece["size"],
                    piece["sha256"] and piece["sha256"].lower(),
                    "%s, piece %d" % (os.path.basename(path), number + 1),
                )
            )
            start += piece["size"]
        if start != offset:
            raise Refusal(
                "pieces: they have %s, %s has %s: another file is there"
                % (exact(start), os.path.basename(path), exact(offset))
            )
    elif len(request.sha256) == 1 and len(sources) > 1:
        spans = [Span(0, offset, request.sha256[0], os.path.basename(path))]
    # With a digest the content is certain wherever it comes from; without one only the same URL with the same validator
    # may go on.
    if all(span.sha256 for span in spans):
        identity = [[span.end - span.start, span.sha256] for span in spans]
    else:
        identity = [
            [source.size, source.identity, source.validator or f"unknown at {time.time():f}"] for source in sources
        ]
    return Target(path, pieces, spans, identity)


def _source_header(target: Target, client: Client) -> Header:
    """The header of a target, read from its first source, checked against the sizes of all pieces."""
    first = target.pieces[0].source
    header = read_header(
        lambda offset, length: read_range(first, client, offset, length), first.public, again=ANOTHER_SOURCE
    )
    problem = size_problem(header, target.size, first.public, ANOTHER_SOURCE)
    if problem and len(target.pieces) > 1:
        problem = (
            "%s: %d pieces have %s together, %s needed by its header: a piece is missing or belongs to another model"
            % (
                os.path.basename(target.path),
                len(target.pieces),
                exact(target.size),
                exact(header.expected_size),
            )
        )
    if problem:
        raise Refusal(problem)
    return header
