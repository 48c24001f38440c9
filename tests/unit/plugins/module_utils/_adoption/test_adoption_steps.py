"""Finding, saving, putting aside and putting back on a tree that looks like a node; the servers are copies of sleep
with the servers' names."""

import hashlib
import os
import shutil
import signal
import subprocess
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption import (
    handmade,
    look,
    processes,
    steps,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption.steps import Adoption
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake
from ansible_collections.thefermisea.llama_cluster.tests.unit.strangers import give_away

RPC_UNIT = "[Service]\nUser=root\nExecStart=/opt/llama.cpp/build/bin/rpc-server --host 0.0.0.0 --port 50052\n"
HEAD_ARGV = [
    "/opt/llama.cpp/build/bin/llama-server",
    "-m",
    "/opt/models/m.gguf",
    "--host",
    "0.0.0.0",
    "--port=8000",
    "--rpc",
    "10.1.0.2:50052,10.1.0.3:50052",
]


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node's unit directory; systemd knows what lies in it and runs nothing."""
    units = tmp_path / "system"
    (units / "multi-user.target.wants").mkdir(parents=True)

    def show(names, _properties=None):
        return "\n\n".join(
            "Id=%s\nFragmentPath=%s\nUnitFileState=enabled\nActiveState=active" % (name, units / name) for name in names
        )

    monkeypatch.setattr(handmade.find, "__defaults__", (str(units), str(tmp_path / "proc"), show))
    monkeypatch.setattr(handmade.around, "__defaults__", ((str(tmp_path / "around/*"),),))
    monkeypatch.setattr(steps, "systemctl", lambda *arguments: node.called.append(arguments))
    monkeypatch.setattr(steps.subprocess, "call", lambda *_arguments, **_options: 0)
    (tmp_path / "proc").mkdir()
    node.called = []
    node.units = units
    node.adoption = lambda **options: Adoption(
        str(tmp_path / "adopted"), [str(tmp_path / "build")], unit_dir=str(units), **options
    )
    return node


def write(path, text, mode=0o644):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def snapshot(folder):
    """Everything below a directory that putting back has to restore."""
    found = {}
    for path in sorted(folder.rglob("*")):
        seen = path.lstat()
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_file():
            found[str(path)] = (path.read_bytes(), seen.st_mode, seen.st_uid, seen.st_mtime_ns)
    return found


def handmade_units(node):
    write(node.units / "llama-rpc.service", RPC_UNIT)
    write(node.units / "llama-rpc.service.d/limits.conf", "[Service]\nLimitNOFILE=65535\n", 0o600)
    (node.units / "multi-user.target.wants/llama-rpc.service").symlink_to(node.units / "llama-rpc.service")
    (node.units / "rpc.service").symlink_to(node.units / "llama-rpc.service")
    write(node.units / "ssh.service", "[Service]\nExecStart=/usr/sbin/sshd -D\n")
    write(
        node.units / "llama-head-chat.service",
        "[Service]\nExecStart=/opt/llama.cpp/releases/b1/bin/llama-server\nEnvironment=LLAMA_CLUSTER_DIGEST=1\n",
    )


def test_settings_of_a_command_line():
    assert handmade.arguments("head", HEAD_ARGV) == {
        "host": "0.0.0.0",
        "port": 8000,
        "model": "/opt/models/m.gguf",
        "rpc": ["10.1.0.2:50052", "10.1.0.3:50052"],
    }
    assert handmade.arguments("head", ["llama-server", "-p", "a prompt"])["port"] == 8080
    assert handmade.arguments("worker", ["rpc-server", "-p", "50053", "-H", "10.1.0.2"]) == {
        "host": "10.1.0.2",
        "port": 50053,
        "model": None,
        "rpc": [],
    }


@pytest.mark.parametrize(
    ("cgroup", "owner"),
    [
        ("/system.slice/llama-rpc.service", ("llama-rpc.service", "llama-rpc.service")),
        ("/user.slice/user-0.slice/session-3.scope", (None, None)),
        ("/user.slice/user-1000.slice/session-c5.scope", (None, None)),  # sudo nohup
        ("/system.slice/cron.service", ("cron.service", None)),
        (
            "/system.slice/system-sshd.slice/sshd@3-10.0.0.1:22-10.0.0.2:4711.service",
            ("sshd@3-10.0.0.1:22-10.0.0.2:4711.service", None),
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/llama.service",
            ("user@1000.service", "user@1000.service"),
        ),
        ("/system.slice/slurmd.service/job_5", ("slurmd.service", "slurmd.service")),
        ("/system.slice/docker-0123.scope", (None, "docker-0123.scope")),
        ("/docker/0123", (None, "/docker/0123")),
        ("/docker/0123/system.slice/llama-rpc.service", (None, "/docker/0123/system.slice/llama-rpc.service")),
        (
            "/docker/0123/user.slice/user-0.slice/session-3.scope",
            (None, "/docker/0123/user.slice/user-0.slice/session-3.scope"),
        ),
        ("/kubepods/burstable/pod7/0123", (None, "/kubepods/burstable/pod7/0123")),
        ("/kubepods.slice/kubepods-pod7.slice/crio-0123.scope", (None, "crio-0123.scope")),
        ("/lxc.payload.web", (None, "/lxc.payload.web")),
        ("/machine.slice/machine-web.scope/payload/system.slice/llama-rpc.service", (None, "machine-web.scope")),
        ("/system.slice/run-r7.scope", (None, "run-r7.scope")),
        ("/", (None, None)),
    ],
)
def test_who_owns_a_control_group(cgroup, owner):
    assert handmade.group_owner(cgroup, "/init.scope") == owner
    # The node itself may be a container.
    assert (
        handmade.group_owner("/system.slice/docker-node.scope" + cgroup, "/system.slice/docker-node.scope/init.scope")
        == owner
    )
    assert handmade.group_owner(cgroup, "/") == owner


def test_a_version_1_and_a_version_2_hierarchy():
    assert handmade.systemd_group("12:memory:/a\n1:name=systemd:/b\n0::/c\n") == "/b"
    assert handmade.systemd_group("0::/c\n") == "/c"
    # One of version 1 that only the host of a container uses.
    assert handmade.systemd_group("9:name=systemd:/\n0::/c\n") == "/c"
    assert handmade.systemd_group("1:name=systemd:/\n") == "/"


def test_only_units_made_by_hand_are_found(node):
    handmade_units(node)
    write(
        node.units / "wrapped.service",
        "[Service]\nExecStart=-/usr/bin/numactl -N 0 \\\n  /opt/x/llama-server -m m.gguf\n",
    )
    write(node.units / "other.service", "[Service]\nExecStart=/usr/bin/tail -f /var/log/llama-server.log.1\n")
    write(node.units / "ai.service.d/exec.conf", "[Service]\nExecStart=\nExecStart=/opt/x/llama-server -m m.gguf\n")
    names = handmade.unit_files(str(node.units))
    assert names == {
        "ai.service": "head",
        "llama-rpc.service": "worker",
        "rpc.service": "worker",
        "wrapped.service": "head",
    }


def test_what_is_put_back_is_what_was_there(node, tmp_path):
    handmade_units(node)
    (tmp_path / "build/bin").mkdir(parents=True)
    before = snapshot(node.units)
    node.adoption().save()
    assert snapshot(node.units) == before and (tmp_path / "build/bin").is_dir()
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "adopted", tmp_path / "adopted/files")] == [0o700] * 2
    node.adoption().put_aside()
    left = sorted(path.name for path in node.units.rglob("*"))
    assert left == ["llama-head-chat.service", "multi-user.target.wants", "ssh.service"]
    assert not (tmp_path / "build").exists()
    # What ours puts there gives way.
    (tmp_path / "build").symlink_to("current")
    (node.units / "llama-rpc.service").symlink_to(node.units / "llama-rpc-chat.service")
    node.adoption().put_back()
    assert snapshot(node.units) == before
    assert (node.units / "llama-rpc.service.d").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "build/bin").is_dir() and not (tmp_path / "build").is_symlink()
    node.adoption().forget()
    assert not (tmp_path / "adopted").exists()


