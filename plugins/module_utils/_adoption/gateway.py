# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A manual gateway: nginx sites, the files that they include, the updater that writes these files, and the units that
start the updater. Private to the collection."""

from __future__ import annotations

import glob
import ipaddress
import os
import re
import shutil
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import _files
from .._node import paths
from .._node.command import said
from .._node.managed import GATEWAY_FILES
from .._node.running import group_of, unit_of_group
from .._node.units import Show, parse_show, systemctl, systemctl_show
from .._text import Refusal, printable
from .servers import MANAGED, PROPERTIES, Unit, clients_of, read_text, shown_unit

SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
COMMENT = re.compile(r"#[^\n]*")
LISTEN = re.compile(r"(?:^|[;{\s])listen\s+(?:\S*:)?(\d+)\b")
PROXY = re.compile(r"\bproxy_pass\s")
KEY_CHECK = re.compile(r"\bauth_basic\s+(?!off)|\bauth_request\s|\$http_(authorization|x_api_key)\b")
NAME = "ai-inference"
# A program that submits jobs of SLURM is no updater.
SUBMITS = re.compile(r"(?<![\w.-])sbatch(?![\w.-])")
# Tailscale's addresses of hosts.
TAILNET = ipaddress.ip_network("100.64.0.0/10")
OUR_SITE = re.compile(dict(GATEWAY_FILES)[paths.NGINX_SITE], re.MULTILINE)


class Places(NamedTuple):
    """Paths and patterns that are searched for parts of a gateway."""

    sites: tuple[str, ...] = ("/etc/nginx/sites-enabled/*", "/etc/nginx/conf.d/*.conf")
    main: str = "/etc/nginx/nginx.conf"
    upstreams: str = "/etc/nginx/ai-inference"
    programs: tuple[str, ...] = ("/usr/local/bin/*", "/usr/local/sbin/*")
    units: str = paths.UNITS
    cron: tuple[str, ...] = ("/etc/crontab", "/etc/cron.d/*", "/var/spool/cron/root", "/var/spool/cron/crontabs/root")
    proc: str = "/proc"


HERE = Places()


class Gateway(NamedTuple):
    """sites: what nginx loads; files: all files, sites and what links lead to included; keyless: no site requires a
    key."""

    sites: list[str]
    files: list[str]
    units: list[Unit]
    keyless: bool


def find_gateway(ports: Sequence[int], places: Places = HERE, show: Show = systemctl_show) -> Gateway:
    """ports: of the new gateway. Errors: Refusal for a part that cannot be taken over, stopped and started again."""
    sites = find_sites(ports, places)
    texts = {path: read_text(path) for path in found(places.programs)}
    updaters = [
        path
        for path, text in texts.items()
        if (os.path.basename(path).startswith(NAME) or places.upstreams + "/" in text)
        and not (MANAGED.search(text) or SUBMITS.search(text))
    ]
    files = sites + [target for target in map(link_target, sites) if target]
    files += [path for path in found((places.upstreams + "/*",)) if os.path.isfile(path)] + updaters
    for path in files:
        if not os.path.islink(path):
            _files.read(path)
    names = find_units(updaters, places)
    refuse_other_starts(updaters, names, places)
    shown = parse_show(show(names, PROPERTIES)) if names else []
    return Gateway(
        sites=sites,
        files=files,
        units=sorted((shown_unit(one, "gateway") for one in shown), key=lambda unit: names.index(unit["name"])),
        keyless=bool(sites) and not any(KEY_CHECK.search(without_comments(path)) for path in sites),
    )


def look(gateway: Gateway, ports: Sequence[int], directory: str) -> dict[str, Any]:
    """Returns the result of step look of module adoption."""
    lines = [f"{path}: a site of nginx, the managed one takes its place" for path in gateway.sites]
    lines += [
        f"{unit['name']} ({unit['enabled'] or 'no state'}): starts the updater, stopped" for unit in gateway.units
    ]
    lines += [f"{path}: put aside, saved in {directory}" for path in gateway.files if path not in gateway.sites]
    connected = [str(client["address"]) for client in clients_of(ports)]
    return {
        "sites": gateway.sites,
        "keyless": gateway.keyless,
        "tailnet": sorted({address for address in connected if ipaddress.ip_address(address) in TAILNET}),
        "lines": lines,
    }


def found(patterns: Sequence[str]) -> list[str]:
    return sorted(path for pattern in patterns for path in glob.glob(pattern))


def without_comments(path: str) -> str:
    return COMMENT.sub("", read_text(path))


def link_target(path: str) -> str:
    """The file that a link leads to; empty for a file."""
    return os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path))) if os.path.islink(path) else ""


def listened(text: str) -> set[int]:
    return {int(port) for port in LISTEN.findall(text)}


def find_sites(ports: Sequence[int], places: Places) -> list[str]:
    """Paths of the gateway's sites that nginx loads. Errors: Refusal."""
    main = without_comments(places.main)
    if listened(main) & set(ports) or places.upstreams in main:
        raise Refusal(
            "%s: cannot take over a gateway in nginx's main file: move its servers to "
            "/etc/nginx/conf.d/ai-inference.conf, then run again" % places.main
        )
    sites = []
    for path in found(places.sites):
        text = without_comments(path)
        mine = sorted(listened(text) & set(ports))
        named = NAME in text or NAME in os.path.basename(path)
        if OUR_SITE.search(read_text(path)) or not (named or mine) or not (PROXY.search(text) or mine):
            continue
        if not PROXY.search(text):
            raise Refusal(
                "%s: it listens on port %d, which the gateway needs, and proxies nothing: give one of them another "
                "port" % (path, mine[0])
            )
        others = sorted(listened(text) - set(ports))
        if others:
            raise Refusal(
                "%s: it listens on %s, the gateway will on %s: move the servers of other ports to a file of their own, "
                "or give the gateway these ports"
                % (path, ", ".join(map(str, others)), ", ".join(str(port) for port in sorted(ports)))
            )
        sites.append(path)
    return sites


