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

_LOOPBACK = re.compile(r"^(localhost|::1|127(\.[0-9]{1,3}){3})\Z")
_HOST = re.compile(r"^([A-Za-z0-9._-]*|[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?)\Z")
_UNQUOTED = "/%:@!$&'()*+,;=~"  # characters of a path that are sent as they are; "?" too in a query
# Parameters that grant access and do not choose the content. Azure's have common names: they count beside "sig" only.
_GRANTS = re.compile(
    r"^(x-(amz|goog|oss|cos)-.*|.*(signature|token|key|secret|password|credential|auth|policy).*|expires|googleaccessid"
    r"|hdnts|sig)\Z",
    re.IGNORECASE,
)
_AZURE = re.compile(r"^(sv|ss|srt|sp|se|st|spr|sip|sr|si|skoid|sktid|skt|ske|sks|skv|sdd)\Z", re.IGNORECASE)


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
    """The identity of a URL's content: public_url() with a hash of the parameters of the query that choose it."""
    try:
        pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    except ValueError:
        pairs = []
    azure = any(name.lower() == "sig" for name, _value in pairs)
    chosen = [pair for pair in pairs if not _GRANTS.match(pair[0]) and not (azure and _AZURE.match(pair[0]))]
    digest = hashlib.sha256(repr(chosen).encode("utf-8", "replace")).hexdigest()[:16]
    return f"{public_url(url)}?sha256={digest}" if chosen else public_url(url)


def clean_url(url: str) -> str:
    """The URL as it is sent: ASCII, other characters quoted. Raises Refusal for one that cannot be requested."""
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").encode("idna").decode("ascii"), parts.port
        path = quote(parts.path, safe=_UNQUOTED, errors="surrogateescape")
        query = quote(parts.query, safe=_UNQUOTED + "?", errors="surrogateescape")
        if not _HOST.match(host):
            raise ValueError(host)
    except ValueError:
        raise Refusal(f"{printable(public_url(url))}: its host or port cannot be read: correct the address") from None
    if parts.scheme not in ("http", "https") or not host:
        raise Refusal(f"{printable(public_url(url))}: an http or https URL is needed")
    if "@" in parts.netloc:
        raise Refusal(
            f"{public_url(url)}: has a user or password in it, which are never sent: leave them out, a token belongs "
            "into model_token_file"
        )
    netloc = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, netloc if port is None else f"{netloc}:{port}", path or "/", query, ""))


def following_url(current: str, location: str) -> str:
    """The URL that the header field ``location`` of a response from ``current`` leads to: a redirect, a next page.
    Raises Refusal."""
    try:
        # http.client takes header fields for Latin-1; servers send UTF-8.
        url = urljoin(current, location.encode("latin-1").decode("utf-8", "surrogateescape"))
        scheme = urlsplit(url).scheme
    except ValueError:
        raise Refusal(
            f"{public_url(current)}: redirects to an address that cannot be read: use another source"
        ) from None
    shown = printable(public_url(url))
    if urlsplit(current).scheme == "https" and scheme == "http":
        raise Refusal(
            f"{public_url(current)}: redirects from https to {shown}, which is not encrypted: use another source"
        )
    if scheme not in ("http", "https"):
        raise Refusal(f"{public_url(current)}: redirects to {shown}, http or https is needed")
    return clean_url(url)


def url_name(url: str) -> str:
    """The file name a URL ends in."""
    return unquote(urlsplit(url).path).rstrip("/").rpartition("/")[2]


def origin_of(url: str) -> Origin:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def same_origin(url: str, other: str) -> bool:
    """Whether two clean URLs have the same scheme, host and port."""
    return origin_of(url) == origin_of(other)


def is_loopback(host: str) -> bool:
    return _LOOPBACK.match(host) is not None


def authorization(url: str, token: str | None, home: str) -> dict[str, str]:
    """The header fields that grant access. The token is sent only to the origin of ``home``, over plain http only
    within this machine."""
    if not token or not same_origin(url, home):
        return {}
    scheme, host, _port = origin_of(url)
    if scheme == "http" and not is_loopback(host):
        raise Refusal(
            f"{public_url(url)}: a token is not sent over http, https is needed: correct the address or leave the "
            "token out"
        )
    return {"Authorization": "Bearer " + token}
