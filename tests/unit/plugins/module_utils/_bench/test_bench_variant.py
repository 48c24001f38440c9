# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A service's model served another way for a while: units made of its head's, which systemd forgets."""

from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench import variant
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench.variant import Layers, Variant
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.sandbox import unit_sandbox
from jinja2 import Environment

ROOT = Path(__file__).resolve().parents[5]
ALONE = Layers([], [], False)
ONE = Layers(["10.0.0.2:50052"], [], False)
LOOPBACK = Layers([], [], True)
PROGRAM = "/opt/llama.cpp/releases/b11434-cpu-1/bin/llama-server"
ARGS = "--model /opt/models/m.gguf --host 10.0.0.1 --port 8000 --rpc 10.0.0.2:50052,10.0.0.3:50052 --split-mode layer"
ARGS += ' --n-gpu-layers 999 --fit off --tensor-split 15,16 --threads 2 --chat-template "a b %%"'
ARGS += " --api-key-file /etc/llama-cluster/keys/chat --metrics"
RUN = "run/systemd/system"
SERVER, WORKER = RUN + "/llama-overhead-chat.service", RUN + "/llama-loopback-chat.service"


def head(accelerator="cpu", numactl="", cards=None, args=ARGS):
    """The unit of a head as its role's own template has it."""
    text = (ROOT / "roles/head_server/templates/llama-head.service.j2").read_text()
    environment = Environment(trim_blocks=True, keep_trailing_newline=True)  # noqa: S701 - a unit file
    environment.filters.update(comment=lambda text: "# " + text, basename=lambda path: path.rpartition("/")[2])
    item = {"service": "chat", "rpc_endpoints": ["10.0.0.2:50052", "10.0.0.3:50052"], "memory_max": "9G", "port": 8000}
    item.update(address="10.0.0.1", api_key_file="/etc/llama-cluster/keys/chat", primary=True, unit="llama-head-chat")
    return environment.from_string(text).render(
        ansible_managed="Ansible managed",
        item=item,
        args=args,
        numactl=numactl,
        release=PROGRAM.rpartition("/bin/")[0],
        digest="0123456789abcdef",
        exported=["CUDA_VISIBLE_DEVICES=" + cards] if cards is not None else [],
        sandbox=unit_sandbox(accelerator),
        accelerator=accelerator,
        head_server_user="llama",
    )


class Node:
    """A node that is a directory; what it is told to run is noted. fails: commands that do."""

    def __init__(self, root, text=None, ruled=False):
        self.root, self.told, self.given, self.ruled = root, [], [], ruled
        for folder in (RUN, "etc/systemd/system"):
            (root / folder).mkdir(parents=True)
        if text is not None:
            (root / "etc/systemd/system/llama-head-chat.service").write_text(text)

    def run(self, command, given=None, needed=True):
        self.told.append(" ".join(command))
        if given:
            self.given.append(given)
            self.ruled = True
        if command[:2] == ["nft", "list"]:
            return 0 if self.ruled else 1
        self.ruled = self.ruled and command[:2] != ["nft", "delete"]
        return 0

    def variant(self):
        return Variant("chat", str(self.root), self.run, lambda: 40001)

    def text(self, name):
        return (self.root / name).read_text()


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path, head())


