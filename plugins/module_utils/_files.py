# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that root reads, writes and runs: below directories that only root can change. Private to the collection.

A path is walked from / by descriptors. Each directory on the way must belong to root, or to the user of this process,
and no other user may write it; so what a name stands for cannot change between a check and its use. A sticky directory
such as /tmp may be on the way, not at the end. Links are followed only on the way, or to a program, and only where no
other user could have made them; the last name of a file is never a link.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from typing import Any, Callable, ContextManager

from ._text import Refusal

DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW
# A FIFO must not hold root up: without a reader or a writer it opens at once, and is refused.
FILE = os.O_NOFOLLOW | os.O_NONBLOCK
MOST_LINKS = 40


def owners() -> tuple[int, int]:
    """User ids whose files are believed."""
    return (0, os.geteuid())


def _refuse_others(path: str, seen: os.stat_result, sticky: bool = False) -> None:
    """Refusal if another user may change what path is. sticky: whether a sticky directory is good enough."""
    if seen.st_uid not in owners():
        raise Refusal(
            "%s: it belongs to user id %d, 0 is needed because root uses it: look at who made it and what is in it, "
            "then give it to root" % (path, seen.st_uid)
        )
    if seen.st_mode & 0o022 and not (sticky and seen.st_mode & stat.S_ISVTX):
        raise Refusal(
            "%s: its mode %04o lets others than its owner write it, root uses it: look at who changed it, then chmod "
            "go-w" % (path, stat.S_IMODE(seen.st_mode))
        )


def may_change(seen: os.stat_result) -> bool:
    """Whether another user may change what was seen by lstat; every user has every right to a link."""
    return seen.st_uid not in owners() or not stat.S_ISLNK(seen.st_mode) and bool(seen.st_mode & 0o022)


def open_directory(path: str, make: int | None = None, others: bool = False) -> int:
    """-> descriptor of a directory that no other user can exchange or write. make: mode to make missing ones with.
    others: it and those on the way may be another user's, but no link that another user could have made.

    Errors: Refusal, OSError.
    """
    todo = [part for part in path.split("/") if part]
    here, shown, links = os.open("/", DIRECTORY), "/", 0
    try:
        while True:
            seen = os.fstat(here)
            if not others:
                _refuse_others(shown, seen, sticky=bool(todo))
            if not todo:
                return here
            name, full = todo[0], os.path.join(shown, todo[0])
            found = _look(name, here, full, make)
            planted = bool(seen.st_mode & stat.S_ISVTX) or (others and may_change(seen))
            if stat.S_ISLNK(found.st_mode) and links < MOST_LINKS and not planted:
                target = os.readlink(name, dir_fd=here)
                todo[:1] = [part for part in target.split("/") if part]
                links += 1
                if not target.startswith("/"):
                    continue
                below, full = os.open("/", DIRECTORY), "/"
            elif stat.S_ISDIR(found.st_mode):
                below = os.open(name, DIRECTORY, dir_fd=here)
                del todo[0]
            else:
                raise Refusal(f"{full}: no directory, one is needed: look at who made it, then remove it")
            os.close(here)
            here, shown = below, full
    except BaseException:
        os.close(here)
        raise


def _look(name: str, here: int, full: str, make: int | None) -> os.stat_result:
    """lstat of a name in a directory, which is made where it is missing."""
    try:
        return os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        if make is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), full) from None
    os.mkdir(name, make, dir_fd=here)
    below = os.open(name, DIRECTORY, dir_fd=here)
    try:
        # As asked for, whatever root's umask is.
        os.fchmod(below, make)
    finally:
        os.close(below)
    return os.stat(name, dir_fd=here, follow_symlinks=False)


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def directory(path: str, make: int | None = None) -> ContextManager[int]:
    """open_directory() for a with statement."""
    return _closing(open_directory(path, make))


