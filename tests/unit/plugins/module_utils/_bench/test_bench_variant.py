# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A head or worker with other settings for a while: units made of the deployed ones, which end by themselves."""

import socket
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench.variant import (
    Changed,
    Variants,
    require_free,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.units import service_of
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.sandbox import unit_sandbox
from jinja2 import Environment

ROOT = Path(__file__).resolve().parents[5]
RELEASE = "/opt/llama.cpp/releases/b11434-cpu-1"
RUN = "run/systemd/system"
HEAD, WORKER = RUN + "/llama-tune-head-chat.service", RUN + "/llama-tune-rpc-chat.service"
END, TIMER = RUN + "/llama-tune-end-chat.service", RUN + "/llama-tune-end-chat.timer"
ENDPOINTS = ["10.0.0.2:50052", "10.0.0.3:50052"]
CHANGED = Changed(["--host", "10.0.0.1", "--port", "8000", "--threads", "2", "--chat-template", "a b %"], ENDPOINTS)

LOOPBACK = ["--host", "127.0.0.1", "--port", "50053", "--threads", "2"]
BESIDE = Changed(["--threads", "2", "--rpc", "127.0.0.1:50053"], ["127.0.0.1:50053"], LOOPBACK)


def unit(kind, numactl=""):
    """A deployed unit, by the template of its role."""
    role, user = {"head": ("head_server", "head_server_user"), "rpc": ("rpc_worker", "rpc_worker_user")}[kind]
    environment = Environment(trim_blocks=True, keep_trailing_newline=True)  # noqa: S701 - a unit file
    environment.filters.update(comment=lambda text: "# " + text, basename=lambda path: path.rpartition("/")[2])
    program = "llama-server --host 10.0.0.1 --port 8000" if kind == "head" else "ggml-rpc-server --host 10.0.0.2"
    wrapped = numactl if kind == "head" else "/usr/bin/stdbuf -oL "
    item = {"service": "chat", "rpc_endpoints": ENDPOINTS[:1], "memory_max": "9G", "port": 8000, "cache": True}
    item.update(address="10.0.0.1", api_key_file="/etc/llama-cluster/keys/chat", head_address="10.0.0.1")
    return environment.from_string((ROOT / f"roles/{role}/templates/llama-{kind}.service.j2").read_text()).render(
        ansible_managed="Ansible managed",
        item=item,
        command=f"{wrapped}{RELEASE}/bin/{program}",
        release=RELEASE,
        digest="0123456789abcdef",
        exported=["CUDA_VISIBLE_DEVICES=GPU-1"],
        sandbox=unit_sandbox("cuda"),
        accelerator="cuda",
        **{user: "llama"},
    )


class Node:
    """A node that is a directory; what is run there is noted. waits: whether the timer does."""

    def __init__(self, root, **units):
        self.root, self.ran, self.waits, self.files = root, [], True, []
        for folder in (RUN, "etc/systemd/system", "etc/llama-cluster", "usr/sbin"):
            (root / folder).mkdir(parents=True)
        (root / "usr/sbin/nft").touch()
        for kind, text in units.items():
            (root / f"etc/systemd/system/llama-{kind}-chat.service").write_text(text)
        self.variants = Variants(str(root), self.run, self.show, lambda: 1795600000.0, self.free)

    def run(self, *words):
        self.ran.append(" ".join(words))
        self.files.append(sorted(path.name for path in (self.root / RUN).iterdir()))

    def free(self, port):
        self.ran.append(f"port {port}")

    def show(self, names):
        return "".join(f"Id={name}\nSubState={'waiting' if self.waits else 'elapsed'}\n\n" for name in names)

    def text(self, name):
        return (self.root / name).read_text()


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path, head=unit("head"), rpc=unit("rpc"))


