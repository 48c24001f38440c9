"""A service that the inventory has stopped, beside one that runs; it has no card, and no port of its own."""

import json
import re

QUICK = {
    "model": "smollm2-135m-instruct",
    "quant": "Q4_1",
    "head": "node2",
    "threads": 1,
    "cards": [],
    "slot_ctx_size": 512,
}
UNIT = "llama-head-quick.service"


def site(lab, state):
    chat = lab.chat(ctx_size=4096, parallel=1, tensor_split={"node2": 15, "node3": 15})
    services = dict(chat, quick=dict(QUICK, state=state))
    status, output = lab.playbook("site", "-e", json.dumps({"llama_services": services}))
    assert status == 0, output
    return output


def state(lab):
    return lab.node2.check_output("systemctl show --value -p ActiveState,UnitFileState %s | xargs", UNIT)


def test_what_is_stopped_is_ready_starts_and_stops_again(lab):
    chat = lab.node1.check_output("systemctl show --value -p MainPID llama-head-chat")
    output = site(lab, "stopped")
    assert "quick: stopped, as the inventory says" in output and "quick: stopped, not counted; it fits" in output
    assert re.search(r"ports, by the services' names: quick 18\d\d\d ", output)
    assert state(lab) == "inactive disabled"
    assert lab.node2.file("/opt/models/SmolLM2-135M-Instruct.Q4_1.gguf").exists
    assert lab.changed(site(lab, "stopped")) == 0
    assert re.search(r"endpoint: http://%s:18\d\d\d/v1" % re.escape(lab.ethernet("node2")), site(lab, "started"))
    assert state(lab) == "active enabled"
    assert "--device none " in lab.node2.check_output("systemctl show -p ExecStart %s", UNIT)
    assert "CUDA_VISIBLE_DEVICES= " in lab.node2.check_output("systemctl show -p Environment %s", UNIT) + " "
    assert "quick: stopped, as the inventory says" in site(lab, "stopped")
    assert state(lab) == "inactive disabled"
    # As an operator would try it, and forget.
    lab.node2.check_output("systemctl start %s", UNIT)
    status, output = lab.playbook(
        "verify", "-e", json.dumps({"llama_services": {"quick": dict(QUICK, state="stopped")}})
    )
    assert status != 0 and "llama_services.quick.state: stopped seen, and %s is " % UNIT in output
    status, output = lab.playbook("site")
    assert status == 0, output
    assert not lab.node2.file("/etc/systemd/system/" + UNIT).exists
    assert lab.node1.check_output("systemctl show --value -p MainPID llama-head-chat") == chat
