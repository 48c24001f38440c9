# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`tailscale serve` for the gateway: the commands of role gateway against a stub, tailscale itself needs an account."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._gateway.tailnet import (
    gateway_tailnet,
    wanted_handlers,
)

TASKS = Path(__file__).resolve().parents[5] / "roles/gateway/tasks"
HOST = "slurm-ctl.tail0.ts.net"
RUNNING = {"BackendState": "Running", "Self": {"DNSName": HOST + "."}, "CertDomains": [HOST]}
TIERS = {"fast": 8080, "reasoning": 8081}
THEIRS = {"TCP": {"9000": {"TCPForward": "127.0.0.1:9000"}}}
THEIRS["Web"] = {HOST + ":443": {"Handlers": {"/grafana": {"Proxy": "http://127.0.0.1:3000"}}}}
ROOT, REASONING = "--https=443 --set-path=/", "--https=443 --set-path=/reasoning/"
STUB = f"""#!{sys.executable}
import json, pathlib, sys
state = pathlib.Path(__file__).with_name("state.json")
config, words = json.loads(state.read_text()), sys.argv[1:]
if "--json" in words:
    sys.exit(print(json.dumps(config if words[0] == "serve" else {RUNNING!r}, indent=2)))
flags = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
table, key = config.setdefault("TCP", {{}}), flags.get("tcp")
value = {{"TCPForward": words[-1].replace("tcp://", "")}}
if "https" in flags:
    table = config.setdefault("Web", {{}}).setdefault("{HOST}:443", {{}}).setdefault("Handlers", {{}})
    key, value = flags["set-path"], {{"Proxy": words[-1]}}
if words[-1] == "off":
    del table[key]
else:
    assert "--bg" in words
    table[key] = value
state.write_text(json.dumps(config))
"""


def look(config, record=(), status=None, errors=""):
    parts = [json.dumps(status or RUNNING), json.dumps(config), json.dumps({"handlers": list(record)})]
    return {"stdout": "\n---\n".join(parts), "stderr": errors}


def judged(looked, tiers=None, enabled=True):
    tiers = TIERS if tiers is None else tiers
    here = {"tiers": {name: {"port": port} for name, port in tiers.items()}}
    return gateway_tailnet(here, {"enabled": enabled, "port": 8000, "tls": False}, looked)


@pytest.fixture
def run(tmp_path):
    """Runs the commands of the role's tasks with the stub -> whether something changed."""
    (tmp_path / "tailscale").write_text(STUB)
    (tmp_path / "tailscale").chmod(0o755)
    record = tmp_path / "record.json"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    (task,) = yaml.safe_load((TASKS / "tailscale_look.yml").read_text())
    command = task["ansible.builtin.shell"].replace("/var/lib/llama-cluster/tailscale-serve.json", str(record))

    def serve(**options):
        done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=True)
        found = judged({"stdout": done.stdout.rstrip(), "stderr": done.stderr}, **options)
        assert not found["refused"]
        for words in found["remove"]:
            subprocess.run(["tailscale", "serve", *words, "off"], env=environment, check=True)
        record.write_text(found["record"])
        for words in found["add"]:
            subprocess.run(["tailscale", "serve", "--bg", *words], env=environment, check=True)
        return found["record_changes"]

    def state(config=None):
        if config is not None:
            (tmp_path / "state.json").write_text(json.dumps(config))
        return json.loads((tmp_path / "state.json").read_text())

    serve.state = state
    return serve


@pytest.mark.parametrize(
    ("tiers", "port", "tls", "expected"),
    [
        (
            TIERS,
            8000,
            False,
            [f"{ROOT} http://127.0.0.1:8080", f"{REASONING} http://127.0.0.1:8081"]
            + [f"--tcp={port} tcp://127.0.0.1:{port}" for port in (8000, 8080, 8081)],
        ),
        ({}, 443, True, [f"{ROOT} https+insecure://127.0.0.1:443"]),
    ],
)
def test_handlers_of_tiers_and_gateway(tiers, port, tls, expected):
    assert wanted_handlers(tiers, port, tls) == expected


def test_only_recorded_handlers_change(run):
    run.state(THEIRS)
    assert run() and not run()
    assert run.state()["Web"][HOST + ":443"]["Handlers"] == {
        "/grafana": {"Proxy": "http://127.0.0.1:3000"},
        "/": {"Proxy": "http://127.0.0.1:8080"},
        "/reasoning/": {"Proxy": "http://127.0.0.1:8081"},
    }
    assert run(tiers={"fast": 8090}) and not run(tiers={"fast": 8090})
    assert sorted(run.state()["TCP"]) == ["8000", "8090", "9000"]
    assert run(enabled=False) and not run(enabled=False)
    assert run.state() == THEIRS


def test_equal_handler_of_the_operator_stays(run):
    own = {"TCP": {"8080": {"TCPForward": "127.0.0.1:8080"}}}
    run.state(own)
    run()
    run(enabled=False)
    assert run.state()["TCP"] == own["TCP"]


def test_interrupted_run_is_completed():
    found = judged(look({}, record=wanted_handlers(TIERS, 8000, False)))
    assert len(found["add"]) == 5 and not found["record_changes"]


def test_host_without_tailscale_has_nothing_to_remove():
    missing = {"stdout": '\n---\n\n---\n{"handlers": ["--tcp=8000 tcp://127.0.0.1:8000"]}', "stderr": "No such file"}
    found = judged(missing, enabled=False)
    assert (found["refused"], found["remove"], found["record"], found["record_changes"]) == ([], [], "", True)
    (sentence,) = judged(missing)["refused"]
    assert "(No such file): install tailscale 1.52 or later" in sentence


@pytest.mark.parametrize(
    ("status", "config", "words"),
    [
        (dict(RUNNING, BackendState="NeedsLogin"), {}, "in state NeedsLogin, Running is needed: run tailscale up"),
        (dict(RUNNING, CertDomains=None), None, "no HTTPS certificates for this host"),
        (RUNNING, {"AllowFunnel": {HOST + ":443": True}}, "run tailscale funnel --https=443 off"),
        (
            RUNNING,
            {"Web": {HOST + ":443": {"Handlers": {"/reasoning": {"Proxy": "http://127.0.0.1:9"}}}}},
            "--https=443 --set-path=/reasoning http://127.0.0.1:9 already, which is unmanaged",
        ),
        (
            RUNNING,
            {"Foreground": {"abc": {"TCP": {"8080": {"TCPForward": "127.0.0.1:9"}}}}},
            "remove it with tailscale serve --tcp=8080 off",
        ),
        (RUNNING, {"TCP": {"443": {"TCPForward": "127.0.0.1:443", "TerminateTLS": HOST}}}, "--tls-terminated-tcp=443"),
    ],
)
def test_refusals(status, config, words):
    refused = judged(look(config, status=status))["refused"]
    assert refused and all(one.startswith("gateway_tailscale: ") for one in refused) and words in refused[0]
    assert not judged(look(config, status=status), enabled=False)["refused"]


def test_unmanaged_handlers_to_the_loopback_are_found():
    config = dict(THEIRS, TCP=dict(THEIRS["TCP"], **{"81": {"TCPForward": "10.0.0.9:8080"}}))
    found = judged(look(config, record=["--tcp=9000 tcp://127.0.0.1:9000"]), enabled=False)
    assert found["handed_on"] == [
        {"handler": "--https=443 --set-path=/grafana http://127.0.0.1:3000", "port": 3000},
    ]
