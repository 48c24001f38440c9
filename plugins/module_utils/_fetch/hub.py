# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a repository on a Hugging Face hub or a mirror, pinned to a commit. Private to the collection."""

from __future__ import annotations

import difflib
import http.client
import json
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from .._files import owners
from .._text import Refusal, exact, printable
from .errors import Transient
from .http import Client, attempts, get_following, may_pass, status_failure
from .manifest import is_digest, is_size
from .names import order_files
from .sources import HttpSource
from .urls import clean_url, following_url, public_url, same_origin

DEFAULT_ENDPOINT = "https://huggingface.co"

_COMMIT = re.compile(r"^[0-9a-f]{40}\Z")
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')
_MAX_ANSWER = 8 << 20  # bytes; a page of a thousand files has half a megabyte
_MAX_PAGES = 200
_MAX_FILES = 100000


class HubFile(NamedTuple):
    """A file of a repository."""

    path: str
    size: int
    sha256: str | None  # None for a file outside large-file storage


def _hub_file(entry: dict[str, Any]) -> HubFile:
    """HubFile of an entry of a listing. Raises ValueError and others for an entry that no hub has."""
    path, large = entry["path"], entry.get("lfs") or {}
    size, digest = large.get("size", entry["size"]), large.get("oid")
    parts = path.split("/")
    if not path.isprintable() or "" in parts or "." in parts or ".." in parts:
        raise ValueError(path)
    if not is_size(size) or not (digest is None or is_digest(digest)):
        raise ValueError(size)
    return HubFile(path, size, digest)


class _Answer(NamedTuple):
    """A hub's response. parsed: its JSON, or None; said: its own words about an error."""

    response: http.client.HTTPResponse
    parsed: Any
    said: str


def _said(response: http.client.HTTPResponse, body: bytes, parsed: Any) -> str:
    """The server's own words about an error: of the hub's header, its JSON, or a line of text."""
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
            # The next page of a mirror's listing may be at the original hub, which must not get the mirror's token.
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
        return Refusal(
            f"{public_url(url)}: does not answer as a model hub does: check endpoint, or give urls in place of repo"
        )

    def commit(self, revision: str) -> str:
        """The commit that a branch, tag or commit stands for. Raises Refusal."""
        if _COMMIT.match(revision):
            return revision
        url = f"{self.endpoint}/api/models/{self.repo}/revision/{quote(revision, safe='')}"
        answer = self._get_json(url)
        if answer.response.status != 200:
            raise self._refusal(answer, revision)
        if not isinstance(answer.parsed, dict) or not _COMMIT.match(str(answer.parsed.get("sha"))):
            raise self._no_hub(url)
        return answer.parsed["sha"]

    def files(self, commit: str) -> list[HubFile]:
        """[HubFile] of the repository at ``commit``, all folders, all pages."""
        url = f"{self.endpoint}/api/models/{self.repo}/tree/{commit}?recursive=true"
        found: list[HubFile] = []
        for _page in range(_MAX_PAGES):
            answer = self._get_json(url)
            if answer.response.status != 200:
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
        most = f"{_MAX_PAGES} pages or {_MAX_FILES} files"
        raise Refusal(f"{self.endpoint}/{self.repo}: lists more than {most}: check endpoint")

    def source(self, commit: str, hub_file: HubFile) -> HttpSource:
        """HttpSource of a file at a commit."""
        url = f"{self.endpoint}/{self.repo}/resolve/{commit}/{quote(hub_file.path)}"
        return HttpSource(url, self.token, hub_file.size, pinned=True)

    def _refusal(self, answer: _Answer, revision: str) -> Refusal | Transient:
        code, status = answer.response.headers.get("X-Error-Code", ""), answer.response.status
        says = f" (it says: {answer.said})" if answer.said else ""
        if code == "GatedRepo" and self.token:
            text = "gated, the token has no access: ask for access with the account the token belongs to"
        elif code == "GatedRepo":
            text = "gated, no token was given: accept its terms there and set model_token_file"
        elif code == "RevisionNotFound":
            text = f"has no revision {revision}: check revision"
        elif status == 401 and self.token and code != "RepoNotFound":
            text = f"the token was refused (status 401){says}: put a valid token into model_token_file"
        elif code == "RepoNotFound" or status in (401, 404) and not code:
            text = f"unknown{'' if self.token else ' or private'}{says}: check repo and endpoint"
        else:
            step = (
                "a token with access may be needed, see model_token_file"
                if status == 403
                else "check repo and endpoint"
            )
            return status_failure(f"{self.endpoint}/{self.repo}", answer.response, step, answer.said)
        return Refusal(f"{self.endpoint}/{self.repo}: {text}")


def select(hub_files: Sequence[HubFile], repo: str, files: Sequence[str]) -> list[HubFile]:
    """The [HubFile] of one model, in order.

    files: paths in the repository (the first shard stands for all shards). Raises Refusal that names close ones.
    """
    by_path = {entry.path: entry for entry in hub_files}
    for name in files:
        if name not in by_path:
            models = [path for path in by_path if ".gguf" in path]
            close = difflib.get_close_matches(name, models, 5, 0.3) or models[:10]
            raise Refusal(f"{repo}: has no file {name}, it has {', '.join(close) or 'no GGUF file at all'}")
    return [by_path[name] for name in order_files(files, by_path)]


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
