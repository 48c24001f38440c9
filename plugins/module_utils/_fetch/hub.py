# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Hugging Face hub (or a mirror of it) holds: files with size and sha256, pinned to a commit, and which of them
make one model."""

from __future__ import annotations

import difflib
import http.client
import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from .._files import owners
from .._model.describe import shard_name
from .._text import Refusal, exact, printable
from .errors import Transient
from .http import Client, attempts, get_following, may_pass, status_failure
from .manifest import is_size
from .names import model_name, order_files, piece_name
from .sources import HttpSource
from .urls import clean_url, following_url, public_url, same_origin

DEFAULT_ENDPOINT = "https://huggingface.co"

_COMMIT = re.compile(r"^[0-9a-f]{40}\Z")
_SHA256 = re.compile(r"^[0-9a-f]{64}\Z")
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')
_MAX_ANSWER = 8 << 20  # bytes; a page of a thousand files has half a megabyte
_MAX_PAGES = 200
_MAX_FILES = 100000
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])((?:UD-)?(?:I?Q[1-8]|TQ[12])_[A-Z0-9]+(?:_[A-Z]+)*|BF16|F16|F32|MXFP4(?:_MOE)?|NVFP4)(?![A-Za-z0-9_])",
    re.IGNORECASE,
)

# Words in the names of files that go with a model: drafts, LoRA and control vectors, importance matrices. Projectors
# have mmproj anywhere in their name.
_COMPANION = re.compile(
    "(?<![a-z0-9])(mtp|nextn|dflash|draft(?:er)?|eagle|lora|adapter|imatrix|cvector|control-?vector)[0-9]*(?![a-z0-9])"
)
# What makers of quants put before the name of a quant.
_MAKERS = r"(?<![A-Za-z0-9])(?:UD|I1?|imat(?:rix)?|APEX)[-._]"
_NOT_THERE = (404, 405, 410, 501)  # statuses of a part of the API that a mirror does not have


class HubFile(NamedTuple):
    """A file of a repository."""

    path: str
    size: int | None  # None where a mirror does not say it
    sha256: str | None  # None for a file outside large-file storage


def _hub_file(entry: dict[str, Any]) -> HubFile:
    """HubFile of an entry of a listing, of /tree/ or of the siblings of /revision/. Raises ValueError for one that is
    no hub's."""
    path, large = entry.get("path") or entry["rfilename"], entry.get("lfs") or {}
    size, digest = large.get("size", entry.get("size")), large.get("oid", large.get("sha256"))
    parts = path.split("/")
    if not path.isprintable() or "" in parts or "." in parts or ".." in parts:
        raise ValueError(path)
    if size is None and "rfilename" not in entry:
        raise ValueError(path)
    if size is not None and not is_size(size) or digest is not None and not _SHA256.match(digest):
        raise ValueError(size)
    return HubFile(path, size, digest)


class _Answer(NamedTuple):
    """What a hub answered. parsed: its JSON, None of anything else; said: its own words about an error."""

    response: http.client.HTTPResponse
    parsed: Any
    said: str

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def code(self) -> str:
        return self.response.headers.get("X-Error-Code", "")


def _said(response: http.client.HTTPResponse, body: bytes, parsed: Any) -> str:
    """The server's own words about an error, empty for none: of the hub's header, its JSON, or a line of text."""
    words = response.headers.get("X-Error-Message") or (parsed.get("error") if isinstance(parsed, dict) else "")
    if not words and "text/plain" in response.headers.get("Content-Type", ""):
        words = body[:400].decode("utf-8", "replace").strip().split("\n")[0]
    return printable(words).strip() if isinstance(words, str) else ""


