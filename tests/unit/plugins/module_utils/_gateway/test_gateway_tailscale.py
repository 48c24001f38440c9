# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`tailscale serve` for the gateway, against stub_tailscale: tailscale itself needs an account."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway import tailscale
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.tailscale import (
    Handler,
    Tailscale,
    wanted_handlers,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.modules import tailscale_serve

ROOT = Path(__file__).resolve().parents[5]
HOST = "slurm-ctl.tail0.ts.net"
TIERS = {"fast": 8080, "reasoning": 8081}
THEIRS = {
    "TCP": {"443": {"HTTPS": True}, "9000": {"TCPForward": "127.0.0.1:9000"}},
    "Web": {HOST + ":443": {"Handlers": {"/grafana": {"Proxy": "http://127.0.0.1:3000"}}}},
}


@pytest.fixture(name="host")
def fixture_host(tmp_path):
    """A host with the stub; host.says(...) sets what its daemon knows."""
    shutil.copy(str(ROOT / "tests/unit/stub_tailscale.py"), str(tmp_path))
    (tmp_path / "tailscale").write_text('#!/bin/sh\nexec %s %s/stub_tailscale.py "$@"\n' % (sys.executable, tmp_path))
    (tmp_path / "tailscale").chmod(0o755)

    class Host:
        path = tmp_path
        record = tmp_path / "record.json"

        @staticmethod
        def says(**state):
            (tmp_path / "state.json").write_text(json.dumps(state))

        @staticmethod
        def config():
            return json.loads((tmp_path / "state.json").read_text())["serve"]

        @staticmethod
        def calls():
            """The commands since the last look that change something."""
            path = tmp_path / "calls.txt"
            lines = path.read_text().splitlines() if path.exists() else []
            path.write_text("")
            return [line for line in lines if "status" not in line]

        @staticmethod
        def serve(handlers, **options):
            return Tailscale(str(tmp_path / "tailscale"), str(tmp_path / "record.json")).serve(handlers, **options)

    return Host


def test_handlers_of_both_tiers_and_of_none():
    assert [str(handler) for handler in wanted_handlers(TIERS, 8000, False)] == [
        "https:443 / -> http://127.0.0.1:8080",
        "https:443 /reasoning/ -> http://127.0.0.1:8081",
        "tcp:8000 -> 127.0.0.1:8000",
        "tcp:8080 -> 127.0.0.1:8080",
        "tcp:8081 -> 127.0.0.1:8081",
    ]
    # Port 443 of the tailnet has Tailscale's certificate.
    assert [str(handler) for handler in wanted_handlers({}, 443, True)] == [
        "https:443 / -> https+insecure://127.0.0.1:443"
    ]
    # A host without the engine.
    assert [str(handler) for handler in wanted_handlers({"reasoning": 8081}, None, False)] == [
        "https:443 /reasoning/ -> http://127.0.0.1:8081",
        "tcp:8081 -> 127.0.0.1:8081",
    ]


def test_served_once_and_then_nothing_is_to_do(host):
    handlers = wanted_handlers(TIERS, 8000, False)
    assert host.serve(handlers) == ([], handlers)
    assert host.calls() == [
        "serve --bg --https=443 --set-path=/ http://127.0.0.1:8080",
        "serve --bg --https=443 --set-path=/reasoning/ http://127.0.0.1:8081",
        "serve --bg --tcp=8000 tcp://127.0.0.1:8000",
        "serve --bg --tcp=8080 tcp://127.0.0.1:8080",
        "serve --bg --tcp=8081 tcp://127.0.0.1:8081",
    ]
    assert host.config()["Web"] == {
        HOST + ":443": {
            "Handlers": {"/": {"Proxy": "http://127.0.0.1:8080"}, "/reasoning/": {"Proxy": "http://127.0.0.1:8081"}}
        }
    }
    assert host.config()["TCP"]["8081"] == {"TCPForward": "127.0.0.1:8081"}
    assert host.serve(handlers) == (handlers, handlers)
    assert host.calls() == []


def test_only_ours_goes(host):
    host.says(serve=THEIRS)
    host.serve(wanted_handlers(TIERS, 8000, False))
    assert host.config() != THEIRS
    host.serve([])
    assert host.config() == THEIRS
    assert not host.record.exists()
    host.calls()
    assert host.serve([]) == ([], [])
    assert host.calls() == []


def test_a_tier_that_closes_goes_and_a_port_that_moves_follows(host):
    host.serve(wanted_handlers(TIERS, 8000, False))
    host.calls()
    host.serve(wanted_handlers({"fast": 8090}, 8000, False))
    assert host.calls() == [
        "serve --https=443 --set-path=/ off",
        "serve --https=443 --set-path=/reasoning/ off",
        "serve --tcp=8080 off",
        "serve --tcp=8081 off",
        "serve --bg --https=443 --set-path=/ http://127.0.0.1:8090",
        "serve --bg --tcp=8090 tcp://127.0.0.1:8090",
    ]


def test_what_somebody_has_set_already_as_we_would_stays_his(host):
    host.says(serve={"TCP": {"8080": {"TCPForward": "127.0.0.1:8080"}}})
    host.serve(wanted_handlers(TIERS, 8000, False))
    host.serve([])
    assert host.config() == {"TCP": {"8080": {"TCPForward": "127.0.0.1:8080"}}}


def test_what_others_hand_to_the_loopback_is_seen(host, monkeypatch):
    monkeypatch.setattr(tailscale, "SEARCHED", str(host.path))
    session = {"Web": {HOST + ":8443": {"Handlers": {"/": {"Proxy": "http://localhost:8081"}}}}}
    session["TCP"] = {"8443": {"HTTPS": True}}
    elsewhere = {"TCPForward": "10.0.0.9:8080"}
    config = dict(THEIRS, TCP=dict(THEIRS["TCP"], **{"8080": {"TCPForward": "127.0.0.1:8080"}, "81": elsewhere}))
    host.says(serve=dict(config, Foreground={"x": session}))
    with patch_module_args({"state": "looked"}), pytest.raises(SystemExit):
        tailscale_serve.main()
    assert Tailscale().handed_on() == [
        {"handler": "https:443 /grafana -> http://127.0.0.1:3000", "port": 3000},
        {"handler": "https:8443 / -> http://localhost:8081", "port": 8081},
        {"handler": "tcp:8080 -> 127.0.0.1:8080", "port": 8080},
        {"handler": "tcp:9000 -> 127.0.0.1:9000", "port": 9000},
    ]
    assert host.calls() == []
    host.says(serve=None)
    host.serve(wanted_handlers(TIERS, 8000, False))
    assert Tailscale(record=str(host.record)).handed_on() == []
    monkeypatch.setattr(tailscale, "SEARCHED", str(host.path / "nowhere"))
    assert Tailscale().handed_on() == []


@pytest.mark.parametrize(
    ("config", "shown", "flags"),
    [
        (
            {
                "TCP": {"443": {"HTTPS": True}},
                "Web": {HOST + ":443": {"Handlers": {"/reasoning": {"Proxy": "http://127.0.0.1:9"}}}},
            },
            "https:443 /reasoning -> http://127.0.0.1:9",
            "--https=443 --set-path=/reasoning",
        ),
        (
            {"Foreground": {"abc": {"TCP": {"8080": {"TCPForward": "127.0.0.1:9"}}}}},
            "tcp:8080 -> 127.0.0.1:9",
            "--tcp=8080",
        ),
        (
            {"TCP": {"443": {"TCPForward": "127.0.0.1:443", "TerminateTLS": HOST}}},
            "tls-terminated-tcp:443 -> 127.0.0.1:443",
            "--tls-terminated-tcp=443",
        ),
    ],
)
def test_what_is_at_the_place_of_one_of_ours_is_refused_and_stays(host, config, shown, flags):
    host.says(serve=config)
    with pytest.raises(Refusal) as refused:
        host.serve(wanted_handlers(TIERS, 8000, False))
    assert re.fullmatch(
        r"gateway_tailscale: tailscale serves %s already, which is not ours, its place is needed for "
        r"\S+( /\S*)? -> \S+: remove it with tailscale serve %s off, or set gateway_tailscale to false"
        % (re.escape(shown), flags),
        str(refused.value),
    )
    assert host.config() == config
    assert host.calls() == []


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            {"backend": "NeedsLogin"},
            "tailscale is in state NeedsLogin, Running is needed: run tailscale up on the host",
        ),
        ({"backend": "Stopped"}, "tailscale is in state Stopped, Running is needed: run tailscale up on the host"),
        ({"version": "1.50.1-t1"}, "tailscale 1.50.1-t1, 1.52 or later is needed: update it"),
        (
            {"certificates": None},
            "the tailnet has no HTTPS certificates for this host, they are needed: enable MagicDNS and HTTPS on the "
            "DNS page of Tailscale's admin console",
        ),
        (
            {"serve": {"AllowFunnel": {HOST + ":443": True}}},
            "Funnel is on for %s:443, it would let the internet in: run tailscale funnel --https=443 off" % HOST,
        ),
    ],
)
def test_a_host_that_cannot_serve_says_why(host, state, sentence):
    host.says(**state)
    with pytest.raises(Refusal) as refused:
        host.serve(wanted_handlers(TIERS, 8000, False))
    assert str(refused.value) == "gateway_tailscale: " + sentence
    assert host.calls() == []
    assert not host.record.exists()


