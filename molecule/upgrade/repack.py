"""repack.py ARCHIVE TARGET BUILD VERSION: a packed build under another name, with the programs of VERSION replaced (see REPLACED) and a true build.json."""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

# Whatever the machine does beside: what the worker computes leaves it at 50 kB/s, so a token, with the 200 kB of its scores, takes 4 seconds.
SLOW = """\
#!/usr/bin/env python3
import socket, subprocess, sys, threading, time
arguments = sys.argv[1:]
host, port = (arguments.index(name) + 1 for name in ("--host", "--port"))
listener = socket.create_server((arguments[host], int(arguments[port])), backlog=1)
arguments[host], arguments[port] = "127.0.0.1", str(int(arguments[port]) + 1000)
subprocess.Popen([__file__ + ".real", *arguments])


def pump(source, target, rate=0):
    try:
        while data := source.recv(1 << 16):
            time.sleep(len(data) / rate if rate else 0)
            target.sendall(data)
    except OSError:
        pass
    for side in (source, target):
        try:
            side.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


while True:
    head = listener.accept()[0]
    worker = None
    while not worker:
        try:
            worker = socket.create_connection((arguments[host], int(arguments[port])))
        except OSError:
            time.sleep(0.1)
    for side in (head, worker):
        side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=pump, args=(worker, head, 50e3))
    back.start()
    pump(head, worker)
    back.join()
    head.close()
    worker.close()
"""
REPLACED = {"b11436": ("ggml-rpc-server", SLOW)}


def main():
    archive, target, build, version = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="repack-") as name:
        tree = pathlib.Path(name)
        subprocess.run(["tar", "-C", tree, "-xzf", archive], check=True)
        if version in REPLACED:
            program, text = REPLACED[version]
            (tree / "bin" / program).rename(tree / "bin" / (program + ".real"))
            (tree / "bin" / program).write_text(text)
            (tree / "bin" / program).chmod(0o755)
        manifest = json.loads((tree / "build.json").read_text())
        files = {"bin/" + path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted((tree / "bin").iterdir())}
        manifest.update(build=build, version=version, files=files)
        (tree / "build.json").write_text(json.dumps(manifest, indent=4) + "\n")
        subprocess.run(["tar", "--owner=0", "--group=0", "--numeric-owner", "-C", tree, "-czf", target, "."], check=True)


if __name__ == "__main__":
    main()