def command(text):
    (line,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    return line.partition("=")[2]


def test_head_has_other_arguments_on_loopback(node):
    assert node.variants.start("head", "chat", CHANGED, 600) == "llama-tune-head-chat.service"
    assert command(node.text(HEAD)) == (
        RELEASE + '/bin/llama-server --host 127.0.0.1 --port 8000 --threads 2 --chat-template "a b %%"'
    )
    steps = [line for line in node.text(HEAD).splitlines() if line.startswith("ExecStartPre=")]
    (waits,) = [step for step in steps if "wait_for_workers" in step]
    assert waits.endswith(" --build b11434-cpu-1 " + " ".join(ENDPOINTS))
    assert not [step for step in steps if "backoff" in step or "digests" in step or "/ss" in step or "exec ss" in step]
    assert service_of("llama-tune-head-chat.service") == "chat"


def test_variant_has_sandbox_and_ends(node):
    for kind, path in (("head", HEAD), ("rpc", WORKER)):
        node.variants.start(kind, "chat", CHANGED, 600)
        lines = node.text(path).splitlines()
        wanted = (
            "User=llama",
            "MemoryMax=9G",
            "RuntimeMaxSec=630",
            "Restart=no",
            "Environment=CUDA_VISIBLE_DEVICES=GPU-1",
        )
        for line in (*unit_sandbox("cuda"), *wanted, f"Conflicts=llama-{kind}-chat.service"):
            assert line in lines
        for word in ("LLAMA_CLUSTER_DIGEST", "[Install]", "always", "infinity\nExec", "sleep 5"):
            assert word not in node.text(path)
    assert "IPAddressAllow=10.0.0.1" in node.text(WORKER) and "IPAddressDeny=any" in node.text(WORKER)


def test_worker_keeps_what_wraps_it(node):
    node.variants.start("rpc", "chat", Changed(["--host", "10.0.0.2", "--threads", "4"]), 600)
    assert command(node.text(WORKER)) == (
        f"/usr/bin/stdbuf -oL {RELEASE}/bin/ggml-rpc-server --host 10.0.0.2 --threads 4"
    )


def test_bound_head_stays_on_its_numa_node(tmp_path):
    numactl = "/usr/bin/numactl --cpunodebind=0 --membind=0 -- "
    node = Node(tmp_path, head=unit("head", numactl))
    node.variants.start("head", "chat", Changed(["--threads", "2"]), 600)
    assert command(node.text(HEAD)) == f"{numactl}{RELEASE}/bin/llama-server --threads 2 --numa numactl"
    assert "wait_for_workers" not in node.text(HEAD)


def test_timer_is_armed_before_deployed_unit_stops(node):
    node.variants.start("head", "chat", CHANGED, 600)
    assert node.ran == [
        "daemon-reload",
        "restart llama-tune-end-chat.timer",
        "stop llama-head-chat.service llama-tune-head-chat.service",
        "start --no-block llama-tune-head-chat.service",
    ]
    assert "OnActiveSec=600" in node.text(TIMER)
    assert "ExecStart=/bin/systemctl start --no-block llama-head-chat.service" in node.text(END)
    assert "ConditionPathExists=!/etc/llama-cluster/held.json" in node.text(END)
    assert node.variants.report() == [{"service": "chat", "until": "2026-11-25T09:56:40Z"}]


def test_end_starts_deployed_units_and_leaves_nothing(node):
    node.variants.start("head", "chat", CHANGED, 600)
    node.ran.clear()
    assert node.variants.end(check=True) == ["chat"] and node.ran == []
    assert node.variants.end("other") == []
    assert node.variants.end() == ["chat"]
    assert node.ran == [
        "stop llama-tune-head-chat.service",
        "start --no-block llama-head-chat.service",
        "stop llama-tune-end-chat.timer",
        "daemon-reload",
    ]
    assert list((node.root / RUN).iterdir()) == []
    assert node.variants.end() == [] and node.variants.report() == []


def test_held_node_stays_down(node):
    node.variants.start("head", "chat", CHANGED, 600)
    (node.root / "etc/llama-cluster/held.json").write_text("{}")
    node.ran.clear()
    assert node.variants.end() == ["chat"]
    assert not [line for line in node.ran if line.startswith("start ")]
    with pytest.raises(Refusal, match="a held node seen"):
        node.variants.start("head", "chat", CHANGED, 600)
    assert list((node.root / RUN).iterdir()) == []


def test_elapsed_timer_measures_no_more(node):
    node.variants.start("head", "chat", CHANGED, 600)
    node.waits = False
    assert node.variants.report() == []
    # Its files go with the next run.
    assert node.variants.end() == ["chat"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"[Service]\nExecStart={RELEASE}/bin/llama-server\n",
        unit("head").replace("/bin/llama-server", "/bin/other"),
        unit("head").replace("ExecStart=", "ExecStart=/bin/sh -c 'exec "),
    ],
    ids=["none", "unmanaged", "other program", "other form"],
)
def test_only_managed_head_is_replaced(tmp_path, text):
    node = Node(tmp_path, head=text)
    with pytest.raises(Refusal, match="no unit of the collection seen"):
        node.variants.start("head", "chat", CHANGED, 600)
    assert list((tmp_path / RUN).iterdir()) == [] and node.ran == []


