# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the gateway itself: errors in OpenAI's shape, the list of models, the nearest names. Private to the
collection."""

from __future__ import annotations

import difflib
import json
from typing import Any, NamedTuple

from .config import Config

REASONS = {
    200: "OK",
    204: "No Content",
    302: "Found",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Payload Too Large",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
# Pages of any origin may read every answer: keys decide, not origins.
CORS = (("Access-Control-Allow-Origin", "*"), ("Access-Control-Expose-Headers", "*"))
HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"


class Unanswered(Exception):
    """A request was not answered by the chosen server. The engine handles it; clients do not see it."""


class Answer(NamedTuple):
    status: int
    body: bytes
    type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()

    def head(self) -> bytes:
        lines = ["HTTP/1.1 %d %s" % (self.status, REASONS[self.status])]
        if self.body:
            lines.append("Content-Type: " + self.type)
        lines.append(f"Content-Length: {len(self.body)}")
        lines += ["%s: %s" % header for header in (*CORS, *self.headers)]
        lines.append("Connection: close\r\n\r\n")
        return "\r\n".join(lines).encode("latin-1")


class Answered(Unanswered):
    """The gateway answers a request itself."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def json_answer(value: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value).encode("ascii"))


def error(status: int, code: str, message: str, param: str | None = None, retry_after: float | None = None) -> Answer:
    """In OpenAI's shape."""
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 500: "server_error"}
    kind = kinds.get(status, "unavailable_error" if status == 503 else "invalid_request_error")
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    headers = (("Retry-After", "%d" % max(1, round(retry_after))),) if retry_after is not None else ()
    return Answer(status, json.dumps(body).encode("ascii"), headers=headers)


def unknown_model(name: str, config: Config) -> Answer:
    """An unknown name, with the nearest ones. 404 only if gateway_unknown_model says so: some clients take 404 for a
    dead server."""
    status = 404 if config.unknown_model == "404" else 400
    reason = config.unserved.get(name)
    if reason:
        return error(status, "model_not_found", reason, "model")
    known = sorted(config.names)
    near = nearest(name, known) or known[:10]
    words = "The model %s does not exist here: %s" % (
        shown(name),
        "use " + " or ".join(near) if near else "no service is configured",
    )
    return error(status, "model_not_found", words, "model")


def shown(name: str) -> str:
    """A text of a client, made short and printable ASCII for sentences and headers."""
    return "".join(one if " " <= one <= "~" else "?" for one in name[:80])


def nearest(name: str, known: list[str]) -> list[str]:
    """Up to three similar names, in any case."""
    lower = {one.lower(): one for one in known}
    return [lower[one] for one in difflib.get_close_matches(name[:200].lower(), list(lower), 3, 0.5)]


def models(config: Config, answering: dict[str, tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    """/v1/models. answering: by service, since when, and the slots and builds that its servers reported, and
    why it waits."""
    found = []
    for service in config.services.values():
        if service.name not in answering:
            continue
        created, seen = answering[service.name]
        for model in service.models:
            meta = {
                "service": service.name,
                "n_ctx_slot": seen.get("slot_ctx_size") or model.entry.get("slot_ctx_size"),
                "quant": model.entry.get("quant"),
                "build": seen.get("build") or model.entry.get("build"),
                "embeddings": bool(model.entry.get("embeddings")),
                **({"why": seen["why"]} if seen.get("why") else {}),
            }
            for name in (model.name, *model.aliases):
                if config.names.get(name) == (service.name, model.name):
                    alias_of = {} if name == model.name else {"alias_of": model.name}
                    entry = {"id": name, "object": "model", "owned_by": "llamacpp", "created": created}
                    found.append(dict(entry, meta=dict(meta, **alias_of)))
    return found
