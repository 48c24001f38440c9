# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock that a run which changes nodes holds on them. Private to the collection.

It is a file with one line, `ID {holder}`. A process beside the run touches it, and removes it as soon as the run has
ended, however it ended. A file that was not touched for STALE seconds belongs to a controller that is gone.
"""

import getpass
import hashlib
import json
import os
import shlex
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..module_utils._node import paths
from ..module_utils._text import printable

# Seconds between two touches, until a lock is stale, and for which a run waits for another at most.
RENEW, STALE, WAIT = 15, 90, 12 * 3600
# Exit statuses of the scripts: another run holds the lock; the lock cannot be made.
HELD, CANNOT = 75, 73
# One call at a time, by flock on the lock itself, which only its owner can open; another call may have removed it
# meanwhile. $1: the lock, $2: our id, $3: the id of a run that has ended, $4: the line. %f is the kind of file in hex.
GUARDED = """
cannot() { echo "$1" >&2; exit CANNOT; }
umask 077
for try in 1 2 3 4 5 6 7 8 9; do
  [ -e "$1" ] || [ -L "$1" ] || MISSING
  case $(stat -c '%u %f' "$1" 2>/dev/null) in
    "$(id -u) 8"*) ;;
    ?*) cannot "$1 is not a regular file of its own: remove it" ;;
    *) continue ;;
  esac
  chmod 0600 "$1" 2>/dev/null && command exec 9<"$1" || continue
  flock -w 10 9 || cannot "flock does not lock $1: end the process that fuser $1 names, or install util-linux"
  [ "$1" -ef /proc/self/fd/9 ] && break
done
[ "$1" -ef /proc/self/fd/9 ] || cannot "$1 cannot be made or opened: make room in its directory, and let it be written"
read -r id holder 2>/dev/null <"$1" || id=
STEP
"""
# Said of a node on which a run of tune.yml that died left variants.
VARIANTS = "variants"
MAKE = '{ [ -d "${1%/*}" ] || mkdir -m 0755 "${1%/*}"; true >>"$1"; }'
# A lock from the future, as after a clock change, counts from now on.
TAKE = """
age=$(( $(date +%%s) - $(stat -c %%Y "$1" 2>/dev/null || echo 0) ))
[ "$age" -ge 0 ] || touch "$1"
case $id in ''|"$2"|"$3") ;; *)
  if [ "$age" -lt %d ]; then printf '%%.1000s\\n' "$id $holder"; exit %d; fi
esac
printf '%%s\\n' "$4" >"$1" || cannot "$1 cannot be written: make room"
for end in %s/llama-tune-end-*.timer; do [ ! -e "$end" ] || { echo %s; break; }; done
""" % (STALE, HELD, paths.RUN_UNITS, VARIANTS)
RENEWED = '[ "$id" = "$2" ] || exit %d; touch "$1"' % HELD
# An empty directory goes too; one with other files stays.
RELEASED = '[ "$id" != "$2" ] || { rm -f "$1"; rmdir "${1%/*}" 2>/dev/null || true; }'
# Commands of a step if there is no lock, as after teardown.
MISSING = {TAKE: MAKE, RENEWED: "exit 0", RELEASED: "exit 0"}


class Run(NamedTuple):
    """A run, as recorded in the lock. machine, pid and start: its controller finds out by them whether it lives."""

    user: str
    host: str
    machine: str
    pid: int
    start: str
    playbook: str
    since: str

    @property
    def id(self) -> str:
        """The same in every process of the run."""
        words = f"{self.host} {self.machine} {self.pid} {self.start}"
        return hashlib.sha256(words.encode()).hexdigest()[:32]

    def line(self) -> str:
        return f"{self.id} {json.dumps(self._asdict())}"


def this_run(pid: int, playbooks: Sequence[str], now: str) -> Run:
    """The run whose main process has this number."""
    playbook = ", ".join(os.path.basename(path) for path in playbooks) or "a playbook"
    return Run(getpass.getuser(), socket.gethostname(), _machine(), pid, _started(pid), playbook, now)


def _machine() -> str:
    """An id of this boot and process namespace, the same in every process; empty if unknown."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _state(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, [] without such a process."""
    try:
        return Path("/proc/%d/stat" % pid).read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _started(pid: int) -> str:
    return (_state(pid) + [""] * 20)[19]


def lives(pid: int) -> bool:
    """Whether a process of this machine has not ended; a zombie has."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # another user's
    return _state(pid)[:1] != ["Z"]


def script(step: str, path: str, run: Run, ended: str = "") -> str:
    """A command line of sh for TAKE, RENEWED or RELEASED. ended: the id of a run whose lock is taken over."""
    text = GUARDED.replace("MISSING", MISSING[step]).replace("STEP", step).replace("CANNOT", str(CANNOT))
    words = ["sh", "-c", text, "sh", path, run.id, ended or "-", run.line()]
    return " ".join(shlex.quote(word) for word in words)


def holder(said: str) -> tuple[str, Mapping[str, Any]]:
    """Returns (id, record) of the run that holds a lock, from the output of TAKE."""
    name, _space, text = said.strip().partition(" ")
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        record = {}
    return name, record if isinstance(record, dict) else {}


def has_ended(record: Mapping[str, Any], own: Run) -> bool:
    """Whether the holder ran on this machine and has ended."""
    pid = record.get("pid")
    if (record.get("host"), record.get("machine")) != (own.host, own.machine):
        return False
    if isinstance(pid, bool) or not isinstance(pid, int) or not 0 < pid < 1 << 22:
        return False
    return not lives(pid) or _started(pid) != record.get("start")


def words(record: Mapping[str, Any]) -> str:
    """Playbook, user, host, process and start of a run."""
    found = {key: printable(str(record.get(key) or "unknown"), 60) for key in Run._fields}
    return f"{found['playbook']} of {found['user']} on {found['host']}, process {found['pid']}, since {found['since']}"


def refusal(node: str, record: Mapping[str, Any]) -> str:
    return (
        "%s: cannot change anything while another run does (%s): wait until it has ended, or run with -e wait=true, "
        "which waits for it up to %d hours" % (node, words(record), WAIT // 3600)
    )


def unlockable(node: str, reason: str) -> str:
    return f"{node}: cannot keep other runs from changing anything because {printable(reason, 500)}"


def lost(node: str) -> str:
    return (
        "%s: cannot go on because another run took the lock while this one did not reach the node for %d s: see what "
        "the other does, and run again after it" % (node, STALE)
    )
