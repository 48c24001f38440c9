# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Getting one model onto this node: resolve, check the header, reserve, transfer, verify, publish.

Nothing stands under the model's name before it is whole: a complete size and header do not prove that (a preallocated
file passes both), a digest does. Whatever interrupts a run, the next one goes on from its journal.
"""

import contextlib
import fcntl
import os
import re
import stat
import time
from urllib.parse import quote

from ._adopt import adopt, extra_disk, loose_pieces, open_same, proving
from ._bytes import duration, exact, human
from ._gguf import check_shards, describe, read_header, shard_name, size_problem
from ._http import Client, FetchError, FileSource, attempts, clean_url, content_url, make_source, read_range, same_origin
from ._hub import DEFAULT_ENDPOINT, Hub, model_name, order_files, piece_name, select
from ._journal import open_regular
from ._manifest import covers, file_entry, find_manifests, hash_pieces, is_model_name, manifest_path, read_manifest, untouched, write_manifest
from ._transfer import DiskTooSmall, Piece, Span, Stopped, Target, Transfer, check_disk, disk_failure

_SHA256 = re.compile(r"^[0-9a-f]{64}\Z")


class Request(object):
    """What is wanted. Either urls (in order; http, https, file), or repo with files or quant.

    dest: the model's path, or an existing directory; sha256: hex digests, one per file, or a single one of the joined
    file; pieces: [{size, sha256}] of the joined file, in order; adopt: paths on this node to consume instead of fetching;
    copy_of: {url, files, commit}, a node that has the model: url is where it serves the files of its result();
    owner: whom the caller gives the files to, None where they are to be root's.
    """

    def __init__(self, dest, urls=None, repo=None, files=None, quant=None, revision="main", endpoint=DEFAULT_ENDPOINT,
                 token=None, sha256=None, pieces=None, adopt=None, connections=8, full=False, copy_of=None, owner=None):  # fmt: skip
        self.urls, self.repo, self.files, self.quant = urls or [], repo, files or [], quant
        self.revision, self.endpoint, self.token = revision, endpoint, token
        self.sha256, self.pieces = [digest.lower() for digest in sha256 or []], pieces or []
        self.adopt, self.connections, self.full, self.copy_of, self.owner = adopt or [], connections, full, copy_of, owner
        for digest in self.sha256 + [piece["sha256"] for piece in self.pieces]:
            if not _SHA256.match(digest):
                raise FetchError("sha256: %s is no sha256 digest: 64 hexadecimal digits are needed" % digest)
        if not 1 <= connections <= 16:
            raise FetchError("connections: %d given, 1 to 16 are possible: servers refuse more" % connections)
        if repo and not self.files and not quant:
            raise FetchError("repo: %s holds several models: name the quant, or the files of one" % repo)
        if copy_of and not copy_of["files"]:
            raise FetchError("copy_of: no files given, those of gguf_fetch on the node that has the model are needed")
        self.into_folder = dest.endswith("/") or os.path.isdir(dest)
        self.dest = os.path.abspath(dest)

    def identity(self):
        """What decides the content: two requests with the same identity want the same bytes. No secret is in it.

        A copy is known by what its original was fetched from, so that it is found again whichever node it came from.
        """
        if self.repo:
            asked = {"repo": self.repo, "revision": self.revision, "files": self.files, "quant": self.quant}
        else:
            asked = {"urls": [content_url(url) for url in self.urls]}
        return dict(asked, sha256=self.sha256, pieces=self.pieces)

    def folder(self):
        """The directory the model goes to, there or not."""
        return self.dest if self.into_folder else os.path.dirname(self.dest)


class Plan(object):
    """A resolved request. targets and headers: in the order of the model's files, None where nobody was asked; facts: what they say (describe())."""

    def __init__(self, targets, headers, commit):
        self.targets, self.headers, self.commit = targets, headers, commit
        self.facts = describe(headers) if headers[0] else {}
        self.path = targets[0].path
        self.size = sum(target.size for target in targets)
        self.verified = "sha256" if all(span.sha256 for target in targets for span in target.spans) else "size and header"