def find_units(updaters: Sequence[str], places: Places) -> list[str]:
    """Units that start an updater, and timers and paths that start these, in the order in which they stop."""
    files = found([places.units + "/*" + kind for kind in (".timer", ".path", ".service")])
    texts = {os.path.basename(path): read_text(path) for path in files}
    services = [
        name
        for name, text in texts.items()
        if name.endswith(".service") and starts(text, updaters) and not MANAGED.search(text)
    ]
    started = [
        name
        for name, text in texts.items()
        if not name.endswith(".service")
        and (re.findall(r"(?m)^\s*Unit=(\S+)", text) or [name.rpartition(".")[0] + ".service"])[-1] in services
    ]
    return sorted(started) + sorted(services)


def starts(text: str, updaters: Sequence[str]) -> str | None:
    """The updater that a line of a text starts, comments left out."""
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    return next(
        (path for path in updaters if re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w.-])", "\n".join(lines))), None
    )


def refuse_other_starts(updaters: Sequence[str], units: Sequence[str], places: Places) -> None:
    """Refusal for a line of cron, or a process outside of these units, that runs an updater."""
    for path in found(places.cron):
        updater = starts(read_text(path), updaters)
        if updater:
            raise Refusal(
                f"{path}: a line of cron starts {updater}, only units can be stopped and started: comment it out, then "
                "run again, and put it back after an undo"
            )
    root = group_of("1", places.proc)
    for pid in sorted(filter(str.isdigit, os.listdir(places.proc)), key=int):
        try:
            # Any user may choose any command line: an updater runs as root.
            if os.stat(os.path.join(places.proc, pid)).st_uid not in _files.owners():
                continue
            with open(os.path.join(places.proc, pid, "cmdline"), "rb") as stream:
                words = stream.read(4096).decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        # The program, or the first argument of an interpreter.
        run = [word for word in words[:2] if word in updaters]
        if run and unit_of_group(group_of(pid, places.proc), root) not in units:
            raise Refusal(
                f"{run[0]}: process {pid} runs it, which no unit starts: end it with kill {pid}, then run again"
            )


def load_sites(our_site: str = paths.NGINX_SITE) -> None:
    """Reloads nginx without the managed site: both may be the default of a port. The managed site is restored if nginx
    refuses the others. Errors: Refusal."""
    managed = _files.read(our_site) if OUR_SITE.search(read_text(our_site)) else b""
    if managed:
        os.unlink(our_site)
    try:
        reload_nginx()
    except Refusal:
        if managed:
            _files.write_atomically(our_site, managed, 0o644)
        raise


def reload_nginx() -> None:
    """Errors: Refusal if nginx does not accept its configuration; nginx then keeps the loaded one."""
    program = shutil.which("nginx", path=SEARCHED)
    if program is None:
        raise Refusal("nginx: no such program, the saved site needs it: install nginx, then run again")
    status, output = said([program, "-t"], errors=True)
    if status:
        raise Refusal(
            "nginx -t: failed (%s), nginx keeps its loaded configuration: correct that, then run again"
            % printable(" ".join(output.split()), None)
        )
    systemctl("reload-or-restart", "nginx.service")
