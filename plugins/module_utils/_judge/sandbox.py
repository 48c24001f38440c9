# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox of one command: a transient unit of systemd, or a container. Private to the collection.

Both have a user of their own, no network, no capability, a file system in which only /judge can be written, 64 tasks,
2 GiB of memory with what is written, one core, and an end. Input and output are pipes: no file of the host is written.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .. import _files
from .._node import paths
from .._text import Refusal, printable
from .exchange import Outcome, exchange

# Where a command works, with a size; where the directory of a task is, read-only.
WORK, TASK = "/judge", "/task"
TOOLCHAIN = "/toolchain"
PATH = "/usr/local/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TASKS, MEMORY, WORK_SIZE, FILE_SIZE, FILES = 64, 2 << 30, 512 << 20, 256 << 20, 1024
# Seconds to start a sandbox, and to remove one.
START = 30
# ProtectProc= and ProcSubset= are not in earlier ones.
SYSTEMD = 247
ENGINES = ("docker", "podman")
IMAGE_SECONDS = 900
# Mounts are lists of words with : or , in them.
PLAIN = re.compile(r"/[\w./@+-]*\Z", re.ASCII)
# A unit may see and do this. Its root is an empty directory: it sees only what is named here.
PROPERTIES = f"""
DynamicUser=yes
PrivateNetwork=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=yes
ProtectProc=invisible
ProcSubset=pid
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
RestrictAddressFamilies=AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources @keyring
SystemCallErrorNumber=EPERM
TemporaryFileSystem={WORK}:rw,mode=1777,size={WORK_SIZE},nodev,nosuid
BindReadOnlyPaths=/usr
BindReadOnlyPaths=-/bin
BindReadOnlyPaths=-/lib
BindReadOnlyPaths=-/lib64
BindReadOnlyPaths=-/etc/alternatives
BindReadOnlyPaths=-/etc/ld.so.cache
InaccessiblePaths=-+/dev/shm
InaccessiblePaths=-+/dev/mqueue
InaccessiblePaths=-+/tmp
InaccessiblePaths=-+/sys
UMask=0077
MemoryMax={MEMORY}
MemorySwapMax=0
TasksMax={TASKS}
CPUQuota=100%
OOMPolicy=kill
OOMScoreAdjust=500
LimitFSIZE={FILE_SIZE}
LimitNOFILE={FILES}
LimitCORE=0
KillSignal=SIGKILL
Environment=HOME={WORK}
Environment=TMPDIR={WORK}
""".split("\n")


class Way(NamedTuple):
    """How commands are isolated on this host. name: systemd, docker or podman; image: of containers; sysroot: of the
    unit's rustc; root: the unit's root directory, which is empty."""

    name: str
    image: str = ""
    sysroot: str = ""
    root: str = ""


@contextlib.contextmanager
def found_way(image: str) -> Iterator[Way]:
    """The first way that this host has: units need systemd, root and rustc, containers an engine and the image.

    Errors: Refusal if it has none, or the image cannot be pulled.
    """
    sysroot = _sysroot() if os.geteuid() == 0 and os.path.isdir(paths.RUN_UNITS) and _systemd() >= SYSTEMD else ""
    if sysroot:
        root = tempfile.mkdtemp(prefix="llama-judge-", dir="/run")
        try:
            os.chmod(root, 0o755)
            yield Way("systemd", sysroot=sysroot, root=root)
        finally:
            # Mount points, which systemd made.
            shutil.rmtree(root)
        return
    refused = ""
    for engine in filter(shutil.which, ENGINES):
        seen = _run([engine, "info"], START)
        if seen.returncode == 0:
            _pull(engine, image)
            # Command docker is podman's where package podman-docker is installed.
            name = "podman" if "podman" in _run([engine, "--version"], START).stdout.lower() else engine
            yield Way(name, image=image)
            return
        refused += f" ({engine} does not work: {_reason(seen)})"
    raise Refusal(
        f"judging: neither systemd {SYSTEMD} with rustc and root, nor docker or podman for user id {os.geteuid()} "
        f"seen{refused}, one is needed to run what a model wrote: install rustc or an engine, or correct "
        "acceptance_judge_host"
    )


