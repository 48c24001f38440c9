# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import base64
import hashlib
import json
import os
import subprocess
import sys
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import build
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import units as node_units
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import give_away

# Captured from systemd 252 with the module's own command, process ids and unit names aside.
SHOWN = """\
MainPID=%(pid)d
Result=success
NRestarts=2
ExecStart={ path=/opt/llama.cpp/current/bin/ggml-rpc-server ; argv[]=/opt/llama.cpp/current/bin/ggml-rpc-server -p 50052 ; ignore_errors=no ; \
start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }
Id=llama-rpc-a.service
LoadState=loaded
ActiveState=active
SubState=running
FragmentPath=/etc/systemd/system/llama-rpc-a.service
UnitFileState=enabled
ActiveEnterTimestamp=Sat 2026-11-21 10:44:21 UTC

MainPID=0
Result=exit-code
NRestarts=0
ExecStart={ path=/bin/sleep ; argv[]=/bin/sleep 1000 ; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }
Id=llama-head-b.service
LoadState=loaded
ActiveState=failed
SubState=failed
FragmentPath=/etc/systemd/system/llama-head-b.service
UnitFileState=static
ActiveEnterTimestamp=

MainPID=0
Result=success
NRestarts=0
Id=nothing.service
LoadState=not-found
ActiveState=inactive
SubState=dead
FragmentPath=
UnitFileState=
ActiveEnterTimestamp=

MainPID=%(pid)d
Result=success
NRestarts=0
Id=llama-head-gone.service
LoadState=not-found
ActiveState=active
SubState=running
FragmentPath=
UnitFileState=
ActiveEnterTimestamp=Sat 2026-11-21 10:44:21 UTC

MainPID=0
Result=success
NRestarts=0
Id=nothing.service
LoadState=not-found
ActiveState=inactive
SubState=dead
"""


