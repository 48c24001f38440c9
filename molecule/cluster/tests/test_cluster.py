"""site.yml on three nodes, then the tasks of an operator."""

import json
import re

import pytest
import requests
import unmanaged


def ask(lab, timeout=60):
    reply = requests.post(
        "http://%s:8000/v1/chat/completions" % lab.ethernet("node1"),
        json={
            "max_tokens": 8,
            "temperature": 0,
            "messages": [{"role": "user", "content": "Name the three primary colors."}],
        },
        timeout=timeout,
    )
    reply.raise_for_status()
    return reply.json()


def answers(lab):
    try:
        return ask(lab)["usage"]["completion_tokens"] > 0
    except (requests.RequestException, KeyError):
        return False


def bytes_over(lab, worker):
    """Bytes (out, back) of the head's connection to a worker since it was made, as its kernel counted them."""
    text = lab.node1.check_output("ss -Htin state established dst %s dport = :50052", lab.fabric(worker))
    return tuple(int(re.search(r"bytes_%s:(\d+)" % word, text).group(1)) for word in ("sent", "received"))


def test_all_took_part(lab):
    journal = lab.node1.check_output("journalctl -u llama-head-chat -o cat")
    for worker in ("node2", "node3"):
        sizes = re.findall(
            r"RPC\d+\[%s:50052\] model buffer size = +([0-9.]+) MiB" % re.escape(lab.fabric(worker)), journal
        )
        assert sizes and float(sizes[-1]) > 10, worker
    before = {worker: bytes_over(lab, worker) for worker in ("node2", "node3")}
    tokens = ask(lab)["usage"]["completion_tokens"]
    assert tokens == 8
    for worker in ("node2", "node3"):
        out, back = bytes_over(lab, worker)
        assert out > before[worker][0] and back > before[worker][1], worker


def test_check_mode_on_a_deployed_cluster_changes_nothing(lab):
    status, output = lab.playbook("site", "--check", "--diff", core=lab.NEWEST)
    assert status == 0, output
    assert lab.changed(output) == 0
    # Running heads are not judged by the changed inventory.
    more = json.dumps({"llama_services": lab.chat(ctx_size=8192)})
    status, output = lab.playbook("site", "--check", "--diff", "-e", more)
    assert status == 0 and lab.changed(output) > 0 and "--ctx-size 8192" in output, output


def test_each_tag_works_by_itself(lab):
    # rpc and head: in the scenarios of their roles. Preflight is in the run before, and one node tells as much as
    # three.
    for tag, nodes in (("node", "node2"), ("build", "node2"), ("model", "node1"), ("verify", "all")):
        status, output = lab.playbook("site", "--tags", tag, "--skip-tags", "preflight", "--limit", nodes)
        assert status == 0, (tag, output)
        assert lab.changed(output) == 0, (tag, output)


def test_status_names_every_unit(lab):
    status, output = lab.playbook("status", "-v", core=lab.OLDEST)
    assert status == 0, output
    assert re.search(r"chat +node1, node2, node3 +ready .*http://%s:8000/v1 " % lab.ethernet("node1"), output), output
    for name in ("node1", "node2", "node3"):
        assert re.search(r"%s: llama-(head|rpc)-chat.service active" % name, output), name


def test_next_run_finishes_one_that_died(lab):
    # As if the run had stopped the head for a restart of the workers and then lost its controller.
    lab.node1.check_output("systemctl stop llama-head-chat")
    lab.node2.check_output("systemctl stop llama-rpc-chat")
    # The same playbook without the plays that nothing was stopped in.
    status, output = lab.playbook("site", "--tags", "rpc,head", core=lab.NEWEST)
    assert status == 0, output
    lab.eventually(lambda: answers(lab), 120, "it answers")


# A connection in TIME_WAIT whose listener had not the options of this build, as another build leaves them.
LEFT_BEHIND = """
import socket
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("%s", 8000))
listener.listen()
client = socket.create_connection(listener.getsockname())
accepted = listener.accept()[0]
accepted.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
accepted.close()
client.close()
"""


def test_head_gets_port_after_another_build(lab):
    lab.node1.check_output("systemctl stop llama-head-chat")
    lab.node1.check_output("python3 -c %s", LEFT_BEHIND % lab.ethernet("node1"))
    assert lab.node1.check_output("ss -Htn state time-wait src %s:8000", lab.ethernet("node1"))
    lab.node1.check_output("systemctl start llama-head-chat")
    lab.eventually(lambda: answers(lab), 120, "it answers")
    assert lab.node1.check_output("systemctl show -p NRestarts --value llama-head-chat") == "0"


def test_a_node_that_goes_down_hard_comes_back(lab):
    lab.restart("node3")
    lab.eventually(lambda: answers(lab), 120, "an answer after the restart of a worker's node")


CACHE = "/var/cache/llama-cluster/rpc-chat"


@pytest.fixture(scope="module")
def planted():
    """{node: its inventory with planted unmanaged files}; node3 has none."""
    return {}


