# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers that operators set up themselves, on a tree that looks like a node."""

import os
import socket

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption import servers
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption.servers import address, clients_of
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import give_away

SESSION = "/user.slice/user-0.slice/session-3.scope"
MANAGED = "[Service]\nExecStart=/opt/llama.cpp/releases/b1/bin/llama-server\nEnvironment=LLAMA_CLUSTER_DIGEST=1\n"
SERVES = {"host": "10.1.0.2", "port": 8000, "model": None, "rpc": [], "program": "/x/llama-server"}


class Node:
    """A directory of units and a /proc; main: the main process of each unit that systemd shows."""

    def __init__(self, path):
        self.units, self.proc, self.main = path / "system", path / "proc", {}
        self.units.mkdir()
        self.process(1, "/init.scope", program="/sbin/init")

    def write(self, name, text):
        (self.units / name).parent.mkdir(exist_ok=True)
        (self.units / name).write_text(text)

    def process(self, pid, group, program="/x/llama-server", argv=("llama-server",)):
        base = self.proc / str(pid)
        base.mkdir(parents=True)
        (base / "cgroup").write_text("0::%s\n" % group)
        (base / "exe").symlink_to(program)
        (base / "cmdline").write_bytes("\0".join(argv).encode() + b"\0")
        return base

    def show(self, names, _properties):
        return "\n\n".join(
            "Id=%s\nFragmentPath=%s\nUnitFileState=enabled\nActiveState=active\nMainPID=%d"
            % (name, self.units / name if (self.units / name).exists() else "", self.main.get(name, 0))
            for name in names
        )

    def find(self):
        return servers.find(str(self.units), str(self.proc), self.show)


@pytest.fixture(name="node")
def fixture_node(tmp_path):
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        ("head", [], {"host": "127.0.0.1", "port": 8080, "model": None, "rpc": []}),
        ("head", ["-m", "a", "--model=b=c.gguf", "--host", "::"], {"model": "b=c.gguf", "host": "::"}),
        ("head", ["-p", "a prompt", "--port=1", "--port", "65535"], {"port": 65535}),
        ("head", ["--port", "8000", "--port"], {"port": None}),
        ("head", ["--port", "100000"], {"port": None}),
        ("head", ["--port", "\u00b2"], {"port": None}),
        ("head", ["--rpc=a:1,,b:2,"], {"rpc": ["a:1", "b:2"]}),
        ("worker", ["-m", "m", "--rpc", "a:1"], {"host": "127.0.0.1", "port": 50052, "model": None, "rpc": []}),
        ("worker", ["-p", "50053", "-H", "10.1.0.2"], {"host": "10.1.0.2", "port": 50053}),
    ],
)
def test_arguments_of_a_command_line(kind, words, expected):
    found = servers.arguments(kind, ["program", *words])
    assert {name: found[name] for name in expected} == expected


def test_units_that_start_a_server_are_found(node):
    node.write("llama-rpc.service", "[Service]\nExecStart=/opt/llama.cpp/build/bin/rpc-server --host 0.0.0.0\n")
    node.write("wrapped.service", "[Service]\nExecStart=-/usr/bin/numactl -N 0 \\\n  /opt/x/llama-server -m m.gguf\n")
    node.write("other.service", "[Service]\nExecStart=/usr/bin/tail -f /var/log/llama-server.log.1\n")
    node.write("ai.service.d/exec.conf", "[Service]\nExecStart=\nExecStart=/opt/x/llama-server -m m.gguf\n")
    node.write("llama-head-chat.service", MANAGED)
    assert servers.unit_files(str(node.units)) == {
        "ai.service": "head",
        "llama-rpc.service": "worker",
        "wrapped.service": "head",
    }