@pytest.fixture(name="process")
def fixture_process():
    """A real process that says of itself that it is current."""
    program = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
    environment = {"LLAMA_CLUSTER_DIGEST": "new", "PATH": os.environ["PATH"]}
    process = subprocess.Popen(program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    yield process
    process.stdin.close()
    process.wait()


def unit_info(tmp_path, pid, patterns=("llama-*.service",), digest="old", asked=None, noted="old\n"):
    (tmp_path / "llama-rpc-a.service").write_text('[Service]\nEnvironment="A=b c" "LLAMA_CLUSTER_DIGEST=%s"\n' % digest)
    (tmp_path / "llama-head-b.service").write_text("[Service]\nExecStart=/bin/sleep 1000\n")
    (tmp_path / "ssh.service").write_text("[Service]\n")
    (tmp_path / "digests").mkdir(exist_ok=True)
    if noted is not None:
        (tmp_path / "digests/llama-rpc-a.service").write_text(noted)

    def show(names):
        if asked is not None:
            asked.extend(names)
        return SHOWN % {"pid": pid}

    found = node_units.unit_info(list(patterns), unit_dir=str(tmp_path), show=show, digests=str(tmp_path / "digests"))
    return {unit.name: unit._asdict() for unit in found}


def test_unit_with_wanted_digest_is_not_stale(tmp_path, process):
    assert unit_info(tmp_path, process.pid)["llama-rpc-a.service"] == {
        "name": "llama-rpc-a.service",
        "kind": "rpc",
        "service": "a",
        "installed": True,
        "managed": True,
        "enabled": True,
        "active_state": "active",
        "sub_state": "running",
        "result": "success",
        "main_pid": process.pid,
        "since": "2026-11-21T10:44:21Z",
        "restarts": 2,
        "failed_in_a_row": 0,
        "exec_path": "/opt/llama.cpp/current/bin/ggml-rpc-server",
        "arguments": ["/opt/llama.cpp/current/bin/ggml-rpc-server", "-p", "50052"],
        "url": None,
        "endpoint": None,
        "rpc_endpoints": [],
        "wanted_digest": "old",
        "running_digest": "old",
        "stale": False,
        "drop_ins": (),
    }


def test_drop_ins_of_operators():
    made = [
        "/etc/systemd/system/llama-rpc-a.service.d/override.conf",
        "/run/systemd/system/llama-rpc-a.service.d/x.conf",
    ]
    shown = {"Id": "llama-rpc-a.service", "DropInPaths": " ".join(["/usr/lib/systemd/system/service.d/10.conf", *made])}
    assert list(node_units.describe(shown).drop_ins) == made


@pytest.mark.parametrize(
    "kind, line, url, endpoint, rpc_endpoints",
    [
        (
            "head",
            "/opt/numactl -N 0 /opt/bin/llama-server --model m.gguf --host 10.0.0.1 --port 8000 --rpc "
            "10.1.0.2:50052,10.1.0.3:50052 --api-key-file /etc/keys",
            "http://10.0.0.1:8000",
            None,
            ["10.1.0.2:50052", "10.1.0.3:50052"],
        ),
        ("head", "/opt/bin/llama-server --host 10.0.0.1 --port 8001", "http://10.0.0.1:8001", None, []),
        (
            "rpc",
            "/usr/bin/stdbuf -oL /opt/bin/ggml-rpc-server --host 10.1.0.2 --port 50052",
            None,
            "10.1.0.2:50052",
            [],
        ),
        ("head", "", None, None, []),
        (None, "/opt/bin/other --host 10.0.0.1 --port 8001 --rpc 10.1.0.2:1", None, None, []),
    ],
)
def test_endpoint_and_workers_of_a_unit(kind, line, url, endpoint, rpc_endpoints):
    found = {"url": url, "endpoint": endpoint, "rpc_endpoints": rpc_endpoints}
    assert node_units.where(kind, line.split()) == found


A, B, GONE = "llama-rpc-a.service", "llama-head-b.service", "llama-head-gone.service"


@pytest.mark.parametrize(
    ("name", "digest", "noted", "expected"),
    [
        # Whatever the process itself reports.
        (A, "new", "old\n", {"wanted_digest": "new", "running_digest": "old", "stale": True}),
        (A, "old", None, {"running_digest": None, "stale": True}),
        (B, "old", "old\n", {"main_pid": None, "since": None, "stale": False, "installed": True, "enabled": False}),
        (B, "old", "old\n", {"active_state": "failed", "result": "exit-code"}),
        (GONE, "old", "old\n", {"installed": False, "active_state": "active", "wanted_digest": None}),
        (GONE, "old", "old\n", {"running_digest": None, "stale": True}),
    ],
)
def test_unit_is_stale_by_its_digests(tmp_path, process, name, digest, noted, expected):
    unit = unit_info(tmp_path, process.pid, digest=digest, noted=noted)[name]
    assert {key: unit[key] for key in expected} == expected


def test_name_makes_no_managed_unit(tmp_path, process):
    units = unit_info(tmp_path, process.pid)
    assert [
        units[name]["managed"] for name in ("llama-rpc-a.service", "llama-head-b.service", "llama-head-gone.service")
    ] == [True, False, False]
    # Its file is gone, and root noted a digest when it was started.
    (tmp_path / "digests/llama-head-gone.service").write_text("old\n")
    assert unit_info(tmp_path, process.pid)["llama-head-gone.service"]["managed"]
    (tmp_path / "elsewhere").write_text("[Service]\nEnvironment=LLAMA_CLUSTER_DIGEST=old\n")
    (tmp_path / "llama-head-b.service").unlink()
    (tmp_path / "llama-head-b.service").symlink_to(tmp_path / "elsewhere")
    assert not node_units.describe({"Id": "llama-head-b.service"}, str(tmp_path)).managed


def test_units_are_searched_by_globs_and_files(tmp_path, process):
    asked = []
    assert sorted(unit_info(tmp_path, process.pid, ["llama-head-*.service"], asked=asked)) == [B, GONE, A]
    assert asked == ["llama-head-*.service", B], "systemd may not have loaded a file"
    empty = tmp_path / "empty"
    assert node_units.unit_info(["llama-rpc-*.service"], unit_dir=str(empty), show=lambda names: "") == []
    assert node_units.unit_info([], unit_dir=str(empty), show=lambda names: pytest.fail("the manager itself")) == []


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ("Environment=LLAMA_CLUSTER_DIGEST=abc\n", "abc"),
        ("[Service]\n Environment='LLAMA_CLUSTER_DIGEST=abc'\n", "abc"),
        ('Environment=A=1 "LLAMA_CLUSTER_DIGEST=abc" B=2\n', "abc"),
        ("Environment=LLAMA_CLUSTER_DIGEST=one\nEnvironment=LLAMA_CLUSTER_DIGEST=two\n", "two"),
        ("#Environment=LLAMA_CLUSTER_DIGEST=abc\n", None),
        ("Environment=LLAMA_CLUSTER_DIGEST=\n", None),
        ("Environment=OLD_LLAMA_CLUSTER_DIGEST=abc\n", None),
        ("", None),
    ],
)
def test_file_digest(text, digest):
    assert node_units.file_digest(text) == digest


