# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes in namespaces of this machine, without a container engine: a Debian root and systemd for each, and a controller
that has the Ansible which is carried along. Needs root, util-linux and Python 3.9.

Two bridges join them, Ethernet and fabric, in the controller's network namespace: this machine's own network is not
touched. All of it lies below one directory, and ends with the process of each node.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
NODES = {"card1": 11, "card2": 12, "card3": 13}
NETWORKS = {"eth0": "10.215.0", "fab0": "10.216.0"}
ENTER = ("--mount", "--uts", "--ipc", "--net", "--root")
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Libraries that a computing process loads: of the driver's user space, and of CUDA's toolkit.
DRIVER = ("libcuda.so", "libnvidia-ml.so", "libnvidia-ptxjitcompiler.so", "libnvidia-nvvm.so", "libnvidia-gpucomp.so")
TOOLKIT = ("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13")
PLACES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda*/lib64",
    "/usr/local/cuda*/targets/*/lib",
    "/usr/local/lib/python3*/*-packages/nvidia/cu13/lib",
    "/usr/local/lib/python3*/*-packages/nvidia/*/lib",
    "/opt/*/lib/python3*/site-packages/nvidia/cu13/lib",
)
# A file in a directory that the test has made.
MARK = ".card-test"
# Libraries are bound here, below the root.
LIBRARIES = "usr/local/lib"


class Failed(Exception):
    """Stops the test; its text is one sentence for the operator."""


def run(words, **more):
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False, **more)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise Failed("%s failed with status %d: %s" % (" ".join(map(str, words[:6])), done.returncode, said))
    return done.stdout


def render_nodes():
    """-> [(source, target below the root)] of the cards' render nodes; raises Failed without one"""
    found = sorted(glob.glob("/dev/dri/renderD*"))
    if not found:
        raise Failed("/dev/dri/renderD128: missing, a card of AMD or Intel and its kernel driver are needed")
    return [(one, one[1:]) for one in found]


def card_binds():
    """-> [(source, target below the root)] of the card's files for the nodes; raises Failed if one is missing"""
    devices = sorted(glob.glob("/dev/nvidia[0-9]*") + glob.glob("/dev/nvidia-uvm*") + glob.glob("/dev/nvidiactl"))
    if not [one for one in devices if one[len("/dev/nvidia") :].isdigit()]:
        raise Failed("/dev/nvidia0: missing, a card and its driver are needed: try --cpu on a machine without one")
    binds = [(one, one[1:]) for one in devices]
    tool = shutil.which("nvidia-smi")
    if not tool:
        raise Failed("nvidia-smi: not found, the driver's own tool is needed: install the driver's user space")
    binds.append((os.path.realpath(tool), "usr/bin/nvidia-smi"))
    folders = [folder for place in PLACES for folder in sorted(glob.glob(place), reverse=True)]
    folders += [one for one in os.environ.get("LD_LIBRARY_PATH", "").split(":") if one.startswith("/")]
    for name in DRIVER + TOOLKIT:
        found = [path for folder in folders for path in glob.glob("%s/%s*" % (folder, name))]
        seen = {}
        for path in found:
            # Stubs are for linkers, and of links each name is bound.
            if "stubs" not in path:
                seen.setdefault(os.path.basename(path), os.path.realpath(path))
        if not seen and name in (*DRIVER[:2], *TOOLKIT):
            raise Failed(
                "%s: not found below %s, it is needed by the build: add its directory to LD_LIBRARY_PATH"
                % (name, ", ".join(PLACES[:4]))
            )
        binds += [(path, "%s/%s" % (LIBRARIES, base)) for base, path in seen.items()]
    return binds


def words_of(kind):
    """-> the words of make card that a kind needs"""
    return "" if kind == "cuda" else " ARGS=--" + kind