def test_unit_is_described_by_its_main_process(node):
    node.write("llama@.service", "[Service]\nExecStart=/bin/sh -c '/opt/llama-server; true'\n")
    node.write("llama@big.service", "")
    node.main = {"llama@big.service": 72}
    node.process(71, "/system.slice/system-llama.slice/llama@big.service")
    node.process(72, "/system.slice/system-llama.slice/llama@big.service", argv=("x", "--port", "8001"))
    (unit,), others = node.find()
    assert (unit["name"], unit["kind"], unit["active"], unit["pid"]) == ("llama@big.service", "head", True, 72)
    assert unit["serves"]["port"] == 8001 and others == []


@pytest.mark.parametrize(("main", "units", "others"), [(71, ["hub.service"], []), (72, [], [71])])
def test_unnamed_server_is_taken_only_as_main_process(node, main, units, others):
    """jupyterhub.service runs what its users start; a wrapper script becomes the unit's main process."""
    node.write("hub.service", "[Service]\nExecStart=/opt/hub/bin/start\n")
    node.main = {"hub.service": main}
    node.process(71, "/system.slice/hub.service")
    found, left = node.find()
    assert ([unit["name"] for unit in found], [one.pid for one in left]) == (units, others)


def test_managed_unit_is_never_taken_over(node):
    node.write("llama-head-chat.service", MANAGED)
    node.process(71, "/system.slice/llama-head-chat.service")
    # Its file has gone while it runs.
    node.process(72, "/system.slice/llama-rpc-chat.service", program="/x/rpc-server")
    assert node.find() == ([], [])


@pytest.mark.parametrize(
    ("group", "owner"),
    [
        (SESSION, None),
        ("/user.slice/user-1000.slice/session-c5.scope", None),  # sudo nohup
        ("/system.slice/cron.service", None),
        ("/system.slice/system-sshd.slice/sshd@3-10.0.0.1:22-10.0.0.2:4711.service", None),
        ("/", None),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/llama.service", "user@1000.service"),
        ("/system.slice/slurmd.service/job_5", "slurmd.service"),
        ("/system.slice/docker-0123.scope", "docker-0123.scope"),
        ("/docker/0123/system.slice/llama-rpc.service", "docker"),
        ("/kubepods.slice/kubepods-pod7.slice/crio-0123.scope", "crio-0123.scope"),
        ("/machine.slice/machine-web.scope/payload/system.slice/llama-rpc.service", "machine-web.scope"),
    ],
)
def test_server_without_a_unit_is_refused(node, group, owner):
    node.process(71, group)
    if owner is None:
        with pytest.raises(Refusal, match=r"^process 71 \(/x/llama-server\): started by no unit"):
            node.find()
    else:
        assert [servers.owner_of(one) for one in node.find()[1]] == [owner]


def test_server_of_another_user_is_listed(node, tmp_path):
    base = node.process(71, SESSION)
    give_away(base)
    node.write("rpc.service", "[Service]\nExecStart=/opt/rpc-server\n")
    seen = servers.look(*node.find(), [str(tmp_path / "build"), str(tmp_path)])
    assert seen["units"] == ["rpc.service"]
    assert seen["lines"] == [
        "rpc.service (enabled): a worker that does not run",
        "%s: a directory, moved aside" % tmp_path,
        "process 71 (/x/llama-server): not changed, it belongs to user id 4711: end it if its port or memory is needed",
    ]


@pytest.mark.parametrize("end", ["\r", "\v", "\x85"])
def test_group_name_cannot_pretend_to_be_another(node, end):
    node.process(71, "/user.slice/user-1000.slice/user@1000.service/x%s1:name=systemd:/system.slice/rpc.service" % end)
    assert servers.processes(str(node.proc))[0].unit == "user@1000.service"


def test_program_of_a_process_comes_from_the_kernel(node):
    node.process(71, SESSION, program="/opt/ggml-rpc-server (deleted)")
    node.process(72, SESSION, program="/usr/bin/python3", argv=("llama-server",))
    (node.proc / "73").mkdir()
    (node.proc / "sys").mkdir()
    (found,) = servers.processes(str(node.proc))
    assert (found.pid, found.kind, found.program) == (71, "worker", "/opt/ggml-rpc-server")


