# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
import socket
import stat
import subprocess
import sys
import time
import types
import urllib.request
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter import config
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter.exposition import parse
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import nvidia_smi, paths
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import sampler
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake
from ansible_collections.thefermisea.llama_cluster.tests.unit.strangers import give_away

UNIT = Path(__file__).resolve().parents[3]
STUB = str(UNIT / "stub_nvidia_smi")
TEMPLATE = UNIT.parents[1] / "roles/monitoring/templates/llama-sampler.service.j2"
# What systemd says of a head whose process is this one's.
SYSTEMCTL = """#!/bin/sh
echo Id=llama-head-chat.service
echo ActiveState=active
echo SubState=running
echo UnitFileState=enabled
echo MainPID=%d
"""


@pytest.fixture(name="node")
def fixture_node(tmp_path, monkeypatch):
    """A node of one head, in a directory."""
    units, watched, tools = tmp_path / "units", tmp_path / "watchdog", tmp_path / "tools"
    for folder in (units, watched, tools, tmp_path / "run"):
        folder.mkdir()
    (units / "llama-head-chat.service").write_text("")
    (tools / "systemctl").write_text(SYSTEMCTL % os.getpid())
    (tools / "nvidia-smi").symlink_to(STUB)
    (tools / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (tools, os.environ["PATH"]))
    monkeypatch.setenv("STUB_NVIDIA_SMI", str(UNIT / "fixtures/nvidia_smi_535_v100s.xml"))
    for name, value in (
        ("UNIT_FILES", units / "llama-*.service"),
        ("SAMPLES", tmp_path / "run" / "samples.prom"),
        ("REPAIRS_FILES", tmp_path / "run" / "repairs" / "*.json"),
        ("BASELINES", tmp_path / "baseline-*.json"),
    ):
        monkeypatch.setattr(paths, name, str(value))
    look = config.watched
    monkeypatch.setattr(config, "watched", lambda: look(str(watched)))
    parts = []

    class Part(sampler.Part):
        def start(self):
            parts.append(self)
            super().start()

    monkeypatch.setattr(sampler, "Part", Part)
    yield tmp_path
    # None of them goes on in the next test.
    for part in parts:
        part.stop()
    for part in parts:
        part.join(10)
        assert not part.is_alive()


@pytest.fixture(name="server")
def fixture_server(node):
    server = fake.FakeLlamaServer()
    told = {"kind": "head", "unit": "llama-head-chat.service", "url": server.url, "rpc_endpoints": []}
    (node / "watchdog/head-chat.json").write_text(json.dumps(told))
    yield server
    server.stop()


def written(node):
    """{(name, what tells samples apart): value} of what lies on the node."""
    text = (node / "run/samples.prom").read_text()
    return {(one.name, *(one.labels[key] for key in sorted(one.labels))): one.value for one in parse(text)}


def rounds_until(one, condition):
    deadline = time.monotonic() + 20
    while True:
        failed = one.round()
        if condition(failed):
            return failed
        assert time.monotonic() < deadline, failed
        time.sleep(0.05)


def test_what_a_node_shows_is_on_its_disk_and_on_its_page(node, server):
    told = config.Config("1.0", http=config.Http("127.0.0.1", 0, ["127.0.0.1"]), disks=[str(node), str(node)])
    one = sampler.Sampler(told)
    sees = ("llama_endpoint_state", "chat", "ready"), ("llama_gpu_power_watts", "0")
    rounds_until(one, lambda failed: not failed and set(sees) <= set(written(node)))
    seen = written(node)
    assert seen["llama_unit_active", "head", "chat", "llama-head-chat.service"] == 1
    assert seen["llama_sampler_info", "1.0"] == 1
    parts = {name[1] for name in seen if name[0] == "llama_sampler_part_up"}
    assert {"units", "fabric", "machine", "cards", "self", "disk " + str(node)} < parts
    assert stat.S_IMODE((node / "run/samples.prom").stat().st_mode) == 0o644
    url = "http://127.0.0.1:%d/metrics" % one._page.server_address[1]
    with urllib.request.urlopen(url, timeout=5) as answer:
        assert {name.name for name in parse(answer.read().decode())} >= {"llama_unit_active", "llama_gpu_info"}
    one._page.shutdown()
    one._page.server_close()


def test_heads_come_and_go(node, server):
    one = sampler.Sampler(config.Config())
    rounds_until(one, lambda _failed: ("llama_endpoint_state", "chat", "ready") in written(node))
    (node / "watchdog/head-chat.json").unlink()
    one.round()
    assert not [name for name in written(node) if name[0].startswith("llama_endpoint") or "conversation chat" in name]


def test_node_exporter_gets_the_same_file(node):
    (node / "textfile").mkdir(mode=0o777)
    one = sampler.Sampler(config.Config(textfile=str(node / "textfile")))
    assert one.round() == []
    assert (node / "textfile/llama_cluster.prom").read_text() == (node / "run/samples.prom").read_text()
    # Nothing that node_exporter would read by half.
    assert os.listdir(str(node / "textfile")) == ["llama_cluster.prom"]


def test_a_link_that_was_planted_is_not_written_through(node):
    (node / "textfile").mkdir(mode=0o777)
    (node / "precious").write_text("x")
    for name in ("llama_cluster.prom", ".llama_cluster.prom.partial"):
        (node / "textfile" / name).symlink_to(node / "precious")
    one = sampler.Sampler(config.Config(textfile=str(node / "textfile")))
    assert one.round() == []
    assert (node / "precious").read_text() == "x" and not (node / "textfile/llama_cluster.prom").is_symlink()


