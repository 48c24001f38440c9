# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway's addresses within a tailnet, by `tailscale serve`. Private to the collection.

Tailscale has one configuration for all that a host serves. Only handlers of our record are changed or removed; what
somebody else has set at the place of one of ours is refused.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from .. import _files
from .._node import paths
from .._text import Refusal, printable

SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Since 1.52 a handler is set by flags.
OLDEST = (1, 52)
# The interactive ways of the CLI wait for a browser.
PATIENCE = 60
SETTING = "gateway_tailscale"
HTTPS_PORT = 443
FORMAT = 1


class Handler(NamedTuple):
    """kind: https, http or tcp; path: where it is mounted, empty for tcp; target: as the configuration has it."""

    kind: str
    port: int
    path: str
    target: str

    @property
    def place(self) -> tuple[int, str]:
        """Tailscale has one handler for a path, with or without a slash at its end."""
        return self.port, self.path.rstrip("/")

    def flags(self) -> list[str]:
        return ["--%s=%d" % (self.kind, self.port)] + (["--set-path=" + self.path] if self.path else [])

    def __str__(self) -> str:
        return "%s:%d%s -> %s" % (self.kind, self.port, " " + self.path if self.path else "", self.target)


Config = dict[str, Any]


def wanted_handlers(tiers: Mapping[str, int], gateway_port: int | None, tls: bool) -> list[Handler]:
    """What the gateway has in a tailnet: https with the paths of the tiers, and each port as it is on the host."""
    local = "http://127.0.0.1:%d"
    handlers = []
    if "fast" in tiers:
        handlers.append(Handler("https", HTTPS_PORT, "/", local % tiers["fast"]))
    elif gateway_port:
        gateway = ("https+insecure://127.0.0.1:%d" if tls else local) % gateway_port
        handlers.append(Handler("https", HTTPS_PORT, "/", gateway))
    if "reasoning" in tiers:
        handlers.append(Handler("https", HTTPS_PORT, "/reasoning/", local % tiers["reasoning"]))
    # Raw, so that it answers under every name and address of the host.
    ports = sorted(set(tiers.values()) | ({gateway_port} if gateway_port else set()))
    return handlers + [Handler("tcp", port, "", "127.0.0.1:%d" % port) for port in ports if port != HTTPS_PORT]


def served_handlers(config: Config, host: str) -> list[Handler]:
    """What a ServeConfig has for a host name, also by commands that run in somebody's terminal."""
    handlers = []
    for port, entry in sorted((config.get("TCP") or {}).items()):
        if entry.get("TCPForward"):
            kind = "tls-terminated-tcp" if entry.get("TerminateTLS") else "tcp"
            handlers.append(Handler(kind, int(port), "", entry["TCPForward"]))
            continue
        kind = "https" if entry.get("HTTPS") else "http"
        web = (config.get("Web") or {}).get(f"{host}:{port}") or {}
        for path, handler in sorted((web.get("Handlers") or {}).items()):
            target = handler.get("Proxy") or handler.get("Path") or "a text or redirect"
            handlers.append(Handler(kind, int(port), path, target))
    for session in (config.get("Foreground") or {}).values():
        handlers += served_handlers(session, host)
    return handlers


def loopback_port(target: str) -> int | None:
    """The port of this host's loopback that a target names, None for anything else."""
    try:
        place = urlsplit(target if "://" in target else "tcp://" + target)
        return place.port if place.hostname in ("127.0.0.1", "localhost", "::1") else None
    except ValueError:
        return None


class Steps(NamedTuple):
    """What has to be done for what is wanted; record: what is ours afterwards."""

    remove: list[Handler]
    add: list[Handler]
    record: list[Handler]


def steps(wanted: Sequence[Handler], served: Sequence[Handler], recorded: Sequence[Handler]) -> Steps:
    """-> Steps. Errors: Refusal, when somebody else serves something at one of our places."""
    ours = [handler for handler in served if handler in recorded]
    for handler in wanted:
        for other in served:
            # A port is either raw or has paths.
            clash = other.port == handler.port and (other.kind != handler.kind or other.place == handler.place)
            if clash and other not in ours and other != handler:
                raise Refusal(
                    "%s: tailscale serves %s already, which is not ours, its place is needed for %s: remove it with "
                    "tailscale serve %s off, or set %s to false"
                    % (SETTING, printable(str(other), None), handler, printable(" ".join(other.flags()), None), SETTING)
                )
    remove = [handler for handler in ours if handler not in wanted]
    add = [handler for handler in wanted if handler not in served]
    return Steps(remove, add, [handler for handler in wanted if handler in add or handler in ours])