def test_files_beside_a_deployment_are_listed(tmp_path):
    for name, text in (("upstream.sh", "# for ai-inference\n"), ("else.sh", "true\n"), ("own", "rpc-server")):
        (tmp_path / name).write_text(text)
    (tmp_path / "managed.sh").write_text("# https://github.com/thefermisea/ansible-llama-cluster llama-server\n")
    unit = {"path": str(tmp_path / "own")}
    assert servers.beside([unit], [str(tmp_path / "*")]) == [str(tmp_path / "upstream.sh")]


@pytest.mark.parametrize(
    ("serves", "words"),
    [
        (None, "a head that does not run"),
        (SERVES, "/x/llama-server at 10.1.0.2:8000"),
        (
            dict(SERVES, model="m.gguf", rpc=["a:1", "b:2"]),
            "/x/llama-server at 10.1.0.2:8000, model m.gguf, over a:1, b:2",
        ),
        (dict(SERVES, model="\x1b]0;t\x07m\n\udcff"), "/x/llama-server at 10.1.0.2:8000, model ?]0;t?m??"),
    ],
)
def test_server_is_one_printable_line(serves, words):
    assert servers.words("head", serves) == words


def test_text_that_is_not_a_configuration_is_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "MOST_TEXT", 10)
    path = tmp_path / "x"
    for data, text in ((b"0123456789", "0123456789"), (b"01234567890", ""), (b"a\0b", ""), (b"\xff", "\ufffd")):
        path.write_bytes(data)
        assert servers.read_text(str(path)) == text, data
    assert servers.read_text(str(tmp_path)) == "" == servers.read_text(str(tmp_path / "gone"))
    # In the place of a file since it was looked at.
    monkeypatch.setattr(servers.os.path, "isfile", lambda _path: True)
    os.mkfifo(tmp_path / "fifo")
    assert servers.read_text(str(tmp_path / "fifo")) == "" == servers.read_text("/dev/zero")


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LINE = "   0: %s %s %s 00000000:00000000 00:00000000 00000000     0        0 1\n"


def test_established_connections_of_others_are_named(tmp_path):
    (tmp_path / "net").mkdir()
    head, client, second = "1500000A", "0900000A", "0A00000A"  # 10.0.0.21, .9, .10
    mapped = "0000000000000000FFFF0000"
    (tmp_path / "net/tcp").write_text(
        HEAD
        + LINE % ("00000000:1F91", "00000000:0000", "0A")
        + LINE % (head + ":1F91", client + ":A001", "01")
        + LINE % (head + ":1F91", client + ":A002", "01")
        + LINE % (head + ":1F91", second + ":A003", "06")  # over
        + LINE % (head + ":1F90", second + ":A004", "01")  # another port
        + LINE % (head + ":A005", client + ":1F91", "01")  # of this node, outwards
        + LINE % ("0100007F:1F91", "0100007F:A006", "01")
    )
    (tmp_path / "net/tcp6").write_text(HEAD + LINE % (mapped + head + ":1F91", mapped + second + ":A007", "01"))
    assert clients_of([8081], str(tmp_path)) == [
        {"port": 8081, "address": "10.0.0.10"},
        {"port": 8081, "address": "10.0.0.9"},
    ]
    assert clients_of([8081], str(tmp_path / "nowhere")) == []


def test_an_address_of_version_6():
    assert address("B80D0120000000000000000001000000") == "2001:db8::1"


def test_real_table_of_the_kernel_is_read():
    """A real connection: both ends are this machine's, at two addresses."""
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        client.bind(("127.0.0.2", 0))
        client.connect(server.getsockname())
        port = server.getsockname()[1]
        assert clients_of([port]) == [{"port": port, "address": "127.0.0.2"}]
