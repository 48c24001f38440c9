# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""URLs of models: cleaned, compared, and shown without what grants access. Private to the collection."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import parse_qsl, quote, unquote, urljoin, urlsplit, urlunsplit

from .._text import Refusal, printable

Origin = tuple[str, str, int]  # scheme, host, port

_LOOPBACK = re.compile(r"^127(\.[0-9]{1,3}){3}\Z")
_HOST = re.compile(r"^([A-Za-z0-9._-]*|[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?)\Z")
_UNQUOTED = "/%:@!$&'()*+,;=~"  # what stays as it is in a path; "?" too in a query
# Parameters that grant access and do not choose the content. Those of Azure have common names: they count beside "sig"
# only.
_GRANTS = re.compile(
    r"^(x-(amz|goog|oss|cos)-.*|.*(signature|token|key|secret|password|credential|auth|policy).*|expires|googleaccessid|key-pair-id|hdnts|sig)$",
    re.IGNORECASE,
)
_AZURE = (
    "sv",
    "ss",
    "srt",
    "sp",
    "se",
    "st",
    "spr",
    "sip",
    "sr",
    "si",
    "skoid",
    "sktid",
    "skt",
    "ske",
    "sks",
    "skv",
    "sdd",
)


def public_url(url: str) -> str:
    """The URL without what may be secret: user, password, query (signatures) and fragment."""
    try:
        parts = urlsplit(url)
        _port = parts.port  # a password with a "/" in it leaves an invalid port
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        scheme, _slashes, rest = re.split("[?#]", url)[0].rpartition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"


def content_url(url: str) -> str:
    """What a URL's content is known by: without secrets, with a hash of those parts of the query that choose the
    content."""
    try:
        pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    except ValueError:
        pairs = []
    azure = _AZURE if any(name.lower() == "sig" for name, _value in pairs) else ()
    chosen = [pair for pair in pairs if not _GRANTS.match(pair[0]) and pair[0].lower() not in azure]
    if not chosen:
        return public_url(url)
    return f"{public_url(url)}?sha256={hashlib.sha256(repr(chosen).encode('utf-8', 'replace')).hexdigest()[:16]}"


def clean_url(url: str) -> str:
    """The URL as it goes over the wire: ASCII, the rest quoted. Raises Refusal for one that no server can be asked
    for."""
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").encode("idna").decode("ascii"), parts.port
        path, query = (
            quote(text, safe=_UNQUOTED + more, errors="surrogateescape")
            for text, more in ((parts.path, ""), (parts.query, "?"))
        )
        if not _HOST.match(host):
            raise ValueError(host)
    except ValueError:
        raise Refusal(f"{printable(public_url(url))}: its host or port cannot be read: correct the address") from None
    if parts.scheme not in ("http", "https") or not host:
        raise Refusal(f"{printable(public_url(url))}: an http or https URL is needed")
    if "@" in parts.netloc:
        raise Refusal(
            "%s: has a user or password in it, which are never sent: leave them out, a token belongs into "
            "model_token_file" % public_url(url)
        )
    netloc = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, netloc if port is None else "%s:%d" % (netloc, port), path or "/", query, ""))


def following_url(current: str, location: str) -> str:
    """Where the header field ``location`` of an answer from ``current`` leads: a redirect, a next page. Raises
    Refusal."""
    try:
        # http.client takes header fields for Latin-1; what servers send is UTF-8.
        url = urljoin(current, location.encode("latin-1").decode("utf-8", "surrogateescape"))
        scheme = urlsplit(url).scheme
    except ValueError:
        raise Refusal(
            f"{public_url(current)}: redirects to an address that cannot be read: use another source"
        ) from None
    shown = printable(public_url(url))
    if scheme not in ("http", "https"):
        raise Refusal(f"{public_url(current)}: redirects to {shown}, http or https is needed")
    if urlsplit(current).scheme == "https" and scheme == "http":
        raise Refusal(
            f"{public_url(current)}: redirects from https to {shown}, which is not encrypted: use another source"
        )
    return clean_url(url)


def url_name(url: str) -> str:
    """The file name a URL ends in."""
    return unquote(urlsplit(url).path).rstrip("/").rpartition("/")[2]


def origin_of(url: str) -> Origin:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def same_origin(url: str, other: str) -> bool:
    """Whether two clean URLs have scheme, host and port in common."""
    return origin_of(url) == origin_of(other)


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or _LOOPBACK.match(host) is not None


def authorization(url: str, token: str | None, home: str) -> dict[str, str]:
    """The header fields that grant access. The token goes only to the origin of ``home``, over plain http only within
    this machine."""
    if not token or not same_origin(url, home):
        return {}
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise Refusal(
            "%s: a token is not sent over http, https is needed: correct the address or leave the token out"
            % public_url(url)
        )
    return {"Authorization": "Bearer " + token}
