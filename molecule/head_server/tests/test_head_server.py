import json

import requests

UNIT = "llama-head-chat.service"


def ask(lab, timeout=60):
    """One real answer over HTTP from outside the containers -> its text."""
    reply = requests.post(
        "http://%s:8000/v1/chat/completions" % lab.ethernet("node1"),
        json={"model": "smollm2", "max_tokens": 24, "temperature": 0, "messages": [{"role": "user", "content": "Name the three primary colors."}]},
        timeout=timeout,
    )
    reply.raise_for_status()
    return reply.json()["choices"][0]["message"]["content"]


def answers(lab):
    try:
        return bool(ask(lab))
    except requests.RequestException:
        return False


def main_pid(lab):
    return int(lab.node1.check_output("systemctl show --property=MainPID --value %s", UNIT))


def test_it_answers(lab):
    lab.eventually(lambda: answers(lab), 90, "the head answers")
    assert "Red" in ask(lab)


def test_it_answers_to_the_models_names(lab):
    model = requests.get("http://%s:8000/v1/models" % lab.ethernet("node1"), timeout=10).json()["data"][0]
    assert {model["id"], *model["aliases"]} >= {"smollm2-135m-instruct", "smollm2"}


def test_it_listens_on_ethernet_alone(lab):
    listeners = [line.split()[3] for line in lab.node1.check_output("ss -Hltn sport = :8000").splitlines()]
    assert listeners == ["%s:8000" % lab.ethernet("node1")]


def test_it_holds_a_connection_to_each_worker_over_the_fabric(lab):
    peers = {line.split()[3] for line in lab.node1.check_output("ss -Htn state established dport = :50052").splitlines()}
    assert peers == {"%s:50052" % lab.fabric(name) for name in ("node2", "node3")}


def test_it_is_back_after_kill_9(lab):
    before = main_pid(lab)
    lab.node1.check_output("kill -9 %s", str(before))
    lab.eventually(lambda: main_pid(lab) not in (0, before), 20, "a new head process")
    lab.eventually(lambda: answers(lab), 90, "the head answers again")


def test_it_is_back_after_a_worker_was_killed(lab):
    lab.node2.check_output("systemctl kill --signal=KILL llama-rpc-chat.service")
    lab.eventually(lambda: answers(lab), 120, "the head answers again")


def test_it_waits_for_its_workers(lab):
    lab.node1.check_output("systemctl stop %s", UNIT)
    lab.node3.check_output("systemctl stop llama-rpc-chat.service")
    lab.node1.check_output("systemctl start --no-block %s", UNIT)
    waiting = "waiting for RPC worker %s:50052" % lab.fabric("node3")
    lab.eventually(lambda: waiting in lab.node1.check_output("journalctl -u %s -o cat -n 5", UNIT), 20, "the journal names the missing worker")
    assert lab.node1.check_output("systemctl show --property=ActiveState --value %s", UNIT) == "activating"
    lab.node3.check_output("systemctl start llama-rpc-chat.service")
    lab.eventually(lambda: answers(lab), 90, "the head answers once its worker is there")


def test_its_process_carries_no_secret_and_its_unit_no_prompt(lab):
    assert "key" not in lab.node1.check_output("systemctl cat %s", UNIT).lower()
    assert "primary colors" not in lab.node1.check_output("journalctl -u %s -o cat", UNIT)


def test_it_starts_at_boot_and_answers_to_the_short_name(lab):
    assert lab.node1.check_output("systemctl is-enabled %s", UNIT) == "enabled"
    assert lab.node1.check_output("systemctl show --property=Id --value llama-head.service") == UNIT


def test_another_setting_is_applied(lab):
    services = lab.chat(ctx_size=2048, parallel=2, tensor_split={"node2": 20, "node3": 10})
    status, output = lab.playbook("site", "--tags", "head", "-e", json.dumps({"llama_services": services}))
    assert status == 0, output
    lab.eventually(lambda: answers(lab), 90, "the head answers")
    slots = requests.get("http://%s:8000/slots" % lab.ethernet("node1"), timeout=10).json()
    assert [slot["n_ctx"] for slot in slots] == [1024, 1024]


def test_an_automatic_split_is_planned_and_stays(lab):
    intent = json.dumps({"llama_services": lab.chat(ctx_size=2048)})
    status, output = lab.playbook("site", "--tags", "head", "-e", intent)
    assert status == 0, output
    unit = lab.node1.check_output("systemctl cat %s", UNIT)
    counts = [int(count) for count in unit.split("--tensor-split ")[1].split()[0].split(",")]
    assert sum(counts) == 31 and min(counts) > 0  # the output layer counts
    plan = json.loads(lab.node1.check_output("cat /etc/llama-cluster/plan-chat.json"))[0]
    assert plan["tensor_split"] == counts
    lab.eventually(lambda: answers(lab), 90, "the head answers")
    status, output = lab.playbook("site", "--tags", "head", "-e", intent)
    assert status == 0, output
    assert lab.changed(output) == 0
    status, output = lab.playbook("verify", "-e", intent)
    assert status == 0, output
    assert "plan node2 main: " in output and "loaded (weights, KV cache, compute), off by " in output