class Tailscale:
    """The CLI of this host. program: where it is, None to search for it."""

    def __init__(self, program: str | None = None, record: str = paths.TAILSCALE_RECORD) -> None:
        self.program = program or shutil.which("tailscale", path=SEARCHED)
        self.record = record

    def _run(self, *arguments: str) -> str:
        if not self.program:
            raise AssertionError("asked before it was looked for")
        _files.check_program(self.program)
        shown = "tailscale " + " ".join(arguments)
        process = subprocess.Popen(
            [self.program] + list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            output, errors = (stream.decode("utf-8", "replace") for stream in process.communicate(timeout=PATIENCE))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Refusal("%s: %s has not ended in %d s: run it on the host" % (SETTING, shown, PATIENCE)) from None
        if process.returncode:
            raise Refusal(
                "%s: %s failed (%s): see tailscale status on the host"
                % (SETTING, shown, printable(" ".join((errors or output).split()), None) or process.returncode)
            )
        return output

    def _json(self, *arguments: str) -> dict[str, Any]:
        """An object, empty where the CLI says null."""
        try:
            answer = json.loads(self._run(*arguments)) or {}
            if not isinstance(answer, dict):
                raise ValueError("no object")
        except ValueError as error:
            raise Refusal(
                "%s: tailscale %s printed no JSON object (%s), one is needed: install tailscale %d.%d or later"
                % ((SETTING, " ".join(arguments), error) + OLDEST)
            ) from None
        return answer

    def host(self) -> str:
        """The host's name in its tailnet. Errors: Refusal, where it cannot serve."""
        if self.program is None:
            raise Refusal(
                "%s: no program tailscale, %d.%d or later is needed: install it and run tailscale up, or set %s to "
                "false" % ((SETTING,) + OLDEST + (SETTING,))
            )
        status = self._json("status", "--json", "--peers=false")
        version = re.match(r"(\d+)\.(\d+)", str(status.get("Version", "")))
        if version and tuple(int(part) for part in version.groups()) < OLDEST:
            raise Refusal(
                "%s: tailscale %s, %d.%d or later is needed: update it"
                % ((SETTING, printable(str(status["Version"]), None)) + OLDEST)
            )
        state = str(status.get("BackendState"))
        if state != "Running":
            raise Refusal(
                "%s: tailscale is in state %s, Running is needed: run tailscale up on the host"
                % (SETTING, printable(state, None))
            )
        name = str((status.get("Self") or {}).get("DNSName") or "").rstrip(".")
        if not name or not status.get("CertDomains"):
            raise Refusal(
                "%s: the tailnet has no HTTPS certificates for this host, they are needed: enable MagicDNS and HTTPS "
                "on the DNS page of Tailscale's admin console" % SETTING
            )
        return name

    def served(self, host: str) -> list[Handler]:
        """Errors: Refusal, also where the internet could reach what is served."""
        config = self._json("serve", "status", "--json")
        funnel = "%s:%d" % (host, HTTPS_PORT)
        if (config.get("AllowFunnel") or {}).get(funnel):
            raise Refusal(
                "%s: Funnel is on for %s, it would let the internet in: run tailscale funnel --https=%d off"
                % (SETTING, printable(funnel, None), HTTPS_PORT)
            )
        return served_handlers(config, host)

    def handed_on(self) -> list[dict[str, Any]]:
        """[{handler, port}] of what others have tailscale hand to a port of this host's loopback; none where tailscale
        is missing or does not answer."""
        if self.program is None:
            return []
        try:
            config = self._json("serve", "status", "--json")
        except Refusal:
            return []
        sessions = [config, *(config.get("Foreground") or {}).values()]
        hosts = {place.rpartition(":")[0] for one in sessions for place in one.get("Web") or {}} or {""}
        found = {handler for host in hosts for handler in served_handlers(config, host)} - set(self.recorded())
        ports = [(handler, loopback_port(handler.target)) for handler in sorted(found)]
        return [{"handler": printable(str(handler), None), "port": port} for handler, port in ports if port]

    def recorded(self) -> list[Handler]:
        """What we have set. Errors: Refusal."""
        try:
            record = json.loads(_files.read(self.record).decode("utf-8"))
            return [Handler(*entry) for entry in record["handlers"]]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, KeyError):
            raise Refusal(
                f"{self.record}: no record of handlers: remove ours with tailscale serve off, then this file"
            ) from None

    def _write(self, handlers: Sequence[Handler]) -> None:
        if not handlers:
            if os.path.lexists(self.record):
                os.unlink(self.record)
            return
        with _files.directory(os.path.dirname(self.record), make=0o755):
            pass
        text = json.dumps({"format": FORMAT, "handlers": handlers}, indent=1)
        _files.write_atomically(self.record, text.encode("utf-8"), mode=0o644)

    def serve(self, wanted: Sequence[Handler], check: bool = False) -> tuple[list[Handler], list[Handler]]:
        """Has these of ours, and none else -> what we had before, what we have now. Errors: Refusal."""
        recorded = self.recorded()
        if not wanted and (not recorded or self.program is None):
            if not check:
                self._write([])
            return recorded, []
        host = self.host()
        served = self.served(host)
        todo = steps(wanted, served, recorded)
        before = [handler for handler in served if handler in recorded]
        if check:
            return before, todo.record
        # A run that dies leaves none that the next one would take for somebody else's.
        known = todo.record + todo.remove
        if known != recorded:
            self._write(known)
        for handler in todo.remove:
            self._run("serve", *(handler.flags() + ["off"]))
        for handler in todo.add:
            target = handler.target if handler.path else "tcp://" + handler.target
            self._run("serve", "--bg", *(handler.flags() + [target]))
        missing = [handler for handler in wanted if handler not in self.served(host)] if todo.add else []
        if missing:
            raise Refusal(
                "%s: tailscale does not serve %s though it was told to: see tailscale serve status on the host"
                % (SETTING, ", ".join(str(handler) for handler in missing))
            )
        if todo.record != known:
            self._write(todo.record)
        return before, todo.record
