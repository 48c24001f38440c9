# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Using pieces that already lie on the node, with at most one piece's worth of extra disk.

Each is opened once, and all that follows is decided and read by that descriptor: the directory may be somebody else's,
who exchanges names as he likes.
A piece of root's that begins its target becomes the partial file by a rename; every other one is copied to its place,
hashed as it is copied, and removed once its bytes are on disk and in the journal. One that another user owns, or may
write, is copied and stays where it is.
What was adopted is therefore safe at any moment, either as the piece itself or as a recorded range of the partial file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence

from .._files import is_ours, open_ours, open_regular
from .._model.gguf import Header, read_header, reading
from .._text import Refusal, exact, printable
from .journal import CLOSED
from .manifest import hash_pieces
from .request import Advance
from .target import BLOCK, Piece, Target, disk_failure


def open_model(path: str) -> int:
    """A descriptor of a model file of its own. Raises Refusal for anything but a regular file and for one with a second
    name; OSError."""
    try:
        return open_regular(path, os.O_RDONLY)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EINVAL, errno.ENXIO):
            raise
        raise Refusal(
            "%s: is a link or has a second name, a regular file of its own is needed: look at who made it, then remove "
            "it" % path
        ) from None


@contextlib.contextmanager
def proving(path: str, check: bool = False) -> Iterator[int]:
    """A descriptor by which a file is proved. It is ours from before it is read, else its owner could write it and set
    its time back. check: it stays as it is.

    Raises Refusal as open_model() does and for one that is written meanwhile; OSError. After a failure the file is its
    owner's again.
    """
    fd = open_model(path)
    try:
        found = os.fstat(fd)
        taken = not check and not is_ours(found) and _take(fd, found)
        try:
            before = os.fstat(fd)
            yield fd
            _require_unchanged(path, before, os.fstat(fd))
        except BaseException:
            if taken:
                os.fchown(fd, found.st_uid, found.st_gid)
                os.fchmod(fd, found.st_mode & 0o777)
            raise
    finally:
        os.close(fd)


def _take(fd: int, found: os.stat_result) -> bool:
    """Have a file be ours. -> False on NFS with root_squash, where every run proves it."""
    try:
        os.fchown(fd, os.geteuid(), os.getegid())
        os.fchmod(fd, stat.S_IMODE(found.st_mode) & 0o755)
    except PermissionError:
        return False
    return True


def _require_unchanged(path: str, before: os.stat_result, after: os.stat_result) -> None:
    if (before.st_size, before.st_mtime_ns, before.st_ctime_ns) != (
        after.st_size,
        after.st_mtime_ns,
        after.st_ctime_ns,
    ):
        raise Refusal(f"{path}: was changed while it was read: run again when nobody writes it")