def test_a_host_without_tailscale_says_what_to_do_and_has_nothing_to_remove(host, monkeypatch):
    monkeypatch.setattr(tailscale, "SEARCHED", str(host.path / "nowhere"))
    without = Tailscale(record=str(host.record))
    with pytest.raises(Refusal) as refused:
        without.serve(wanted_handlers(TIERS, 8000, False))
    assert str(refused.value) == (
        "gateway_tailscale: no program tailscale, 1.52 or later is needed: install it and run tailscale up, or set "
        "gateway_tailscale to false"
    )
    host.serve(wanted_handlers(TIERS, 8000, False))
    # It was uninstalled since.
    without.serve([])
    assert not host.record.exists()


def test_a_daemon_that_does_not_answer_ends_in_one_sentence(host):
    (host.path / "tailscale").write_text("#!/bin/sh\necho failed to connect to local tailscaled >&2\nexit 1\n")
    with pytest.raises(Refusal) as refused:
        host.serve(wanted_handlers(TIERS, 8000, False))
    assert str(refused.value) == (
        "gateway_tailscale: tailscale status --json --peers=false failed (failed to connect to local tailscaled): see "
        "tailscale status on the host"
    )


def test_a_command_that_waits_for_a_browser_ends(host, monkeypatch):
    monkeypatch.setattr(tailscale, "PATIENCE", 0.2)
    (host.path / "tailscale").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(Refusal, match=r"has not ended in 0 s: run it on the host"):
        host.serve(wanted_handlers(TIERS, 8000, False))