class Hub:
    """A repository's listing. endpoint: the hub's or a mirror's base URL; token: sent to the endpoint's origin only."""

    def __init__(
        self,
        client: Client,
        repo: str,
        endpoint: str = DEFAULT_ENDPOINT,
        token: str | None = None,
    ) -> None:
        self.client, self.repo, self.token = client, repo, token
        self.endpoint = clean_url(endpoint).rstrip("/")

    def _get_json(self, url: str) -> _Answer:

        def once() -> tuple[http.client.HTTPResponse, bytes]:
            # The next page of a mirror's listing may be at the original hub, which is not the mirror's token's
            # business.
            token = self.token if same_origin(url, self.endpoint) else None
            response, final = get_following(self.client, url, {"Accept": "application/json"}, token)
            try:
                body = response.read(_MAX_ANSWER + 1)
            except (OSError, http.client.HTTPException) as error:
                self.client.drop(final)
                raise Transient(f"{public_url(url)}: {printable(error)}") from None
            if not response.isclosed():
                self.client.drop(final)
            if len(body) > _MAX_ANSWER:
                raise Refusal(f"{public_url(url)}: answers more than {exact(_MAX_ANSWER)}: check endpoint")
            if may_pass(response.status):
                raise status_failure(url, response)
            return response, body

        response, body = attempts(once)
        try:
            parsed = json.loads(body.decode("utf-8"))
        except (ValueError, RecursionError):
            parsed = None
        return _Answer(response, parsed, _said(response, body, parsed))

    def _no_hub(self, url: str) -> Refusal:
        return Refusal(f"{public_url(url)}: does not answer as a model hub does: check endpoint")

    def _api(self, path: str) -> str:
        return f"{self.endpoint}/api/models/{path}"

    def _repo_url(self) -> str:
        return f"{self.endpoint}/{self.repo}"

    def commit(self, revision: str) -> str:
        """The commit a branch, tag or commit name stands for. Raises Refusal naming what there is instead."""
        if _COMMIT.match(revision):
            return revision
        url = self._api(f"{self.repo}/revision/{quote(revision, safe='')}")
        answer = self._get_json(url)
        if answer.status != 200:
            raise self._refusal(answer, revision)
        if not isinstance(answer.parsed, dict) or not _COMMIT.match(str(answer.parsed.get("sha"))):
            raise self._no_hub(url)
        return answer.parsed["sha"]

    def files(self, commit: str) -> list[HubFile]:
        """[HubFile] of the repository at ``commit``, all folders, all pages."""
        url = self._api(f"{self.repo}/tree/{commit}?recursive=true")
        found: list[HubFile] = []
        for page in range(_MAX_PAGES):
            answer = self._get_json(url)
            if answer.status in _NOT_THERE and not answer.code and not page:
                return self._siblings(commit, answer)
            if answer.status != 200:
                raise self._refusal(answer, commit)
            try:
                found += [_hub_file(entry) for entry in answer.parsed if entry.get("type") == "file"]
            except (AttributeError, KeyError, TypeError, ValueError):
                raise self._no_hub(url) from None
            if len(found) > _MAX_FILES:
                break
            following = _NEXT.search(answer.response.headers.get("Link", ""))
            if not following:
                return found
            url = following_url(url, following.group(1))
        raise Refusal(
            "%s: lists more than %d pages or %d files: check endpoint" % (self._repo_url(), _MAX_PAGES, _MAX_FILES)
        )

    def _siblings(self, commit: str, tree: _Answer) -> list[HubFile]:
        """The same by the revision itself: artifact managers in the place of the hub often have no /tree/."""
        answer = self._get_json(self._api(f"{self.repo}/revision/{commit}?blobs=true"))
        if answer.status != 200:
            raise self._refusal(answer, commit)
        try:
            listed = answer.parsed["siblings"]
            if 0 < len(listed) <= _MAX_FILES:
                return [_hub_file(entry) for entry in listed]
        except (AttributeError, KeyError, TypeError, ValueError):
            pass
        raise Refusal(
            "%s: this server lists no files of it, /tree/ answered %d and /revision/ has no siblings: give the urls of "
            "the files in the place of repo, or use another hub" % (self._repo_url(), tree.status)
        )

    def source(self, commit: str, hub_file: HubFile) -> HttpSource:
        """HttpSource of a file at a commit."""
        url = f"{self.endpoint}/{self.repo}/resolve/{commit}/{quote(hub_file.path)}"
        return HttpSource(url, self.token, hub_file.size, pinned=True)

    def _refusal(self, answer: _Answer, revision: str) -> Refusal | Transient:
        code, status, token, url = answer.code, answer.status, self.token, self._repo_url()
        says = f", it says: {answer.said}" if answer.said else ""
        if code == "GatedRepo" and token:
            text = "gated, the token has no access: ask for access with the account the token belongs to"
        elif code == "GatedRepo":
            text = "gated, no token was given: accept its terms there and set model_token_file"
        elif code == "RevisionNotFound":
            text = f"has no revision {revision}, it has {self._revisions() or 'none that it lists'}"
        elif status == 401 and token and code != "RepoNotFound":
            text = f"the token was refused (status 401{says}): put a valid token into model_token_file"
        elif code == "RepoNotFound" or status in (401, 404) and not code:
            says = f" (it says: {answer.said})" if answer.said else ""
            text = f"unknown{'' if token else ' or private'}{says}, {self._neighbours()}"
        else:
            step = "check repo and endpoint"
            if status == 403 and token:
                step = "the token may not read it, give it that right or use another"
            elif status == 403:
                step = "a token in model_token_file may be needed"
            return status_failure(url, answer.response, step, answer.said)
        return Refusal(f"{url}: {text}")

    def _revisions(self) -> str:
        answer = self._get_json(self._api(self.repo + "/refs"))
        if answer.status != 200 or not isinstance(answer.parsed, dict):
            return ""
        try:
            names = [ref["name"] for kind in ("branches", "tags") for ref in answer.parsed.get(kind) or []]
            return printable(", ".join(names))
        except (LookupError, TypeError):
            return ""

    def _neighbours(self) -> str:
        owner, _slash, _name = self.repo.partition("/")
        answer = self._get_json(f"{self.endpoint}/api/models?author={quote(owner, safe='')}&limit=200")
        listed = answer.parsed if answer.status == 200 and isinstance(answer.parsed, list) else []
        names = [
            printable(entry["id"]) for entry in listed if isinstance(entry, dict) and isinstance(entry.get("id"), str)
        ]
        if not names:
            return f"the hub lists no models of {owner}: check the name"
        close = difflib.get_close_matches(self.repo, names, 5, 0.5) or sorted(names)[:10]
        return f"{owner} has {', '.join(close)}: check the name"