def open_file(path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """-> descriptor of a regular file that no other user can exchange or write. Errors: Refusal, OSError."""
    with directory(os.path.dirname(path)) as folder:
        try:
            descriptor = os.open(os.path.basename(path), flags | FILE, mode, dir_fd=folder)
        except OSError as error:
            # A link; a FIFO without a reader, or a socket.
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise Refusal(f"{path}: no regular file, one is needed: look at who made it, then remove it") from None
            raise OSError(error.errno, error.strerror, path) from None
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            raise Refusal(f"{path}: no regular file, one is needed: look at who made it, then remove it")
        _refuse_others(path, seen)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_program(path: str) -> None:
    """Refusal if another user may exchange a program, or a link on the way to it, that root is to run. Errors:
    OSError."""
    for _attempt in range(MOST_LINKS):
        with directory(os.path.dirname(path)) as folder:
            if not stat.S_ISLNK(os.stat(os.path.basename(path), dir_fd=folder, follow_symlinks=False).st_mode):
                break
            path = os.path.join(os.path.dirname(path), os.readlink(os.path.basename(path), dir_fd=folder))
    os.close(open_file(path))


def read(path: str) -> bytes:
    """Bytes of a file that no other user can exchange or write. Errors: Refusal, OSError."""
    with os.fdopen(open_file(path), "rb") as stream:
        return stream.read()


def write_atomically(
    path: str,
    data: bytes,
    mode: int | None = 0o600,
    owner: tuple[int, int] | None = None,
    anywhere: bool = False,
    durable: bool = True,
    links: bool = True,
) -> None:
    """Has these bytes in a file, on disk, or what was there before: they are complete under another name first.

    mode: None for what the umask leaves of 0644; owner: (user id, group id). anywhere: in a directory that others may
    write too, such as one of models: what they put under the other name is removed and never written through, and who
    reads the file looks at its owner (read_trusted). links: False where such a directory is reached over no link of
    others. durable: False for a file that is useless after a crash.
    Errors: Refusal, OSError.
    """
    above, name = os.path.split(path)
    partial = f".{name}.partial"
    opened = os.open(above or ".", os.O_DIRECTORY) if anywhere and links else open_directory(above, others=anywhere)
    with _closing(opened) as folder:
        with contextlib.suppress(FileNotFoundError):
            # Left by a run that died, or planted.
            os.unlink(partial, dir_fd=folder)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | FILE
            descriptor = os.open(partial, flags, 0o644 if mode is None else 0o600, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                if owner:
                    os.fchown(descriptor, *owner)
                if mode is not None:
                    os.fchmod(descriptor, mode)
                if durable:
                    os.fsync(descriptor)
            os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial, dir_fd=folder)
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror, path) from None
            raise


def link_atomically(path: str, target: str) -> None:
    """Has a link to ``target`` at ``path``, or what was there before. Errors: Refusal, OSError."""
    above, name = os.path.split(path)
    partial = f".{name}.partial"
    with directory(above) as folder:
        with contextlib.suppress(FileNotFoundError):
            # Left by a run that died.
            os.unlink(partial, dir_fd=folder)
        os.symlink(target, partial, dir_fd=folder)
        os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)


def sync_folder(folder: str) -> None:
    """Have the names in a folder on disk."""
    fd = os.open(folder, os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_trusted(status: os.stat_result) -> bool:
    """Whether a file, by lstat or fstat, is a regular one with one name that belongs to root or the user of this
    process."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid in owners()


def open_trusted(path: str) -> int:
    """A descriptor to read such a file by; another one is an OSError."""
    fd = os.open(path, os.O_RDONLY | FILE)
    if is_trusted(os.fstat(fd)):
        return fd
    os.close(fd)
    raise OSError(errno.EPERM, "not a regular file of root's with one name", path)


def read_trusted(path: str, most: int) -> bytes:
    """The first bytes of a record or a journal; OSError for one that others own or may write: anybody could have made
    it, it does not count."""
    with open(open_trusted(path), "rb") as stream:
        seen = os.fstat(stream.fileno())
        if seen.st_mode & 0o022:
            raise OSError(errno.EPERM, "others may write it", path)
        # A stream takes memory for all that it is asked for.
        return stream.read(min(most, seen.st_size))


# A record or a configuration is smaller.
MOST_TEXT = 16 << 20


def text_of(path: str) -> str | None:
    """The text of a regular file, None where there is anything else: no link is followed, and no FIFO waited for."""
    try:
        descriptor = os.open(path, FILE)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as stream:
        return stream.read(MOST_TEXT).decode("utf-8", "replace")


def sha256_stream(
    stream: io.RawIOBase,
    size: int | None = None,
    advance: Callable[[int], Any] | None = None,
) -> str:
    """Hex sha256 of a stream's next ``size`` bytes, None for all that follow; of fewer where it ends before.

    advance(bytes) is called as it goes.
    """
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(1 << 20))
    while size != 0:
        count = stream.readinto(buffer[:size])
        if not count:
            break
        digest.update(buffer[:count])
        size = None if size is None else size - count
        if advance:
            advance(count)
    return digest.hexdigest()


def sha256_file(path: str) -> str:
    """Hex sha256 of a file."""
    with open(path, "rb", buffering=0) as stream:
        return sha256_stream(stream)


def names_in(folder: str) -> list[str]:
    """The names in a directory; none if it is not one."""
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
