"""Each mistake stops site.yml with one sentence before anything changes, and nothing half-installed is left."""

import json


def site(lab, models=None, **settings):
    """Runs site.yml with a changed service -> (exit status, output)."""
    intent = {"llama_services": lab.chat(**settings)}
    if models:
        intent["llama_models"] = models
    return lab.playbook("site", "-e", json.dumps(intent))


def untouched(lab):
    for name in ("node1", "node2", "node3"):
        node = getattr(lab, name)
        assert node.run("ls -d /opt/llama.cpp /opt/models /etc/llama-cluster /var/lib/llama-cluster").stdout == ""
        assert node.check_output("find /etc/systemd/system -name 'llama*'") == ""
        assert not node.user("llama").exists and not node.user("llama-rpc").exists


def test_all_mistakes_of_the_intent_are_reported(lab):
    services = {
        "chat": lab.chat(prot=8000)["chat"],
        "far": lab.chat(head="node9", port=8003, rpc_port=50055)["chat"],
        "tiny": lab.chat(model="smollm3", port=8001, rpc_port=50053)["chat"],
        "good": lab.chat(quant="Q8_0", port=8002, rpc_port=50054)["chat"],
    }
    status, output = lab.playbook("site", "-e", json.dumps({"llama_services": services}))
    assert status != 0
    for sentence in (
        "llama_services.chat.prot: unknown key, did you mean port?",
        "llama_services.far.head: node9 is neither a host nor a group of this inventory, did you mean node",
        "llama_services.tiny.model: smollm3 is not in llama_models; known models: smollm2-135m-instruct",
        "llama_services.good.quant: smollm2-135m-instruct has no Q8_0, one of Q4_1 is needed",
    ):
        assert sentence in output
    assert lab.changed(output) == 0
    untouched(lab)


def model(url):
    return {"smollm2-135m-instruct": {"quants": {"Q4_1": {"urls": [url], "file": "probe.gguf"}}}}


def test_a_model_that_is_not_there(lab):
    status, output = site(lab, model("file:///srv/llama-lab/absent.gguf"))
    assert status != 0
    assert "/srv/llama-lab/absent.gguf" in output
    assert lab.changed(output) == 0
    untouched(lab)


def test_a_model_that_no_download_could_make_fit(lab):
    giant = {
        "parameters": 671000000000,
        "repo": "some/giant-GGUF",
        "quants": {"Q5_K_M": {"files": ["giant.Q5_K_M.gguf"], "bits_per_weight": 5.7}},
    }
    intent = {"llama_services": lab.chat(model="giant", quant="Q5_K_M"), "llama_models": {"giant": giant}}
    # The hub is not there: it must not be asked.
    status, output = lab.playbook("site", "-e", json.dumps(dict(intent, model_hub="http://127.0.0.1:9")))
    assert status != 0
    assert (
        "llama_services.chat.quant: giant Q5_K_M has 671.0 billion weights at 5.7 bits, about 478.1 GB, more than the "
        in output
    )
    assert "of main memory of node1, node2, node3: choose another model, or add nodes" in output
    untouched(lab)


def test_a_split_that_no_memory_asks_for(lab):
    status, output = site(lab, force_split=None)
    assert status != 0
    assert "llama_services.chat.workers: smollm2-135m-instruct Q4_1 fits main of node1 (" in output
    assert "drop workers, or set force_split: true" in output
    assert lab.changed(output) == 0
    untouched(lab)


def test_a_truncated_model(lab):
    lab.node1.check_output("head -c 50000000 /srv/llama-lab/SmolLM2-135M-Instruct.Q4_1.gguf > /var/tmp/truncated.gguf")
    status, output = site(lab, model("file:///var/tmp/truncated.gguf"))
    assert status != 0
    assert "50,000,000" in output and "98,362,432" in output
    assert lab.changed(output) == 0
    untouched(lab)


def test_too_little_disk(lab):
    lab.node1.check_output("mkdir -p /mnt/small && mount -t tmpfs -o size=64m,mode=0755 tmpfs /mnt/small")
    status, output = lab.playbook("site", "-e", "llama_models_dir=/mnt/small")
    assert status != 0
    assert "/mnt/small" in output and "free" in output and "98.4 MB" in output
    assert lab.changed(output) == 0
    assert lab.node1.check_output("ls -A /mnt/small") == ""
    lab.node1.check_output("umount /mnt/small")
    untouched(lab)


def test_a_port_in_use(lab):
    lab.node2.check_output("systemd-run --unit=squatter python3 -m http.server --bind 0.0.0.0 50052")
    lab.eventually(lambda: lab.connects(lab.node2, "127.0.0.1", 50052), 10, "the squatter listens")
    status, output = site(lab)
    lab.node2.check_output("systemctl stop squatter")
    assert status != 0
    assert "llama_services.chat.rpc_port: port 50052 of %s is in use by python3 (pid " % lab.fabric("node2") in output
    assert "a free port is needed: stop that process or choose another port" in output
    assert lab.changed(output) == 0
    untouched(lab)


def test_a_fabric_address_that_is_nowhere(lab):
    status, output = lab.playbook(
        "site",
        "-e",
        json.dumps({"llama_fabric_address": "10.99.0.{{ groups.llama_nodes.index(inventory_hostname) + 1 }}"}),
    )
    assert status != 0
    assert "llama_fabric_address 10.99.0.1 is on none of its interfaces" in output
    untouched(lab)


def interface(node, address):
    """The name of the interface that has an address."""
    return next(
        line.split()[1]
        for line in node.check_output("ip -o -4 addr show").splitlines()
        if " inet %s/" % address in line
    )


def test_rpc_outside_the_fabric_is_warned_of(lab):
    ethernet, fabric = interface(lab.node1, lab.ethernet("node1")), interface(lab.node1, lab.fabric("node1"))
    lab.node1.check_output("ip route add %s/32 dev %s", lab.fabric("node2"), ethernet)
    status, output = lab.playbook("site", "--tags", "preflight", "-e", "llama_fabric_interface=ib0")
    lab.node1.check_output("ip route del %s/32 dev %s", lab.fabric("node2"), ethernet)
    assert status == 0, output
    assert (
        "llama_fabric_address: RPC to %s would leave over %s with source %s, %s with source %s is needed"
        % (lab.fabric("node2"), ethernet, lab.ethernet("node1"), fabric, lab.fabric("node1"))
        in output
    )
    assert "llama_fabric_interface: %s is on %s, ib0 is needed" % (lab.fabric("node1"), fabric) in output


def test_a_sound_inventory_passes_and_changes_nothing(lab):
    status, output = lab.playbook("site", "--tags", "preflight")
    assert status == 0, output
    assert lab.changed(output) == 0
    assert (
        "chat: smollm2-135m-instruct Q4_1, 4096 tokens a slot of f16 KV cache node device layers weights KV compute "
        "margin total free" in output
    )
    assert "node2 main 0-14 (15) " in output and "node3 main 15-29 (15) " in output
    assert "--tensor-split 15,16" in output
    assert "llama_fabric_" not in output
    untouched(lab)