def writer(fd: int) -> str:
    """The process that has a file open to write it, as a clause of a sentence; empty for none."""
    # By name: a stat of the files of others may wait for a server that is gone.
    name = os.readlink("/proc/self/fd/%d" % fd)
    for pid in [one for one in os.listdir("/proc") if one.isdigit() and int(one) != os.getpid()]:
        # A process may end meanwhile.
        with contextlib.suppress(OSError, ValueError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{number}") == name and _writes(pid, number):
                    with open(f"/proc/{pid}/comm", errors="replace") as stream:
                        return f"{printable(stream.read(64).strip())} (pid {pid}) writes it, "
    return ""


def _writes(pid: str, number: str) -> bool:
    with open(f"/proc/{pid}/fdinfo/{number}") as stream:
        flags = [line.split()[1] for line in stream if line.startswith("flags:")]
    return any(int(one, 8) & os.O_ACCMODE != os.O_RDONLY for one in flags)


def open_same(path: str, target: Target, header: Header | None, advance: Advance) -> int | None:
    """A descriptor of a file of root's that is what a target is to be, by its header and every digest; None of any
    other. advance(bytes): as it is hashed."""
    try:
        fd = open_ours(path)
    except OSError:
        return None
    try:
        # Models of one family have one size; most are told apart by their headers.
        same = read_header(reading(fd), path) == header
        wanted = [span.sha256 for span in target.spans]
        if same and hash_pieces(path, [span.end - span.start for span in target.spans], advance, fd) == wanted:
            return os.dup(fd)
    except (Refusal, OSError):
        pass
    finally:
        os.close(fd)
    return None


class Loose:
    """A file that lies on the node, open, and the piece of a target that it may be."""

    target: Target
    piece: Piece

    def __init__(self, path: str, fd: int) -> None:
        self.path, self.fd = path, fd
        status = os.fstat(fd)
        self.size, self.device = status.st_size, status.st_dev
        self.ours = is_ours(status) and not status.st_mode & 0o022

    def becomes_partial(self) -> bool:
        """Whether it can become the partial file itself, without a copy."""
        if not self.ours or self.piece.offset or self.target.ranges.total():
            return False
        return self.device == os.stat(os.path.dirname(self.target.path)).st_dev and _has_no_writer(self.fd)

    def close(self) -> None:
        """Its disk is free only then, where it was removed."""
        if self.fd != CLOSED:
            os.close(self.fd)
            self.fd = CLOSED


def _has_no_writer(fd: int) -> bool:
    """Whether nobody has a file open or mapped to write it: on another one the kernel gives no read lease. Nor does it
    on NFS, there the answer is no."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def loose_pieces(paths: Sequence[str], targets: Sequence[Target]) -> Iterator[list[Loose]]:
    """[Loose] of every path that exists, open meanwhile; paths consumed by an earlier run are passed over.

    A path fits the piece of its size, preferably the one of its name. Raises Refusal for a file that fits none, or one
    that no digest is known of.
    """
    with contextlib.ExitStack() as stack:
        found: list[Loose] = []
        for path in paths if targets else ():
            try:
                fd = open_model(path)
            except FileNotFoundError:
                continue
            loose = Loose(path, fd)
            stack.callback(loose.close)
            loose.target, loose.piece = _match(loose, targets, [other.piece for other in found])
            found.append(loose)
        yield found


def _match(loose: Loose, targets: Sequence[Target], taken: Sequence[Piece]) -> tuple[Target, Piece]:
    path, size = loose.path, loose.size
    fitting = [
        (target, piece) for target in targets for piece in target.pieces if piece.size == size and piece not in taken
    ]
    fitting.sort(key=lambda pair: pair[1].source.name != os.path.basename(path))
    if not fitting:
        sizes = ", ".join(exact(piece.size) for target in targets for piece in target.pieces)
        text = "adopt: %s has %s, %sthe pieces have %s: finish, move or remove it"
        raise Refusal(text % (path, exact(size), writer(loose.fd), sizes))
    proved = [pair for pair in fitting if needed_digest(*pair)]
    if not proved:
        text = (
            "adopt: %s: no sha256 of %s is known, one is needed to use it: give that sha256, or move the file away "
            "and it is fetched"
        )
        raise Refusal(text % (path, fitting[0][1].source.name))
    return proved[0]


def extra_disk(pieces: Sequence[Loose]) -> int:
    """Bytes needed for a moment beyond the finished files: the largest piece that is copied and then removed."""
    return max([loose.piece.size for loose in pieces if loose.ours and not loose.becomes_partial()] or [0])


def needed_digest(target: Target, piece: Piece) -> tuple[int, str] | None:
    """(span number, needed sha256) of the span that is exactly this piece, or None."""
    for number, span in enumerate(target.spans):
        if (span.start, span.end) == (piece.offset, piece.offset + piece.size) and span.sha256:
            return number, span.sha256
    return None


def adopt(pieces: Sequence[Loose], advance: Advance) -> None:
    """Use what loose_pieces() found: the targets are loaded but not open before, open but not allocated after.

    advance(bytes) is called as it goes. Raises Refusal when a piece's digest is not the needed one; that piece is left
    as it is.
    """
    renamed = [loose for loose in pieces if loose.becomes_partial()]
    for loose in renamed:
        _rename(loose, advance)
    for target in {id(loose.target): loose.target for loose in pieces}.values():
        target.open()
    for loose in renamed:
        # Its name may have been exchanged at any moment since.
        if not os.path.samestat(os.fstat(loose.fd), os.fstat(loose.target.fd)):
            loose.target.discard()
            raise Refusal(
                "adopt: %s: was exchanged while it was used, a piece that stays is needed: look at who writes its "
                "directory" % loose.path
            )
    for loose in sorted((loose for loose in pieces if loose not in renamed), key=lambda loose: loose.piece.size):
        if loose.target.ranges.gaps(loose.piece.offset, loose.piece.offset + loose.piece.size):
            _copy(loose, advance)
        if loose.ours:
            os.unlink(loose.path)
            loose.close()


def _rename(loose: Loose, advance: Advance) -> None:
    target, before = loose.target, os.fstat(loose.fd)
    _accept(loose, hash_pieces(loose.path, [loose.piece.size], advance, loose.fd)[0])
    os.fsync(loose.fd)
    _require_unchanged(loose.path, before, os.fstat(loose.fd))
    target.ranges.add(0, loose.piece.size)
    target.discard()
    # Recorded before it is renamed: a partial file without a record would be thrown away by the next run.
    target.journal.start(target.identity, target.ranges)
    os.rename(loose.path, target.partial)


def _copy(loose: Loose, advance: Advance) -> None:
    start, end = loose.piece.offset, loose.piece.offset + loose.piece.size
    target = loose.target
    try:
        _accept(loose, _copied(loose, advance))
    except BaseException:
        target.forget(start, end)
        raise
    target.ranges.add(start, end)
    target.journal.add(start, end)
    target.flush()
    target.journal.durable(target.journal.count)


def _copied(loose: Loose, advance: Advance) -> str:
    """Write a piece to its place. -> sha256 of what was written"""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(BLOCK))
    position, end = loose.piece.offset, loose.piece.offset + loose.piece.size
    with open(os.dup(loose.fd), "rb", buffering=0) as stream:
        stream.seek(0)
        while position < end:
            count = stream.readinto(buffer[: end - position])
            if not count:
                raise Refusal(f"adopt: {loose.path} became shorter while it was read: run again")
            digest.update(buffer[:count])
            try:
                written = 0
                while written < count:
                    written += os.pwrite(loose.target.fd, buffer[written:count], position + written)
            except OSError as error:
                raise disk_failure(loose.target.partial, error) from None
            position += count
            advance(count)
    return digest.hexdigest()


def _accept(loose: Loose, found: str) -> None:
    number, needed = needed_digest(loose.target, loose.piece) or (0, None)
    if found != needed:
        name = loose.piece.source.name
        raise Refusal(
            f"adopt: {loose.path} has sha256 {found}, {name} needs {needed}: move or remove it and it is fetched"
        )
    loose.target.digests[number] = found