def test_nothing_of_others_gives_way(node, tmp_path):
    handmade_units(node)
    (tmp_path / "build/bin").mkdir(parents=True)
    node.adoption().save()
    node.adoption().put_aside()
    (tmp_path / "build").symlink_to("by-hand-2")
    with pytest.raises(Refusal, match="has its place"):
        node.adoption().put_back()
    assert os.readlink(str(tmp_path / "build")) == "by-hand-2"
    (tmp_path / "adopted/notes.txt").write_text("theirs")
    node.adoption().forget()
    assert os.listdir(str(tmp_path / "adopted")) == ["notes.txt"]


def test_steps_that_were_done_do_nothing(node):
    handmade_units(node)
    for step in ("save", "put_aside", "finish", "put_back"):
        adoption = node.adoption()
        getattr(adoption, step)()
        assert adoption.actions, step
        again = node.adoption()
        getattr(again, step)()
        assert again.actions == [], step


def test_check_mode_says_what_would_be_done_and_does_nothing(node, tmp_path):
    handmade_units(node)
    before = snapshot(tmp_path)
    adoption = node.adoption(check=True)
    adoption.save()
    adoption.stop("worker")
    assert "save unit llama-rpc.service" in adoption.actions and "stop llama-rpc.service" in " ".join(adoption.actions)
    assert snapshot(tmp_path) == before and node.called == []


def test_a_unit_that_differs_from_the_saved_one_is_refused(node):
    handmade_units(node)
    node.adoption().save()
    write(node.units / "llama-rpc.service", RPC_UNIT.replace("50052", "50053"))
    with pytest.raises(
        Refusal, match=r"llama-rpc.service: it differs from the one that was saved at .*: undo that adoption first"
    ):
        node.adoption().save()


def test_a_unit_that_came_after_the_look_is_refused(node):
    node.adoption().save()
    handmade_units(node)
    with pytest.raises(
        Refusal, match=r"llama-rpc.service.*: it came after everything had been looked at and saved: run again"
    ):
        node.adoption().stop("worker")
    assert node.called == []


def test_no_room_for_the_directory(node, tmp_path):
    (tmp_path / "build").mkdir()
    (tmp_path / "build.by-hand").mkdir()
    with pytest.raises(Refusal, match=r"build.by-hand: there already, a free name for .*build is needed"):
        node.adoption().save()


def test_a_record_that_others_may_write_is_not_trusted(node, tmp_path):
    handmade_units(node)
    node.adoption().save()
    (tmp_path / "adopted").chmod(0o777)
    for step in ("save", "put_aside", "put_back", "finish", "forget"):
        with pytest.raises(Refusal, match="adopted: its mode 0777 lets others than its owner write it"):
            getattr(node.adoption(), step)()
    assert (tmp_path / "adopted/record.json").exists() and (node.units / "llama-rpc.service").exists()