def test_digest_of_empty_lines_is_quick():
    start = time.monotonic()
    assert node_units.file_digest("\n" * 50000) is None
    assert time.monotonic() - start < 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-rpc-a.service", ("rpc", "a")),
        ("llama-router-fast-2.service", ("router", "fast-2")),
        ("llama-rpc.service", ("rpc", None)),
        ("nginx.service", (None, None)),
    ],
)
def test_unit_kind(name, expected):
    assert node_units.unit_kind(name) == expected


def test_file_of_a_short_name_has_its_service(tmp_path):
    text = "[Service]\nEnvironment=LLAMA_CLUSTER_DIGEST=0123456789abcdef\nSyslogIdentifier=llama-head-chat-2\n"
    (tmp_path / "llama-head.service").write_text(text)
    (tmp_path / "llama-rpc.service").write_text("[Service]\nSyslogIdentifier=llama-rpc-by-hand\n")
    folder = str(tmp_path)
    assert node_units.service_of("llama-head.service", folder) == "chat-2"
    assert node_units.service_of("llama-rpc.service", folder) is None, "unmanaged"
    assert node_units.service_of("llama-head-a.service", folder) == "a"
    assert node_units.installed_name("head", "chat-2", folder) == "llama-head.service"
    assert node_units.installed_name("head", "other", folder) == "llama-head-other.service"
    shown = {"Id": "llama-head.service", "FragmentPath": str(tmp_path / "llama-head.service")}
    unit = node_units.describe(shown, unit_dir=folder, proc=folder, digests=folder)
    assert (unit.kind, unit.service, unit.managed) == ("head", "chat-2", True)


def test_a_process_that_has_gone_is_not_stale(tmp_path, process):
    process.stdin.close()
    process.wait()
    unit = unit_info(tmp_path, process.pid, digest="new")["llama-rpc-a.service"]
    assert (unit["running_digest"], unit["stale"]) == (None, False)


def test_digest_of_another_user_is_refused(tmp_path, process):
    (tmp_path / "digests").mkdir()
    (tmp_path / "digests").chmod(0o777)
    with pytest.raises(
        Refusal,
        match=r"the digest of llama-head-gone.service cannot be read \(.*mode 0777.*\): run with become, or restart "
        r"the unit",
    ):
        unit_info(tmp_path, process.pid)
    (tmp_path / "digests").chmod(0o700)


ENDS = ("\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029")


@pytest.mark.parametrize("end", ENDS)
def test_a_service_cannot_say_lines_of_systemds(tmp_path, monkeypatch, end):
    """systemd escapes a line feed in a status, and nothing else that ends a line elsewhere."""
    shown = "Id=llama-head-a.service\nMainPID=812\nStatusText=x%sMainPID=99\n" % end
    (tmp_path / "systemctl").write_text(
        "#!%s\nimport sys\nsys.stdout.buffer.write(%r)\n" % (sys.executable, shown.encode("utf-8"))
    )
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (properties,) = node_units.parse_show(node_units.systemctl_show(["llama-head-*.service"]))
    assert node_units.number(properties, "MainPID") == 812


@pytest.mark.parametrize("value", ["", "none", "-1", "1 2", "\u0663", "[not set]", "7\n"])
def test_a_number_that_is_none_is_zero(value):
    assert node_units.number({"Id": "a.service", "MainPID": value}, "MainPID") == 0
    unit = node_units.describe({"Id": "a.service", "MainPID": value, "NRestarts": value})
    assert (unit.main_pid, unit.restarts) == (None, 0)


def test_systemctl_that_fails_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refusal, match=r"^systemctl cannot be run \(.*\): .*$"):
        node_units.systemctl_show(["llama-rpc-*.service"])


