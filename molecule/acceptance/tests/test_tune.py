"""Where a service may lie, measured: only its head's node, and a worker on the loopback beside the head."""

import json
import threading

WORKER = "llama-tune-rpc-chat.service"
# Under such a bound for the first token each candidate is measured once.
MEASURED = "interrupt=true axes=placement first_token=0.001 minutes=20 prompts=short requests=1 max_tokens=4"


def test_rpc_on_loopback_is_measured(lab):
    done = []
    arguments = [word for pair in MEASURED.split() for word in ("-e", pair)]
    run = threading.Thread(target=lambda: done.append(lab.playbook("tune", "-e", "service=chat", *arguments)))
    before = set((lab.reports / "tune").glob("*.jsonl"))
    run.start()
    try:
        # 50053: C385 in /proc.
        listens = "grep -c ' 0100007F:C385 00000000:0000 0A ' /proc/net/tcp"
        lab.eventually(lambda: done or lab.node1.run(listens).rc == 0, 600, "a worker listens on the loopback")
        assert not done, done
        assert not lab.connects(lab.node1, "127.0.0.1", 50053)
        assert lab.node1.check_output("systemctl show --value -p User %s", WORKER) == "llama"
    finally:
        run.join()
    ((status, output),) = done
    assert status == 0, output
    (path,) = set((lab.reports / "tune").glob("*.jsonl")) - before
    measured = [json.loads(line) for line in path.read_text().splitlines()]
    seen = {one["name"] for one in measured if not one["error"] and one["tokens_per_second"]}
    assert {"as deployed", "only node1", "RPC on loopback"} <= seen, measured
    assert lab.node1.run("systemctl is-active llama-head-chat").stdout.strip() == "active"
    assert "llama_tune" not in lab.node1.check_output("nft list tables")
    assert "llama-tune" not in lab.node1.check_output("ls /run/systemd/system")