class Watch(object):
    """Whoever looks on: progress(state) is told how far it is, stopping() may give a reason to stop.

    state: {name: of the file; phase: fetch, verify or hash; done, total, moved: bytes; rate: bytes/s}.
    """

    def __init__(self, progress=None, stopping=None):
        self._progress, self.stopping = progress or (lambda state: None), stopping or (lambda: None)
        self.name = None

    def progress(self, state):
        self._progress(dict(state, name=self.name))

    def meter(self, path, total):
        """advance(bytes) for reading ``total`` bytes that are there already; raises Stopped."""
        self.name = os.path.basename(path)
        begun = time.monotonic()
        seen = {"done": 0, "told": begun}

        def advance(count):
            now = time.monotonic()
            seen["done"] += count
            if now - seen["told"] < 1.0:
                return
            seen["told"] = now
            self.progress({"phase": "hash", "done": seen["done"], "total": total, "moved": 0, "rate": seen["done"] / (now - begun)})
            reason = self.stopping()
            if reason:
                raise Stopped(reason)

        return advance


# Resolving


def resolve(request, client, check=False):
    """Find out what to fetch and prove by header and size that it belongs together, before any large transfer.

    -> Plan; raises FetchError, GGUFError.
    """
    pieces = request.pieces
    if request.copy_of:
        sources, digests, names, pieces = _resolve_copy(request, check)
        commit = request.copy_of["commit"]
    elif request.repo:
        sources, digests, names, commit = _resolve_repo(request, client)
    else:
        sources, digests, names, commit = _resolve_urls(request, client)
    if request.copy_of and check:
        # A node serves its files only while they are copied; what it said of them has to do.
        targets = _targets(request, sources, digests, names, pieces)
        return Plan(targets, [None] * len(targets), commit)
    for source in sources:
        attempts(lambda source=source: source.resolve(client))
    targets = _targets(request, sources, digests, names, pieces)
    headers = [_source_header(target, client) for target in targets]
    check_shards(headers, [target.pieces[0].source.name for target in targets])
    return Plan(targets, headers, commit)


def _resolve_repo(request, client):
    hub = Hub(client, request.repo, request.endpoint, request.token)
    commit = hub.commit(request.revision)
    chosen = select(hub.files(commit), request.repo, request.files, request.quant)
    digests = [entry.sha256 for entry in chosen]
    if request.sha256:
        if len(request.sha256) != len(chosen):
            raise FetchError("sha256: %d digests given, %s has %d files: give one per file" % (len(request.sha256), request.repo, len(chosen)))
        for entry, wanted in zip(chosen, request.sha256):
            if entry.sha256 not in (None, wanted):
                raise FetchError("%s: the hub says sha256 %s, %s needed: check revision and sha256" % (entry.path, entry.sha256, wanted))
        digests = request.sha256
    return [hub.source(commit, entry) for entry in chosen], digests, [entry.path for entry in chosen], commit


def _resolve_urls(request, client):
    sources = [make_source(url) for url in request.urls]
    for source in sources:
        if request.token and not isinstance(source, FileSource) and same_origin(source.url, clean_url(request.endpoint)):
            source.token = request.token
    names = [source.name for source in sources]
    if all(shard_name(name) or piece_name(name) for name in names) and order_files(names) != names:
        raise FetchError("urls: %s are not in order: give them by number" % ", ".join(names))
    digests = request.sha256 if len(request.sha256) == len(sources) else [None] * len(sources)
    if request.sha256 and len(request.sha256) not in (1, len(sources)):
        raise FetchError("sha256: %d digests given for %d urls: give one per URL, or one of the joined file" % (len(request.sha256), len(sources)))
    return sources, digests, names, None


