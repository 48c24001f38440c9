# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model file, or one on a server, says about itself, and whether all of it is there."""

import os
from typing import Any, Dict, List, Optional

from .._model.describe import check_shards, describe, shard_names, size_problem
from .._model.gguf import MAX_REMOTE_HEADER, Header, read_header, read_path
from .._text import Refusal
from .http import Client, attempts
from .manifest import hash_pieces
from .resolve import ANOTHER_SOURCE
from .sources import make_source, read_range, size_of
from .urls import public_url


def _answer(
    path: str,
    headers: List[Header],
    sizes: List[int],
    digest: Optional[str],
    problem: Optional[str],
) -> Dict[str, Any]:
    facts = (
        describe(headers)
        if headers
        else dict.fromkeys(
            (
                "architecture",
                "name",
                "license",
                "quantization",
                "parameters",
                "block_count",
                "context_length",
                "tensors",
                "shards",
                "expected_size",
            )
        )
    )
    return dict(
        facts, path=path, size=sum(sizes) if sizes else None, sha256=digest, complete=problem is None, problem=problem
    )


def verify_path(path: str, sha256: Optional[str] = None, checksum: bool = False) -> Dict[str, Any]:
    """Verify a local model; any of its shards stands for all of them.

    sha256: needed hex digest, only for a model of one file; checksum: hash even without one. -> {path (first shard),
    architecture, name, license, quantization, parameters, block_count, context_length, tensors, shards, size,
    expected_size, sha256, complete, problem: None or the sentence}. Facts are None where the header cannot be read.
    """
    folder, base = os.path.split(path)
    paths = [os.path.join(folder, name) for name in shard_names(base)]
    headers: List[Header] = []
    sizes: List[int] = []
    digest: Optional[str] = None
    try:
        for name in paths:
            headers.append(read_path(name))
            sizes.append(os.path.getsize(name))
            problem = size_problem(headers[-1], sizes[-1], name)
            if problem:
                raise Refusal(problem)
        check_shards(headers, paths)
        if len(paths) > 1 and (sha256 or checksum):
            raise Refusal("%s: a model of %d shards has no single sha256: verify it without" % (paths[0], len(paths)))
        if sha256 or checksum:
            (digest,) = hash_pieces(path, sizes)
        if sha256 and digest != sha256.lower():
            raise Refusal("%s: sha256 is %s, %s needed: fetch it again" % (path, digest, sha256.lower()))
    except OSError as error:
        problem = "%s: %s: fetch it, or correct the path" % (error.filename or path, error.strerror)
        return _answer(paths[0], [], [], None, problem)
    except Refusal as error:
        whole = len(headers) == len(sizes) == len(paths)
        return _answer(paths[0], headers if whole else [], sizes if whole else [], digest, str(error))
    return _answer(paths[0], headers, sizes, digest, None)


def verify_url(url: str, token: Optional[str] = None) -> Dict[str, Any]:
    """The same for a file on a server, by its header alone: at most 16 MiB are read, nothing is hashed. path is the URL
    without its secrets."""
    client = Client()
    headers: List[Header] = []
    sizes: List[int] = []
    problem: Optional[str] = None
    try:
        source = make_source(url, token)
        attempts(lambda: source.resolve(client))
        sizes = [size_of(source)]
        headers = [
            read_header(
                lambda offset, length: read_range(source, client, offset, length),
                source.public,
                MAX_REMOTE_HEADER,
                ANOTHER_SOURCE,
            )
        ]
        problem = size_problem(headers[0], sizes[0], source.public, ANOTHER_SOURCE)
    except Refusal as error:
        problem = str(error)
    finally:
        client.close()
    return _answer(public_url(url), headers, sizes, None, problem)
