# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Program, libraries and sockets of the test's own process, and of trees that look like /proc."""

import os
import subprocess
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import running

BIN = "/opt/llama.cpp/releases/b11434-cpu-1/bin/"


def proc(tmp_path, exe, *mapped):
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "exe").symlink_to(exe)
    lines = ["7f00-7f01 r-xp 00000000 08:01 123%s" % (" " * 20 + name if name else "") for name in mapped]
    (folder / "maps").write_text("\n".join(lines) + "\n")
    return str(tmp_path)


OTHER_LIBRARY, OTHER_PROGRAM = "/home/eve/libggml-cpu.so", "/home/eve/llama-server"
OTHER_RELEASE = "/opt/llama.cpp/releases/b9999-cpu-2/bin/libllama.so.0.0.1"


@pytest.mark.parametrize(
    ("files", "release", "foreign"),
    [
        ([BIN + "ggml-rpc-server", "", "[heap]", "/lib64/libc.so.6", BIN + "libggml-base.so.0"], "b11434-cpu-1", []),
        ([BIN + "llama-server", BIN + "libllama.so", OTHER_LIBRARY], "b11434-cpu-1", [OTHER_LIBRARY]),
        ([BIN + "llama-server", OTHER_RELEASE], "b11434-cpu-1", [OTHER_RELEASE]),
        ([BIN + "llama-server", BIN + "libggml.so (deleted)"], "b11434-cpu-1", [BIN + "libggml.so (deleted)"]),
        ([BIN + "llama-server (deleted)"], "b11434-cpu-1", [BIN + "llama-server (deleted)"]),
        ([OTHER_PROGRAM], None, [OTHER_PROGRAM]),
    ],
)
def test_release_and_foreign_files(tmp_path, files, release, foreign):
    assert running.program(7, proc(tmp_path, *files)) == {"release": release, "foreign": foreign}


def test_ended_process_has_no_release(tmp_path):
    assert running.program(7, str(tmp_path)) == {"release": None, "foreign": []}


@pytest.mark.parametrize("name", ["\rVmSwap: 999999", "\xff"])
def test_a_name_is_no_memory(tmp_path, name):
    (tmp_path / "7").mkdir()
    (tmp_path / "7/status").write_bytes(b"Name:\t" + name.encode("latin-1") + b"\nRssAnon:\t 2048 kB\n")
    assert running.resident_mib([7], str(tmp_path)) == 2.0


LISTENS = """
import socket
ends = [socket.socket(), socket.socket(socket.AF_INET6), socket.socket()]
for end, address in zip(ends, ("127.0.0.1", "::1", "127.0.0.1")):
    end.bind((address, 0))
for end in ends[:2]:
    end.listen()
print(*(end.getsockname()[1] for end in ends), flush=True)
input()
"""


def test_where_a_process_listens():
    # This one may have more of other tests than are read.
    with subprocess.Popen([sys.executable, "-c", LISTENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        one, two, _idle = map(int, other.stdout.readline().split())
        found = running.listens(os.getpid(), [other.pid])
        other.kill()
    assert found == ["127.0.0.1:%d" % one, "[::1]:%d" % two]


def test_memory_that_was_written_counts():
    code = "print(flush=True); input(); held = bytearray(b'x') * (64 << 20); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        before = running.resident_mib([other.pid])
        other.stdin.write(b"\n")
        other.stdin.flush()
        other.stdout.readline()
        after = running.resident_mib([other.pid])
        other.stdin.write(b"\n")
    assert 60 < after - before < 80


def test_card_memory_of_these_processes():
    gpus = [
        {"index": 0, "processes": [{"pid": 7, "memory_used_mib": 100}, {"pid": 8, "memory_used_mib": 1}]},
        {"index": 1, "processes": [{"pid": 8, "memory_used_mib": 50}]},
        {"index": 2, "processes": [{"pid": 7, "memory_used_mib": None}]},
    ]
    assert running.cards_mib(gpus, {7}) == {"0": 100.0, "2": 0.0}, "a driver may not tell how much"
    assert running.cards_mib([], {7}) is None


@pytest.mark.parametrize(
    ("used", "cards", "found"),
    [(500, 1, {"0": 0.0}), (None, 1, {"0": 0.0}), (0, 1, {}), (500, 2, {})],
    ids=["in use", "used memory unknown", "empty", "two cards"],
)
def test_only_card_in_use_that_lists_no_process(used, cards, found):
    gpus = [{"index": index, "processes": [], "memory_used_mib": used} for index in range(cards)]
    assert running.cards_mib(gpus, {7}) == found


def test_processes_of_managed_units(tmp_path):
    """By the kernel's groups: children count, and a name that somebody else has chosen does not."""
    groups = {
        "1": "/docker/c/init.scope",
        "7": "/docker/c/system.slice/llama-head-chat.service",
        "8": "/docker/c/system.slice/llama-head-chat.service/child",
        "9": "/docker/c/user.slice/user-1000.slice/user@1000.service/system.slice/llama-head-chat.service",
        "10": "/docker/c/system.slice/llama-head-hand.service",
        "11": "/docker/c/system.slice/nginx.service",
        "12": "/docker/c/system.slice/llama-head-gone.service",
        "13": "/docker/c/system.slice/docker-x.scope/system.slice/llama-head-chat.service",
    }
    for pid, group in groups.items():
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "cgroup").write_text("0::%s\n" % group)
    (tmp_path / "proc/14").mkdir()
    units = tmp_path / "units"
    units.mkdir()
    (units / "llama-head-chat.service").write_text("[Service]\nEnvironment=LLAMA_CLUSTER_DIGEST=abc\n")
    (units / "llama-head-hand.service").write_text("[Service]\nExecStart=/usr/bin/llama-server\n")
    found = running.managed_processes(str(tmp_path / "proc"), str(units))
    assert found == {"7": "llama-head-chat.service", "8": "llama-head-chat.service"}
