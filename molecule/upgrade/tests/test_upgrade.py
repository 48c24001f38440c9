"""upgrade.yml and rollback.yml with builds that serve, are slow or do not serve (builds.yml), a configuration that does
not, and a controller that dies."""

import json
import os
import pathlib
import signal
import subprocess

import pytest
import requests

CONFIGURATION = (
    "cd / && find etc/systemd/system/llama-* etc/systemd/system/*.wants/llama-* etc/llama-cluster "
    "opt/llama.cpp/current -type f -o -type l | sort"
)
NODES = ("node1", "node2", "node3")


@pytest.fixture(scope="module", autouse=True)
def builds(lab, tmp_path_factory):
    """The directory with the builds of builds.yml."""
    folder = str(tmp_path_factory.mktemp("builds"))
    status, output = lab.playbook("../molecule/upgrade/builds", "-e", "builds=" + folder)
    assert status == 0, output
    return folder


def options(lab, builds, version="b11434", **more):
    return ("-e", json.dumps(dict(lab.SHORT, lab_version=version, llama_cpp_cache=builds, **more)))


def answers(lab, timeout=60):
    """Whether one real token came back."""
    try:
        reply = requests.post(
            "http://%s:8000/v1/chat/completions" % lab.ethernet("node1"),
            json={"max_tokens": 1, "messages": [{"role": "user", "content": "Name a color."}]},
            timeout=timeout,
        )
        return reply.status_code == 200 and reply.json()["usage"]["completion_tokens"] == 1
    except (requests.RequestException, KeyError):
        return False


def state(lab):
    """The state of every node that a rollback must restore: its configuration, with content and owner, and its running
    units."""
    found = {}
    for name in NODES:
        node = getattr(lab, name)
        files = node.check_output(
            "%s | xargs -I{} sh -c 'stat -c \"%%n %%N %%a %%U\" {}; [ -L {} ] || sha256sum {}'" % CONFIGURATION
        )
        found[name] = [line for line in files.splitlines() if "baseline" not in line]
    return found


def runs(lab, version):
    """Whether the processes of all nodes run this build."""
    programs = [
        getattr(lab, name).check_output("readlink -f /proc/$(systemctl show -p MainPID --value %s)/exe" % unit)
        for name, unit in (("node1", "llama-head-chat"), ("node2", "llama-rpc-chat"), ("node3", "llama-rpc-chat"))
    ]
    return all("/%s-cpu-" % version in program for program in programs)


def current(lab):
    return {
        getattr(lab, name).check_output("readlink /opt/llama.cpp/current").split("/")[1].split("-")[0] for name in NODES
    }


def snapshots(lab):
    return {getattr(lab, name).run("ls /var/lib/llama-cluster/rollback").stdout.strip() for name in NODES}


def test_without_a_snapshot_rollback_says_so(lab):
    status, output = lab.playbook("rollback")
    assert status != 0
    assert (
        "rollback: no snapshot on node1, one that upgrade.yml took is needed: put the inventory back to what it said "
        "and run site.yml" in output
    )
    assert lab.changed(output) == 0


def test_check_mode_tells_and_stops_nothing(lab, builds):
    before = state(lab)
    process = lab.node1.check_output("systemctl show -p MainPID --value llama-head-chat")
    status, output = lab.playbook("upgrade", *options(lab, builds, "b11435"), "--check", "--diff")
    assert status == 0, output
    assert "+ExecStart=/usr/bin/stdbuf -oL /opt/llama.cpp/releases/b11435-cpu-" in output
    assert "+ExecStart=/opt/llama.cpp/releases/b11435-cpu-" in output
    assert lab.changed(output) > 0
    assert state(lab) == before and snapshots(lab) == {""}
    assert lab.node1.check_output("systemctl show -p MainPID --value llama-head-chat") == process


def rolled_back(lab, output, before):
    """Assert the effects of an automatic rollback."""
    assert "rolled back, b11434-cpu-" in output and " s after the switch began" in output
    assert "Traceback" not in output
    assert answers(lab) and runs(lab, "b11434") and current(lab) == {"b11434"}
    assert state(lab) == before
    assert snapshots(lab) == {""}


def test_a_slow_build_is_rolled_back_by_itself(lab, builds):
    before = state(lab)
    status, output = lab.playbook("upgrade", *options(lab, builds, "b11436", upgrade_min_ratio=0.8))
    assert status != 0
    assert "upgrade: llama_services.chat generates " in output and " are needed (0.8 of the " in output
    rolled_back(lab, output, before)
    baseline = json.loads(lab.node1.file("/var/lib/llama-cluster/baseline-chat.json").content_string)
    assert (
        baseline["build"].startswith("b11434-cpu-") and baseline["tokens_per_second"] > 0 and baseline["requests"] == 2
    )


