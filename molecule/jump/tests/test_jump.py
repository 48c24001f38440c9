"""A cluster whose nodes accept only a bastion is deployed like any other, and says which node cannot be
reached."""

import json
import os
import socket
import subprocess

import pytest

SITE = os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]
HOSTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "inventory", "hosts.yml")
NODES = ("node1", "node2", "node3")


@pytest.fixture(scope="module")
def bastion(lab):
    return "10.213.%s.14" % lab.ethernet("node1").split(".")[2]


def ssh(*arguments):
    """-> (exit status, what ssh says)"""
    done = subprocess.run(
        ["ssh", "-F", SITE + "/ssh_config", "-o", "ConnectTimeout=3", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def opens(address, port):
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def test_this_machine_reaches_the_bastion_and_no_node(lab, bastion):
    assert opens(bastion, 22)
    for node in NODES:
        assert not opens(lab.ethernet(node), 22)
        assert not opens(lab.fabric(node), 22)
    assert not opens(lab.ethernet("node1"), 8000)


def test_the_bastion_lets_through_and_nothing_else(lab, bastion):
    node = "operator@" + lab.ethernet("node2")
    assert ssh(node, "true")[0] == 255
    assert ssh("jump@" + bastion, "true")[0] == 1
    assert ssh("-J", "jump@" + bastion, node, "true") == (0, "")


def test_unknown_host_key_is_refused(lab, bastion):
    status, said = ssh(
        "-o", "UserKnownHostsFile=/dev/null", "-J", "jump@" + bastion, "operator@" + lab.ethernet("node2"), "true"
    )
    assert status == 255
    assert "you have requested strict checking" in said


def test_everything_was_done_by_ssh_from_the_bastion(lab, bastion):
    for node in (lab.node1, lab.node2, lab.node3):
        logins = node.check_output("journalctl -u ssh --no-pager --grep '^Accepted'").splitlines()
        logins = [line for line in logins if "Accepted" in line]
        assert logins
        assert all("Accepted publickey for operator from %s " % bastion in line for line in logins)


def test_a_client_behind_the_bastion_gets_an_answer(lab):
    question = json.dumps({"messages": [{"role": "user", "content": "Say hello"}], "max_tokens": 4})
    command = [
        "docker",
        "exec",
        lab.name + "-bastion",
        "curl",
        "-sS",
        "--max-time",
        "60",
        "-H",
        "Content-Type: application/json",
        "-d",
        question,
    ]
    answer = json.loads(
        subprocess.check_output([*command, "http://%s:8000/v1/chat/completions" % lab.ethernet("node1")])
    )
    assert answer["usage"]["completion_tokens"] >= 1


def test_unreachable_node_names_the_next_step(lab, bastion):
    lab.node2.check_output("systemctl stop ssh")
    # The connection that Ansible keeps open is one that a node's crash would end too.
    subprocess.call(["docker", "exec", lab.name + "-node2", "pkill", "-x", "sshd"])
    try:
        status, output = lab.playbook(
            "site", "--tags", "preflight", "-i", HOSTS, inventory="inventories/lab/containers.yml"
        )
    finally:
        lab.node2.check_output("systemctl start ssh")
    assert status != 0
    assert "node2: no answer from %s over ssh (" % lab.ethernet("node2") in output
    assert (
        "try `ssh -F %s/ssh_config -o ProxyJump=jump@%s operator@%s` on this machine"
        % (SITE, bastion, lab.ethernet("node2"))
        in output
    )
    assert "node1: no answer" not in output
    assert lab.changed(output) == 0