def test_a_directory_that_others_have_made_lead_elsewhere_is_not_written_to(node):
    """By its owner, as the account of node_exporter could. A link of root's on the way is followed."""
    (node / "theirs").mkdir()
    (node / "elsewhere").mkdir()
    (node / "theirs/textfile").symlink_to(node / "elsewhere")
    one = sampler.Sampler(config.Config(textfile=str(node / "theirs/textfile")))
    assert one.round() == [] and os.listdir(str(node / "elsewhere")) == ["llama_cluster.prom"]
    (node / "elsewhere/llama_cluster.prom").unlink()
    (node / "theirs").chmod(0o777)
    (failed,) = one.round()
    assert failed.startswith("cannot write: %s/theirs/textfile: no directory, one is needed" % node)
    assert os.listdir(str(node / "elsewhere")) == []
    (node / "theirs").chmod(0o755)
    give_away(node / "theirs")
    assert len(one.round()) == 1 and os.listdir(str(node / "elsewhere")) == []


def test_what_cannot_be_written_or_served_is_told_and_keeps_nothing_else(node):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        http = config.Http("127.0.0.1", taken.getsockname()[1], ["127.0.0.1"])
        one = sampler.Sampler(config.Config(http=http, textfile=str(node / "gone")))
        failed = one.round()
    assert [line.split(":")[0] for line in failed] == ["cannot write", "cannot answer"]
    assert ("llama_sampler_part_up", "units") in written(node)
    assert "monitoring_sampler_port: 127.0.0.1 port %d cannot be listened on (Address" % http.port in failed[1]
    # Once the port is free it is served.
    (node / "gone").mkdir()
    rounds_until(one, lambda failed: failed == [])
    one._page.shutdown()
    one._page.server_close()


def test_a_card_that_hangs_holds_up_nobody(node, server, monkeypatch):
    monkeypatch.setenv("STUB_NVIDIA_SMI", "hang %s" % (node / "pids"))
    monkeypatch.setattr(nvidia_smi.collect, "__defaults__", ("nvidia-smi", 0.5, "/sys", "/dev/null"))
    one = sampler.Sampler(config.Config())
    began = time.monotonic()
    one.round()
    assert time.monotonic() - began < 0.5
    rounds_until(one, lambda _failed: written(node).get(("llama_sampler_cards_hung",)) == 1)
    assert written(node)["llama_endpoint_ready", "chat"] == 1


def test_it_goes_by_what_it_is_told_meanwhile(node, server, monkeypatch):
    path = node / "sampler.json"
    monkeypatch.setattr(config.load, "__defaults__", (str(path),))
    monkeypatch.setattr(config.written, "__defaults__", (str(path),))

    def tell(text):
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)

    def models():
        return {name[1:4] for name in written(node) if name[0] == "llama_model_info"}

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    http = {"address": "127.0.0.1", "port": port, "allowed": ["127.0.0.1"]}
    tell(json.dumps({"http": http, "models": {"chat": {"model": "big", "quant": "Q8_0"}}}))
    following = sampler.Following()
    rounds_until(following, lambda failed: not failed and models() == {("big", "Q8_0", "chat")})
    first = following._sampler
    # The port of the page is its successor's at once.
    tell(json.dumps({"http": http, "models": {"chat": {"model": "big", "quant": "Q4_K_M"}}}))
    assert following.round() == []
    rounds_until(following, lambda failed: not failed and models() == {("big", "Q4_K_M", "chat")})
    second = following._sampler
    assert second is not first and all(part._over.is_set() for part in first._parts)
    # What cannot be used is said once, and replaces nothing.
    tell("[]")
    (failed,) = following.round()
    assert failed.startswith("%s: cannot be used" % path) and following._sampler is second
    assert following.round() == []
    second.stop()


def test_a_configuration_that_cannot_be_used_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(config.load, "__defaults__", (str(tmp_path / "none.json"),))
    assert "run site.yml with --tags monitoring again" in sampler.main()


def test_it_says_that_it_lives_and_each_trouble_once(node, monkeypatch, capsys):
    class Enough(Exception):
        pass

    told, slept = [], []
    monkeypatch.setattr(sampler.config, "load", lambda: config.Config(textfile=str(node / "gone")))
    monkeypatch.setattr(sampler, "notify", told.append)

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            raise Enough

    # Its own alone: other threads sleep too.
    monkeypatch.setattr(sampler, "time", types.SimpleNamespace(sleep=sleep))
    with pytest.raises(Enough):
        sampler.main()
    assert told[0].startswith("READY=1") and told[1:] == ["WATCHDOG=1"] * 3
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sampler: ")]
    assert len(lines) == 1 and lines[0].startswith("sampler: cannot write: ")


def test_its_unit_may_ask_the_kernel_for_its_clock():
    """ProtectClock=yes answers adjtimex(2) with EPERM, also to those who only read."""
    assert "\nProtectClock=" not in TEMPLATE.read_text()


def test_no_more_of_the_package_is_loaded_than_it_needs():
    """It stays in memory for good: what only roles' modules need is not in it."""
    code = "import sys; sys.path.insert(0, %r); import module_utils.programs.sampler; print(*sys.modules)"
    output = subprocess.check_output([sys.executable, "-S", "-c", code % str(UNIT.parents[1] / "plugins")])
    loaded = {name for name in output.decode().split() if name.startswith("module_utils._")}
    assert "module_utils._exporter.heads" in loaded
    assert not loaded & {"module_utils._gateway", "module_utils._fetch", "module_utils._adoption", "module_utils._plan"}
