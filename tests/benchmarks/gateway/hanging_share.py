# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A share that really hangs, under the two programs of the registry: a FUSE mount whose process is stopped.

Run by hanging_share.sh in a container with FUSE, as root. Prints what it measures, and exits 1 where somebody was held
up.
"""

import contextlib
import glob
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HANG = 40.0
PORT = 25081


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments):
        pass


class Beats(threading.Thread):
    """Listens to what a program tells systemd, and remembers the longest time without a word."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self.longest = 0.0
        self.start()

    def run(self):
        last = None
        while True:
            self._socket.recv(4096)
            now = time.monotonic()
            self.longest = max(self.longest, now - last) if last else 0.0
            last = now


class Watch(threading.Thread):
    """Samples a program's main process, and how many processes it has."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid = pid
        self.stuck = 0.0  # longest time in an uninterruptible call
        self.most = 0
        self.start()

    def run(self):
        since = None
        while True:
            try:
                with open("/proc/%d/stat" % self.pid) as stream:
                    state = stream.read().rpartition(")")[2].split()[0]
                with open("/proc/%d/task/%d/children" % (self.pid, self.pid)) as stream:
                    self.most = max(self.most, 1 + len(stream.read().split()))
            except OSError:
                return
            now = time.monotonic()
            since = (since or now) if state == "D" else None
            self.stuck = max(self.stuck, now - since if since else 0.0)
            time.sleep(0.02)


def until(done, seconds, words):
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > seconds:
            sys.exit("not within %d s: %s" % (seconds, words))
        time.sleep(0.05)
    return time.monotonic() - began


def main():
    work = tempfile.mkdtemp()
    real, share = os.path.join(work, "real"), os.path.join(work, "share")
    os.mkdir(real)
    os.mkdir(share)
    fuse = subprocess.Popen(["bindfs", "-f", real, share])
    until(lambda: os.path.ismount(share), 10, "the mount")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    record = {"service": "fast", "model": "m", "models": ["m"], "tier": "fast", "node": "gpu1", "host": "gpu1"}
    record.update(port=PORT, endpoint="http://10.0.0.31:%d/v1" % PORT, slots=2, slot_ctx_size=4096)
    record.update(build="b11434", quant="Q8_0", llama_workers=[], head_node="gpu1")
    told = {
        "writer": {"directory": share, "suffix": "14b", "url": "http://127.0.0.1:%d" % PORT, "record": record},
        "reader": {"directory": share, "hosts": {"gpu1": "10.0.0.31"}, "uids": [0]},
    }
    output = os.path.join(work, "registry.json")
    programs, beats, watches = {}, {}, {}
    for name, more in (("writer", []), ("reader", [output])):
        config = os.path.join(work, name + ".json")
        with open(config, "w") as stream:
            json.dump(told[name], stream)
        beats[name] = Beats(os.path.join(work, name + ".sock"))
        programs[name] = subprocess.Popen(
            [sys.executable, "-m", "llama_cluster.programs.registry_" + name, config, *more],
            env=dict(os.environ, NOTIFY_SOCKET=os.path.join(work, name + ".sock")),
        )
        watches[name] = Watch(programs[name].pid)

    def registry():
        with contextlib.suppress(FileNotFoundError), open(output) as stream:
            return json.load(stream)
        return {"age": None, "endpoints": []}

    def ready():
        return [one["state"] for one in registry()["endpoints"]] == ["ready"]

    rows = [("first seen ready by the gateway, s", until(ready, 20, "ready"), None)]
    fuse.send_signal(signal.SIGSTOP)
    began, missing = time.monotonic(), 0
    while time.monotonic() - began < HANG:
        missing += not ready()
        time.sleep(0.1)
    rows.append(("share hung, s", time.monotonic() - began, None))
    rows.append(("looks that missed the endpoint meanwhile", missing, 0))
    rows.append(("age told by registry.json at the end, s", registry()["age"], None))
    path = glob.glob(os.path.join(real, "*-14b.json"))[0]
    back = os.stat(path).st_mtime_ns
    fuse.send_signal(signal.SIGCONT)
    rows.append(("share back: read again after, s", until(lambda: registry()["age"] == 0, 15, "age 0"), 5))
    rows.append(("share back: written again after, s", until(lambda: back != os.stat(path).st_mtime_ns, 20, ""), 15))
    began = time.monotonic()
    while time.monotonic() - began < 35:
        missing += not ready()
        time.sleep(0.1)
    rows.append(("looks that missed it in 35 s after that", missing, 0))
    for name in programs:
        rows.append(("%s: longest uninterruptible call, s" % name, watches[name].stuck, 0.5))
        rows.append(("%s: most processes" % name, watches[name].most, 3))
    rows.append(("reader: longest time without a word to systemd, s", beats["reader"].longest, 5))
    # The server ends while the share hangs.
    fuse.send_signal(signal.SIGSTOP)
    time.sleep(1)
    began = time.monotonic()
    programs["writer"].terminate()
    programs["writer"].wait()
    rows.append(("writer: ends on SIGTERM while the share hangs after, s", time.monotonic() - began, 5))
    fuse.send_signal(signal.SIGCONT)
    rows.append(("its file is out of the registry after, s", until(lambda: not registry()["endpoints"], 60, "out"), 40))
    programs["reader"].terminate()
    programs["reader"].wait()
    subprocess.run(["umount", share], check=False)
    bad = False
    for words, seen, allowed in rows:
        over = allowed is not None and seen > allowed
        bad = bad or over
        print("| %-55s | %7.2f | %-7s |%s" % (words, seen, "" if allowed is None else allowed, " OVER" if over else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