def test_a_run_that_dies_leaves_what_the_next_one_knows_as_ours(host):
    real = (host.path / "stub_tailscale.py").read_text()
    (host.path / "stub_tailscale.py").write_text(
        real.replace("def main(words):", "def main(words):\n    '--tcp=8081' in words and fail('no')")
    )
    with pytest.raises(Refusal):
        host.serve(wanted_handlers(TIERS, 8000, False))
    (host.path / "stub_tailscale.py").write_text(real)
    host.serve([])
    assert host.config() == {}


def test_the_module_tells_and_shows_in_check_mode_what_it_would_do(host, monkeypatch, capsys):
    monkeypatch.setattr(tailscale, "SEARCHED", str(host.path))

    def run(check, **parameters):
        arguments = dict(parameters, record=str(host.record), _ansible_check_mode=check)
        with patch_module_args(arguments), pytest.raises(SystemExit):
            tailscale_serve.main()
        return json.loads(capsys.readouterr().out)

    predicted = run(True, gateway_port=8000, tiers={"fast": 8080})
    assert host.calls() == [] and not host.record.exists()
    assert predicted["diff"]["before"] == ""
    assert predicted["diff"]["after"] == (
        "https:443 / -> http://127.0.0.1:8080\ntcp:8000 -> 127.0.0.1:8000\ntcp:8080 -> 127.0.0.1:8080\n"
    )
    assert run(False, gateway_port=8000, tiers={"fast": 8080}) == predicted
    assert not run(True, gateway_port=8000, tiers={"fast": 8080})["changed"]
    gone = run(True, state="absent")
    assert gone["changed"] and gone["diff"]["after"] == "" and host.config()["TCP"]["8080"]
    assert run(False, state="absent")["changed"]
    assert not run(False, state="absent")["changed"]


def test_a_record_that_is_none_is_refused(host):
    host.record.write_text("[]")
    with pytest.raises(Refusal, match=r"record.json: no record of handlers: "):
        host.serve([Handler("tcp", 8080, "", "127.0.0.1:8080")])