def first_process(holder):
    """-> of a holder's children the one that is the first of a PID namespace, None without one"""
    for child in Path("/proc/%d/task/%d/children" % (holder, holder)).read_text().split():
        status = Path("/proc/%s/status" % child).read_text()
        if re.search(r"^NSpid:.*\s1$", status, re.MULTILINE):
            return child
    return None


class Machine:
    """prepared: the folder that prepare.sh made; state: a directory of its own, which it makes and removes; kind: cpu,
    cuda or vulkan."""

    def __init__(self, prepared, state, kind):
        self.prepared, self.state, self.kind = Path(prepared), Path(state), kind
        # The name of its control groups: several runs on one machine keep apart.
        self.name = "llama-card-" + hashlib.sha256(str(self.state).encode()).hexdigest()[:8]

    def own(self):
        """Makes the directory, where it is missing. Failed for one that it did not make: it removes all of it."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        status, mark = self.state.stat(), self.state / MARK
        if status.st_uid != os.geteuid() or status.st_mode & 0o022 or any(self.state.iterdir()) and not mark.exists():
            raise Failed(
                "%s: files of others seen, or others may write there, a directory that is missing or empty is needed: "
                "name another one with --state" % self.state
            )
        mark.touch()

    # -- what there is

    def pid(self, name):
        """-> the process that has the namespaces of a node or of the controller, None where it does not run"""
        try:
            number = int((self.state / (name + ".pid")).read_text())
            return number if self._marked(number, "LLAMA_CARD") else None
        except (OSError, ValueError):
            return None

    def _marked(self, number, variable):
        """Whether a process is of this test: a number may be another one's by now."""
        entries = Path("/proc/%d/environ" % number).read_bytes().split(b"\0")
        return ("%s=%s" % (variable, self.name)).encode() in entries

    def up(self):
        return all(self.pid(name) for name in ("controller", *NODES))

    def inside(self, name, *words, **more):
        """Runs a command on a node or the controller -> subprocess.CompletedProcess"""
        # The controller sees all processes: what it does to nodes goes by them.
        more.setdefault("timeout", 600)
        own = () if name == "controller" else ("--pid", "--cgroup")
        enter = ["nsenter", "--target", str(self.pid(name)), *ENTER, *own, "--"]
        return subprocess.run(
            [*enter, "env", "-i", "--chdir=/", PATH, "LANG=C.UTF-8", "HOME=/root", *words],
            check=False,
            **{"capture_output": True, "text": True, "errors": "replace", **more},
        )

    def sh(self, name, command, **more):
        """-> what it prints; Failed where it fails"""
        done = self.inside(name, "sh", "-c", command, **more)
        if done.returncode:
            raise Failed(
                "%s: %s: status %d: %s" % (name, command, done.returncode, (done.stderr + done.stdout)[-1500:])
            )
        return done.stdout

    # -- making it

    def make(self):
        """Roots, where they are missing, and three nodes that have booted."""
        self.end()
        binds = {"cpu": list, "cuda": card_binds, "vulkan": render_nodes}[self.kind]()
        base = self.state / "base"
        if not base.exists():
            for name in ("root.tar.xz", "ansible.tar.xz"):
                if not (self.prepared / name).exists():
                    raise Failed(
                        "%s: missing, it is needed: run make card WHAT=prepare%s first, on a machine with a network"
                        % (self.prepared / name, words_of(self.kind))
                    )
            unpacked = self.state / "base.partial"
            shutil.rmtree(unpacked, ignore_errors=True)
            self._unpack("root.tar.xz", unpacked)
            self._unpack("ansible.tar.xz", unpacked / "srv")
            for python in (unpacked / "etc").glob("python3.*"):
                (python / "sitecustomize.py").write_bytes((CHECKOUT / "tests/lab/sitecustomize.py").read_bytes())
            unpacked.rename(base)
        # Compiled by earlier runs, perhaps of another checkout.
        for folder in ("code", "home/compiled"):
            shutil.rmtree(self.state / folder, ignore_errors=True)
        for folder in ("models", "home", "code"):
            (self.state / folder).mkdir(exist_ok=True)
        self._start_controller(base)
        for node in NODES:
            root = self.state / node
            shutil.rmtree(root, ignore_errors=True)
            run(["cp", "-a", "--reflink=auto", str(base), str(root)])
            (root / "etc/hostname").write_text(node + "\n")
            (root / "etc/machine-id").write_text("")
            hosts = ["127.0.0.1 localhost"] + ["10.215.0.%d %s" % (number, name) for name, number in NODES.items()]
            (root / "etc/hosts").write_text("\n".join(hosts) + "\n")
            # Modules of Ansible are compiled once, as in the lab.
            shared = [(str(self.state / "models"), "srv/models"), (str(self.state / "code"), "var/cache/ansible-code")]
            self._start_node(node, root, [*binds, *shared])
        self._wait()

    def _unpack(self, name, place):
        place.mkdir(parents=True, exist_ok=True)
        with tarfile.open(self.prepared / name) as archive:
            # Made by prepare.sh: devices and owners are meant.
            if hasattr(tarfile, "fully_trusted_filter"):
                archive.extraction_filter = tarfile.fully_trusted_filter
            archive.extractall(place)

    def _start_controller(self, base):
        script = """set -eu
mount --make-rprivate /
cd "$1"
mount -t proc proc proc
mount -t tmpfs -o mode=1777 tmpfs tmp
mount --rbind /dev dev
mkdir -p srv/checkout srv/prepared srv/state srv/builds
mount --bind "$2" srv/checkout
mount --bind "$3" srv/prepared
mount --bind "$4" srv/state
mount --bind "$5" srv/builds
ip() { chroot . ip "$@"; }
ip link set lo up
for one in eth0=10.215.0.1 fab0=10.216.0.1; do
    ip link add "${one%%=*}" type bridge
    ip address add "${one#*=}/24" dev "${one%%=*}"
    ip link set "${one%%=*}" up
done
exec env -i "LLAMA_CARD=$6" "PATH=$PATH" chroot . sleep infinity
"""
        words = ["unshare", "--mount", "--net", "--uts", "--ipc", "sh", "-c", script, "sh"]
        places = (base, CHECKOUT, self.prepared, self.state, self.builds())
        self._hold("controller", [*words, *map(str, places), self.name])
        self._until(lambda: self.pid("controller"), 10, "the controller's namespaces")

    def builds(self):
        """-> the directory of built trees"""
        cache = os.environ.get("LLAMA_CLUSTER_CACHE") or os.path.expanduser("~/.cache/llama-cluster")
        return Path(cache) / "builds" if self.kind == "cpu" else self.prepared / "builds"

    def _start_node(self, node, root, binds):
        listed = self.state / (node + ".binds")
        listed.write_text("".join("%s %s\n" % one for one in binds))
        # A control group of version 2 of its own, whichever hierarchies this machine has.
        script = """set -eu
mount --make-rprivate /
mkdir -p "$1"
mount -t cgroup2 cgroup2 "$1"
mkdir -p "$1/$2"
echo $$ >"$1/$2/cgroup.procs"
umount "$1"
exec unshare --pid --uts --ipc --net --cgroup --fork --kill-child sh "$3" "$4"
"""
        words = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
            str(self.state / "groups"),
            "%s-%s" % (self.name, node),
            str(HERE / "boot.sh"),
        ]
        holder = self._hold(node, [*words, str(root)], BINDS=str(listed))
        first = self._until(lambda: first_process(holder.pid), 10, "the first process of " + node)
        (self.state / (node + ".pid")).write_text(first)
        self._until(lambda: self.pid(node), 20, "systemd of %s, see %s" % (node, self.state / (node + ".log")))
        for name, prefix in NETWORKS.items():
            side = "%s-%s" % (name, node)
            self.sh(
                "controller",
                "ip link add %s type veth peer name %s netns %s && ip link set %s master %s up"
                % (side, name, first, side, name),
            )
            address = "%s.%d/24" % (prefix, NODES[node])
            self.sh(node, "ip link set lo up; ip address add %s dev %s && ip link set %s up" % (address, name, name))

    def _hold(self, name, words, **variables):
        log = (self.state / (name + ".log")).open("w")
        holder = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(os.environ, LLAMA_CARD_OF=self.name, **variables),
        )
        (self.state / (name + ".pid")).write_text(str(holder.pid))
        (self.state / (name + ".holder")).write_text(str(holder.pid))
        return holder

    def _until(self, look, seconds, what):
        until = time.monotonic() + seconds
        while True:
            try:
                found = look()
            except OSError:
                found = None
            if found:
                return found
            if time.monotonic() > until:
                raise Failed(
                    "%s: not there after %d s: this machine may refuse namespaces or mounts to root, as "
                    "containers without CAP_SYS_ADMIN do; %s" % (what, seconds, self._last_words())
                )
            time.sleep(0.05)

    def _last_words(self):
        logs = {path.stem: path.read_text(errors="replace").strip()[-300:] for path in self.state.glob("*.log")}
        return "; ".join("%s said %r" % one for one in logs.items() if one[1]) or "nothing was said"

    def _wait(self):
        for node in NODES:
            state = ""
            for _again in range(60):
                state = self.inside(node, "systemctl", "is-system-running", "--wait", timeout=60).stdout.strip()
                if state in ("running", "degraded"):
                    break
                time.sleep(0.5)
            else:
                raise Failed("%s: systemd is '%s', running is needed" % (node, state))

    # -- the end

    def end(self):
        """Ends all processes; roots stay."""
        for name in (*NODES, "controller"):
            for kind in ("pid", "holder"):
                path = self.state / ("%s.%s" % (name, kind))
                try:
                    number = int(path.read_text())
                    if self._marked(number, "LLAMA_CARD") or self._marked(number, "LLAMA_CARD_OF"):
                        # A playbook that was interrupted leaves its forks in the controller's namespaces.
                        for one in [*(self._beside(number) if name == "controller" else ()), number]:
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(one, signal.SIGKILL)
                except (OSError, ValueError):
                    pass
                path.unlink(missing_ok=True)
        if (self.state / "groups").is_dir():
            self._remove_groups()

    def _beside(self, number):
        """-> the other processes in its mount namespace, none where that is still this machine's own"""
        wanted, found = os.readlink("/proc/%d/ns/mnt" % number), []
        if wanted == os.readlink("/proc/self/ns/mnt"):
            return []
        for other in map(int, filter(str.isdigit, os.listdir("/proc"))):
            # Some end meanwhile.
            with contextlib.suppress(OSError):
                found += [other] if os.readlink("/proc/%d/ns/mnt" % other) == wanted and other != number else []
        return found

    def _remove_groups(self):
        """Removes the control groups that exist: this machine may hide them or refuse changes."""
        script = """set -eu
mount --make-rprivate /
mount -t cgroup2 cgroup2 "$1"
for one in "$1/$2"-*; do [ ! -d "$one" ] || find "$one" -depth -type d -exec rmdir {} +; done
"""
        words = ["unshare", "--mount", "sh", "-c", script, "sh", str(self.state / "groups"), self.name]
        # A process that computes on a card takes seconds to end.
        until = time.monotonic() + 20
        while True:
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
            if not done.returncode:
                return
            if time.monotonic() > until:
                print("card: control groups %s-* stay: %s" % (self.name, done.stderr.strip()[-300:]), file=sys.stderr)
                return
            time.sleep(0.5)

    def remove(self):
        self.end()
        # Its mark the last: what is left of a removal that was interrupted is still known as its own.
        for path in self.state.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != MARK:
                path.unlink()
        shutil.rmtree(self.state, ignore_errors=True)