def test_configuration_that_does_not_serve_is_rolled_back(lab, builds):
    before = state(lab)
    services = lab.chat(tensor_split={"node2": 15, "node3": 15}, ctx_size=8192, parallel=2, memory_max="12M")
    status, output = lab.playbook("upgrade", *options(lab, builds, llama_services=services))
    assert status != 0
    rolled_back(lab, output, before)


@pytest.fixture
def slow_stop(lab):
    """A worker that takes ten seconds to stop: long enough between the head's end and its next start for a controller
    to die there."""
    folder = "/run/systemd/system/llama-rpc-chat.service.d"
    lab.node2.check_output(
        "mkdir -p %s && printf '[Service]\\nExecStopPost=/bin/sleep 10\\n' > %s/slow.conf && systemctl daemon-reload",
        folder,
        folder,
    )
    yield
    lab.node2.check_output("rm -rf %s && systemctl daemon-reload", folder)


def test_next_run_finishes_an_interrupted_one(lab, builds, slow_stop):
    run = subprocess.Popen(
        ["ansible-playbook", "playbooks/upgrade.yml", "-i", "inventories/lab", *options(lab, builds, "b11435")],
        cwd=pathlib.Path(__file__).resolve().parents[3],
        env=dict(os.environ, ANSIBLE_CONFIG="ansible.cfg"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def ended_or_down():
        return (
            run.poll() is not None or lab.node1.run("systemctl is-active llama-head-chat").stdout.strip() == "inactive"
        )

    try:
        lab.eventually(ended_or_down, 600, "the head is down")
        assert run.poll() is None
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    assert not answers(lab, 5)
    assert snapshots(lab) == {"open.json"}
    status, output = lab.playbook("upgrade", *options(lab, builds, "b11435"))
    assert status == 0, output
    assert " serves, which finishes what an earlier run began" in output
    assert "chat: b11435-cpu-" in output and "; before: " in output and " with b11434-cpu-" in output
    assert answers(lab) and runs(lab, "b11435") and current(lab) == {"b11435"}
    assert snapshots(lab) == {"last.json"}


def test_a_second_run_has_nothing_to_do(lab, builds):
    before = state(lab)
    status, output = lab.playbook("upgrade", *options(lab, builds, "b11435"))
    assert status == 0, output
    assert "chat: nothing to do, b11435-cpu-" in output
    assert lab.changed(output) == 0
    assert state(lab) == before and snapshots(lab) == {"last.json"}


def test_rollback_puts_the_old_build_back(lab, capsys):
    status, output = lab.playbook("rollback")
    assert status == 0, output
    assert (
        "set llama_builds (b11434-cpu-" in output
        and ") and the services as they were there, or the next site.yml switches again" in output
    )
    with capsys.disabled():
        print("\n" + output[output.index("chat: as of") : output.index("the inventory may")])
    assert answers(lab) and runs(lab, "b11434") and current(lab) == {"b11434"}
    assert snapshots(lab) == {"last.json"}


def test_only_one_service_moves_to_another_build(lab, builds):
    """Both of its builds lie side by side, and what serves beside it is not asked to restart."""
    chat = lab.chat()
    quick = dict(chat["chat"], port=8001, workers=None, rpc_port=None, force_split=None)
    quick = {key: value for key, value in dict(quick, tensor_split=None).items() if value is not None}
    process = lab.node1.check_output("systemctl show -p MainPID --value llama-head-chat")
    turbo = {"version": "b11435", "source": "/nowhere/llama.cpp.tar.gz"}
    for build, version in (("default", "b11434"), ("turbo", "b11435")):
        given = {
            "llama_services": dict(chat, quick=dict(quick, build=build)),
            "llama_builds": {"default": {"version": "b11434", "source": "/nowhere/llama.cpp.tar.gz"}, "turbo": turbo},
        }
        status, output = lab.playbook(
            "upgrade", "-e", "service=quick", "-e", json.dumps(dict(lab.SHORT, llama_cpp_cache=builds, **given))
        )
        assert status == 0, output
        assert "quick: %s-cpu-" % version in output
        program = lab.node1.check_output("readlink -f /proc/$(systemctl show -p MainPID --value llama-head-quick)/exe")
        assert "/%s-cpu-" % version in program
        assert runs(lab, "b11434") and current(lab) == {"b11434"}
        assert lab.node1.check_output("systemctl show -p MainPID --value llama-head-chat") == process
