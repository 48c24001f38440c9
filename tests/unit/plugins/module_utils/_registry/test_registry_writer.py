# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two programs against a server, a share and each other."""

import json
import os
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._registry import files, reader, writer
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import (
    registry_reader,
    registry_writer,
)
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_llama_server import (
    CUT,
    HEALTHY,
    LOADING,
    FakeLlamaServer,
)
from ansible_collections.thefermisea.llama_cluster.tests.unit.registry_files import NAME, RECORD

CHANGING = ("version", "job_id", "state", "started_at", "heartbeat")


@pytest.fixture(name="server")
def fixture_server():
    """A llama-server that loads its model."""
    fake = FakeLlamaServer()
    fake.responses["/health"] = LOADING
    yield fake
    fake.stop()


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    (tmp_path / "share").mkdir()
    return tmp_path / "share"


def settings(folder, server):
    record = {name: value for name, value in RECORD.items() if name not in CHANGING}
    return {"directory": str(folder), "suffix": "72b", "url": server.url, "record": record}


@pytest.fixture(name="program")
def fixture_program(folder, server):
    program = registry_writer.Program(writer.settings_of(json.dumps(settings(folder, server))), 4711)
    yield program
    program.end()


def rounds(program, done, within=60.0, clock=lambda: 0.0):
    """Rounds until something is so. clock: seconds added to the program's."""
    until = time.monotonic() + within
    while not done():
        assert time.monotonic() < until
        program.round(time.monotonic() + clock())
        time.sleep(0.01)


def written(folder):
    try:
        return json.loads((folder / NAME).read_text())
    except FileNotFoundError:
        return {}


def state(folder):
    return written(folder).get("state")


def test_file_follows_the_server_until_the_end(program, folder, server):
    rounds(program, lambda: state(folder) == "loading")
    server.responses["/health"] = HEALTHY
    rounds(program, lambda: state(folder) == "ready")
    record = written(folder)
    assert (record["job_id"], record["heartbeat"], record["version"]) == (4711, files.HEARTBEAT, 1)
    assert oct((folder / NAME).stat().st_mode & 0o777) == "0o644"
    program.drain(True)
    rounds(program, lambda: state(folder) == "draining")
    program.drain(False)
    rounds(program, lambda: state(folder) == "ready")
    program.end()
    assert os.listdir(str(folder)) == []


def test_ready_server_is_only_connected_to(program, folder, server):
    server.responses["/health"] = HEALTHY
    rounds(program, lambda: state(folder) == "ready")
    asked = len(server.requests)
    for look in range(1, 4):
        program.round(time.monotonic() + look * writer.LOOK)
    assert len(server.requests) == asked


def test_stopped_server_is_loading(program, folder, server):
    server.responses["/health"] = HEALTHY
    rounds(program, lambda: state(folder) == "ready")
    server.stop()
    rounds(program, lambda: state(folder) == "loading")


def test_server_without_http_is_loading(program, folder, server):
    server.responses["/health"] = CUT
    rounds(program, lambda: server.requests)
    assert state(folder) == "loading"


def test_heartbeat_repairs_a_broken_file(program, folder):
    rounds(program, lambda: state(folder) == "loading")
    (folder / NAME).write_text("{")
    (folder / (".%s.1.partial" % NAME)).write_text("left by one that was killed")
    program.round(time.monotonic() + files.HEARTBEAT + 1)
    rounds(program, lambda: (folder / NAME).read_text() != "{", clock=lambda: files.HEARTBEAT + 1)
    assert state(folder) == "loading"
    assert os.listdir(str(folder)) == [NAME]


def test_hanging_share_blocks_nothing(program, folder, server, monkeypatch, capsys):
    """Whoever opens a FIFO to write waits for a reader, as whoever calls into a share whose server is gone."""
    rounds(program, lambda: state(folder) == "loading")
    os.mkfifo(str(folder.parent / "hangs"))
    good = writer.write
    monkeypatch.setattr(writer, "write", lambda *_: open(str(folder.parent / "hangs"), "wb").close())
    monkeypatch.setattr(program._child, "_deadline", 0.2)
    server.responses["/health"] = HEALTHY
    slowest = 0.0
    until = time.monotonic() + 3.5
    while time.monotonic() < until:
        began = time.monotonic()
        program.round(began)
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.01)
    assert slowest < 5, "a FIFO would have blocked for ever"
    assert program._child.left <= 1
    assert state(folder) == "loading"
    assert capsys.readouterr().out.count("no answer") == 1
    monkeypatch.setattr(writer, "write", good)
    rounds(program, lambda: state(folder) == "ready")


