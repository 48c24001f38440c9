# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama-model-selector with a server on the loopback instead of a gateway."""

import http.server
import json
import socket
import threading

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import model_selector

MODEL = {"name": "or1-behemoth", "aliases": ["OR1-Behemoth"], "slot_ctx_size": 4096}
STRAND = {"name": "strand", "aliases": ["Strand-Rust-Coder"], "slot_ctx_size": None}
STATUS = {
    "version": 1,
    "services": {
        "a-copy": {"state": "down", "models": [dict(MODEL, slot_ctx_size=1)]},
        "fast": {"state": "loading", "models": [STRAND]},
        "old": {"state": "stopped", "models": [{"name": "gone", "aliases": []}]},
        "reasoning": {"state": "ready", "models": [MODEL]},
    },
    "routes": {
        "default": "OR1-Behemoth",
        "tasks": {"analyze": "or1-behemoth", "fix": "Strand-Rust-Coder", "borrowing": "deepseek", "archive": "gone"},
    },
}


@pytest.fixture
def gateway(tmp_path):
    """.answers: {path: (status, body)}; .config: the file that names it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            answer = server.answers.get(self.path, (404, b'{"error": {"message": "no such path"}}'))
            status, body = answer[:2]
            self.send_response(status)
            for header in dict(*answer[2:]).items():
                self.send_header(*header)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answers = {"/status.json": (200, json.dumps(STATUS).encode())}
    server.url = "http://127.0.0.1:%d" % server.server_port
    server.config = tmp_path / "selector.json"
    server.config.write_text(json.dumps({"base_url": server.url + "/"}))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(gateway, capsys):
    """run(*arguments) -> (exit code, stdout, stderr)"""

    def ran(*arguments):
        code = model_selector.main(["--config", str(gateway.config), *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return ran


def changed(gateway, **more):
    gateway.answers["/status.json"] = (200, json.dumps(dict(STATUS, **more)).encode())


@pytest.mark.parametrize("task,model", [("analyze", "or1-behemoth"), ("fix", "strand")])
def test_task_has_a_model_and_a_url(run, gateway, task, model):
    assert run(task) == (0, "%s %s/v1\n" % (model, gateway.url), "")


def test_old_name_prints_the_old_lines(run, gateway):
    content = {"base_url": gateway.url, "paths": {"or1-behemoth": "/opt/models/OR1-Behemoth.Q8_0.gguf"}}
    gateway.config.write_text(json.dumps(content))
    assert run("analyze", "--old") == (
        0,
        "Using model: or1-behemoth\nModel path: /opt/models/OR1-Behemoth.Q8_0.gguf\n",
        "",
    )
    assert run("fix", "--old")[1] == "Using model: strand\nModel path: unknown\n"


def test_unknown_task_gets_the_default(run, gateway):
    assert run("poetry") == (
        0, "or1-behemoth %s/v1\n" % gateway.url, "llama-model-selector: poetry: unknown task, the default answers\n"
    )  # fmt: skip


def test_json(run, gateway):
    code, out, _err = run("analyze", "--json")
    assert (code, json.loads(out)) == (0, {
        "task": "analyze", "known": True, "model": "or1-behemoth", "service": "reasoning", "state": "ready",
        "context": 4096, "base_url": gateway.url + "/v1",
    })  # fmt: skip


def test_list(run):
    assert run("--list") == (
        0,
        "analyze              or1-behemoth (ready)\n"
        "archive              gone (stopped)\n"
        "borrowing            deepseek (served by no service)\n"
        "fix                  strand (loading)\n"
        "(any other)          or1-behemoth (ready)\n",
        "",
    )
    code, out, _err = run("--list", "--json")
    assert (code, json.loads(out)) == (0, STATUS["routes"])


def test_list_without_tasks(run, gateway):
    changed(gateway, routes={})
    assert run("--list") == (0, "no tasks: set llama_routes\n", "")


EVIL = "m\x1b]0;t\x07\nother http://evil/v1\u2028"


def test_output_has_no_control_characters(run, gateway):
    services = {"a\x1b": {"state": "ready\n\x1b", "models": [{"name": EVIL, "aliases": ["evil"]}]}}
    changed(gateway, services=services, routes={"default": None, "tasks": {"fix": EVIL, "x\x1b\n": EVIL}})
    code, out, _err = run("fix")
    # One line of two words for `read -r MODEL URL`.
    assert (code, out.split("\n")[1:], out.split()[1:]) == (0, [""], [gateway.url + "/v1"])
    for words in (["fix"], ["fix", "--json"], ["--list"], ["other"]):
        _code, out, err = run(*words)
        assert all(letter.isprintable() or letter == "\n" for letter in out + err), words
    assert run("--list")[1].count("\n") == 2


@pytest.mark.parametrize(
    "status",
    [{"services": {"a": 1}}, {"services": {"a": {"models": [{}]}}}, {"services": {}, "routes": {"tasks": [1]}}],
)
def test_malformed_status_is_refused(run, gateway, status):
    gateway.answers["/status.json"] = (200, json.dumps(dict({"routes": STATUS["routes"]}, **status)).encode())
    code, out, err = run("fix")
    assert code in (1, 3) and out == "" and err.count("\n") == 1


@pytest.mark.parametrize("task", ["borrowing", "archive"])
def test_unserved_model_is_refused(run, task):
    code, out, err = run(task)
    assert (code, out) == (1, "")
    assert err.startswith("llama-model-selector: %s: its model " % task)
    assert err.endswith(" is served by no service, a started one is needed: see llama-model-selector --list\n")


def test_unknown_task_without_default_is_refused(run, gateway):
    changed(gateway, routes={"default": None, "tasks": {"fix": "strand"}})
    code, out, err = run("poetry")
    assert (code, out) == (1, "")
    assert "poetry: unknown task and no default, one of fix is needed" in err
    changed(gateway, routes={})
    assert "one of llama_routes.tasks is needed" in run("poetry")[2]


@pytest.mark.parametrize(
    "status,body,said",
    [
        (503, b'{"error": {"message": "starting"}}', "status 503 seen, 200 is needed (starting)"),
        (200, b"<html>", "no services seen"),
        (200, b"[]", "no services seen"),
    ],
)
def test_other_answers_are_refused(run, gateway, status, body, said):
    gateway.answers["/status.json"] = (status, body)
    code, out, err = run("fix")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert said in err


def test_missing_gateway_is_refused(run, gateway):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gateway.config.write_text(json.dumps({"base_url": "http://127.0.0.1:%d" % free.getsockname()[1]}))
        code, out, err = run("fix")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "no answer (Connection refused), a running gateway is needed: see systemctl status" in err


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"base_url": 5}', '{"base_url": "10.0.0.5"}'])
def test_file_without_an_address_is_refused(run, gateway, text):
    gateway.config.write_text(text)
    code, out, err = run("fix")
    assert (code, out) == (1, "")
    assert "no base_url seen, one is needed: run site.yml with --tags gateway" in err


def test_missing_file_is_refused(run, gateway):
    gateway.config.unlink()
    assert run("fix")[0] == 1
    assert "selector.json: No such file or directory, the gateway's address is needed" in run("fix")[2]


@pytest.mark.parametrize("arguments", [(), ("fix", "--list"), ("--nonsense",)])
def test_wrong_use(run, arguments):
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2
