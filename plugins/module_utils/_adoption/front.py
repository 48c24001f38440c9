# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a gateway made by hand consists of: sites of nginx, the files that they include, the updater that writes these,
and what starts the updater. Private to the collection."""

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import _files
from .._node import paths
from .._node.ours import GATEWAY_FILES
from .._node.units import Show, parse_show, systemctl_show
from .._text import Refusal, printable
from .handmade import OURS, read_text

SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
COMMENT = re.compile(r"#[^\n]*")
LISTEN = re.compile(r"(?:^|[;{\s])listen\s+(?:\S*:)?(\d+)\b")
PROXY = re.compile(r"\bproxy_pass\s")
ASKS_FOR_KEY = re.compile(r"\bauth_basic\s+(?!off)|\bauth_request\s|\$http_(authorization|x_api_key)\b")
NAME = "ai-inference"
OUR_SITE = re.compile(dict(GATEWAY_FILES)[paths.NGINX_SITE], re.MULTILINE)
STARTERS = (".timer", ".path", ".service")


class Places(NamedTuple):
    """Where its parts lie."""

    sites: tuple[str, ...] = ("/etc/nginx/sites-enabled/*", "/etc/nginx/conf.d/*.conf")
    main: str = "/etc/nginx/nginx.conf"
    upstreams: str = "/etc/nginx/ai-inference"
    programs: tuple[str, ...] = ("/usr/local/bin/*", "/usr/local/sbin/*")
    units: str = paths.UNITS
    cron: tuple[str, ...] = ("/etc/crontab", "/etc/cron.d/*")
    proc: str = "/proc"
    our_site: str = paths.NGINX_SITE


HERE = Places()


class Front(NamedTuple):
    """sites: what nginx loads; files: all that belongs to it, sites with what their links stand for, included files and
    updaters; written: those that the updater writes anew; units: [{name, path, active, unit_file_state}]; cron: files
    with a line that starts the updater; crontab: whether root's own has one; keyless: whether no site asks for a
    key."""

    sites: list[str]
    files: list[str]
    written: list[str]
    updaters: list[str]
    units: list[dict[str, Any]]
    cron: list[str]
    crontab: bool
    keyless: bool

    @property
    def there(self) -> bool:
        return bool(self.sites or self.updaters or self.units)


def find_front(ports: Sequence[int], places: Places = HERE, show: Show = systemctl_show) -> Front:
    """ports: where our gateway will listen. Errors: Refusal, where something of it cannot be taken over as a whole."""
    sites = find_sites(ports, places)
    updaters = [
        path
        for path in found(places.programs)
        if os.path.basename(path).startswith(NAME) or places.upstreams + "/" in read_text(path)
    ]
    updaters = [path for path in updaters if not OURS.search(read_text(path))]
    written = [path for path in found((places.upstreams + "/*",)) if os.path.isfile(path)]
    files = sites + [target for target in map(link_target, sites) if target] + written + updaters
    for path in files:
        if not os.path.islink(path):
            _files.read(path)
    names = find_units(updaters, places)
    return Front(
        sites=sites,
        files=files,
        written=written,
        updaters=updaters,
        units=sorted(shown_units(names, show), key=lambda unit: names.index(unit["name"])),
        cron=[path for path in found(places.cron) if starts_one(read_text(path), updaters)],
        crontab=starts_one(read_crontab(), updaters) if updaters else False,
        keyless=bool(sites) and not any(ASKS_FOR_KEY.search(without_comments(path)) for path in sites),
    )


def shown_units(names: Sequence[str], show: Show) -> list[dict[str, Any]]:
    """[{name, path, active, unit_file_state}]."""
    text = show(names, ("Id", "FragmentPath", "UnitFileState", "ActiveState")) if names else ""
    return [
        {
            "name": shown["Id"],
            "path": shown.get("FragmentPath", ""),
            "active": shown.get("ActiveState") in ("active", "activating", "reloading"),
            "unit_file_state": shown.get("UnitFileState", ""),
        }
        for shown in parse_show(text)
    ]


def found(patterns: Sequence[str]) -> list[str]:
    return sorted(path for pattern in patterns for path in glob.glob(pattern))


def without_comments(path: str) -> str:
    return COMMENT.sub("", read_text(path))


def link_target(path: str) -> str:
    """The file that a link stands for, by its name; empty for what is none."""
    return os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path))) if os.path.islink(path) else ""


def listened(text: str) -> list[int]:
    return sorted({int(port) for port in LISTEN.findall(text)})


def find_sites(ports: Sequence[int], places: Places) -> list[str]:
    """What nginx loads of it. Errors: Refusal."""
    main = without_comments(places.main)
    taken = sorted(set(listened(main)) & set(ports))
    if taken or places.upstreams in main:
        raise Refusal(
            "%s: the gateway made by hand is in nginx's main file, a file of its own is needed: move its servers to "
            "/etc/nginx/conf.d/ai-inference.conf, then run again" % places.main
        )
    sites = []
    for path in found(places.sites):
        text = without_comments(path)
        if OUR_SITE.search(read_text(path)):
            continue
        mine = sorted(set(listened(text)) & set(ports))
        of_inference = NAME in text or NAME in os.path.basename(path)
        if not of_inference and not mine:
            continue
        if not PROXY.search(text):
            if mine:
                raise Refusal(
                    "%s: it listens on port %d, which the gateway needs, and proxies nothing: give one of them another "
                    "port" % (path, mine[0])
                )
            continue
        others = sorted(set(listened(text)) - set(ports))
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
    texts = {
        os.path.basename(path): read_text(path) for kind in STARTERS for path in found((places.units + "/*" + kind,))
    }
    services = [
        name
        for name, text in texts.items()
        if name.endswith(".service") and re.search(named(updaters), text) and not OURS.search(text)
    ]
    started = [
        name
        for name, text in texts.items()
        if not name.endswith(".service")
        and (re.findall(r"(?m)^\s*Unit=(\S+)", text) or [name.rpartition(".")[0] + ".service"])[-1] in services
    ]
    return sorted(started) + sorted(services)


def named(updaters: Sequence[str]) -> str:
    """A pattern for the path of an updater; it matches nothing where there is none."""
    return rf"(?<![\w./-])(?:{'|'.join(map(re.escape, updaters))})(?![\w.-])" if updaters else r"(?!)"


def starts_one(text: str, updaters: Sequence[str]) -> bool:
    return any(re.search(named(updaters), line) for line in text.split("\n") if not line.lstrip().startswith("#"))


def read_crontab() -> str:
    """Root's own, which belongs to cron: empty where there is none."""
    program = shutil.which("crontab", path=SEARCHED)
    if program is None:
        return ""
    process = subprocess.Popen(
        [program, "-u", "root", "-l"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    output = process.communicate()[0].decode("utf-8", "surrogateescape")
    return "" if process.returncode else output


def write_crontab(text: str) -> None:
    program = shutil.which("crontab", path=SEARCHED) or "crontab"
    process = subprocess.Popen(
        [program, "-u", "root", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = process.communicate(text.encode("utf-8", "surrogateescape"))[0].decode("utf-8", "replace")
    if process.returncode:
        raise Refusal(
            f"crontab -u root: failed ({printable(' '.join(output.split()), None)}): see crontab -l on the host"
        )


def running(updaters: Sequence[str], units: Sequence[str], proc: str = "/proc") -> list[tuple[int, str]]:
    """[(pid, updater)] of what runs an updater outside of these units, a loop that nohup left behind for example."""
    seen = []
    for entry in sorted((name for name in os.listdir(proc) if name.isdigit()), key=int):
        try:
            # Anybody may call himself what he likes: an updater runs as root.
            if os.stat(os.path.join(proc, entry)).st_uid != os.geteuid():
                continue
            with open(os.path.join(proc, entry, "cmdline"), "rb") as stream:
                words = stream.read(4096).decode("utf-8", "replace").split("\0")
            with open(os.path.join(proc, entry, "cgroup"), encoding="utf-8", errors="replace") as stream:
                cgroup = stream.read()
        except OSError:
            continue
        # The program, or what an interpreter was given first.
        run = [word for word in words[:2] if word in updaters]
        if run and not any(f"/{unit}\n" in cgroup for unit in units):
            seen.append((int(entry), run[0]))
    return seen


def front_lines(front: Front, directory: str) -> list[str]:
    """What is found, as lines to print."""
    lines = [f"{path}: a site of nginx, ours takes its place" for path in front.sites]
    lines += [
        f"{unit['name']} ({unit['unit_file_state'] or 'no state'}): starts the updater, stopped" for unit in front.units
    ]
    lines += [f"{path}: a line starts the updater, commented out" for path in front.cron]
    lines += ["root's crontab: a line starts the updater, commented out"] if front.crontab else []
    lines += [f"{path}: put aside, saved in {directory}" for path in front.files if path not in front.sites]
    return lines