def plant_record(tmp_path, how):
    """What somebody who may write above the record can put in its place; the text is theirs, root's name is on it."""
    record = tmp_path / "adopted/record.json"
    (tmp_path / "theirs").write_text(record.read_text())
    if how == "owner of the directory":
        give_away(tmp_path / "adopted")
    elif how == "owner of the file":
        give_away(record)
    elif how == "directory":
        (tmp_path / "adopted").rename(tmp_path / "away")
        (tmp_path / "adopted").mkdir()
        give_away(tmp_path / "adopted")
        (tmp_path / "adopted/record.json").symlink_to(tmp_path / "theirs")
    else:
        record.unlink()
        if how == "fifo":
            os.mkfifo(str(record), 0o600)
        else:
            record.symlink_to(tmp_path / "theirs")


@pytest.mark.parametrize("how", ["owner of the directory", "owner of the file", "directory", "fifo", "link"])
def test_a_record_that_somebody_else_put_there_is_not_read(node, tmp_path, how):
    handmade_units(node)
    node.adoption().save()
    plant_record(tmp_path, how)
    with pytest.raises(Refusal, match=r"(belongs to user id 4711|no regular file)"):
        node.adoption().read()


def test_a_damaged_record_names_where_the_copies_are(node, tmp_path):
    handmade_units(node)
    node.adoption().save()
    (tmp_path / "adopted/record.json").write_text("{")
    with pytest.raises(Refusal, match=r"not a record of an adoption .*: put the files in .*adopted back by hand"):
        node.adoption().read()