def select(
    hub_files: Sequence[HubFile],
    repo: str,
    files: Sequence[str] | None = None,
    quant: str | None = None,
) -> list[HubFile]:
    """The [HubFile] of one model, in order.

    files: paths in the repository (the first shard stands for all shards); quant: a quantization name such as Q8_0, in
    the file's or its folder's name. Raises Refusal that names what the repository has.
    """
    by_path = {entry.path: entry for entry in hub_files}
    models = [entry.path for entry in hub_files if _is_model(entry.path)]
    # A draft is a model where there is no other, or where the repository has it in its name.
    mine = set(_COMPANION.findall(repo.lower()))
    models = [path for path in models if set(_COMPANION.findall(path.lower())) <= mine] or models
    if files:
        for name in files:
            if name not in by_path:
                close = difflib.get_close_matches(name, models, 5, 0.3) or models[:10]
                raise Refusal(f"{repo}: has no file {name}, it has {', '.join(close) or 'no GGUF file at all'}")
        return [by_path[name] for name in order_files(files, by_path)]
    name = rf"(?<![A-Za-z0-9]){re.escape(quant or '')}(?![A-Za-z0-9_])"
    wanted, more = re.compile(name, re.IGNORECASE), re.compile(_MAKERS + name, re.IGNORECASE)
    groups: dict[tuple[str, str], list[str]] = {}
    for path in models:
        if wanted.search(path):
            shard = shard_name(path.rpartition("/")[2])
            folder = path.rpartition("/")[0]
            groups.setdefault((folder, shard[0] if shard else model_name([path])), []).append(path)
    if not groups:
        raise Refusal(f"{repo}: has no quant {quant}, it has {', '.join(_quants(models)) or 'no GGUF file at all'}")
    # Q4_K_M is that of m-Q4_K_M.gguf, and only in part that of m-UD-Q4_K_M.gguf.
    exactly = {group: paths for group, paths in groups.items() if not any(more.search(path) for path in paths)}
    if len(exactly) == 1:
        groups = exactly
    if len(groups) > 1:
        raise Refusal(
            "%s: %s fits %s: name the one wanted with files"
            % (repo, quant, ", ".join(sorted(paths[0] for paths in groups.values())))
        )
    return [by_path[path] for path in order_files(next(iter(groups.values())))]


def _is_model(path: str) -> bool:
    base = path.rpartition("/")[2].lower()
    # A projector carries the quant's name too, but is no model.
    return (base.endswith(".gguf") or piece_name(base) is not None) and "mmproj" not in path.lower()


def _quants(paths: Iterable[str]) -> list[str]:
    return sorted(
        {
            match.group(1)
            for path in paths
            for match in [_QUANT.search(path.rpartition("/")[2]) or _QUANT.search(path)]
            if match
        }
    )


def read_token(path: str | None) -> str | None:
    """The access token in a file of this node, or None without a path. Raises Refusal for one that others may read."""
    if not path:
        return None
    try:
        with open(os.open(path, os.O_NONBLOCK)) as stream:
            status = os.fstat(stream.fileno())
            if status.st_mode & 0o077 or status.st_uid not in owners():
                raise Refusal(
                    f"model_token_file: {path} has mode {status.st_mode & 0o7777:04o} and user id {status.st_uid}, "
                    "mode 0600 and root's or your own are needed: correct both, others may have read the token"
                )
            token = stream.read(1 << 16).strip()
    except (OSError, ValueError) as error:
        reason = f"{path} on {os.uname().nodename} cannot be read ({getattr(error, 'strerror', 'not text')})"
        raise Refusal(f"model_token_file: {reason}: put the token there, one line") from None
    if not re.match(r"^[!-~]+\Z", token):
        raise Refusal(f"model_token_file: {path} does not hold one token on one line: correct it")
    return token
