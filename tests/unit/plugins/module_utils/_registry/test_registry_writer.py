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
    """Runs rounds until done(). clock: seconds that are added."""
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


def hangs(*_arguments):
    time.sleep(600)


def test_write_on_hanging_share_is_repeated(program, folder, server, monkeypatch, capsys):
    rounds(program, lambda: state(folder) == "loading")
    server.responses["/health"] = HEALTHY
    program._child.deadline = 0.2
    with monkeypatch.context() as hanging:
        hanging.setattr(writer, "write", hangs)
        for look in range(1, 4):
            program.round(time.monotonic() + look * writer.LOOK)
    assert state(folder) == "loading" and capsys.readouterr().out.count("no answer") == 1
    program._child.deadline = 60
    rounds(program, lambda: state(folder) == "ready", clock=lambda: 60)


def test_end_does_not_wait_for_hanging_share(program, folder, monkeypatch):
    rounds(program, lambda: state(folder) == "loading")
    monkeypatch.setattr(writer, "remove", hangs)
    monkeypatch.setattr(registry_writer, "END", 0.3)
    began = time.monotonic()
    program.end()
    assert time.monotonic() - began < 20


def test_broken_configuration_is_refused():
    with pytest.raises(Refusal, match="^the configuration cannot be used"):
        writer.settings_of("{}")


@pytest.fixture(name="gateway")
def fixture_gateway(tmp_path, folder):
    """The reader's program, whose share has one endpoint."""
    (folder / NAME).write_bytes(files.encode(RECORD))
    (folder / NAME).chmod(0o644)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"directory": str(folder), "hosts": {"vasp-01": "10.0.0.20"}, "uids": [os.getuid()]}))
    program = registry_reader.Program(str(config), str(tmp_path / "registry.json"))
    program.round()
    return program


def copied(folder):
    found = json.loads((folder.parent / "registry.json").read_text())
    return [one["address"] for one in found["endpoints"]]


def test_reader_copies_the_endpoints(folder, gateway):
    assert copied(folder) == ["10.0.0.20"]
    (folder / NAME).unlink()
    gateway.round()
    assert copied(folder) == []


def test_endpoints_stay_while_share_hangs(folder, gateway, monkeypatch, capsys):
    gateway._child.deadline = 0.2
    with monkeypatch.context() as hanging:
        hanging.setattr(reader, "look", hangs)
        for _look in range(3):
            gateway.round()
    assert copied(folder) == ["10.0.0.20"]
    assert "no answer for 0 s, 1 endpoints are kept" in capsys.readouterr().out
    gateway._child.deadline = 60
    gateway.round()
    assert copied(folder) == ["10.0.0.20"]


def test_endpoints_stay_without_share(folder, gateway):
    os.rename(str(folder), str(folder) + "-away")
    for _look in range(5):
        gateway.round()
    assert copied(folder) == ["10.0.0.20"]
