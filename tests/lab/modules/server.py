"""Runs on a lab's node: runs the modules of client.py's callers, each in a process that begins where Python, and what
Ansible's modules share, are loaded: four fifths of what a small module costs its node.

What is loaded is of the first module. A module that brings other contents, of another ansible-core, loads its own.
"""

import array
import atexit
import base64
import contextlib
import gc
import io
import os
import re
import select
import signal
import socket
import struct
import sys
import tempfile
import traceback
import types
import zipfile

ARCHIVE = re.compile(rb"^zip_data='([A-Za-z0-9+/=]+)'", re.MULTILINE)
LOADER = "ansible.module_utils._internal._ansiballz._loader"
# The module that installs what it has loaded.
READS = re.compile(r"/plugins/modules/node_programs\.py$")
SHARED = re.compile(r"ansible_collections/\w+/\w+/plugins/module_utils/.*\.py$")


class Here:
    """The place of a package in the archive of the module that runs, which is the first entry of the search path."""

    def __init__(self, package):
        self.tail = "/" + package.replace(".", "/")

    def __iter__(self):
        return iter([sys.path[0] + self.tail])


def received(connection, size):
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def request(connection):
    """-> (working directory, environment, the module's input, output and errors)"""
    files = array.array("i")
    size, ancillary, _flags, _address = connection.recvmsg(4, socket.CMSG_SPACE(3 * files.itemsize))
    for _level, _kind, content in ancillary:
        files.frombytes(content)
    words = received(connection, int.from_bytes(size, "big")).decode("utf-8", "surrogateescape").split("\0")
    return words[0], dict(word.split("=", 1) for word in words[1:]), list(files)


def contents(program):
    """-> (the module's archive, {path in it: checksum and size}); nothing for another program"""
    found = ARCHIVE.search(program)
    if not found:
        return b"", {}
    archive = base64.b64decode(found.group(1))
    listed = zipfile.ZipFile(io.BytesIO(archive)).infolist()
    return archive, {one.filename: (one.CRC, one.file_size) for one in listed}


class Loaded:
    """The files that modules share: {path in their archives: (module's name, checksum and size)}"""

    def __init__(self):
        self.known = {}
        self.failed = False

    def load(self, archive, sums):
        """Loads what an archive has more, if the rest is the same."""
        names = [] if self.known else [LOADER]
        names += [path[:-3].replace("/", ".") for path in sums if path not in self.known and SHARED.match(path)]
        if not names or LOADER.replace(".", "/") + ".py" not in sums or self.differs(sums):
            return
        with tempfile.NamedTemporaryFile(suffix=".zip") as stream:
            stream.write(archive)
            stream.flush()
            sys.path.insert(0, stream.name)
            try:
                for name in names:
                    __import__(name.removesuffix(".__init__"))
            except Exception:  # the module says it, in its own process
                self.failed = True
            finally:
                del sys.path[0]
        for path in sums:
            name = path[:-3].replace("/", ".").removesuffix(".__init__")
            if path not in self.known and name in sys.modules:
                self.known[path] = name, sums[path]
                if path.endswith("/__init__.py"):
                    sys.modules[name].__path__ = Here(name)
        gc.collect()
        gc.freeze()

    def differs(self, sums):
        return self.failed or any(sums.get(path, known) != known for path, (_name, known) in self.known.items())

    def use(self, sums):
        """For the module with these checksums, in its process: what is not in its archive is not there."""
        gone = [name for path, (name, _known) in self.known.items() if path not in sums]
        if self.differs(sums) or any(READS.search(path) for path in sums):
            gone = [name for name in sys.modules if name.partition(".")[0] in ("ansible", "ansible_collections")]
        for name in gone:
            del sys.modules[name]


def end(jobs, ready):
    """Tells clients how their modules have ended, and ends the modules of clients that have gone."""
    for process, (connection, child) in list(jobs.items()):
        if process in ready:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            with contextlib.suppress(OSError):
                connection.sendall(b"%d" % status)
            connection.close()
            os.close(process)
            del jobs[process]
        elif connection in ready:
            os.kill(child, signal.SIGKILL)


def serve():
    """-> the program of a module, in the process that is to run it"""
    # Not in a file system that may be unmounted.
    os.chdir("/")
    listener = socket.socket(fileno=int(sys.argv[1]))
    loaded = Loaded()
    # {descriptor of a module's process: (connection of its client, process)}
    jobs = {}
    while True:
        ready = select.select([listener, *jobs, *(connection for connection, _child in jobs.values())], [], [])[0]
        end(jobs, ready)
        if listener not in ready:
            continue
        connection, _address = listener.accept()
        user = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if user != os.geteuid():
            connection.close()
            continue
        try:
            folder, environment, files = request(connection)
            with open(files[0], "rb", closefd=False) as stream:
                program = stream.read()
        # Its client has ended meanwhile.
        except (OSError, EOFError):
            connection.close()
            continue
        archive, sums = contents(program)
        loaded.load(archive, sums)
        child = os.fork()
        if not child:
            break
        for descriptor in files:
            os.close(descriptor)
        jobs[os.pidfd_open(child)] = connection, child
    for one in (listener, connection, *(connection for connection, _child in jobs.values())):
        one.close()
    for target, descriptor in enumerate(files):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None
    loaded.use(sums)
    return program


def main():
    program = serve()
    sys.argv, sys.path[0] = [""], ""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    status = 0
    try:
        exec(compile(program, "<stdin>", "exec"), module.__dict__)
    except SystemExit as ended:
        status = ended.code or 0
        if not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    except BaseException as error:
        traceback.print_exception(error.with_traceback(error.__traceback__.tb_next))
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    # Without taking apart what is loaded.
    os._exit(status)


if __name__ == "__main__":
    main()
