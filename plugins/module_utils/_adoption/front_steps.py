# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A gateway made by hand: saved, stopped, put aside, and put back as it was. Private to the collection.

Its record is one of its own, beside that of the node's servers: a host may have either. nginx goes on with the sites
that it has loaded until somebody reloads it, so clients see no gap while files change.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any, Callable

from .. import _files
from .._node.units import Show, parse_show, systemctl_show
from .._text import Refusal, printable
from . import front as fronts
from .connected import clients_of, in_tailnet
from .front import HERE, Front, Places, find_front, front_lines, named, running
from .steps import Adoption, Record, holds, path_record, systemctl, unit_record, utc

# What is put before a line of cron that would start the updater.
MARK = "# llama-cluster adopted: "


class FrontAdoption(Adoption):
    """One host's adoption. ports: where our gateway listens; check: predict only."""

    def __init__(
        self,
        directory: str,
        ports: Sequence[int] = (),
        check: bool = False,
        places: Places = HERE,
        show: Show = systemctl_show,
    ) -> None:
        super().__init__(directory, (), check, places.units)
        self.ports = list(ports)
        self.places = places
        self.show = show

    def find(self) -> Front:
        return find_front(self.ports, self.places, self.show)

    def look(self) -> dict[str, Any]:
        """What there is, and whether there is anything to take over or to go on with. Errors: Refusal."""
        record, front = self.read(), self.find()
        return {
            "sites": front.sites,
            "keyless": front.keyless,
            "tailnet": sorted(
                {str(one["address"]) for one in clients_of(self.ports) if in_tailnet(str(one["address"]))}
            ),
            "needed": front.there or bool(record and not record["finished"]),
            "lines": front_lines(front, self.directory) if front.there else [],
            "recorded": None if record is None else summary(record),
        }

    def save(self) -> None:  # type: ignore[override]
        """All that the next steps change, copied and recorded. What the updater writes is taken as it is now."""
        front = self.find()
        if not front.there:
            return
        record = self.read() or {
            "format": 1,
            "created": utc(),
            "finished": False,
            "paths": [],
            "units": [],
            "sites": [],
        }
        seen = [path_record(path) for path in front.files]
        units = [unit_record(dict(unit, kind="gateway"), self.unit_dir) for unit in front.units]
        known = {path["path"]: path for path in record["paths"]}
        for path in seen:
            if record["finished"] and path["path"] in known and known[path["path"]] != path:
                raise Refusal(
                    "%s: it differs from the one that was saved at %s in %s: undo that adoption first, or move the "
                    "file away" % (path["path"], record["created"], self.directory)
                )
        new = [path for path in seen if known.get(path["path"]) != path]
        new_units = [unit for unit in units if unit["name"] not in [one["name"] for one in record["units"]]]
        for name in [path["path"] for path in new] + [unit["name"] for unit in new_units]:
            self._act(f"save {name}")
        again = record.pop("put_back", False)
        if self.check or not (new or new_units or again):
            return
        with _files.directory(os.path.dirname(self.directory), make=0o755):
            pass
        with _files.directory(os.path.join(self.directory, "files"), make=0o700):
            os.chmod(self.directory, 0o700)
        for path in new + [path for unit in new_units for path in unit["paths"]]:
            if "sha256" in path:
                _files.write_atomically(self._copy_of(path["path"]), _files.read(path["path"]))
        known.update({path["path"]: path for path in new})
        record["paths"] = [known[name] for name in sorted(known)]
        record["units"] += new_units
        record["sites"] = sorted(set(record["sites"]) | set(front.sites))
        record["finished"] = False
        self._write(record)

    def stop(self) -> None:  # type: ignore[override]
        """Ends the updater and all that would start it again."""
        front = self.find()
        # Timers come first: they would start the service again.
        active = [unit["name"] for unit in front.units if unit["active"]]
        if active and self._act(f"stop {', '.join(active)}"):
            for name in active:
                systemctl("stop", name)
        starts = re.compile(named(front.updaters))

        def commented(line: str) -> str:
            return MARK + line if starts.search(line) and not line.lstrip().startswith("#") else line

        self._rewrite_cron(commented)
        if self.check:
            return
        for pid, updater in running(front.updaters, [unit["name"] for unit in front.units], self.places.proc):
            raise Refusal(
                "%s: process %d runs it, which no unit or cron line starts: end it with kill %d, then run again"
                % (updater, pid, pid)
            )

    def _rewrite_cron(self, rewritten: Callable[[str], str]) -> None:
        """Has each line of cron as rewritten(line) says."""

        def changed(text: str) -> str:
            return "\n".join(rewritten(line) for line in text.split("\n"))

        for path in fronts.found(self.places.cron):
            text = fronts.read_text(path)
            if changed(text) != text and self._act(f"change {path}"):
                data = _files.read(path)
                seen = os.stat(path)
                text = data.decode("utf-8", "surrogateescape")
                _files.write_atomically(
                    path,
                    changed(text).encode("utf-8", "surrogateescape"),
                    seen.st_mode & 0o7777,
                    (seen.st_uid, seen.st_gid),
                )
        crontab = fronts.read_crontab()
        if changed(crontab) != crontab and self._act("change root's crontab"):
            fronts.write_crontab(changed(crontab))

    def put_aside(self) -> None:
        """Takes the recorded files away; nginx serves what it has loaded until it is reloaded."""
        record = self.read()
        if record is None:
            return
        present = self._everything(record)
        gone: list[str] = []
        for path in present:
            if not os.path.lexists(path["path"]):
                continue
            if not holds(path):
                raise Refusal(f"{path['path']}: it has changed since it was saved: run again")
            gone.append(path["path"])
        if not gone or not self._act(f"remove {', '.join(gone)}"):
            return
        for name in gone:
            with _files.directory(os.path.dirname(name)) as folder:
                os.unlink(os.path.basename(name), dir_fd=folder)
        systemctl("daemon-reload")

    def _everything(self, record: Record) -> list[Record]:
        return record["paths"] + [path for unit in record["units"] for path in unit["paths"]]

    def put_back(self) -> dict[str, Any]:  # type: ignore[override]
        """Every recorded file where it was, with content, owner, mode and time of then; nothing is loaded yet."""
        record = self.read()
        if record is None:
            return {"recorded": None}
        # The updater that runs again has written its files since.
        missing = [path for path in self._everything(record) if not record.get("put_back") and not holds(path)]
        for path in missing:
            if os.path.lexists(path["path"]):
                raise Refusal(
                    f"{path['path']}: another file has the place of the saved one: move it away, then run again"
                )
        if missing and self._act(f"put back {', '.join((path['path'] for path in missing))}"):
            for path in missing:
                self._put_back(path)
            systemctl("daemon-reload")
        return {"recorded": summary(record)}

    def start(self) -> None:  # type: ignore[override]
        """Has nginx load the recorded sites, and what started the updater start it again."""
        record = self.read()
        if record is None:
            return
        if not self.check and not record.get("put_back"):
            self._write(dict(record, put_back=True))
        if record["sites"] and self._act("reload nginx"):
            self._load()
        self._rewrite_cron(lambda line: line[len(MARK) :] if line.startswith(MARK) else line)
        names = [unit["name"] for unit in record["units"] if unit["active"]]
        shown = parse_show(self.show(names, ("Id", "ActiveState"))) if names else []
        wanted = [unit["Id"] for unit in shown if unit.get("ActiveState") not in ("active", "activating")]
        if wanted and self._act(f"start {', '.join(wanted)}"):
            systemctl("start", "--no-block", *wanted)

    def _load(self) -> None:
        """Ours goes before nginx reads the recorded sites: both may be the default of a port. It comes back where nginx
        refuses them."""
        ours = b""
        if fronts.OUR_SITE.search(fronts.read_text(self.places.our_site)):
            ours = _files.read(self.places.our_site)
            with _files.directory(os.path.dirname(self.places.our_site)) as folder:
                os.unlink(os.path.basename(self.places.our_site), dir_fd=folder)
        try:
            reload_nginx()
        except Refusal:
            if ours:
                _files.write_atomically(self.places.our_site, ours, 0o644)
            raise

    def forget(self) -> None:
        """The record goes: everything is as it was before there was one."""
        record = self.read()
        if record is None or not self._act(f"remove {self.directory}"):
            return
        for path in self._everything(record):
            if "sha256" in path and os.path.isfile(self._copy_of(path["path"])):
                os.unlink(self._copy_of(path["path"]))
        os.unlink(os.path.join(self.directory, "record.json"))
        for folder in (os.path.join(self.directory, "files"), self.directory):
            if not os.listdir(folder):
                os.rmdir(folder)


def summary(record: Record) -> dict[str, Any]:
    return {"created": record["created"], "finished": record["finished"]}


def reload_nginx() -> None:
    """Errors: Refusal, where nginx would not take what is there; it goes on with what it has then."""
    program = shutil.which("nginx", path=fronts.SEARCHED)
    if program is None:
        raise Refusal("nginx: no such program, the saved site needs it: install nginx, then run again")
    process = subprocess.Popen(
        [program, "-t"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = process.communicate()[0].decode("utf-8", "replace")
    if process.returncode:
        raise Refusal(
            "nginx -t: failed (%s), so nginx goes on with what it has: correct that, then run again"
            % printable(" ".join(output.split()), None)
        )
    systemctl("reload-or-restart", "nginx.service")
