# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command lines of sandboxes, and which of them a host has."""

import os
import re

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._judge import sandbox
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._judge.exchange import (
    MOST_ERRORS,
    Outcome,
    exchange,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

UNIT = sandbox.Way("systemd", sysroot="/opt/rust", root="/run/llama-judge-x")
SCRIPT = ("cat", "1", "2")
ENDED = Outcome(0, b"ready\nprinted", False, False, "")


def test_unit_sees_only_what_is_named():
    words = sandbox.command(UNIT, "llama-judge-1", 65534, 20, SCRIPT, "/tasks/own/a")
    assert words[:5] == ["systemd-run", "--quiet", "--collect", "--wait", "--pipe"]
    assert words[-9:] == ["timeout", "--signal=KILL", "20", "sh", "-c", "cat", "judge", "1", "2"]
    properties = [word.partition("=")[2] for word in words if word.startswith("--property=")]
    for one in (
        "RootDirectory=/run/llama-judge-x",
        "DynamicUser=yes",
        "PrivateNetwork=yes",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "MemoryMax=2147483648",
        "MemorySwapMax=0",
        "TasksMax=64",
        "RuntimeMaxSec=20",
    ):
        assert one in properties, one
    bound = [one.partition("=")[2] for one in properties if one.startswith("BindReadOnlyPaths=")]
    assert [
        one for one in bound if not re.match(r"-?/(usr|bin|lib|lib64|etc/alternatives|etc/ld.so.cache)\Z", one)
    ] == [
        "/opt/rust:/toolchain",
        "/tasks/own/a:/task",
    ]
    assert not [one for one in properties if one.startswith(("BindPaths=", "ReadWritePaths="))]


@pytest.mark.parametrize("engine", sandbox.ENGINES)
def test_container_has_no_network_and_no_files(engine):
    words = sandbox.command(sandbox.Way(engine, image="rust"), "llama-judge-1", 65533, 20, SCRIPT)
    assert words[:2] == [engine, "run"]
    for one in (
        "--rm",
        "--pull=never",
        "--network=none",
        "--read-only",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--user=65533:65533",
        "--pids-limit=64",
        "--memory=2147483648",
        "--memory-swap=2147483648",
        "--log-driver=none",
    ):
        assert one in words, one
    assert not [one for one in words if one.startswith(("--mount", "--volume", "-v", "--privileged"))]
    assert ("--read-only-tmpfs=false" in words) == (engine == "podman")
    assert words[words.index("rust") + 1 :] == ["timeout", "--signal=KILL", "20", "sh", "-c", "cat", "judge", "1", "2"]


@pytest.mark.parametrize("folder", ["/tasks/a:/etc", "/tasks/a b", "/tasks/a,readonly=false", "tasks", "/tasks/a\n"])
def test_path_that_a_mount_would_misread_is_refused(folder):
    with pytest.raises(Refusal, match="a path of A-Z"):
        sandbox.command(UNIT, "llama-judge-1", 65534, 20, SCRIPT, folder)


def found(
    monkeypatch,
    booted=True,
    user=0,
    systemd="systemd 252 (252.1)",
    rustc="/usr/bin/rustc",
    engines=(),
    installed=sandbox.ENGINES,
    versions=(),
):
    """The way of a host that has these; engines: whose `info` succeeds."""
    answers = {"systemctl": systemd, rustc: "/usr\n"}

    def run(words, _seconds):
        if words[1:] == ["--version"] and words[0] in dict(versions):
            return sandbox.subprocess.CompletedProcess(words, 0, dict(versions)[words[0]], "")
        status = 0 if words[0] in answers or words[0] in engines and words[1] != "pull" else 1
        return sandbox.subprocess.CompletedProcess(
            words, status, answers.get(words[0], ""), "first\nno route to host\n"
        )

    def which(name, path=None):
        return rustc if name == "rustc" else name if name in installed else None

    monkeypatch.setattr(sandbox, "_run", run)
    monkeypatch.setattr(sandbox.os, "geteuid", lambda: user)
    monkeypatch.setattr(sandbox.os.path, "isdir", lambda path: booted)
    monkeypatch.setattr(sandbox.shutil, "which", which)
    monkeypatch.setattr(sandbox._files, "check_program", lambda path: None)
    with sandbox.found_way("rust") as way:
        return way


def test_systemd_comes_before_an_engine(monkeypatch):
    way = found(monkeypatch, engines=["docker"])
    assert (way.name, way.sysroot) == ("systemd", "/usr") and not os.path.lexists(way.root)


@pytest.mark.parametrize(
    "lacks", [{"booted": False}, {"user": 1000}, {"systemd": "systemd 239 (239-82)"}, {"systemd": ""}, {"rustc": ""}]
)
def test_host_without_units_takes_an_engine(monkeypatch, lacks):
    assert found(monkeypatch, engines=["podman"], **lacks) == sandbox.Way("podman", image="rust")
    with pytest.raises(Refusal, match=r"neither systemd 247 .* nor docker or podman .* correct acceptance_judge_host"):
        found(monkeypatch, **lacks)


def test_image_that_cannot_be_pulled_is_refused(monkeypatch):
    monkeypatch.setattr(
        sandbox, "_run", lambda words, _seconds: sandbox.subprocess.CompletedProcess(words, 1, "", "a\nb\x1b")
    )
    said = (
        r"acceptance_judge_image: rust cannot be pulled with podman \(b[?]\), .* podman save and podman load, or name"
    )
    with pytest.raises(Refusal, match=said):
        sandbox._pull("podman", "rust")


def test_image_that_is_there_is_not_pulled(monkeypatch):
    ran = []
    monkeypatch.setattr(
        sandbox,
        "_run",
        lambda words, _seconds: ran.append(words) or sandbox.subprocess.CompletedProcess(words, 0, "", ""),
    )
    sandbox._pull("podman", "rust")
    assert ran == [["podman", "image", "inspect", "rust"]]


def test_podman_judges_where_docker_is_absent_or_refuses(monkeypatch):
    assert found(monkeypatch, user=1000, installed=["podman"], engines=["podman"]).name == "podman"
    assert found(monkeypatch, user=1000, installed=["docker", "podman"], engines=["podman"]).name == "podman"


@pytest.mark.parametrize(
    ("version", "name"), [("podman version 5.4.2\n", "podman"), ("Docker version 28.0.1, build 068a01e\n", "docker")]
)
def test_podman_under_the_name_of_docker(monkeypatch, version, name):
    assert found(monkeypatch, user=1000, engines=["docker"], versions={"docker": version}).name == name


def test_reason_of_each_engine_is_named(monkeypatch):
    with pytest.raises(Refusal) as refused:
        found(monkeypatch, user=1000, installed=["docker", "podman"])
    assert "docker does not work: no route to host) (podman does not work: no route to host), one is" in str(
        refused.value
    )
    with pytest.raises(Refusal, match=r"nor docker or podman for user id 1000 seen, one is needed .*: install rustc"):
        found(monkeypatch, user=1000, installed=[])


def test_tools_take_no_settings_from_a_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert sandbox._run(["pwd"], 20).stdout == "/\n"


def test_outcome_begins_after_ready(monkeypatch):
    monkeypatch.setattr(sandbox, "exchange", lambda *_arguments: ENDED)
    assert sandbox.run(UNIT, 1, SCRIPT, b"", 100, 20).output == b"printed"


@pytest.mark.parametrize("output", [b"", b"read", b"other\nready\n"])
def test_sandbox_that_did_not_start_is_refused(monkeypatch, output):
    ended = ENDED._replace(status=1, output=output, errors="no space left\n")
    monkeypatch.setattr(sandbox, "exchange", lambda *_arguments: ended)
    with pytest.raises(Refusal, match="the sandbox of systemd did not start: no space left: look at"):
        sandbox.run(UNIT, 1, SCRIPT, b"", 100, 20)


def test_sandbox_without_its_client_is_removed(monkeypatch):
    ran = []
    monkeypatch.setattr(sandbox, "exchange", lambda *_arguments: ENDED._replace(status=None, long=True))
    monkeypatch.setattr(sandbox, "_run", lambda words, _seconds: ran.append(words))
    assert sandbox.run(UNIT, 1, SCRIPT, b"", 100, 20).long
    assert [words[:2] for words in ran] == [["systemctl", "kill"], ["systemctl", "stop"]]
    sandbox.run(sandbox.Way("docker", image="rust"), 1, SCRIPT, b"", 100, 20)
    assert ran[-1][:3] == ["docker", "rm", "--force"]


LONG = 60


def shell(script, given=b"", most=1000, seconds=LONG):
    return exchange(["sh", "-c", script], given, most, seconds)


def test_output_and_status_are_returned():
    ended = shell("cat; echo no >&2; exit 3", b"given\n")
    assert ended == (3, b"given\n", False, False, "no\n")


def test_large_input_and_output_pass_each_other():
    given = b"x" * (4 << 20)
    assert shell("cat", given, most=len(given)).output == given


def test_too_much_output_ends_the_program():
    ended = shell("exec cat /dev/zero", most=100_000)
    assert (ended.long, ended.late, ended.status) == (True, False, None) and len(ended.output) == 100_000


def test_deadline_ends_the_program():
    ended = shell("echo begun; exec sleep 600", seconds=1)
    assert (ended.long, ended.late, ended.status, ended.output) == (False, True, None, b"begun\n")


def test_unread_input_is_no_error():
    assert shell("exit 0", b"x" * (4 << 20)).status == 0


def test_errors_are_bounded():
    ended = shell("head -c 1000000 /dev/zero | tr '\\0' e >&2; exit 0")
    assert (ended.status, ended.errors) == (0, "e" * MOST_ERRORS)


def test_missing_program_is_an_error():
    with pytest.raises(FileNotFoundError):
        exchange(["/no/such/program"], b"", 10, LONG)
