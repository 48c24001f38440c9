# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rpc_cache run DIRECTORY QUOTA RELEASE COMMAND... | rpc_cache check DIRECTORY RELEASE

run: becomes COMMAND, an RPC worker with --cache, and leaves a child that looks after what the worker stores in
DIRECTORY for as long as it lives. check: reads every stored tensor again, removes what is damaged, and tells by exit
status 1.

A worker writes a tensor straight to its final name, the hash of its content, and later serves whatever has that name:
what a full disk or a kill cut short would become wrong weights, and nobody would see it. So files are born without the
permission to be read. One that is complete is taken out of the worker's sight, read back, compared with its name, and
returned read-only: the permission is the record of what is proved. A worker that is asked for a tensor in the second
before that aborts, and starts again: never a wrong answer.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Collection
from typing import Callable, NamedTuple

from .._node.notify import say
from .._text import human

HASH = re.compile(r"^[0-9a-f]{16}\Z")
UNITS = {"M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
PROVED = 0o400
# Nobody may read what the worker writes, itself included.
UMASK = 0o577
# Seconds between two looks, and the percentage of its file system that the cache leaves free: a worker writes on until
# somebody looks.
PAUSE = 1
RESERVE = 5
# Seconds: what was used since then belongs to a model in use, or to one that is being loaded.
RECENT = 3600


class Stored(NamedTuple):
    """A stored tensor. used: the later of both times of its file."""

    used: float
    path: str
    size: int
    proved: bool


class Cache:
    """The directory of one worker: rpc/ is what it reads and writes, unproved/ is out of its sight."""

    def __init__(self, directory: str, release: str) -> None:
        self.stored = os.path.join(directory, "rpc")
        self.unproved = os.path.join(directory, "unproved")
        self.program = os.path.join(release, "bin", "fnv1a64")

    def files(self) -> list[Stored]:
        """The longest unused first. What is no regular file was not stored by a worker.

        The last use is the later of both times. With relatime, reading changes the time of access only where that of
        writing is not earlier:
        the latter is moved along.
        """
        found = []
        for folder in (self.stored, self.unproved):
            for name in filter(HASH.match, os.listdir(folder)):
                path = os.path.join(folder, name)
                try:
                    info = os.lstat(path)
                    if not stat.S_ISREG(info.st_mode):
                        continue
                    proved = stat.S_IMODE(info.st_mode) == PROVED
                    if proved and info.st_atime_ns > info.st_mtime_ns:
                        os.utime(path, ns=(info.st_atime_ns, info.st_atime_ns))
                except FileNotFoundError:
                    continue
                found.append(Stored(max(info.st_atime, info.st_mtime), path, info.st_size, proved))
        return sorted(found)

    def hide(self, held: Callable[[], Collection[str]]) -> None:
        """Takes what is not proved out of the worker's sight, but for what it is writing. held: returns the paths that
        it has open."""
        new = [one.path for one in self.files() if not one.proved and os.path.dirname(one.path) == self.stored]
        # Asked after the look: what is listed and not open is complete.
        writing = held() if new else set()
        for path in new:
            if path not in writing:
                os.rename(path, os.path.join(self.unproved, os.path.basename(path)))

    def prove(self) -> str | None:
        """Returns the next hidden file to the worker, or removes it. -> None when there is none, else its damage, empty
        for none"""
        for path in sorted(one.path for one in self.files() if os.path.dirname(one.path) == self.unproved):
            name = os.path.basename(path)
            os.chmod(path, PROVED)
            damage = self.damage(path)
            if damage:
                os.unlink(path)
            else:
                os.rename(path, os.path.join(self.stored, name))
            return damage
        return None

    def damage(self, path: str) -> str:
        """-> one sentence, empty when the content is what the name says."""
        descriptor = os.open(path, os.O_NOATIME | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            # What is only in memory may still be lost, and the permission that says it is proved be kept.
            os.fsync(descriptor)
            found = subprocess.check_output([self.program], stdin=descriptor, universal_newlines=True).strip()
            length = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        name = os.path.basename(path)
        return (
            ""
            if found == name
            else f"tensor {name}: its {human(length)} have hash {found}, cut short or damaged: removed"
        )

    def prune(self, quota: int, now: float) -> tuple[int, int]:
        """Removes the longest unused until the quota holds and the file system has its reserve. -> (bytes removed, of
        those recently used)

        A model that is larger than the quota keeps what came first: if what comes last pushed it out, nothing would be
        there when it is asked for.
        """
        files = self.files()
        total = sum(one.size for one in files)
        disk = os.statvfs(self.stored)
        limit = min(quota, total + (disk.f_bavail - disk.f_blocks * RESERVE // 100) * disk.f_frsize)
        removed = recent = 0
        while files and total - removed > limit:
            one = files.pop(0 if files[0].used < now - RECENT else -1)
            os.unlink(one.path)
            removed += one.size
            recent += one.size if one.used >= now - RECENT else 0
        return removed, recent


def quota_of(text: str) -> int:
    """'80G' -> bytes"""
    return int(text[:-1]) * UNITS[text[-1]]


def held_by(pid: int) -> set[str]:
    """The paths that a process has open."""
    paths = set()
    for name in os.listdir("/proc/%d/fd" % pid):
        try:
            paths.add(os.readlink("/proc/%d/fd/%s" % (pid, name)))
        except FileNotFoundError:
            continue  # closed meanwhile
    return paths


def keep(
    cache: Cache,
    quota: int,
    text: str,
    worker: int,
    say: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
    parent: Callable[[], int] = os.getppid,
) -> None:
    """Looks after the cache until the worker, the parent process, is gone."""
    last = ""
    while parent() == worker:
        damage = None
        try:
            cache.hide(lambda: held_by(worker))
            removed, recent = cache.prune(quota, time.time())
            damage = cache.prove()
            line = damage
            if recent:
                line = (
                    "the quota of %s, or the disk, is too small for the model in use: some of its tensors are sent "
                    "again at each start" % text
                )
            elif removed:
                line = f"removed {human(removed)}, the longest unused: the quota is {text}"
        except (OSError, subprocess.CalledProcessError) as error:
            line = f"the cache is not looked after ({error}): new tensors are not used from it"
        if line and line != last:
            say("rpc-cache: " + line)
            last = line
        if damage is None:
            pause(PAUSE)


def run(directory: str, quota: str, release: str, command: list[str]) -> int:
    cache = Cache(directory, release)
    limit = quota_of(quota)
    for folder in (cache.stored, cache.unproved):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    # What an earlier worker left: nobody is writing it any more.
    cache.hide(set)
    worker = os.getpid()
    if not os.fork():
        keep(cache, limit, quota, worker, say)
        return 0
    os.umask(UMASK)
    environment = dict(os.environ, LLAMA_CACHE=directory)
    environment.pop("PYTHONPATH", None)
    return os.execvpe(command[0], command, environment)


def become_owner(directory: str) -> None:
    """As root, goes on as the user whose cache it is: a name in there then leads nowhere that this user could not
    go."""
    if not os.geteuid():
        owner = os.lstat(directory)
        if not stat.S_ISDIR(owner.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
        # In a session of its own, without root's terminal: who has this account could type into that.
        child = os.fork()
        if child:
            status = os.waitpid(child, 0)[1]
            os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 2)
        os.setsid()
        os.setgroups([])
        os.setgid(owner.st_gid)
        os.setuid(owner.st_uid)


def check(directory: str, release: str) -> int:
    become_owner(directory)
    cache = Cache(directory, release)
    files = [one for one in cache.files() if one.proved and os.path.dirname(one.path) == cache.stored]
    damaged = 0
    for one in files:
        try:
            damage = cache.damage(one.path)
            if damage:
                os.unlink(one.path)
        except OSError as error:
            damage = f"{one.path}: not checked ({error.strerror})"
        if damage:
            say(damage)
            damaged += 1
    say("%d tensors, %s: %d damaged" % (len(files), human(sum(one.size for one in files)), damaged))
    return 1 if damaged else 0


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["run"] and len(arguments) > 4:
        return run(arguments[1], arguments[2], arguments[3], arguments[4:])
    if arguments[:1] == ["check"] and len(arguments) == 3:
        return check(arguments[1], arguments[2])
    sys.stderr.write(__doc__.splitlines()[0] + "\n")
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