@pytest.fixture
def leftover(tmp_path):
    """A process named rpc-server, started by nohup in a directory and with a log of its own."""
    program = tmp_path / "rpc-server"
    shutil.copy("/bin/sleep", str(program))
    started = []

    def start():
        with open(str(tmp_path / "rpc.log"), "ab") as log:
            environment = {"PATH": "/bin", "HF_TOKEN": "hf_secret", "LLAMA_CACHE": "/var/cache"}
            process = subprocess.Popen(
                [str(program), "300"],
                cwd=str(tmp_path),
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
    for process in handmade.read_processes():
        if process["executable"] == str(program):
            os.kill(process["pid"], signal.SIGKILL)


def of(tmp_path):
    return [
        handmade.with_words(process)
        for process in handmade.read_processes()
        if process["executable"] == str(tmp_path / "rpc-server")
    ]


def wait_for(true):
    for _attempt in range(100):
        if true():
            return
        time.sleep(0.05)
    pytest.fail("it did not come true in 5 s")


def test_a_leftover_is_ended_and_started_again_as_it_was(leftover, tmp_path):
    process = leftover()
    # A process has its new name a moment before its arguments.
    wait_for(lambda: [one for one in of(tmp_path) if processes.process_record(one)["argv"]])
    (found,) = of(tmp_path)
    record = processes.process_record(found)
    assert record["argv"] == [str(tmp_path / "rpc-server"), "300"]
    assert record["cwd"] == str(tmp_path)
    assert record["environment"] == {"PATH": "/bin", "LLAMA_CACHE": "/var/cache"} and record["left_out"] == ["HF_TOKEN"]
    assert record["outputs"] == {"stdout": str(tmp_path / "rpc.log"), "stderr": str(tmp_path / "rpc.log")}
    processes.end(process.pid)
    process.wait()
    assert of(tmp_path) == []
    processes.start_detached(record)
    (again,) = of(tmp_path)
    assert again["pid"] != process.pid
    assert processes.identity(again) == processes.identity(record)
    assert again["environment"] == record["environment"] and again["outputs"] == record["outputs"]
    # Nobody's child, in a session of its own.
    assert again["parent"] != os.getpid()
    assert os.getsid(again["pid"]) != os.getsid(0)


def test_a_program_that_is_gone_is_one_sentence(leftover, tmp_path):
    record = {"executable": str(tmp_path / "gone"), "argv": ["gone"], "cwd": "/", "environment": {}, "outputs": {}}
    with pytest.raises(Refusal, match=r"gone: it cannot be started again in / \(.*No such file.*\): start it by hand"):
        processes.start_detached(record)


def test_what_lies_around_is_told_and_not_touched(node, tmp_path):
    handmade_units(node)
    write(tmp_path / "around/upstream.sh", "#!/bin/sh\n# for ai-inference\n")
    write(tmp_path / "around/ours.sh", "# https://github.com/thefermisea/ansible-llama-cluster llama-server\n")
    write(tmp_path / "around/else.sh", "true\n")
    node.adoption().save()
    record = node.adoption().read()
    assert [path["path"] for path in record["around"]] == [str(tmp_path / "around/upstream.sh")]
    node.adoption().put_aside()
    assert (tmp_path / "around/upstream.sh").exists()


def test_an_undo_that_died_between_a_link_and_its_name_is_finished(node, tmp_path):
    handmade_units(node)
    before = snapshot(node.units)
    node.adoption().save()
    node.adoption().put_aside()
    (node.units / ".rpc.service.partial").symlink_to("half")
    node.adoption().put_back()
    assert snapshot(node.units) == before


def test_a_fifo_among_the_drop_ins_is_left_alone(node, tmp_path):
    handmade_units(node)
    fifo = node.units / "llama-rpc.service.d/fifo"
    os.mkfifo(str(fifo))
    for step in ("save", "put_aside", "put_back", "forget"):
        getattr(node.adoption(), step)()
    assert fifo.is_fifo() and (node.units / "llama-rpc.service.d/limits.conf").exists()


def test_check_mode_of_an_undo_changes_nothing(node, tmp_path):
    handmade_units(node)
    (tmp_path / "build").mkdir()
    node.adoption().save()
    node.adoption().put_aside()
    (tmp_path / "build").symlink_to("current")
    before, called = snapshot(tmp_path), list(node.called)
    for step, actions in (("put_back", 3), ("forget", 1), ("finish", 1), ("put_aside", 0)):
        adoption = node.adoption(check=True)
        getattr(adoption, step)()
        assert len(adoption.actions) == actions, (step, adoption.actions)
    adoption = node.adoption(check=True)
    adoption.start("worker")
    assert snapshot(tmp_path) == before and node.called == called


def test_a_server_that_is_started_again_stops_the_adoption_with_the_name_of_what_starts_it(
    node, tmp_path, leftover, monkeypatch
):
    """A shell in a loop stands for a timer or a cron job."""
    looper = subprocess.Popen(
        ["/bin/sh", "-c", "while :; do %s 300; done" % (tmp_path / "rpc-server")],
        cwd=str(tmp_path),
        start_new_session=True,
    )
    try:
        wait_for(lambda: of(tmp_path))
        # Whatever else runs on this machine is not looked at, and above all not ended.
        monkeypatch.setattr(steps, "find", lambda _units: {"units": [], "processes": of(tmp_path), "foreign": []})
        node.adoption().save()
        with pytest.raises(
            Refusal,
            match=r"rpc-server: process \d+ started after its like was ended, by process %d \(sh\): end what"
            % looper.pid,
        ):
            node.adoption().stop("worker")
    finally:
        os.killpg(looper.pid, signal.SIGKILL)
        looper.wait()


def process_of(tmp_path, **options):
    """A server as read_process() gives it, in no unit, in directories of the test."""
    return dict(
        {
            "pid": 9471200,
            "parent": 1,
            "kind": "head",
            "executable": str(tmp_path / "bin/llama-server"),
            "argv": HEAD_ARGV,
            "environment": {},
            "cwd": str(tmp_path),
            "outputs": {},
            "unit": None,
            "uid": os.geteuid(),
            "foreign": None,
            "sees_our_files": True,
        },
        **options,
    )


@pytest.fixture
def running(node, tmp_path, monkeypatch):
    """What runs on the node is the list that this gives."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "theirs").mkdir()
    give_away(tmp_path / "theirs")
    found = []
    monkeypatch.setattr(handmade, "read_processes", lambda _proc: found)
    monkeypatch.setattr(handmade, "with_words", lambda process, _proc: process)
    monkeypatch.setattr(handmade, "build_of", lambda _kind, _settings: None)
    return found


def test_a_server_in_other_namespaces_is_left_alone(tmp_path):
    """Its control group is one that a login leaves behind, as that of a container may be that shares this node's."""
    assert handmade.sees_our_files(os.getpid())
    for link, other in (
        ("ns/mnt", "mnt:[2]"),
        ("ns/pid", "pid:[2]"),
        ("ns/user", "user:[2]"),
        ("root", "/srv/jail"),
        ("root", None),
    ):
        proc = tmp_path / link.replace("/", "-") / str(other).replace("/", "-")
        for who in ("self", "71"):
            (proc / who / "ns").mkdir(parents=True)
            for name, target in (("root", "/"), ("ns/mnt", "mnt:[1]"), ("ns/pid", "pid:[1]"), ("ns/user", "user:[1]")):
                (proc / who / name).symlink_to(target)
        assert handmade.sees_our_files(71, str(proc))
        (proc / "71" / link).unlink()
        if other:
            (proc / "71" / link).symlink_to(other)
        assert not handmade.sees_our_files(71, str(proc)), link
    owner, why = handmade.left_alone(process_of(tmp_path, sees_our_files=False))
    assert owner == "a container" and "its files are not the node's: end it with kill 9471200" in why


def test_a_program_that_is_not_there_is_not_taken_for_roots(tmp_path):
    """It could be a path within a container; and it could not be started again."""
    (tmp_path / "bin").mkdir()
    assert handmade.left_alone(process_of(tmp_path)) == (None, None)
    for gone in ({"executable": str(tmp_path / "gone/llama-server")}, {"cwd": str(tmp_path / "gone")}):
        owner, why = handmade.left_alone(process_of(tmp_path, **gone))
        assert owner == "root" and "%s: No such file or directory" % (tmp_path / "gone") in why


def plant_process(tmp_path, pid, uid, cgroup, words=True):
    """A llama-server in a tree that looks like /proc."""
    proc = tmp_path / "proc"
    for name in ("self", str(pid), "1"):
        (proc / name / "ns").mkdir(parents=True, exist_ok=True)
        (proc / name / "cgroup").write_text("0::%s\n" % ("/init.scope" if name == "1" else cgroup))
        for link in ("root", "ns/mnt", "ns/pid", "ns/user"):
            if not os.path.islink(str(proc / name / link)):
                (proc / name / link).symlink_to("/")
    base = proc / str(pid)
    (base / "stat").write_text("%d (x) S 1 1\n" % pid)
    (base / "status").write_text("Name:\tx\nUid:\t%d\t%d\t%d\t%d\n" % (uid, uid, uid, uid))
    (base / "exe").symlink_to(tmp_path / "bin/llama-server")
    (base / "cwd").symlink_to(tmp_path)
    if words:
        (base / "fd").mkdir()
        for number in ("1", "2"):
            (base / "fd" / number).symlink_to("/dev/null")
        (base / "cmdline").write_bytes(b"llama-server\0")
        (base / "environ").write_bytes(b"PATH=/bin\0")


def test_nothing_that_a_process_says_is_read_of_one_that_is_left_alone(node, tmp_path):
    """Who owns a process can make a reader of its arguments wait for ever: there are none here to read."""
    (tmp_path / "bin").mkdir()
    session = "/user.slice/user-1000.slice/session-3.scope"
    plant_process(tmp_path, 71, 4711, session, words=False)
    plant_process(tmp_path, 72, os.geteuid(), "/docker/0123", words=False)
    plant_process(tmp_path, 73, os.geteuid(), session)
    found = handmade.find(str(node.units))
    assert [(process["pid"], process["foreign"]) for process in found["foreign"]] == [
        (71, "user id 4711"),
        (72, "/docker/0123"),
    ]
    assert [(process["pid"], process["argv"]) for process in found["processes"]] == [(73, ["llama-server"])]


@pytest.mark.parametrize(
    ("user", "main_pid", "uid", "taken"),
    [
        ("", 71, 4711, False),
        ("", 72, 0, False),
        ("", 71, 0, True),
        ("4711", 71, 4711, True),
        ("4712", 71, 4711, False),
        ("nobody-of-this-name", 71, 4711, False),
    ],
)
def test_a_unit_that_only_holds_a_server_of_its_users_is_not_taken_over(node, tmp_path, user, main_pid, uid, taken):
    """jupyterhub.service runs what its users start; a wrapper script becomes the unit's main process."""
    (tmp_path / "bin").mkdir()
    write(node.units / "hub.service", "[Service]\nExecStart=/opt/hub/bin/start\n")
    plant_process(tmp_path, 71, uid, "/system.slice/hub.service")

    def show(names, _properties):
        assert names == ["hub.service"]
        return "Id=hub.service\nFragmentPath=%s/hub.service\nActiveState=active\nMainPID=%d\nUser=%s\n" % (
            node.units,
            main_pid,
            user,
        )

    found = handmade.find(str(node.units), str(tmp_path / "proc"), show)
    assert [unit["name"] for unit in found["units"]] == (["hub.service"] if taken else [])
    assert [process["foreign"] for process in found["foreign"]] == ([] if taken else ["hub.service"])
    assert found["processes"] == []


@pytest.mark.parametrize("end", ["\r", "\v", "\x85"])
def test_a_user_cannot_name_a_group_so_that_it_reads_as_another(tmp_path, end):
    plant_process(
        tmp_path,
        71,
        4711,
        "/user.slice/user-1000.slice/user@1000.service/x%s1:name=systemd:/system.slice/rpc.service" % end,
    )
    assert handmade.read_process(71, str(tmp_path / "proc"))["unit"] == "user@1000.service"


def test_an_instance_of_a_template_that_names_the_program_is_taken_over(node, tmp_path):
    (tmp_path / "bin").mkdir()
    write(node.units / "llama@.service", "[Service]\nUser=ops\nExecStart=/bin/sh -c '/opt/llama-server; true'\n")
    plant_process(tmp_path, 71, 4711, "/system.slice/system-llama.slice/llama@big.service")
    assert [unit["name"] for unit in handmade.find(str(node.units))["units"]] == ["llama@big.service"]


def test_a_variable_that_names_code_is_not_given_back(tmp_path):
    for name in ("bin", "lib"):
        (tmp_path / name).mkdir()
    (tmp_path / "lib").chmod(0o777)
    environment = {
        "PATH": "/bin",
        "LD_PRELOAD": "/tmp/evil.so",
        "LD_AUDIT": "/tmp/evil.so",
        "GCONV_PATH": "/tmp",
        "PYTHONPATH": "/tmp",
        "LD_LIBRARY_PATH": "%s/bin:%s/lib:%s/gone:bin" % (tmp_path, tmp_path, tmp_path),
    }
    record = processes.process_record(process_of(tmp_path, kind="worker", argv=["rpc-server"], environment=environment))
    assert record["environment"] == {"PATH": "/bin", "LD_LIBRARY_PATH": "%s/bin:%s/bin" % (tmp_path, tmp_path)}
    assert record["left_out"] == ["GCONV_PATH", "LD_AUDIT", "LD_PRELOAD", "PYTHONPATH"]
    # One that others may have come to write since is not given back either.
    (tmp_path / "bin").chmod(0o777)
    assert processes.safe_environment(record) == {"PATH": "/bin"}


def test_servers_of_other_users_are_told_and_left_alone(node, tmp_path, running):
    running.append(process_of(tmp_path, uid=4711))
    running.append(process_of(tmp_path, pid=9471300, executable=str(tmp_path / "theirs/llama-server")))
    running.append(process_of(tmp_path, pid=9471400, cwd=str(tmp_path / "theirs")))
    running.append(process_of(tmp_path, pid=9471500))
    result = look.look(str(tmp_path / "adopted"), unit_dir=str(node.units))
    assert [process["pid"] for process in result["processes"]] == [9471500] == result["pids"]
    assert [(entry["pid"], entry["owner"]) for entry in result["foreign"]] == [
        (9471200, "user id 4711"),
        (9471300, "root"),
        (9471400, "root"),
    ]
    needed = "end it with kill 9471200 if its port or memory is needed"
    assert "process 9471200: left alone, it belongs to user id 4711, not to root: " + needed in result["lines"]
    assert any(
        line.startswith(
            "process 9471300: left alone, others may change what it runs as root (%s: it belongs"
            % (tmp_path / "theirs")
        )
        for line in result["lines"]
    )
    node.adoption().save()
    assert [process["pid"] for process in node.adoption().read()["processes"]] == [9471500]


def test_a_server_that_leaves_out_our_digest_is_still_ours(node, tmp_path, running):
    """One of ours that was taken over would be ended and started again, out of its sandbox, with arguments of its
    choice."""
    handmade_units(node)
    running.append(process_of(tmp_path, unit="llama-head-chat.service"))
    # And one that says that it is ours is not.
    running.append(
        process_of(tmp_path, pid=9471300, unit="rpc.service", kind="worker", environment={"LLAMA_CLUSTER_DIGEST": "1"})
    )
    found = handmade.find(str(node.units))
    assert found["processes"] == [] == found["foreign"]
    assert [unit["name"] for unit in found["units"] if unit["process"]] == ["rpc.service"]


@pytest.mark.parametrize("how", ["link", "directory", "fifo"])
def test_a_log_that_others_exchanged_is_not_opened_as_root(leftover, tmp_path, how):
    protected = tmp_path / "private/passwd"
    protected.parent.mkdir(mode=0o700)
    protected.write_text("root:x:0:0\n")
    log = tmp_path / "logs/rpc.log"
    log.parent.mkdir()
    if how == "link":
        log.symlink_to(protected)
    elif how == "fifo":
        os.mkfifo(str(log))
    else:
        log.parent.rmdir()
        log = tmp_path / "logs/passwd"
        log.parent.symlink_to(protected.parent)
        # As if the link's directory were theirs.
        tmp_path.chmod(0o777)
    descriptor = processes.open_log(str(log))
    os.write(descriptor, b"evil\n")
    os.close(descriptor)
    tmp_path.chmod(0o700)
    assert protected.read_text() == "root:x:0:0\n"


def test_a_log_that_is_gone_is_made_again_and_everybody_may_read_it(tmp_path):
    before = os.umask(0)
    try:
        os.close(processes.open_log(str(tmp_path / "rpc.log")))
    finally:
        os.umask(before)
    assert (tmp_path / "rpc.log").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("mode", [0o755, 0o640, 0o4711])
def test_what_it_takes_to_put_a_file_back(tmp_path, mode):
    path = tmp_path / "llama-rpc.service"
    path.write_text("[Service]\n")
    path.chmod(mode)
    seen = path.stat()
    assert steps.path_record(str(path)) == {
        "path": str(path),
        "sha256": hashlib.sha256(b"[Service]\n").hexdigest(),
        "mode": mode,
        "uid": seen.st_uid,
        "gid": seen.st_gid,
        "mtime_ns": seen.st_mtime_ns,
    }


def test_a_program_that_others_may_exchange_is_not_started(leftover, tmp_path):
    record = {
        "executable": str(tmp_path / "rpc-server"),
        "argv": ["rpc-server", "300"],
        "cwd": "/",
        "environment": {},
        "outputs": {},
    }
    tmp_path.chmod(0o777)
    with pytest.raises(
        Refusal, match=r"rpc-server: it cannot be started again in / \(.*its mode 0777.*\): start it by hand"
    ):
        processes.start_detached(record)
    tmp_path.chmod(0o700)
    assert of(tmp_path) == []


def test_what_a_process_says_of_itself_cannot_drive_a_terminal():
    serves = dict(
        handmade.arguments("head", ["x", "-m", "\x1b]0;title\x07m.gguf\n\udcff"]), program="/x/llama-server", build=None
    )
    assert handmade.words("head", serves) == "/x/llama-server at 127.0.0.1:8080, model ?]0;title?m.gguf??"


def test_a_running_head_is_asked_for_its_build():
    server = fake.FakeLlamaServer()
    port = int(server.url.rpartition(":")[2])
    try:
        for host in ("127.0.0.1", "0.0.0.0", "localhost", None):
            server.responses["/props"] = (200, {"build_info": "b7772-1a2b3c4d"})
            assert handmade.build_of("head", {"host": host, "port": port}) == "b7772-1a2b3c4d"
        asked = len(server.requests)
        assert handmade.build_of("rpc", {"host": None, "port": port}) is None
        assert handmade.build_of("head", {"host": None, "port": None}) is None
        assert len(server.requests) == asked, "no worker is asked, and nothing without a port"
        for answer in ((503, {"build_info": "b7772"}), (200, ["b7772"]), (200, {})):
            server.responses["/props"] = answer
            assert handmade.build_of("head", {"host": None, "port": port}) is None
    finally:
        server.stop()
    assert handmade.build_of("head", {"host": None, "port": port}) is None


def test_a_port_is_a_number_that_fits():
    for text in ("\u00b2", "99999999", "-1", "", "8000x"):
        assert handmade.arguments("head", ["llama-server", "--port", text])["port"] is None


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--port", "1", "--port", "65535"], "port", 65535),
        (["--port=1", "--port", "2"], "port", 2),
        (["--port", "1", "--port=2"], "port", 2),
        (["--port", "8000", "--port"], "port", None),
        (["--port="], "port", None),
        (["--port", "0"], "port", 0),
        (["--port", "99999"], "port", 99999),
        (["--port", "100000"], "port", None),
        (["-m"], "model", None),
        (["-m", "a", "--model", "b"], "model", "b"),
        (["--model=a=b.gguf"], "model", "a=b.gguf"),
        (["--host"], "host", None),
        (["--rpc", ""], "rpc", []),
        (["--rpc=a:1,,b:2,"], "rpc", ["a:1", "b:2"]),
        (["--rpc", "a:1", "--rpc"], "rpc", []),
    ],
)
def test_an_argument_that_is_given_twice_or_without_its_value(words, name, value):
    assert handmade.arguments("head", ["llama-server"] + words)[name] == value