def command(text):
    (line,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    return line.partition("=")[2]


def test_the_head_alone_has_the_same_flags_but_those_of_its_workers(node):
    assert node.variant().start(ALONE, 600) == {"unit": "llama-overhead-chat.service", "rpc_endpoints": []}
    assert command(node.text(SERVER)) == (
        PROGRAM + " --model /opt/models/m.gguf --host 127.0.0.1 --port 8000 --n-gpu-layers 999 --fit off --threads 2 "
        '--chat-template "a b %%" --api-key-file /etc/llama-cluster/keys/chat --metrics'
    )
    assert not (node.root / WORKER).exists() and node.given == []


def test_its_unit_has_the_heads_user_and_sandbox_and_ends_by_itself(node):
    node.variant().start(ALONE, 600)
    text = node.text(SERVER)
    lines = text.splitlines()
    for line in unit_sandbox("cpu"):
        assert line in lines
    for line in ("User=llama", "LimitMEMLOCK=infinity", "MemoryMax=9G", "RuntimeMaxSec=600", "Restart=no"):
        assert line in lines
    assert "BindReadOnlyPaths=/etc/llama-cluster/keys/chat" in lines
    # Nobody may take it for the head, count its failures, start it again or at boot, or wait for ever.
    for word in ("DIGEST", "digests", "backoff", "[Install]", "always", "infinity\nExec", "Alias"):
        assert word not in text
    assert "TimeoutStartSec=300" in lines and "TimeoutStartSec=infinity" not in lines
    assert [line for line in lines if line.startswith("ExecStartPre=")] == []


def test_the_head_ends_it_wherever_a_run_has_died(node):
    node.variant().start(LOOPBACK, 600)
    for name in (SERVER, WORKER):
        unit = node.text(name).partition("[Service]")[0]
        # With an order between them, the one that stops does so before the other one starts.
        assert "Conflicts=llama-head-chat.service\nBefore=llama-head-chat.service" in unit
    # A server that loses its worker aborts: it stops first.
    assert "\nBefore=llama-overhead-chat.service\n" in unit


def test_what_a_card_needs_before_the_start_stays(tmp_path):
    node = Node(tmp_path, head("cuda", "/usr/bin/numactl --cpunodebind=0 --membind=0 -- ", "GPU-1"))
    node.variant().start(LOOPBACK, 600)
    for name in (SERVER, WORKER):
        text = node.text(name)
        assert "ExecStartPre=+-/usr/bin/nvidia-modprobe -c 0 -u\n" in text
        assert "Environment=CUDA_VISIBLE_DEVICES=GPU-1\n" in text
        assert command(text).startswith("/usr/bin/numactl --cpunodebind=0 --membind=0 -- ")
    assert command(node.text(SERVER)).count("--numa numactl") == 1
    assert "--numa" not in command(node.text(WORKER))


def test_other_workers_are_waited_for_and_told_with_their_split(node):
    node.variant().start(Layers(["10.0.0.3:50052"], [20, 11], False), 600)
    text = node.text(SERVER)
    assert command(text).endswith(" --metrics --rpc 10.0.0.3:50052 --split-mode layer --tensor-split 20,11")
    assert [line for line in text.splitlines() if line.startswith("ExecStartPre=")] == [
        "ExecStartPre=/opt/llama-cluster/bin/llama-program wait_for_workers --build b11434-cpu-1 10.0.0.3:50052"
    ]


def test_rpc_on_loopback_is_a_server_of_the_same_release_that_reaches_nobody(node):
    assert node.variant().start(LOOPBACK, 600)["rpc_endpoints"] == ["127.0.0.1:40001"]
    text = node.text(WORKER)
    assert command(text) == (
        "/usr/bin/stdbuf -oL /opt/llama.cpp/releases/b11434-cpu-1/bin/ggml-rpc-server --host 127.0.0.1 --port 40001 "
        "--threads 2"
    )
    for line in ("IPAddressDeny=any", "IPAddressAllow=127.0.0.1", "RuntimeMaxSec=600", *unit_sandbox("cpu")):
        assert line in text.splitlines()
    # Its rules go with it, whoever ends it.
    assert "ExecStopPost=-+/usr/sbin/nft delete table inet llama_overhead" in text.splitlines()
    # It has no key.
    assert "/etc/llama-cluster/keys/chat" not in text
    assert "--rpc 127.0.0.1:40001 --split-mode layer" in command(node.text(SERVER))


def test_nobody_but_the_heads_user_reaches_it(node):
    node.variant().start(LOOPBACK, 600)
    (rules,) = node.given
    assert rules.count("ip daddr 127.0.0.1 tcp dport 40001 ") == 3
    opens, others, later = [line.strip() for line in rules.splitlines() if "dport" in line]
    assert opens.endswith('== syn meta skuid "llama" accept')
    # A socket without an owner matches no rule about owners.
    assert others.endswith("== syn reject with tcp reset") and "skuid" not in others
    assert later.endswith('meta skuid != "llama" reject with tcp reset')
    # They are there before the server.
    assert node.told.index("nft -f -") < node.told.index(
        "systemctl start --no-block llama-loopback-chat.service llama-overhead-chat.service"
    )


def test_a_head_without_a_card_sees_a_worker_nevertheless(tmp_path):
    node = Node(tmp_path, head(cards="", args=ARGS.replace("--n-gpu", "--device none --n-gpu")))
    node.variant().start(ALONE, 600)
    assert "--device none" in command(node.text(SERVER))
    node.variant().start(LOOPBACK, 600)
    assert "--device none" not in command(node.text(SERVER))


def test_the_end_leaves_nothing_and_takes_the_rules_last(node):
    node.variant().start(LOOPBACK, 600)
    node.told.clear()
    assert node.variant().end() is True
    both = "llama-overhead-chat.service llama-loopback-chat.service"
    assert node.told == [
        "systemctl stop " + both,
        "systemctl reset-failed " + both,
        "systemctl daemon-reload",
        "nft list table inet llama_overhead",
        "nft delete table inet llama_overhead",
    ]
    assert list((node.root / RUN).iterdir()) == []
    assert node.variant().end() is False


def test_what_a_run_that_died_has_left_goes_before_the_next_one(node):
    node.variant().start(LOOPBACK, 600)
    node.told.clear()
    node.variant().start(ALONE, 600)
    assert node.told[0].startswith("systemctl stop ") and not (node.root / WORKER).exists()
    assert node.told[-1] == "systemctl start --no-block llama-overhead-chat.service"


@pytest.mark.parametrize(
    "text, sentence",
    [
        (None, "no unit of the collection seen"),
        ("[Service]\nUser=llama\nExecStart=" + PROGRAM + "\n", "no unit of the collection seen"),
        (head().replace("User=llama\n", ""), "no command of the collection seen"),
        (head().replace("ExecStart=", "ExecStart=/bin/other # "), "no command of the collection seen"),
    ],
)
def test_only_a_head_of_ours_is_taken_for_one(tmp_path, text, sentence):
    node = Node(tmp_path, text)
    with pytest.raises(Refusal, match=sentence):
        node.variant().start(ALONE, 600)
    assert list((tmp_path / RUN).iterdir()) == []


def test_a_command_that_fails_is_named_with_what_it_said():
    with pytest.raises(Refusal, match=r"sh -c echo no; exit 3: failed \(no\)"):
        variant.run(["sh", "-c", "echo no; exit 3"])
    assert variant.run(["sh", "-c", "exit 3"], needed=False) == 3
    assert variant.run(["/no/such/program"], needed=False) == 127
    variant.run(["sh", "-c", "read word; test $word = given"], "given\n")


def test_a_port_is_free():
    assert 0 < variant.free_port() < 65536