def _resolve_copy(request, check):
    """As the others, with the pieces of the one file instead of a commit. Every byte must be provable, in check mode it may become so."""
    files = request.copy_of["files"]
    names = [os.path.basename(entry["path"]) for entry in files]
    known = [piece["sha256"] for entry in files for piece in entry["pieces"]]
    if not check and None in known:
        raise FetchError("copy_of: %s has no sha256 on the node that has it, one is needed: fetch it there with reverify: full" % names[known.index(None)])
    if len(known) == len(request.sha256):
        for name, digest, wanted in zip(names * len(known), known, request.sha256):
            if digest not in (None, wanted):
                raise FetchError("copy_of: %s has sha256 %s, %s needed: another model is there" % (name, digest, wanted))
    sources = [make_source(request.copy_of["url"].rstrip("/") + "/" + quote(name)) for name in names]
    for source, entry in zip(sources, files):
        source.size = entry["size"]
    if shard_name(names[0]):
        return sources, [entry["pieces"][0]["sha256"] for entry in files], names, []
    return sources, [None] * len(files), names, files[0]["pieces"]


def _targets(request, sources, digests, names, known):
    base = model_name(names)
    if shard_name(base):
        if known or len(digests) > 1 and len(request.sha256) == 1:
            raise FetchError("%s: shards stay separate files: give one sha256 per shard" % base)
        folder = request.folder()
        groups = [(os.path.join(folder, source.name), [source], [digest]) for source, digest in zip(sources, digests)]
    else:
        path = os.path.join(request.dest, base) if request.into_folder else request.dest
        groups = [(path, sources, digests)]
    for path, _sources, _digests in groups:
        if not path.endswith(".gguf"):
            raise FetchError("dest: %s does not end in .gguf: llama.cpp and this collection find models by that name" % path)
        # Hubs, URLs and other nodes have a say in it.
        if not is_model_name(os.path.basename(path)):
            raise FetchError("dest: %r is hidden, has more than 220 bytes or holds what cannot be printed: give the model's path as dest" % path)
    return [_target(request, known, *group) for group in groups]


def _target(request, known, path, sources, digests):
    pieces, offset = [], 0
    for source in sources:
        pieces.append(Piece(source, offset, source.size))
        offset += source.size
    spans = [Span(piece.offset, piece.offset + piece.size, digest, piece.source.name) for piece, digest in zip(pieces, digests)]
    if known:
        spans, start = [], 0
        for number, piece in enumerate(known):
            spans.append(Span(start, start + piece["size"], piece["sha256"] and piece["sha256"].lower(), "%s, piece %d" % (os.path.basename(path), number + 1)))
            start += piece["size"]
        if start != offset:
            raise FetchError("pieces: they have %s, %s has %s: another file is there" % (exact(start), os.path.basename(path), exact(offset)))
    elif len(request.sha256) == 1 and len(sources) > 1:
        spans = [Span(0, offset, request.sha256[0], os.path.basename(path))]
    # With a digest the content is certain wherever it comes from; without one only the same URL with the same validator may go on.
    if all(span.sha256 for span in spans):
        identity = [[span.end - span.start, span.sha256] for span in spans]
    else:
        identity = [[source.size, source.identity, source.validator or "unknown at %f" % time.time()] for source in sources]
    return Target(path, pieces, spans, identity)


def _source_header(target, client):
    """The header of a target, read from its first source, checked against the sizes of all pieces."""
    first = target.pieces[0].source
    header = read_header(lambda offset, length: read_range(first, client, offset, length), first.public)
    problem = size_problem(header, target.size, first.public)
    if problem and len(target.pieces) > 1:
        problem = "%s: %d pieces have %s together, %s needed by its header: a piece is missing or belongs to another model" % (
            os.path.basename(target.path), len(target.pieces), exact(target.size), exact(header.expected_size))  # fmt: skip
    if problem:
        raise FetchError(problem)
    return header


# What is there already


