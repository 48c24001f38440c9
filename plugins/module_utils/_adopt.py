# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Using pieces that already lie on the node, with at most one piece's worth of extra disk.

A piece that begins its target becomes the partial file by a rename; every other one is copied to its place and removed
once its bytes are on disk and in the journal. What was adopted is therefore safe at any moment, either as the piece
itself or as a recorded range of the partial file.
"""

import contextlib
import errno
import hashlib
import os
import stat

from ._bytes import exact
from ._http import FetchError
from ._journal import is_ours, open_regular
from ._manifest import hash_pieces
from ._transfer import BLOCK, disk_failure


def open_model(path):
    """A descriptor of a model file of its own. Raises FetchError for a link and for a file with a second name; OSError."""
    try:
        return open_regular(path, os.O_RDONLY)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EINVAL):
            raise
        raise FetchError("%s: is a link or has a second name, a regular file of its own is needed: look at who made it, then remove it" % path) from None


@contextlib.contextmanager
def proving(path, check=False):
    """A descriptor by which a file is proved. What was proved is ours: its owner could write it and set its time back. check: it stays as it is.

    Raises FetchError as open_model() does and for one that is written meanwhile; OSError.
    """
    fd = open_model(path)
    try:
        before = os.fstat(fd)
        yield fd
        after = os.fstat(fd)
        if (before.st_size, before.st_mtime_ns, before.st_ctime_ns) != (after.st_size, after.st_mtime_ns, after.st_ctime_ns):
            raise FetchError("%s: was changed while it was read: run again when nobody writes it" % path)
        if not check and not is_ours(after):
            with contextlib.suppress(PermissionError):  # NFS with root_squash: every run proves it
                os.fchown(fd, os.geteuid(), os.getegid())
                os.fchmod(fd, stat.S_IMODE(after.st_mode) & 0o755)
    finally:
        os.close(fd)


def match_pieces(paths, targets):
    """-> [(path, target, piece)] of every path that exists; paths consumed by an earlier run are passed over.

    A path fits the piece of its size, preferably the one of its name. Raises FetchError for a file that fits none.
    """
    found, taken = [], set()
    for path in paths:
        if not os.path.exists(path):
            continue
        size = os.path.getsize(path)
        fitting = [(target, piece) for target in targets for piece in target.pieces if piece.size == size and piece not in taken]
        fitting.sort(key=lambda pair: pair[1].source.name != os.path.basename(path))
        if not fitting:
            sizes = ", ".join(exact(piece.size) for target in targets for piece in target.pieces)
            raise FetchError("adopt: %s has %s, the pieces have %s: finish, move or remove it" % (path, exact(size), sizes))
        taken.add(fitting[0][1])
        found.append((path,) + fitting[0])
    return found


def is_rename(path, target, piece):
    """Whether the piece can become the partial file itself, without a copy."""
    if piece.offset or target.ranges.total() or os.path.islink(path) or os.stat(path).st_nlink > 1:
        return False
    return os.stat(path).st_dev == os.stat(os.path.dirname(target.path)).st_dev


def extra_disk(matches):
    """Bytes needed for a moment beyond the finished files: the largest piece that has to be copied."""
    return max([piece.size for path, target, piece in matches if not is_rename(path, target, piece)] or [0])


def needed_digest(target, piece):
    """(span number, needed sha256 or None) of the span that is exactly this piece, or None."""
    for number, span in enumerate(target.spans):
        if (span.start, span.end) == (piece.offset, piece.offset + piece.size):
            return number, span.sha256
    return None


def adopt(matches, advance):
    """Consume the matched files into their targets: these are loaded but not open before, open but not allocated after.

    advance(bytes) is called as it goes. Raises FetchError when a piece's digest is not the needed one; that piece is left as it is.
    """
    renamed = [match for match in matches if is_rename(*match)]
    for path, target, piece in renamed:
        with proving(path) as fd:
            digest = hash_pieces(path, [piece.size], advance, fd)[0]
            _accept(path, target, piece, digest)
            os.fsync(fd)
        target.ranges.add(0, piece.size)
        target.discard()
        # Recorded before it is renamed: a partial file without a record would be thrown away by the next run.
        target.journal.start(target.identity, target.ranges)
        os.rename(path, target.partial)
    copied = sorted((match for match in matches if match not in renamed), key=lambda match: match[2].size)
    for target in {id(match[1]): match[1] for match in matches}.values():
        target.open()
    for path, target, piece in copied:
        if target.ranges.gaps(piece.offset, piece.offset + piece.size):
            _copy(path, target, piece, advance)
        os.unlink(path)


def _copy(path, target, piece, advance):
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(BLOCK))
    with open(path, "rb", buffering=0) as stream:
        position = piece.offset
        while position < piece.offset + piece.size:
            count = stream.readinto(buffer)
            if not count:
                raise FetchError("adopt: %s became shorter while it was read: run again" % path)
            digest.update(buffer[:count])
            try:
                written = 0
                while written < count:
                    written += os.pwrite(target.fd, buffer[written:count], position + written)
            except OSError as error:
                raise disk_failure(target.partial, error) from None
            position += count
            advance(count)
    _accept(path, target, piece, digest.hexdigest())
    target.ranges.add(piece.offset, piece.offset + piece.size)
    target.journal.add(piece.offset, piece.offset + piece.size)
    target.flush()
    target.journal.durable(target.journal.count)


def _accept(path, target, piece, found):
    exactly = needed_digest(target, piece)
    if exactly is None:
        return
    number, needed = exactly
    if needed and found != needed:
        raise FetchError("adopt: %s has sha256 %s, %s needs %s: move or remove it and it is fetched" % (path, found, piece.source.name, needed))
    target.digests[number] = found