@pytest.mark.parametrize(
    ("words", "problem"),
    [("reload", r"\(no such unit\): see journalctl -xe on the node"), ("start", r"\(5\)"), ("stop", None)],
)
def test_systemctl_refusal_names_its_words(tmp_path, monkeypatch, words, problem):
    tool = tmp_path / "systemctl"
    tool.write_text(
        '#!/bin/sh\n[ "$1" = stop ] && exit 0\n[ "$1" = start ] && exit 5\necho "no\n  such unit"; exit 4\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    if problem is None:
        node_units.systemctl(words, "a")
        return
    with pytest.raises(Refusal, match=f"^systemctl {words} a: failed {problem}"):
        node_units.systemctl(words, "a")


def make_build(tmp_path, files):
    release = tmp_path / "releases" / "b11434"
    release.mkdir(parents=True)
    for name, content in files.items():
        (release / name).parent.mkdir(exist_ok=True)
        (release / name).write_text(content)
    (tmp_path / "current").symlink_to("releases/b11434")
    hashes = {name: hashlib.sha256(content.encode()).hexdigest() for name, content in files.items()}
    (release / "build.json").write_text(json.dumps({"files": hashes}))
    return release


def test_an_intact_build(tmp_path):
    release = make_build(tmp_path, {"bin/llama-server": "server", "lib/libggml.so": "library"})
    assert build.build_info(str(tmp_path)) == {
        "current_build": "b11434",
        "build_sha256": hashlib.sha256((release / "build.json").read_bytes()).hexdigest(),
        "build_identity": "None",
        "build_kind": "? ?",
        "build_intact": True,
        "build_broken": [],
    }


def test_different_files_break_the_build(tmp_path):
    release = make_build(
        tmp_path,
        {
            "bin/rpc-server": "server",
            "bin/ggml-rpc-server": "server",
            "bin/llama-bench": "bench",
            "bin/gone": "gone",
            "bin/changed": "as built",
            "bin/root": "root",
            "../key": "key",
        },
    )
    (release / "bin" / "ggml-rpc-server").unlink()
    (release / "bin" / "ggml-rpc-server").symlink_to("rpc-server")
    (release / "bin" / "root").chmod(0o4755)
    (tmp_path / "elsewhere").write_text("bench")
    (release / "bin" / "llama-bench").unlink()
    (release / "bin" / "llama-bench").symlink_to("../../../elsewhere")
    (release / "bin" / "more").write_text("more")
    (release / "lib").symlink_to("/usr")
    (release / "bin" / "changed").write_text("since")
    (release / "bin" / "gone").unlink()
    info = build.build_info(str(tmp_path))
    broken = ["../key", "bin/changed", "bin/gone", "bin/llama-bench", "bin/more", "bin/root", "lib"]
    assert (info["build_intact"], info["build_broken"]) == (False, broken)


def test_what_others_may_change_breaks_the_build(tmp_path):
    release = make_build(
        tmp_path, {"bin/llama-server": "server", "bin/llama-bench": "bench", "lib/libggml.so": "library"}
    )
    (release / "bin/link").symlink_to("llama-bench")
    manifest = json.loads((release / "build.json").read_text())
    manifest["files"]["bin/link"] = manifest["files"]["bin/llama-bench"]
    (release / "build.json").write_text(json.dumps(manifest))
    assert build.build_info(str(tmp_path))["build_intact"]
    (release / "bin/llama-server").chmod(0o777)
    (release / "lib").chmod(0o775)
    broken = ["bin/llama-server (others may change it)", "lib (others may change it)"]
    assert build.build_info(str(tmp_path))["build_broken"] == broken
    (release / "bin/llama-server").chmod(0o755)
    (release / "lib").chmod(0o755)
    for name in ("bin", "bin/llama-bench", "bin/link", "build.json"):
        give_away(release / name)
        assert build.build_info(str(tmp_path))["build_broken"] == [name + " (others may change it)"]
        os.chown(release / name, os.geteuid(), os.getegid(), follow_symlinks=False)
    assert build.build_info(str(tmp_path))["build_intact"]


@pytest.mark.parametrize("name", [".", "releases", "releases/b11434"])
def test_a_build_that_others_may_exchange_is_refused(tmp_path, name):
    make_build(tmp_path, {"bin/llama-server": "server"})
    (tmp_path / name).chmod(0o777)
    for release in (None, "b11434"):
        with pytest.raises(Refusal, match="mode 0777 lets others"):
            build.build_info(str(tmp_path), release)
    (tmp_path / name).chmod(0o755)
    give_away(tmp_path / name)
    for release in (None, "b11434"):
        with pytest.raises(Refusal, match="it belongs to user id 4711"):
            build.build_info(str(tmp_path), release)


def test_a_build_that_is_not_current(tmp_path):
    make_build(tmp_path, {"bin/llama-server": "server"})
    other = tmp_path / "releases" / "b7772"
    other.mkdir()
    (other / "build.json").write_text(json.dumps({"files": {"bin/llama-server": "0" * 64}}))
    info = build.build_info(str(tmp_path), "b7772")
    assert (info["current_build"], info["build_intact"], info["build_broken"]) == ("b7772", False, ["bin/llama-server"])
    assert set(build.build_info(str(tmp_path), "b1").values()) == {None}


def test_no_prefix_is_null(tmp_path):
    assert set(build.build_info(str(tmp_path / "absent")).values()) == {None}


def test_a_build_without_manifest_has_a_name_only(tmp_path):
    release = make_build(tmp_path, {})
    (release / "build.json").unlink()
    assert build.build_info(str(tmp_path)) == {
        "current_build": "b11434",
        "build_sha256": None,
        "build_identity": None,
        "build_kind": None,
        "build_intact": None,
        "build_broken": None,
    }


@pytest.mark.parametrize(
    ("named", "identity"),
    [
        ({"version": "b11434", "commit": "unknown"}, "b11434"),
        ({"version": "b11434"}, "b11434"),
        ({"version": "g0123456789", "commit": "0" * 40}, "0" * 40),
    ],
)
def test_build_identity_is_its_commit(tmp_path, named, identity):
    (make_build(tmp_path, {}) / "build.json").write_text(json.dumps(dict(named, files={})))
    assert build.build_info(str(tmp_path))["build_identity"] == identity


def test_snapshots_and_trials_keep_their_builds(tmp_path):
    unit = base64.b64encode(b"ExecStart=/usr/bin/stdbuf -oL /opt/llama.cpp/releases/b1-cpu-x/bin/ggml-rpc-server -x")
    trial = base64.b64encode(b'ExecStart="/opt/llama.cpp/releases/b2-cpu-x/bin/llama-server"')
    state = tmp_path / "var/lib/llama-cluster"
    (state / "rollback").mkdir(parents=True)
    files = {"etc/systemd/system/llama-rpc-chat.service": {"content": unit.decode()}}
    (state / "rollback/last.json").write_text(json.dumps({"build": "b0", "files": files}))
    (state / "rollback/open.json").write_text("{")
    (state / "trial-chat.json").write_text(json.dumps({"before": {"a": {"content": trial.decode()}}}))
    assert build.kept_releases(str(tmp_path)) == ["b0", "b1-cpu-x", "b2-cpu-x"]
    (state / "rollback/last.json").write_text('{"files": {"a": {"content": "?"}}}')
    assert build.kept_releases(str(tmp_path)) == ["b2-cpu-x"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 3}'])
def test_a_manifest_that_is_none_is_refused(tmp_path, text):
    (make_build(tmp_path, {}) / "build.json").write_text(text)
    with pytest.raises(Refusal, match="build.json is not a build manifest .*: install the build again"):
        build.build_info(str(tmp_path))


def test_since_when_a_node_is_held(tmp_path):
    path = tmp_path / "held.json"
    assert node_units.held_since(str(path)) is None
    path.write_text('{"since": "2026-10-01T08:00:00Z"}\n')
    assert node_units.held_since(str(path)) == "2026-10-01T08:00:00Z"
    for damaged in ("", "{}", "[]"):
        path.write_text(damaged)
        # maintenance.yml -e state=return looks here too, and takes it away.
        assert node_units.held_since(str(path)) == "an unknown time"


def test_unknown_unit_has_no_facts(tmp_path):
    unit = node_units.describe({"Id": "nginx.service"}, str(tmp_path))
    assert unit.name == "nginx.service" and not any(unit._replace(name="")), "neither installed, nor managed, nor stale"
    assert node_units.Unit("nginx.service")._replace(arguments=[], rpc_endpoints=[]) == unit


@pytest.mark.parametrize(
    ("status", "state", "runs"),
    [
        ("waits 30 s: 4 runs in a row ended before they served", "activating", 4),
        ("waits 30 s: 4 runs in a row ended before they served", "active", 0),
        ("waits for RPC worker a:1: the port is closed", "activating", 0),
        ("", "activating", 0),
        (None, "activating", 0),
    ],
)
def test_failed_runs_count_while_the_unit_waits(status, state, runs):
    assert node_units.failed_in_a_row({"StatusText": status, "ActiveState": state}) == runs


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("Sat 2026-11-21 10:44:21 UTC", "2026-11-21T10:44:21Z"),
        ("Sat 2026-11-21 10:44:21 CET", None),
        ("n/a", None),
        ("", None),
        (None, None),
    ],
)
def test_a_time_of_systemds(text, since):
    assert node_units.parse_since(text) == since


@pytest.mark.parametrize(
    ("words", "url"),
    [
        ("--port 1 --host a", "http://a:1"),
        ("--host a --port 1 --port 2", "http://a:2"),
        ("--host a", None),
        ("--port 1", None),
        ("--host a --port", None),
    ],
)
def test_an_address_needs_both_its_parts(words, url):
    assert node_units.where("head", words.split())["url"] == url
    assert node_units.where("rpc", words.split())["endpoint"] == (url and url[len("http://") :])


@pytest.mark.parametrize(
    ("unit", "service"),
    [
        ("llama-head-chat.service", "chat"),
        ("llama-router-all.service", "all"),
        ("llama-loopback-chat.service", None),
        ("my.service", None),
    ],
)
def test_whose_key_a_unit_has(unit, service):
    assert node_units.service_of(unit) == service