def unchanged(request, watch, check=False, hashing=True):
    """The result for a model that was published for this request and is untouched since; None when there is none.

    A file with another time, inode or owner is hashed, and the record renewed unless ``check``; without ``hashing`` None says that
    it would have to be. Raises FetchError when it is no longer what was published.
    """
    folder = request.folder()
    # Shards keep their names, and a folder as dest leaves the name to the source: there the request alone decides.
    found = [
        (path, manifest)
        for path, manifest in find_manifests(folder, request.identity())
        if request.into_folder or path == request.dest or shard_name(os.path.basename(path))
    ]
    if not found:
        return None
    path, manifest = found[0]
    entries = [(entry, os.path.join(folder, entry["name"])) for entry in manifest["files"]]
    try:
        touched = [(entry, at) for entry, at in entries if not untouched(entry, os.lstat(at)) or request.full]
    except FileNotFoundError:
        return None
    if touched and not hashing:
        return None
    for entry, at in touched:
        # A file that the caller gives away is proved by each run, and not given to and fro.
        with proving(at, check or request.owner is not None) as fd:
            status = os.fstat(fd)
            if status.st_size != entry["size"]:
                raise FetchError("%s: has %s, %s were published: remove it and run again" % (at, exact(status.st_size), exact(entry["size"])))
            _compare(at, entry["pieces"], watch.meter(at, status.st_size), fd)
        entry.update(file_entry(entry["name"], status, entry["pieces"]))
    if touched and not check:
        write_manifest(manifest_path(path), manifest)
    return result(manifest, folder, False, "%s is there, %s" % (path, "hashed again" if touched else "untouched since it was published"))


def _compare(path, pieces, advance, fd):
    """Hash a file against [{size, sha256}]; digests nobody knew are filled in."""
    for piece, digest in zip(pieces, hash_pieces(path, [piece["size"] for piece in pieces], advance, fd)):
        if piece["sha256"] not in (None, digest):
            raise FetchError("%s: sha256 is %s, %s needed: damaged or replaced, remove it and run again" % (path, digest, piece["sha256"]))
        piece["sha256"] = digest


def existing_entry(target, header, watch, check=False):
    """-> (manifest entry of the file that already stands under the target's name, whether a manifest has it); None when there is none.

    It must be what was asked for: by digest where one is known, else by exact size and the source's own header (models of
    one family and quant have the same size). Raises FetchError.
    """
    if not os.path.lexists(target.path):
        return None
    with proving(target.path, check) as fd:
        return _existing_entry(target, header, watch, fd)


def _existing_entry(target, header, watch, fd):
    status = os.fstat(fd)
    size = status.st_size
    source = target.pieces[0].source.name
    if size != target.size:
        raise FetchError("%s: is there with %s, %s has %s: remove it or choose another dest" % (target.path, exact(size), source, exact(target.size)))
    wanted = [{"size": span.end - span.start, "sha256": span.sha256} for span in target.spans]
    name = os.path.basename(target.path)
    manifest = read_manifest(manifest_path(target.path))
    recorded = [
        entry for entry in (manifest["files"] if manifest else []) if entry["name"] == name and untouched(entry, status) and covers(entry["pieces"], wanted)
    ]
    if any(piece["sha256"] for piece in wanted):
        if recorded:
            return recorded[0], True
        try:
            _compare(target.path, wanted, watch.meter(target.path, size), fd)
        except FetchError:
            raise FetchError("%s: is there, but its sha256 is not that of %s: remove it or choose another dest" % (target.path, source)) from None
    elif header and read_header(lambda offset, length: os.pread(fd, length, offset), target.path) != header:
        raise FetchError("%s: is there, but its header is not that of %s: remove it or choose another dest" % (target.path, source))
    # Without a digest the record, which may be of another source, does not replace the look at the header.
    if recorded:
        return recorded[0], True
    # Whoever put it there did not ask us: it is used, and not ours to remove.
    return dict(file_entry(name, status, wanted), found=True), False