def command(way: Way, name: str, user: int, seconds: int, script: Sequence[str], folder: str = "") -> list[str]:
    """The command line that runs a shell script and its arguments in a sandbox of that name. user: a number that
    differs between the sandboxes of one answer; folder: what is at /task. Errors: Refusal."""
    for path in filter(None, (folder, way.sysroot)):
        if not PLAIN.match(path):
            raise Refusal(f"judging: {printable(path)} seen, a path of A-Z, a-z, 0-9 and _./@+- is needed: rename it")
    words = ["timeout", "--signal=KILL", str(seconds), "sh", "-c", script[0], "judge", *script[1:]]
    if way.name == "systemd":
        more = [f"RootDirectory={way.root}", f"RuntimeMaxSec={seconds}", f"Environment=PATH={TOOLCHAIN}/bin:{PATH}"]
        more.append(f"BindReadOnlyPaths={way.sysroot}:{TOOLCHAIN}")
        more += [f"BindReadOnlyPaths={folder}:{TASK}"] if folder else []
        asked = ["systemd-run", "--quiet", "--collect", "--wait", "--pipe", f"--unit={name}"]
        asked.append("--description=Judge of a program that a model wrote")
        return asked + [f"--property={line}" for line in [*PROPERTIES, *more] if line] + words
    asked = [way.name, "run", "--rm", "--interactive", f"--name={name}", "--pull=never", "--network=none"]
    asked += ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", f"--user={user}:{user}"]
    asked += [f"--pids-limit={TASKS}", f"--memory={MEMORY}", f"--memory-swap={MEMORY}", "--cpus=1"]
    asked += [f"--ulimit=fsize={FILE_SIZE}", f"--ulimit=nofile={FILES}", "--ulimit=core=0", "--log-driver=none"]
    asked += [f"--tmpfs={WORK}:rw,exec,nosuid,nodev,mode=1777,size={WORK_SIZE}"]
    # Else podman makes /tmp, /run and /var/tmp writable.
    asked += ["--read-only-tmpfs=false"] if way.name == "podman" else []
    asked += [f"--env=HOME={WORK}", f"--env=TMPDIR={WORK}", "--entrypoint="]
    asked += [f"--mount=type=bind,source={folder},target={TASK},readonly"] if folder else []
    return [*asked, way.image, *words]


def run(way: Way, user: int, script: Sequence[str], given: bytes, most: int, seconds: int, folder: str = "") -> Outcome:
    """Runs a shell script and its arguments in a sandbox of its own, which is removed in any case.

    Output begins after the line `ready`, which the script prints before it runs anything of an answer's.
    Errors: Refusal if the sandbox does not start.
    """
    name = f"llama-judge-{secrets.token_hex(8)}"
    began, outcome = time.monotonic(), None
    try:
        outcome = exchange(command(way, name, user, seconds, script, folder), given, most, seconds + START)
    finally:
        if outcome is None or outcome.status is None:
            _remove(way, name)
    head, _line, rest = outcome.output.partition(b"ready\n")
    if head or not _line:
        raise Refusal(
            f"judging: the sandbox of {way.name} did not start: {printable(outcome.errors.strip()) or 'no message'}: "
            "look at the journal of this host"
        )
    late = outcome.status != 0 and not outcome.long and time.monotonic() - began >= seconds
    return outcome._replace(output=rest, late=late)


def _remove(way: Way, name: str) -> None:
    """Ends a sandbox that goes on without its client."""
    if way.name == "systemd":
        _run(["systemctl", "kill", "--signal=KILL", f"{name}.service"], START)
        _run(["systemctl", "stop", f"{name}.service"], START)
    else:
        _run([way.name, "rm", "--force", name], START)


def _run(words: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Status 124 if it takes longer. rustup would take its toolchain from a file in the directory that it runs in."""
    try:
        return subprocess.run(
            words, capture_output=True, text=True, timeout=seconds, check=False, errors="replace", cwd="/"
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", f"no answer within {seconds} s")


def _systemd() -> int:
    """The version of systemd, 0 if it is unknown."""
    words = _run(["systemctl", "--version"], START).stdout.split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def _sysroot() -> str:
    """The directory of rustc's installation, '' without one. A rustup is asked which one it would use."""
    found = shutil.which("rustc") or shutil.which("rustc", path=os.path.expanduser("~/.cargo/bin"))
    if not found:
        return ""
    _files.check_program(found)
    return _run([found, "--print", "sysroot"], START).stdout.strip()


def _pull(engine: str, image: str) -> None:
    if _run([engine, "image", "inspect", image], START).returncode:
        done = _run([engine, "pull", "--quiet", image], IMAGE_SECONDS)
        if done.returncode:
            raise Refusal(
                f"acceptance_judge_image: {image} cannot be pulled with {engine} ({_reason(done)}), an image with "
                f"rustc is needed: copy it from another host with {engine} save and {engine} load, or name one that "
                f"{engine} images shows"
            )


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """The last line of a command's messages."""
    return printable((done.stderr.strip().splitlines() or ["no reason given"])[-1])