def test_end_does_not_wait_for_hanging_share(program, folder, monkeypatch):
    rounds(program, lambda: state(folder) == "loading")
    monkeypatch.setattr(writer, "remove", lambda *_: time.sleep(600))
    monkeypatch.setattr(registry_writer, "END", 0.3)
    began = time.monotonic()
    program.end()
    assert time.monotonic() - began < 20


def test_configuration_of_a_broken_file_is_refused(folder, server):
    told = settings(folder, server)
    del told["record"]["models"]
    with pytest.raises(Refusal, match="^0-72b.json: no models seen"):
        writer.settings_of(json.dumps(told))
    with pytest.raises(Refusal, match="^the configuration cannot be used"):
        writer.settings_of("{}")


class Gateway:
    """The reader's program, and what it has written."""

    def __init__(self, folder, share):
        config = folder / "config.json"
        told = {"directory": str(share), "hosts": {"vasp-01": "10.0.0.20"}, "uids": [os.getuid()]}
        config.write_text(json.dumps(told))
        self.output = folder / "registry.json"
        self.program = registry_reader.Program(str(config), str(self.output))

    @property
    def told(self):
        return json.loads(self.output.read_text()) if self.output.exists() else {"endpoints": None}

    def ports(self):
        return self.told["endpoints"] and [one["port"] for one in self.told["endpoints"]]


@pytest.fixture(name="gateway")
def fixture_gateway(tmp_path, folder):
    gateway = Gateway(tmp_path, folder)
    yield gateway
    gateway.program.end()


def test_reader_reads_what_the_writer_writes(program, folder, gateway):
    rounds(program, lambda: state(folder) == "loading")
    rounds(gateway.program, lambda: gateway.ports() == [8081])
    assert gateway.told["age"] == 0.0
    assert gateway.told["endpoints"][0]["address"] == "10.0.0.20"
    program.end()
    rounds(gateway.program, lambda: gateway.told["endpoints"] == [])


def test_endpoints_stay_while_share_hangs(folder, gateway, monkeypatch, capsys):
    (folder / NAME).write_bytes(files.encode(RECORD))
    (folder / NAME).chmod(0o644)
    rounds(gateway.program, lambda: gateway.ports() == [8081])
    os.mkfifo(str(folder.parent / "hangs"))
    good = reader.look
    monkeypatch.setattr(reader, "look", lambda *_: (folder.parent / "hangs").read_text())
    monkeypatch.setattr(gateway.program._child, "_deadline", 0.2)
    monkeypatch.setattr(reader, "DEADLINE", 0.2)
    monkeypatch.setattr(registry_reader, "AGAIN", 0.5)
    rounds(gateway.program, lambda: gateway.told["age"] > 1)
    assert gateway.ports() == [8081]
    assert gateway.program._child.left <= 1
    assert "no answer for 0 s, 1 endpoints are kept" in capsys.readouterr().out
    monkeypatch.setattr(reader, "look", good)
    monkeypatch.setattr(reader, "DEADLINE", 3.0)
    monkeypatch.setattr(gateway.program._child, "_deadline", 3.0)
    rounds(gateway.program, lambda: gateway.told["age"] == 0.0)
    assert gateway.ports() == [8081]


def test_endpoints_stay_without_share(folder, gateway):
    (folder / NAME).write_bytes(files.encode(RECORD))
    (folder / NAME).chmod(0o644)
    rounds(gateway.program, lambda: gateway.ports() == [8081])
    os.rename(str(folder), str(folder) + "-away")
    seen = []
    rounds(gateway.program, lambda: seen.append(1) or len(seen) > 250)
    assert gateway.ports() == [8081]