def test_a_command_line_without_arguments_listens_where_llama_cpp_does():
    assert handmade.arguments("head", ["llama-server"]) == {
        "host": "127.0.0.1",
        "port": 8080,
        "model": None,
        "rpc": [],
    }
    worker = handmade.arguments("worker", ["rpc-server", "-m", "m.gguf", "--rpc", "a:1"])
    assert worker == {"host": "127.0.0.1", "port": 50052, "model": None, "rpc": []}


def test_a_text_that_is_no_configuration_is_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(handmade, "MOST_TEXT", 10)
    path = tmp_path / "x"
    for data, text in (
        (b"0123456789", "0123456789"),
        (b"01234567890", ""),
        (b"a\0b", ""),
        (b"\xff", "\ufffd"),
        (b"", ""),
    ):
        path.write_bytes(data)
        assert handmade.read_text(str(path)) == text, data
    assert handmade.read_text(str(tmp_path)) == "" == handmade.read_text(str(tmp_path / "gone"))


def test_a_process_that_has_ended_or_is_none_of_llama_cpp_is_none(tmp_path):
    (tmp_path / "bin").mkdir()
    plant_process(tmp_path, 71, 4711, "/system.slice/cron.service")
    proc = tmp_path / "proc"
    assert handmade.read_process(71, str(proc)) == {
        "pid": 71,
        "parent": 1,
        "kind": "head",
        "executable": str(tmp_path / "bin/llama-server"),
        "cwd": str(tmp_path),
        "unit": "cron.service",
        "uid": 4711,
        "foreign": None,
        "sees_our_files": True,
    }
    # The name of a command may look like the end of it, and a program may have been replaced since.
    (proc / "71/stat").write_text("71 (x) R 1) S 5 1\n")
    (proc / "71/exe").unlink()
    (proc / "71/exe").symlink_to("/opt/ggml-rpc-server (deleted)")
    found = handmade.read_process(71, str(proc))
    assert (found["parent"], found["kind"], found["executable"]) == (5, "worker", "/opt/ggml-rpc-server")
    (proc / "71/stat").write_text("71 (x) Z 1 1\n")
    assert handmade.read_process(71, str(proc)) is None
    (proc / "71/stat").unlink()
    assert handmade.read_process(71, str(proc)) is None
    assert handmade.read_process(72, str(proc)) is None


