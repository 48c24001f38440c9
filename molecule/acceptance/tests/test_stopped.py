"""A service with two replicas beside one that runs, stopped, started, killed and stopped again; it has no card, and no
port of its own."""

import json
import re

import requests

QUICK = {
    "model": "smollm2-135m-instruct",
    "quant": "Q4_1",
    "head": "llama_rpc",
    "threads": 1,
    "cards": [],
    "slot_ctx_size": 512,
}
UNIT = "llama-head-quick.service"
NODES = ("node2", "node3")
# Plays whose work an earlier run has done are left out.
HEADS = ("--tags", "head,verify")
STOPPED = [r"quick on %s .*stopped, as the inventory says" % name for name in NODES]


def site(lab, state, *words):
    chat = lab.chat(ctx_size=4096, parallel=1, tensor_split={"node2": 15, "node3": 15})
    services = dict(chat, quick=dict(QUICK, state=state))
    status, output = lab.playbook("site", "-e", json.dumps({"llama_services": services}), *words)
    assert status == 0, output
    return output


def state(lab):
    """The state of systemd on both nodes."""
    command = "systemctl show --value -p ActiveState,UnitFileState %s | xargs"
    return [getattr(lab, name).check_output(command, UNIT) for name in NODES]


def main_pid(node):
    return node.check_output("systemctl show --value -p MainPID %s", UNIT)


def test_what_is_stopped_is_ready_and_starts(lab):
    chat = lab.node1.check_output("systemctl show --value -p MainPID llama-head-chat")
    output = site(lab, "stopped")
    assert all(re.search(line, output) for line in STOPPED)
    assert state(lab) == ["inactive disabled"] * 2
    for name in NODES:
        assert getattr(lab, name).file("/opt/models/SmolLM2-135M-Instruct.Q4_1.gguf").exists
    assert lab.changed(site(lab, "stopped")) == 0
    output = site(lab, "started", *HEADS)
    for name in NODES:
        assert re.search(r" http://%s:18\d\d\d/v1 " % re.escape(lab.ethernet(name)), output)
        assert "--device none " in getattr(lab, name).check_output("systemctl show -p ExecStart %s", UNIT)
    assert state(lab) == ["active enabled"] * 2
    assert "CUDA_VISIBLE_DEVICES= " in lab.node2.check_output("systemctl show -p Environment %s", UNIT) + " "
    assert lab.node1.check_output("systemctl show --value -p MainPID llama-head-chat") == chat


def test_replica_answers_while_the_other_is_killed(lab):
    arguments = lab.node2.check_output("systemctl show -p ExecStart %s", UNIT)
    (port,) = re.findall(r"--port (\d+)", arguments)

    def ask(name):
        return requests.post(
            "http://%s:%s/v1/chat/completions" % (lab.ethernet(name), port),
            json={"max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]},
            timeout=60,
        )

    def answers(name):
        try:
            return ask(name).status_code == 200
        except requests.RequestException:
            return False

    before = {name: main_pid(getattr(lab, name)) for name in NODES}
    assert all(answers(name) for name in NODES)
    lab.node2.check_output("kill -9 %s", before["node2"])
    assert ask("node3").status_code == 200
    lab.eventually(lambda: answers("node2"), 60, "the killed replica answers again")
    assert main_pid(lab.node2) not in ("0", before["node2"])
    assert main_pid(lab.node3) == before["node3"]
    status, output = lab.playbook("status", "-e", json.dumps({"llama_services": {"quick": QUICK}}))
    assert status == 0, output
    for name in NODES:
        assert re.search(r"quick on %s +%s +ready .*http://%s:%s/v1 " % (name, name, lab.ethernet(name), port), output)


def test_one_of_them_is_drilled(lab):
    """It has no worker, to whom a skipped task could be delegated."""
    given = json.dumps({"llama_services": {"quick": QUICK}, "service": "quick", "node": "node3", "drills": "head_kill"})
    status, output = lab.playbook("drill", "-e", given, core=lab.NEWEST)
    assert status == 0, output
    assert re.search(r"head_kill +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +recovered", output), output


def test_it_stops_again(lab):
    chat = lab.node1.check_output("systemctl show --value -p MainPID llama-head-chat")
    output = site(lab, "stopped")
    assert all(re.search(line, output) for line in STOPPED)
    assert state(lab) == ["inactive disabled"] * 2
    # As an operator would try it, and forget.
    lab.node2.check_output("systemctl start %s", UNIT)
    stopped = json.dumps({"llama_services": {"quick": dict(QUICK, state="stopped")}})
    status, output = lab.playbook("verify", "--skip-tags", "report", "-e", stopped)
    assert status != 0 and "llama_services.quick.state: stopped seen, and %s is " % UNIT in output
    status, output = lab.playbook("site", *HEADS)
    assert status == 0, output
    for name in NODES:
        assert not getattr(lab, name).file("/etc/systemd/system/" + UNIT).exists
    assert lab.node1.check_output("systemctl show --value -p MainPID llama-head-chat") == chat
