# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway's addresses within a tailnet, by `tailscale serve`. Private to the collection.

Tailscale has one configuration for everything that a host serves. Only recorded handlers are changed or removed. An
unmanaged handler in the place of a wanted one is refused. A handler is written as the words of its command:
'--https=443 --set-path=/ TARGET'.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ...module_utils._text import printable

SETTING = "gateway_tailscale"
# Separates the output of tasks/tailscale_look.yml: status, serve status, recorded handlers.
SEPARATOR = "\n---"


def wanted_handlers(tiers: Mapping[str, int], gateway_port: int, tls: bool) -> list[str]:
    """https with the paths of the tiers, and each port as it is on the host."""
    local, found = "http://127.0.0.1:%d", []
    if "fast" in tiers:
        found.append("--https=443 --set-path=/ " + local % tiers["fast"])
    else:
        gateway = ("https+insecure://127.0.0.1:%d" if tls else local) % gateway_port
        found.append("--https=443 --set-path=/ " + gateway)
    if "reasoning" in tiers:
        found.append("--https=443 --set-path=/reasoning/ " + local % tiers["reasoning"])
    # Raw TCP responds under every name and address of the host.
    ports = sorted({*tiers.values(), gateway_port} - {443})
    return found + [f"--tcp={port} tcp://127.0.0.1:{port}" for port in ports]


def served_handlers(config: Mapping[str, Any]) -> list[str]:
    """The handlers in `tailscale serve status --json`, also of commands that run in a terminal."""
    found = []
    for session in [config, *(config.get("Foreground") or {}).values()]:
        for place, web in (session.get("Web") or {}).items():
            for path, one in (web.get("Handlers") or {}).items():
                port = place.rpartition(":")[2]
                found.append(f"--https={port} --set-path={path} {one.get('Proxy') or one.get('Path') or 'text'}")
        for port, one in (session.get("TCP") or {}).items():
            if one.get("TCPForward"):
                kind = "tls-terminated-tcp" if one.get("TerminateTLS") else "tcp"
                found.append(f"--{kind}={port} tcp://{one['TCPForward']}")
    return sorted(found)


def gateway_tailnet(here: Mapping[str, Any], host: Mapping[str, Any], looked: Mapping[str, Any]) -> dict[str, Any]:
    """here: of gateway_host(); host: {enabled, port, tls}; looked: the result of tasks/tailscale_look.yml.

    -> refused: sentences; remove, add: words of commands; record: the file of handlers afterwards; record_changes:
    whether it is another one; handed_on: [{handler, port}] of unmanaged handlers to a port of this host's loopback."""
    status, config, record, *_rest = map(_parsed, str(looked["stdout"] + 2 * SEPARATOR).split(SEPARATOR))
    recorded = [str(handler) for handler in record.get("handlers") or ()]
    tiers = {name: tier["port"] for name, tier in here.get("tiers", {}).items()}
    wanted = wanted_handlers(tiers, host["port"], host["tls"]) if host["enabled"] else []
    served = served_handlers(config)
    managed = [handler for handler in served if handler in recorded]
    others = [handler for handler in served if handler not in recorded]
    after = [handler for handler in wanted if handler not in others]
    ports = [(handler, _loopback_port(handler.rpartition(" ")[2])) for handler in others]
    return {
        "refused": _refusals(status, config, str(looked["stderr"]), wanted, others) if host["enabled"] else [],
        "remove": [handler.rpartition(" ")[0].split() for handler in managed if handler not in wanted],
        "add": [handler.split() for handler in after if handler not in managed],
        "record": json.dumps({"handlers": after}, indent=1) + "\n" if after else "",
        "record_changes": after != recorded,
        "handed_on": [{"handler": printable(handler, None), "port": port} for handler, port in ports if port],
    }


def _parsed(text: str) -> dict[str, Any]:
    """A JSON object; empty for null and for no output."""
    try:
        return dict(json.loads(text) or {})
    except (ValueError, TypeError):
        return {}


def _loopback_port(target: str) -> int | None:
    try:
        place = urlsplit(target)
        return place.port if place.hostname in ("127.0.0.1", "localhost", "::1") else None
    except ValueError:
        return None


def _place(handler: str) -> str:
    """Tailscale has one handler for a path, with or without a slash at its end."""
    return handler.rpartition(" ")[0].rstrip("/").replace("--tls-terminated-tcp", "--tcp")


def _refusals(
    status: Mapping[str, Any], config: Mapping[str, Any], errors: str, wanted: Sequence[str], others: Sequence[str]
) -> list[str]:
    state = printable(str(status.get("BackendState", "")), None)
    name = str((status.get("Self") or {}).get("DNSName") or "").rstrip(".")
    words = ""
    if not state:
        said = printable(" ".join(errors.split())) or "no output"
        words = f"tailscale does not respond ({said}): install tailscale 1.52 or later and run tailscale up"
    elif state != "Running":
        words = f"tailscale is in state {state}, Running is needed: run tailscale up on the host"
    elif not name or not status.get("CertDomains"):
        words = (
            "the tailnet has no HTTPS certificates for this host, they are needed: enable MagicDNS and HTTPS on the "
            "DNS page of Tailscale's admin console"
        )
    elif (config.get("AllowFunnel") or {}).get(name + ":443"):
        words = f"Funnel is on for {printable(name)}:443, it would let the internet in"
        words += ": run tailscale funnel --https=443 off"
    if words:
        return [f"{SETTING}: {words}, or set {SETTING} to false"]
    return [
        f"{SETTING}: tailscale serves {printable(other, None)} already, which is unmanaged, its place is needed for "
        f"{handler}: remove it with tailscale serve {printable(other.rpartition(' ')[0], None)} off, or set {SETTING} "
        "to false"
        for handler in wanted
        for other in others
        # A port is either raw or has paths.
        if other != handler and _place(other) in (_place(handler), handler.partition(" ")[0].replace("https", "tcp"))
    ]