@contextlib.contextmanager
def lock(path):
    """One run at a time per model. Raises FetchError when another one is at it."""
    name = path + ".lock"
    while True:
        fd = open_regular(name, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise FetchError("%s: another run is fetching it: wait for that one" % path) from None
        try:
            same = os.stat(name).st_ino == os.fstat(fd).st_ino
        except FileNotFoundError:
            same = False
        if same:
            break
        os.close(fd)  # its last holder removed it between our open and flock
    try:
        yield
    finally:
        os.unlink(name)
        os.close(fd)


# The run


def acquire(request, check=False, watch=None):
    """Have the model at its place. check: find out everything, change nothing.

    -> the dictionary of result(); raises FetchError, GGUFError, Stopped.
    """
    try:
        return _acquire(request, check, watch or Watch())
    except OSError as error:
        raise disk_failure(error.filename or request.dest, error) from None


def _acquire(request, check, watch):
    started = time.monotonic()
    done = unchanged(request, watch, check)
    if done:
        return done
    client = Client()
    try:
        plan = resolve(request, client, check)
    finally:
        client.close()
    if check:
        return _foretell(request, plan, watch)
    if not os.path.isdir(request.folder()):
        raise FetchError("dest: %s is not a directory: create it first" % request.folder())
    with lock(plan.path):
        return unchanged(request, watch) or _perform(request, plan, started, watch)


def _missing(plan, watch, check=False):
    """-> ({target path: manifest entry} of files that are there and good, [targets to fetch], whether anything is to be recorded)"""
    entries, missing, news = {}, [], False
    for target, header in zip(plan.targets, plan.headers):
        found = existing_entry(target, header, watch, check)
        if found:
            entries[target.path] = found[0]
            news = news or not found[1]
        else:
            target.load()
            missing.append(target)
    return entries, missing, news or bool(missing)


def _reserve(missing, pieces):
    """See that the disk suffices. pieces: those of loose_pieces()."""
    if not missing:
        return
    needed = sum(target.missing_disk() for target in missing)
    needed -= sum(loose.piece.size for loose in pieces if loose.ours)
    size = sum(target.size for target in missing)
    first, kept = missing[0].path, _kept(pieces)
    try:
        check_disk(os.path.dirname(first), os.path.basename(first), size, max(0, needed) + extra_disk(pieces))
    except DiskTooSmall as error:
        if not kept:
            raise
        text = "%s; %s would be used without a copy if only root could write it: chown root, chmod go-w" % (error, ", ".join(kept))
        raise DiskTooSmall(text, error.disk["folder"], error.disk["free"], error.disk["missing"]) from None


def _kept(pieces):
    """Paths of pieces that are copied and stay: they are not root's alone."""
    return [loose.path for loose in pieces if not loose.ours]


def _foretell(request, plan, watch):
    """What a run would do, for check mode."""
    entries, missing, news = _missing(plan, watch, check=True)
    with loose_pieces(request.adopt, missing) as pieces:
        _reserve(missing, pieces)
        kept = _kept(pieces)
    names = [name for target in missing for name in _alike(target)]
    for target in missing:
        pieces = [{"size": span.end - span.start, "sha256": span.sha256} for span in target.spans]
        entries[target.path] = {"name": os.path.basename(target.path), "size": target.size, "pieces": pieces}
    outcome = "would be fetched" if missing else "is there"
    foretold = result(_manifest(request, plan, entries), os.path.dirname(plan.path), news, "%s (%s) %s" % (plan.path, human(plan.size), outcome))
    return dict(foretold, alike=names, kept=kept)


def _alike(target):
    """Models beside a target that have its size: one of them may be it, under another name. Models of one family have one size, too."""
    folder = os.path.dirname(target.path)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    # The directory may be somebody else's, and a name goes to the operator's screen.
    return [name for name in names if is_model_name(name) and name != os.path.basename(target.path) and _file_size(folder, name) == target.size]


def _file_size(folder, name):
    """Bytes of a regular file, None of anything else."""
    try:
        status = os.lstat(os.path.join(folder, name))
    except FileNotFoundError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@contextlib.contextmanager
def _copied_on_node(plan, missing, watch):
    """Have targets that lie beside under another name copied from there, instead of fetched. -> bytes of them

    That file stays what it is: somebody may use it by its name.
    """
    headers = dict(zip([target.path for target in plan.targets], plan.headers))
    copied = 0
    with contextlib.ExitStack() as stack:
        for target in missing:
            proved = all(span.sha256 for span in target.spans) and not target.ranges.total()
            for name in _alike(target) if proved else ():
                path = os.path.join(os.path.dirname(target.path), name)
                fd = open_same(path, target, headers[target.path], watch.meter(target.path, target.size))
                if fd is not None:
                    stack.callback(os.close, fd)
                    # Not by its name, which may lead elsewhere by now.
                    source = FileSource("/proc/self/fd/%d" % fd)
                    source.resolve(None)
                    target.pieces = [Piece(source, 0, target.size)]
                    copied += target.size
                    break
        yield copied


def _perform(request, plan, started, watch):
    entries, missing, news = _missing(plan, watch)
    resumed = sum(target.ranges.total() for target in missing)
    moved = copied = 0
    try:
        with loose_pieces(request.adopt, missing) as pieces:
            _reserve(missing, pieces)
            adopted, kept = sum(loose.piece.size for loose in pieces), _kept(pieces)
            adopt(pieces, watch.meter(plan.path, adopted))
        for target in missing:
            if target.fd is None:
                target.open()
            target.allocate()
        if missing:
            with _copied_on_node(plan, missing, watch) as copied:
                transfer = Transfer(missing, request.connections, watch.progress, watch.stopping)
                transfer.run()
            moved = transfer.moved - copied
            _verify(missing)
        _publish(request, plan, entries, missing)
    finally:
        for target in missing:
            target.close()
    seconds = time.monotonic() - started
    counts = ((moved, " fetched"), (copied, " copied on the node"), (resumed, " resumed"), (adopted, " adopted"))
    parts = [human(count) + what for count, what in counts if count]
    outcome = "%s in %s" % (", ".join(parts), duration(seconds)) if missing else "is there and proved"
    if kept:
        outcome += "; copied and still there, because not only root may write it: %s" % ", ".join(kept)
    done = result(_manifest(request, plan, entries), os.path.dirname(plan.path), news, "%s: %s" % (plan.path, outcome))
    return dict(done, transferred=moved, resumed=resumed, adopted=adopted, kept=kept, seconds=round(seconds, 1))


def _verify(targets):
    """Header and exact size of what is on disk now, as llama.cpp will read it."""
    for target in targets:
        header = read_header(lambda offset, length, fd=target.fd: os.pread(fd, length, offset), target.partial)
        problem = size_problem(header, os.fstat(target.fd).st_size, target.partial)
        if problem:
            target.discard()
            raise FetchError(problem)


def _publish(request, plan, entries, targets):
    """Give the files their names. The manifest comes first: a model without one would have to be hashed again."""
    for target in targets:
        target.flush()
        os.fsync(target.fd)
        pieces = [{"size": span.end - span.start, "sha256": digest} for span, digest in zip(target.spans, target.digests)]
        entries[target.path] = file_entry(os.path.basename(target.path), os.fstat(target.fd), pieces)
    write_manifest(manifest_path(plan.path), _manifest(request, plan, entries))
    # The first shard last: it is the one that gets loaded.
    for target in reversed(targets):
        target.publish()
    sync_folder(os.path.dirname(plan.path))
    for target in targets:
        target.journal.delete()


def sync_folder(folder):
    """Have the names in a folder on disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _manifest(request, plan, entries):
    return {
        "request": request.identity(),
        "commit": plan.commit,
        "verified": plan.verified,
        "gguf": plan.facts,
        "files": [entries[target.path] for target in plan.targets],
    }


def result(manifest, folder, changed, message):
    """What the module returns, from the record of a model."""
    files = [{"path": os.path.join(folder, entry["name"]), "size": entry["size"], "pieces": entry["pieces"]} for entry in manifest["files"]]
    pieces = [piece for entry in files for piece in entry["pieces"]]
    return {
        "changed": changed,
        "msg": message,
        "dest": files[0]["path"],
        "files": files,
        "size": sum(entry["size"] for entry in files),
        "sha256": pieces[0]["sha256"] if len(pieces) == 1 else None,
        "verified": manifest["verified"],
        "commit": manifest["commit"],
        "gguf": manifest["gguf"],
        "transferred": 0,
        "resumed": 0,
        "adopted": 0,
        "kept": [],
        "seconds": 0.0,
    }
