# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""clients.yml: from the inventory while no gateway answers, and what the gateway says once one does; its refusals."""

import http.server
import json
import socket
import sys
import threading

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    BRIEF,
    COLLECTIONS,
    ROOT,
    done,
    playbook_lines,
    refused,
    run_playbook,
)


def clients(folder, port, *arguments, gateway=True):
    service = {"model": "m", "quant": "F16", "head": "node1", "port": 8000, "slot_ctx_size": 2048, "parallel": 1}
    settings = {
        "llama_services": {"chat": service},
        "llama_models": {"m": {"aliases": ["n"], "quants": {"F16": {"urls": ["file:///m.gguf"], "file": "m.gguf"}}}},
        "ansible_connection": "local",
        "ansible_host": "127.0.0.1",
        "ansible_python_interpreter": sys.executable,
        "gateway_port": port,
    }
    inventory = {"llama_nodes": {"hosts": {"node1": {}}}, "all": {"vars": settings}}
    if gateway:
        inventory["llama_gateway"] = {"hosts": {"front": {}}}
    (folder / "hosts.json").write_text(json.dumps(inventory))
    arguments = ("-i", str(folder / "hosts.json"), *arguments)
    return run_playbook(ROOT / "playbooks/clients.yml", *arguments, home=folder, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS)


@pytest.fixture
def closed_port():
    """A port without a listener."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield free.getsockname()[1]


@pytest.fixture
def gateway():
    """The port of a gateway that answers with its path."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = b"what the gateway says at %s\n" % self.path.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_undeployed_gateway_shows_the_inventory(tmp_path, closed_port):
    output = done(clients(tmp_path, closed_port))
    assert "could not ask http://127.0.0.1:%d/clients from " % closed_port in output
    assert "): shown is what the inventory gives; look at the host, or run site.yml if it was never deployed" in output
    assert "m: 2048 tokens of context, answers of 512; also as n" in output


def test_file_is_written(tmp_path, closed_port):
    output = done(clients(tmp_path, closed_port, "-e", "client=opencode", "-e", "dir=%s" % tmp_path))
    written = json.loads((tmp_path / "opencode.json").read_text())
    assert written["provider"]["llama"]["models"]["n"]["limit"] == {"context": 2048, "output": 512}
    assert "wrote %s/opencode.json" % tmp_path in output


def test_text_of_the_gateway_is_used(tmp_path, gateway):
    output = done(clients(tmp_path, gateway, "-e", "client=litellm", "-e", "dir=%s" % tmp_path))
    assert (tmp_path / "config.yaml").read_text() == "what the gateway says at /clients/litellm\n"
    assert "does not answer" not in output


@pytest.mark.parametrize(
    "arguments,there,said",
    [
        ((), False, "clients: no host in the group llama_gateway, one is needed: add it to hosts.yml"),
        (("-e", "dir=/tmp"), True, "clients: dir seen without a client, the one to write for is needed"),
        (("-e", "client=emacs"), True, "client: emacs seen, one of openai, litellm, opencode"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, closed_port, arguments, there, said):
    assert said in refused(clients(tmp_path, closed_port, *arguments, gateway=there))


SHOW = """
- hosts: llama_gateway
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: thefermisea.llama_cluster.gateway, tasks_from: show.yml}
"""
HERE = {
    "urls": ["http://10.0.0.5:8000/v1"],
    "questions": [{"url": "http://127.0.0.1/v1", "model": "m"}],
}


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        # Nothing was started.
        ({}, ["clients: http://10.0.0.5:8000/v1"]),
        (
            {"apply_started": {"changed": True}, "gateway_keys": {"laptop": "secret"}},
            [
                "clients: http://10.0.0.5:8000/v1",
                "with LLAMA_API_KEY set to one of gateway_keys:",
                'curl -sS http://10.0.0.5:8000/v1/chat/completions -H "Authorization: Bearer $LLAMA_API_KEY" -H '
                "'Content-Type: application/json' -d '"
                '{"model": "m", "messages": [{"role": "user", "content": "Name a color."}]}'
                "'",
            ],
        ),
        (
            {"apply_started": {"changed": True}, "gateway_keys": {}},
            ["with LLAMA_API_KEY set to the generated key, in /etc/llama-cluster/gateway/keys.json on front:"],
        ),
    ],
)
def test_the_curl_line_goes_to_the_gateway(tmp_path, given, lines):
    (tmp_path / "show.yml").write_text(SHOW)
    hosts = {"llama_nodes": {"hosts": {"node1": {}}}, "llama_gateway": {"hosts": {"front": {}}}}
    (tmp_path / "hosts.json").write_text(json.dumps(hosts))
    extra = json.dumps(dict({"__gateway_here": HERE, "gateway_auth": "required", "gateway_keys": {}}, **given))
    arguments = ("-i", str(tmp_path / "hosts.json"), "-e", extra)
    status, output = playbook_lines(
        tmp_path / "show.yml", *arguments, home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS, **BRIEF
    )
    assert status == 0, output
    shown = output[:-1]
    assert [line for line in shown if line in lines] == lines and "secret" not in str(output)
    if not given:
        assert shown == lines
