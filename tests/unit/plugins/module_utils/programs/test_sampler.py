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

import jinja2
import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter import config
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter.exposition import parse
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import nvidia_smi, paths
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import sampler
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake

UNIT = Path(__file__).resolve().parents[3]
STUB = str(UNIT / "stub_nvidia_smi")
TEMPLATE = UNIT.parents[1] / "roles/monitoring/templates/llama-sampler.service.j2"
# systemctl show of a head whose process is this one.
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
    start = sampler.Part.start
    monkeypatch.setattr(sampler.Part, "start", lambda part: parts.append(part) or start(part))
    yield tmp_path
    for part in parts:
        part.stop()
    for part in parts:
        part.join(10)
        assert not part.is_alive()


@pytest.fixture(name="server")
def fixture_server(node):
    server = fake.FakeLlamaServer()
    head = {"kind": "head", "unit": "llama-head-chat.service", "url": server.url, "rpc_endpoints": []}
    (node / "watchdog/head-chat.json").write_text(json.dumps(head))
    yield server
    server.stop()


def written(node):
    """{(name, labels): value} of the samples on the node."""
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


def test_samples_are_written_and_served(node, server):
    settings = config.Config("1.0", http=config.Http("127.0.0.1", 0, ["127.0.0.1"]), disks=[str(node), str(node)])
    one = sampler.Sampler(settings)
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
    assert not [name for name in written(node) if name[0].startswith("llama_endpoint")]


def test_node_exporter_gets_same_file(node):
    (node / "textfile").mkdir(mode=0o777)
    one = sampler.Sampler(config.Config(textfile=str(node / "textfile")))
    assert one.round() == []
    assert (node / "textfile/llama_cluster.prom").read_text() == (node / "run/samples.prom").read_text()
    # No partial file for node_exporter.
    assert os.listdir(str(node / "textfile")) == ["llama_cluster.prom"]


def test_planted_link_is_replaced(node):
    (node / "textfile").mkdir(mode=0o777)
    (node / "precious").write_text("x")
    for name in ("llama_cluster.prom", ".llama_cluster.prom.partial"):
        (node / "textfile" / name).symlink_to(node / "precious")
    one = sampler.Sampler(config.Config(textfile=str(node / "textfile")))
    assert one.round() == []
    assert (node / "precious").read_text() == "x" and not (node / "textfile/llama_cluster.prom").is_symlink()


def test_failed_output_keeps_the_others(node):
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


def test_hung_card_delays_nothing(node, server, monkeypatch):
    monkeypatch.setenv("STUB_NVIDIA_SMI", "hang %s" % (node / "pids"))
    monkeypatch.setattr(nvidia_smi.collect, "__defaults__", ("nvidia-smi", 0.5, "/sys", "/dev/null"))
    one = sampler.Sampler(config.Config())
    began = time.monotonic()
    one.round()
    assert time.monotonic() - began < 0.5
    rounds_until(one, lambda _failed: written(node).get(("llama_sampler_cards_hung",)) == 1)
    assert written(node)["llama_endpoint_ready", "chat"] == 1


class Enough(Exception):
    """Ends the program's loop."""


def test_new_configuration_restarts_the_program(node, monkeypatch, capsys):
    path = node / "sampler.json"
    monkeypatch.setattr(config.load, "__defaults__", (str(path),))
    monkeypatch.setattr(config.written, "__defaults__", (str(path),))
    texts = iter(("[]", None, "{}"))
    executed = []

    def sleep(_seconds):
        text = next(texts)
        if text:
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").rename(path)

    def execute(*given):
        executed.append(given)
        raise Enough

    path.write_text("{}")
    monkeypatch.setattr(sampler, "notify", lambda _text: None)
    monkeypatch.setattr(sampler, "time", types.SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(sampler.os, "execv", execute)
    with pytest.raises(Enough):
        sampler.main()
    command = Path("/proc/self/cmdline").read_text().split("\0")[:-1]
    assert executed == [(sys.executable, command)]
    # An invalid file is reported once and changes nothing.
    lines = [line for line in capsys.readouterr().out.splitlines() if "cannot be used" in line]
    assert len(lines) == 1 and lines[0].startswith("sampler: %s: cannot be used" % path)


def test_missing_configuration_ends_program(monkeypatch, tmp_path):
    monkeypatch.setattr(config.load, "__defaults__", (str(tmp_path / "none.json"),))
    assert "run site.yml with --tags monitoring again" in sampler.main()


def test_watchdog_is_notified_and_errors_logged_once(node, monkeypatch, capsys):
    notices, slept = [], []
    monkeypatch.setattr(sampler.config, "load", lambda: config.Config(textfile=str(node / "gone")))
    monkeypatch.setattr(sampler, "notify", notices.append)

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            raise Enough

    # The parts sleep, too.
    monkeypatch.setattr(sampler, "time", types.SimpleNamespace(sleep=sleep))
    with pytest.raises(Enough):
        sampler.main()
    assert notices[0].startswith("READY=1") and notices[1:] == ["WATCHDOG=1"] * 3
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sampler: ")]
    assert len(lines) == 1 and lines[0].startswith("sampler: cannot write: ")


def test_unit_may_read_kernel_clock():
    """ProtectClock=yes makes adjtimex(2) fail with EPERM even if it only reads."""
    assert "\nProtectClock=" not in TEMPLATE.read_text()


@pytest.mark.parametrize("graphics", [True, False])
def test_unit_sees_processes_beside_graphics_only(graphics):
    environment = jinja2.Environment(trim_blocks=True)
    environment.filters["comment"] = str
    unit = environment.from_string(TEMPLATE.read_text()).render(
        ansible_managed="", digest="d", textfile="", graphics=graphics
    )
    for words in (" CAP_SYS_PTRACE\n", "\nSystemCallFilter=~@debug ", "\nReadOnlyPaths=/proc\n"):
        assert (words in unit) == graphics


def test_unneeded_packages_are_not_loaded():
    """The program stays in memory."""
    code = "import sys; sys.path.insert(0, %r); import module_utils.programs.sampler; print(*sys.modules)"
    output = subprocess.check_output([sys.executable, "-S", "-c", code % str(UNIT.parents[1] / "plugins")])
    loaded = {name for name in output.decode().split() if name.startswith("module_utils._")}
    assert "module_utils._exporter.heads" in loaded
    assert not loaded & {"module_utils._gateway", "module_utils._fetch", "module_utils._adoption", "module_utils._plan"}
