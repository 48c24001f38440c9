# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gguf_fetch beside what people use instead: a model in two raw pieces, from a server on loopback, joined, and proved
where the way proves.

Each way runs in its own process group in every round, one after the other; medians are shown. Wall and CPU time (user
and system, all processes of the way, not the server's), peak disk in the folder, peak memory of the largest process,
bytes that crossed twice after a kill -9 in the middle and a second run, seconds from the last byte to the finished
file. gguf_fetch runs without Ansible, as wget and aria2c do; Ansible costs it what it costs get_url. Ways whose program
is missing are named and left out.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests/unit"))
import gguf_files  # noqa: E402

MIB = 1 << 20
MODES = {"per-connection": ["--connection-rate"], "total-cap": ["--total-rate"], "unthrottled": []}
FETCH = """
import sys
sys.path.insert(0, {plugins!r})
from module_utils._fetch.fetch import acquire
from module_utils._fetch.request import Request
acquire(Request("m.gguf", urls={urls!r}, sha256={sums!r}, connections=8))
"""


def make_model(folder, size):
    """A GGUF file of about ``size`` bytes in two raw pieces. -> [(name, bytes, sha256)]"""
    rows = max(2, size // (2 * 4096 * 64))
    tensors = [("blk.%d.weight" % number, (4096, rows), 1) for number in range(64)]
    header = gguf_files.header_bytes([("general.architecture", gguf_files.STRING, "llama")], tensors)
    total = len(header) + -len(header) % 32 + sum(gguf_files.tensor_bytes(dims, kind) for _name, dims, kind in tensors)
    pieces, position, pending = [], 0, header
    for name, end in (("m.gguf.part1of2", int(total * 0.58)), ("m.gguf.part2of2", total)):
        digest, begin = hashlib.sha256(), position
        with open(folder / name, "wb") as stream:
            while position < end:
                block = (pending + os.urandom(MIB))[: end - position]
                pending = b""
                stream.write(block)
                digest.update(block)
                position += len(block)
        pieces.append((name, position - begin, digest.hexdigest()))
    return pieces


def ways(url, pieces):
    """{name: (program it needs, whether the result is proved, shell script)}; each script leaves m.gguf and may be run
    again."""
    names = [name for name, _size, _sha in pieces]
    urls = ["%s/%s" % (url, name) for name in names]
    sums = "".join("%s  %s\\n" % (sha, name) for name, _size, sha in pieces)
    join = "cat %s > m.gguf && rm %s" % (" ".join(names), " ".join(names))
    aria = "aria2c -q -c -x8 -s8 -k1M --file-allocation=falloc --auto-save-interval=1"
    fetch = FETCH.format(plugins=str(ROOT / "plugins"), urls=urls, sums=[sha for _name, _size, sha in pieces])
    ansible = "%s -m ansible adhoc localhost -i localhost, -c local -e ansible_python_interpreter=%s" % (
        sys.executable,
        sys.executable,
    )
    get_url = [
        '%s -m ansible.builtin.get_url -a "url=%s dest=$PWD/%s checksum=sha256:%s"' % (ansible, one, name, sha)
        for one, (name, _size, sha) in zip(urls, pieces)
    ]
    return {
        "gguf_fetch": ("true", True, "%s -c %s" % (sys.executable, quote(fetch))),
        "wget -c + sha256sum + cat": (
            "wget",
            True,
            "wget -q -c %s && printf '%s' | sha256sum -c --quiet && %s" % (" ".join(urls), sums, join),
        ),
        "aria2c -x8 --checksum + cat": (
            "aria2c",
            True,
            " && ".join(
                "%s --checksum=sha-256=%s %s" % (aria, sha, one) for one, (_name, _size, sha) in zip(urls, pieces)
            )
            + " && "
            + join,
        ),
        "aria2c -x8 + cat": ("aria2c", False, " && ".join("%s %s" % (aria, one) for one in urls) + " && " + join),
        "ansible get_url + cat": ("true", True, " && ".join(get_url) + " && " + join),
    }


def quote(text):
    return "'%s'" % text.replace("'", "'\\''")


class Watch(threading.Thread):
    """Samples the disk that a folder takes and the largest resident process of a group."""

    def __init__(self, folder, group):
        super().__init__(daemon=True)
        self.folder, self.group = folder, group
        self.disk = self.memory = 0
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(0.2):
            self.disk = max(self.disk, disk(self.folder))
            for status in Path("/proc").glob("[0-9]*/stat"):
                try:
                    fields = status.read_text().rpartition(")")[2].split()
                    if int(fields[2]) == self.group:
                        self.memory = max(self.memory, int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))
                except OSError:
                    continue


def disk(folder):
    used = 0
    for path in folder.rglob("*"):
        try:
            used += path.lstat().st_blocks * 512
        except FileNotFoundError:
            continue
    return used


def sent(url):
    with urllib.request.urlopen(url + "/sent") as answer:
        return json.load(answer)


def start(script, folder):
    own = str(folder / ".ansible")
    environment = dict(os.environ, ANSIBLE_CONFIG=own + "/none.cfg", ANSIBLE_LOCAL_TEMP=own, ANSIBLE_REMOTE_TMP=own)
    return subprocess.Popen(
        ["bash", "-ec", script], cwd=folder, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
    )


def measure(script, url, folder):
    begun = time.monotonic()
    process = start(script, folder)
    watch = Watch(folder, process.pid)
    watch.start()
    _pid, status, usage = os.wait4(process.pid, 0)
    ended = time.monotonic()
    watch.over.set()
    watch.join()
    if status:
        raise SystemExit("%s: failed with status %d" % (script, status))
    return {
        "wall": ended - begun,
        "cpu": usage.ru_utime + usage.ru_stime,
        "disk": max(watch.disk, disk(folder)),
        "memory": watch.memory,
        "after": ended - sent(url)["last"],
    }


def killed(script, url, folder, size):
    """Bytes that crossed twice when the way is killed half-way and run again."""
    before = sent(url)["bytes"]
    process = start(script, folder)
    while sent(url)["bytes"] - before < size // 2:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    measure(script, url, folder)
    return sent(url)["bytes"] - before - size


def check(folder, pieces):
    with open(folder / "m.gguf", "rb") as stream:
        for name, size, sha in pieces:
            digest, left = hashlib.sha256(), size
            while left:
                block = stream.read(min(left, MIB))
                digest.update(block)
                left -= len(block)
            if digest.hexdigest() != sha:
                raise SystemExit("%s: the bytes of %s are not those that were served" % (folder, name))


def run_mode(mode, rate, pieces, source, work, rounds):
    """-> {way: {figure: median}}"""
    command = [
        sys.executable,
        str(HERE / "server.py"),
        str(source),
        *(part for flag in MODES[mode] for part in (flag, str(rate))),
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    figures = {}
    try:
        url = server.stdout.readline().strip()
        size = sum(size for _name, size, _sha in pieces)
        for number in range(rounds):
            for way, (program, proved, script) in ways(url, pieces).items():
                if not shutil.which(program):
                    print("%s: %s is not installed, left out" % (way, program), file=sys.stderr)
                    continue
                found = figures.setdefault(way, {"proved": proved, "rows": []})
                with tempfile.TemporaryDirectory(dir=work) as folder:
                    row = measure(script, url, Path(folder))
                    check(Path(folder), pieces)
                if number == 0:
                    with tempfile.TemporaryDirectory(dir=work) as folder:
                        found["twice"] = killed(script, url, Path(folder), size)
                        check(Path(folder), pieces)
                found["rows"].append(row)
                print("%s %s %s" % (mode, way, {key: round(value, 1) for key, value in row.items()}), file=sys.stderr)
    finally:
        server.terminate()
        server.wait()
    return {
        way: dict(
            {key: statistics.median(row[key] for row in found["rows"]) for key in found["rows"][0]},
            proved=found["proved"],
            twice=found["twice"],
        )
        for way, found in figures.items()
    }


def table(mode, rate, size, rounds, figures):
    heading = mode if mode == "unthrottled" else "%s, %d MiB/s" % (mode, rate // MIB)
    lines = ["### %s: %.2f GB in 2 pieces, median of %d" % (heading, size / 1e9, rounds), ""]
    lines += [
        "| way | wall s | CPU s | peak disk | memory MB | fetched twice MB | after last byte s | proved |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for way, row in figures.items():
        cells = (
            way,
            row["wall"],
            row["cpu"],
            row["disk"] / size,
            row["memory"] / 1e6,
            row["twice"] / 1e6,
            row["after"],
            "yes" if row["proved"] else "no",
        )
        lines.append("| %s | %.1f | %.1f | %.2fx | %.0f | %.0f | %.1f | %s |" % cells)
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=float, default=3.2, help="size of the model in GB (default 3.2)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--rate", type=int, default=50, help="MiB/s of one connection; the total cap is four times that (default 50)"
    )
    parser.add_argument("--mode", choices=sorted(MODES), action="append", help="only this one; may be repeated")
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()), help="a folder with room for four times the model"
    )
    parser.add_argument("--json", type=Path, help="write all figures there too")
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory(dir=options.work) as source:
        pieces = make_model(Path(source), int(options.size * 1e9))
        size = sum(size for _name, size, _sha in pieces)
        for mode in options.mode or MODES:
            rate = options.rate * MIB * (4 if mode == "total-cap" else 1)
            results[mode] = run_mode(mode, rate, pieces, Path(source), options.work, options.rounds)
            print(table(mode, rate, size, options.rounds, results[mode]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