def test_task_of_a_dead_run_starts_nothing(node):
    lock = node.root / "run/llama-cluster/run.lock"
    lock.parent.mkdir()
    for text in ("", "b0b {}\n"):
        lock.write_text(text)
        with pytest.raises(Refusal, match="the lock of another run seen"):
            node.variants.start("head", "chat", CHANGED, 600, "a11ce")
    assert node.ran == []
    lock.write_text("a11ce {}\n")
    assert node.variants.start("head", "chat", CHANGED, 600, "a11ce")


def test_worker_on_loopback_starts_before_its_head(tmp_path):
    node = Node(tmp_path, head=unit("head"))
    assert node.variants.start("head", "chat", BESIDE, 600) == "llama-tune-head-chat.service"
    lines = node.text(HEAD).splitlines()
    assert "Requires=llama-tune-rpc-chat.service" in lines and "After=llama-tune-rpc-chat.service" in lines
    (waits,) = [line for line in lines if "wait_for_workers" in line]
    # As the unit's user: the rules let only that one through.
    assert waits.startswith("ExecStartPre=/opt/") and waits.endswith(" --build b11434-cpu-1 127.0.0.1:50053")
    cards = [line for line in lines if "CUDA_VISIBLE_DEVICES" in line]
    assert cards[-1] == "Environment=CUDA_VISIBLE_DEVICES= GGML_VK_VISIBLE_DEVICES="
    assert node.ran[2:] == [
        "stop llama-head-chat.service llama-tune-head-chat.service llama-tune-rpc-chat.service",
        "port 50053",
        "start llama-tune-rpc-chat.service",
        "start --no-block llama-tune-head-chat.service",
    ]


def test_worker_on_loopback_has_sandbox_and_rules(tmp_path):
    node = Node(tmp_path, head=unit("head", "/usr/bin/numactl --membind=0 -- "))
    node.variants.start("head", "chat", BESIDE, 600)
    text = node.text(WORKER)
    assert command(text) == (
        f"/usr/bin/numactl --membind=0 -- /usr/bin/stdbuf -oL {RELEASE}/bin/ggml-rpc-server " + " ".join(LOOPBACK)
    )
    ends = ("BindsTo=llama-tune-head-chat.service", "Conflicts=llama-head-chat.service", "RuntimeMaxSec=630")
    shut = ("IPAddressDeny=any", "IPAddressAllow=127.0.0.1", "User=llama", "MemoryMax=9G", "Restart=no")
    for line in (*unit_sandbox("cuda"), *ends, *shut, "Environment=CUDA_VISIBLE_DEVICES=GPU-1"):
        assert line in text.splitlines()
    # Not the key of the head's clients.
    for word in ("BindReadOnlyPaths", "LLAMA_CLUSTER_DIGEST", "[Install]", "wait_for_workers", "GGML_VK_VISIBLE"):
        assert word not in text
    (rules,) = [line for line in text.splitlines() if line.startswith('ExecStartPre=+/usr/sbin/nft "')]
    assert 'ip daddr 127.0.0.1 tcp dport 50053 meta skuid != \\"llama\\" reject' in rules
    assert "ExecStopPost=-+/usr/sbin/nft delete table inet llama_tune" in text.splitlines()


def test_next_candidate_ends_worker_on_loopback(tmp_path):
    node = Node(tmp_path, head=unit("head"))
    node.variants.start("head", "chat", BESIDE, 600)
    node.variants.start("head", "chat", Changed(["--threads", "2"]), 600)
    assert "llama-tune-rpc" not in node.text(HEAD)
    assert node.ran[-2] == "stop llama-head-chat.service llama-tune-head-chat.service llama-tune-rpc-chat.service"
    node.ran.clear()
    assert node.variants.end() == ["chat"]
    assert node.ran[:3] == [
        "stop llama-tune-head-chat.service",
        "start --no-block llama-head-chat.service",
        "stop llama-tune-rpc-chat.service",
    ]
    assert list((node.root / RUN).iterdir()) == []


def test_worker_on_loopback_needs_its_rules(tmp_path):
    node = Node(tmp_path, head=unit("head"))
    (node.root / "usr/sbin/nft").unlink()
    with pytest.raises(Refusal, match="/usr/sbin/nft: missing"):
        node.variants.start("head", "chat", BESIDE, 600)
    (node.root / "usr/sbin/nft").touch()
    with pytest.raises(Refusal, match="10.0.0.1 --port 1 seen, --host 127.0.0.1"):
        node.variants.start("head", "chat", BESIDE._replace(worker=["--host", "10.0.0.1", "--port", "1"]), 600)
    assert node.ran == [] and list((node.root / RUN).iterdir()) == []


def test_port_in_use_is_refused():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(Refusal, match=f"127.0.0.1:{port}: in use"):
            require_free(port)
    require_free(port)