def test_children_of_a_server_are_part_of_it(tmp_path):
    """A router starts a server for each model; a router may itself have a shell as its parent."""
    (tmp_path / "bin").mkdir()
    for pid, parent in ((71, 1), (72, 71), (9, 72), (100, 70)):
        plant_process(tmp_path, pid, 0, "/system.slice/cron.service")
        (tmp_path / "proc" / str(pid) / "stat").write_text("%d (x) S %d 1\n" % (pid, parent))
    (tmp_path / "proc/sys").mkdir()
    assert [process["pid"] for process in handmade.read_processes(str(tmp_path / "proc"))] == [71, 100]


@pytest.mark.parametrize(
    ("serves", "words"),
    [
        (None, "a head that does not run"),
        ({}, "/x/llama-server at 10.1.0.2:8000"),
        (
            {"model": "m.gguf", "rpc": ["a:1", "b:2"], "build": "b7772"},
            "/x/llama-server at 10.1.0.2:8000, model m.gguf, over a:1, b:2, build b7772",
        ),
    ],
)
def test_a_server_is_one_line(serves, words):
    blank = {"program": "/x/llama-server", "host": "10.1.0.2", "port": 8000, "model": None, "rpc": [], "build": None}
    assert handmade.words("head", None if serves is None else dict(blank, **serves)) == words


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("localhost", "http://127.0.0.1:8000"),
        (None, "http://127.0.0.1:8000"),
        ("10.1.0.2", "http://10.1.0.2:8000"),
    ],
)
def test_a_head_is_asked_on_its_own_node(host, url):
    assert handmade.url({"host": host, "port": 8000}) == url


