# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entry of llama_models for a model that was planned from its URL, to paste. Private to the collection."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from .._fetch.urls import public_url

# Of characters that are nothing to YAML and to Ansible, which would compute what a file name has in braces.
_HUB_FILE = re.compile(r"^/([\w.-]+/[\w.-]+)/resolve/([\w.-]+)/((?:[\w.+-]+/)*[\w.+-]+\.gguf[\w.+-]*)\Z", re.ASCII)
_PIECE = re.compile(r"(\.part(\d+of\d+|\d+)|-\d{5}-of-\d{5}(?=\.gguf))")
_QUANT = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q|TQ)[0-9](?:_[A-Z0-9]+)*|BF16|F16|F32|MXFP4(?:_MOE)?)(?=[-.]|\Z)", re.IGNORECASE
)


def entry(urls: Sequence[str], name: str | None, endpoint: str) -> list[str]:
    """Lines of YAML. urls: the model's files, in order; name: that its header has; endpoint: of the hub."""
    sources = [public_url(url) for url in urls]
    stem = _PIECE.sub("", unquote(sources[0]).rpartition("/")[2])
    stem = stem[: -len(".gguf")] if stem.endswith(".gguf") else stem
    found = _QUANT.search(stem)
    quant = found.group(1).upper() if found else "default"
    called = _word(name or (stem[: found.start()] if found else stem)).lower()
    hub = [_hub_file(url, endpoint) for url in sources]
    if all(hub) and len({one[:2] for one in hub if one}) == 1:
        repo, revision = (hub[0] or ("", "", ""))[:2]
        lines = [f"repo: {repo}"] + ([f"revision: {revision}"] if revision != "main" else [])
        spec = f"files: {json.dumps([one[2] for one in hub if one])}"
    else:
        lines, spec = [], "urls: %s" % json.dumps([url.replace("{", "%7B").replace("}", "%7D") for url in sources])
    return ["llama_models:", f"  {called}:", *["    " + line for line in lines], "    quants:"] + [
        "      %s: {%s}" % (quant, spec)
    ]


def _hub_file(url: str, endpoint: str) -> tuple[str, str, str] | None:
    """(repository, revision, file) of a URL of the hub."""
    if not url.startswith(endpoint.rstrip("/") + "/"):
        return None
    found = _HUB_FILE.match(unquote(urlsplit(url).path[len(urlsplit(endpoint.rstrip("/")).path) :]))
    return (found.group(1), found.group(2), found.group(3)) if found else None


def _word(name: str) -> str:
    """A name of letters, digits and what llama_models allows beside them."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-._+")[:100] or "model"