def test_tensor_cache_is_used_and_removed(lab, planted):
    """The output layer, on the last worker, is the one tensor above 10 MiB."""
    with_cache = (
        "--tags",
        "rpc,head",
        "-e",
        json.dumps(
            {
                "llama_services": lab.chat(
                    rpc_cache=True, ctx_size=4096, parallel=1, tensor_split={"node2": 15, "node3": 15}
                )
            }
        ),
    )
    expected = ask(lab)["choices"][0]["message"]["content"]
    status, output = lab.playbook("site", *with_cache)
    assert status == 0, output
    lab.eventually(lambda: answers(lab), 120, "it answers after a load into the empty cache")
    sent = bytes_over(lab, "node3")[0]
    stored = "find %s/rpc -name '????????????????' -user llama-rpc" % CACHE
    assert lab.node3.check_output(stored)
    lab.node1.check_output("systemctl restart llama-head-chat")
    lab.eventually(lambda: answers(lab), 120, "it answers from the cache")
    assert bytes_over(lab, "node3")[0] < sent - (20 << 20), "the tensor was sent again"
    assert ask(lab)["choices"][0]["message"]["content"] == expected
    # A worker that ends removes what it wrote in its last minute.
    lab.node3.check_output("find %s/rpc -type f -exec touch {} + ; systemctl stop llama-rpc-chat", CACHE)
    assert not lab.node3.check_output(stored)
    lab.node3.check_output("systemctl start llama-rpc-chat")
    # Seeded, the first load has it, and it outlasts the worker's end.
    seeded = ("--tags", "model,rpc,head", "-e", with_cache[-1].replace('"rpc_cache": true', '"rpc_cache": "seeded"'))
    status, output = lab.playbook("site", *seeded)
    assert status == 0, output
    lab.node3.check_output("systemctl restart llama-rpc-chat")
    assert lab.node3.check_output(stored)
    lab.eventually(lambda: answers(lab), 120, "it answers from the seeded cache")
    assert bytes_over(lab, "node3")[0] < sent - (20 << 20), "the seeded tensor was sent"
    assert ask(lab)["choices"][0]["message"]["content"] == expected
    status, output = lab.playbook("site", *seeded)
    assert status == 0 and lab.changed(output) == 0, output
    planted.update({name: unmanaged.plant(getattr(lab, name)) for name in ("node1", "node2")})
    status, output = lab.playbook("site", "--tags", "rpc,head")
    assert status == 0, output
    for name in ("node2", "node3"):
        assert not getattr(lab, name).file(CACHE).exists
    assert {name: unmanaged.differences(getattr(lab, name), then) for name, then in planted.items()} == dict.fromkeys(
        planted, []
    )


EVERYTHING = "/etc /opt /usr/local /var/lib/llama-cluster"


def test_check_mode_of_teardown_changes_nothing(lab):
    def state():
        return {
            name: [
                getattr(lab, name).check_output(
                    "find %s -xdev -printf '%%p %%s %%m %%U %%T@ %%l\\n' | sort" % EVERYTHING
                ),
                getattr(lab, name).check_output(
                    "systemctl show -p MainPID,ActiveState,UnitFileState llama-head-chat llama-rpc-chat llama-watchdog "
                    "llama-firewall"
                ),
                getattr(lab, name).check_output("nft -s list table inet llama_cluster && getent passwd"),
            ]
            for name in ("node1", "node2", "node3")
        }

    lab.eventually(lambda: answers(lab), 120, "nothing is about to change by itself")
    before = state()
    status, output = lab.playbook("teardown", "--check", "-e", "teardown_models=true")
    assert status == 0, output
    assert lab.changed(output) > 0
    assert state() == before


def test_teardown_keeps_models_and_unmanaged_files(lab, planted):
    for name, then in planted.items():
        unmanaged.plant_in_builds(getattr(lab, name), then)
    status, output = lab.playbook("teardown")
    assert status == 0, output
    assert {name: unmanaged.differences(getattr(lab, name), then) for name, then in planted.items()} == dict.fromkeys(
        planted, []
    )
    model = "/opt/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert unmanaged.left(lab.node1, planted["node1"]) == [model, model + ".manifest.json"]
    assert unmanaged.left(lab.node2, planted["node2"]) == []


def test_teardown_leaves_nothing(lab, planted):
    status, output = lab.playbook("teardown", "-e", "teardown_models=true")
    assert status == 0, output
    # Left by the run before: the models of node1, and node3's empty directory.
    assert lab.changed(output) == 2
    for name, then in planted.items():
        node = getattr(lab, name)
        assert (unmanaged.differences(node, then), unmanaged.left(node, then)) == ([], []), name
        assert "llama_cluster" not in node.check_output("nft list ruleset")
    assert (
        lab.node3.run(
            "ls -d /opt/llama.cpp /opt/llama-cluster /opt/models /etc/llama-cluster /var/lib/llama-cluster"
        ).stdout
        == ""
    )
    assert lab.node3.check_output("find /etc/systemd /run/systemd -name '*llama*'") == ""
    assert "llama" not in lab.node3.check_output("nft list ruleset")
    for name in ("node1", "node2", "node3"):
        node = getattr(lab, name)
        assert node.run("pgrep -x 'llama-server|ggml-rpc-server'").stdout == ""
        assert not node.user("llama").exists and not node.user("llama-rpc").exists