def test_heads_to_ask_after_everything_is_back():
    serves = {
        "host": "0.0.0.0",
        "port": 8000,
        "model": "m.gguf",
        "rpc": ["10.1.0.2:50052"],
        "program": "llama-server",
        "build": None,
    }
    record = {
        "units": [
            {"name": "llama-head.service", "kind": "head", "serves": serves},
            {"name": "idle.service", "kind": "head", "serves": None},
        ],
        "processes": [{"pid": 5, "kind": "worker", "serves": dict(serves, rpc=[])}],
    }
    assert [(head["name"], head["url"], head["rpc_endpoints"]) for head in look.recorded_heads(record)] == [
        ("llama-head.service", "http://127.0.0.1:8000", ["10.1.0.2:50052"])
    ]


def unit_of(name, kind="worker", active=True):
    """A unit as find() and a record have it, for what starts and stops it."""
    return {"name": name, "kind": kind, "active": active}


@pytest.fixture
def recorded(node, monkeypatch):
    """recorded(record, found): an adoption whose record and whose node say so; what is done to processes is noted."""
    monkeypatch.setattr(steps, "RETURNS", 0)
    node.ended, node.started = [], []
    monkeypatch.setattr(steps, "end", node.ended.append)
    monkeypatch.setattr(steps, "start_detached", lambda process: node.started.append(process["pid"]))

    def make(record, found, **options):
        adoption = node.adoption(**options)
        blank = {"units": [], "processes": []}
        monkeypatch.setattr(adoption, "read", lambda: record and dict(blank, **record))
        monkeypatch.setattr(steps, "find", lambda _units: dict(blank, **found))
        return adoption

    return make


def test_what_ran_is_started_again_and_nothing_else(node, tmp_path, recorded):
    units = [unit_of("a"), unit_of("b"), unit_of("idle", active=False), unit_of("head", "head")]
    ran = [process_of(tmp_path, pid=number, kind="worker", argv=["rpc-server", str(number)]) for number in (1, 2)]
    ran.append(process_of(tmp_path, pid=3))
    again = dict(ran[0], pid=71)
    found = {"units": [unit_of("b"), unit_of("a", active=False)], "processes": [again]}
    adoption = recorded({"units": units, "processes": ran}, found)
    adoption.start("worker")
    assert (node.called, node.started) == ([("start", "a")], [2])
    assert adoption.actions == ["start a", "start rpc-server"]
    recorded({"units": units, "processes": ran}, found).start("head")
    assert (node.called[1:], node.started[1:]) == ([("start", "head")], [3])
    recorded({"units": units, "processes": ran}, found, check=True).start("worker")
    recorded(None, found).start("worker")
    assert (len(node.called), len(node.started)) == (2, 2)


def test_what_runs_of_a_kind_is_stopped(node, tmp_path, recorded):
    units = [unit_of("a"), unit_of("idle", active=False), unit_of("b"), unit_of("head", "head")]
    worker = process_of(tmp_path, pid=1, kind="worker", argv=["rpc-server"])
    head = process_of(tmp_path, pid=2)
    found = {"units": units, "processes": [worker, head]}
    record = dict(found, processes=[dict(worker, pid=71), head])
    adoption = recorded(record, found)
    adoption.stop("worker")
    assert (node.called, node.ended) == ([("stop", "a", "b")], [1])
    assert adoption.actions == ["stop a, b", "end process 1 (rpc-server)"]
    for unknown in (dict(record, units=units[1:]), dict(record, processes=[head]), None):
        with pytest.raises(Refusal, match="came after everything had been looked at and saved"):
            recorded(unknown, found).stop("worker")
    checked = recorded(None, found, check=True)
    checked.stop("head")
    assert checked.actions == ["stop head", "end process 2 (%s)" % HEAD_ARGV[0]]
    assert (len(node.called), len(node.ended)) == (1, 1)


class Stubborn:
    """A process that ends after so many signals, or looks at it; a clock that goes on with each sleep."""

    def __init__(self, monkeypatch, heeds=None, zombie=False):
        self.heeds, self.now, self.signals, self.gone = heeds, 0.0, [], False
        monkeypatch.setattr(processes.os, "kill", self.kill)
        monkeypatch.setattr(processes, "is_zombie", lambda _pid: zombie)
        monkeypatch.setattr(processes.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(processes.time, "sleep", self.sleep)

    def kill(self, _pid, number):
        if self.gone:
            raise ProcessLookupError(3, "No such process")
        if number:
            self.signals.append((self.now, number))
        self.gone = number == self.heeds

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize(
    ("heeds", "signals"),
    [
        (signal.SIGTERM, [(0, signal.SIGTERM)]),
        (signal.SIGKILL, [(0, signal.SIGTERM), (20, signal.SIGKILL)]),
    ],
)
def test_a_server_has_twenty_seconds_to_end_by_itself(monkeypatch, heeds, signals):
    process = Stubborn(monkeypatch, heeds)
    processes.end(71)
    assert [(round(moment), number) for moment, number in process.signals] == signals


def test_a_server_that_not_even_dies_is_one_sentence(monkeypatch):
    process = Stubborn(monkeypatch)
    with pytest.raises(
        Refusal, match="^process 71: it does not end, not even killed: see what it waits for in /proc/71"
    ):
        processes.end(71)
    assert 40 <= process.now < 41


def test_a_zombie_has_ended(monkeypatch, tmp_path):
    process = Stubborn(monkeypatch, zombie=True)
    processes.end(71)
    assert process.now == 0
    monkeypatch.undo()
    for pid, line, ended in ((1, "1 (a) Z b) R 1 1", False), (2, "2 (x) Z 1 1", True)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(line)
        assert processes.is_zombie(pid, str(tmp_path)) is ended
    assert processes.is_zombie(3, str(tmp_path))


def test_what_systemctl_refuses_is_one_sentence(tmp_path, monkeypatch):
    tool = tmp_path / "systemctl"
    tool.write_text(
        '#!/bin/sh\n[ "$1" = stop ] && exit 0\n[ "$1" = start ] && exit 5\necho "no\n  such unit"; exit 4\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", "%s:/bin" % tmp_path)
    steps.systemctl("stop", "a")
    with pytest.raises(Refusal, match=r"^systemctl reload a: failed \(no such unit\): see journalctl -xe on the node"):
        steps.systemctl("reload", "a")
    with pytest.raises(Refusal, match=r"^systemctl start a: failed \(5\)"):
        steps.systemctl("start", "a")


def test_a_file_or_a_link_is_there_with_its_content(tmp_path):
    path, link = tmp_path / "a", tmp_path / "b"
    path.write_text("x")
    link.symlink_to("a")
    one, two = steps.path_record(str(path)), steps.path_record(str(link))
    assert steps.holds(one) and steps.holds(two)
    path.write_text("y")
    assert not steps.holds(one)
    assert not steps.holds(dict(two, link="c"))
    link.unlink()
    assert not steps.holds(two)
    link.write_text("x")
    assert not steps.holds(two), "a file is no link"
    assert steps.holds(dict(one, path=str(link)))
