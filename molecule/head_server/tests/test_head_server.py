import json
import pathlib

import pytest
import requests

UNIT = "llama-head-chat.service"
KEYS = ["lab-k3y-of-an-application", "lab-k3y-of-another"]


def post(lab, key=None, timeout=60):
    return requests.post(
        "http://%s:8000/v1/chat/completions" % lab.ethernet("node1"),
        json={
            "model": "smollm2",
            "max_tokens": 24,
            "temperature": 0,
            "messages": [{"role": "user", "content": "Name the three primary colors."}],
        },
        headers={"Authorization": "Bearer " + key} if key else {},
        timeout=timeout,
    )


def ask(lab, key=None):
    """One real answer over HTTP from outside the containers -> its text."""
    reply = post(lab, key)
    reply.raise_for_status()
    return reply.json()["choices"][0]["message"]["content"]


def answers(lab, key=None):
    try:
        return bool(ask(lab, key))
    except requests.RequestException:
        return False


def main_pid(lab):
    return int(lab.node1.check_output("systemctl show --property=MainPID --value %s", UNIT))


def test_head_answers(lab):
    lab.eventually(lambda: answers(lab), 90, "the head answers")
    assert "Red" in ask(lab)


def test_unit_is_confined(lab):
    """The head answers with this sandbox, see above."""
    assert lab.exposure(lab.node1, UNIT) == 1.1
    status = dict(
        line.split(":", 1) for line in lab.node1.check_output("cat /proc/%s/status", str(main_pid(lab))).splitlines()
    )
    assert (status["CapEff"].strip(), status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("0" * 16, "1", "2")


def test_only_its_user_leaves_for_its_workers(lab):
    for user in ("nobody", "root"):
        assert not lab.connects(lab.node1, lab.fabric("node2"), 50052, user), user
    for command in ("start nftables", "reload nftables", "restart nftables", "restart llama-firewall", "stop nftables"):
        lab.node1.check_output("systemctl " + command)
        lab.eventually(
            lambda: lab.node1.run("nft list chain inet llama_cluster output").rc == 0,
            10,
            "the rules are there after: " + command,
        )
        assert not lab.connects(lab.node1, lab.fabric("node2"), 50052, "nobody"), command
    assert answers(lab)


def test_head_accepts_every_model_name(lab):
    model = requests.get("http://%s:8000/v1/models" % lab.ethernet("node1"), timeout=10).json()["data"][0]
    assert {model["id"], *model["aliases"]} >= {"smollm2-135m-instruct", "smollm2"}


def test_head_listens_only_on_ethernet(lab):
    listeners = [line.split()[3] for line in lab.node1.check_output("ss -Hltn sport = :8000").splitlines()]
    assert listeners == ["%s:8000" % lab.ethernet("node1")]


def test_head_is_connected_to_each_worker(lab):
    peers = {
        line.split()[3] for line in lab.node1.check_output("ss -Htn state established dport = :50052").splitlines()
    }
    assert peers == {"%s:50052" % lab.fabric(name) for name in ("node2", "node3")}


def test_head_is_back_after_kill_9(lab):
    before = main_pid(lab)
    lab.node1.check_output("kill -9 %s", str(before))
    lab.eventually(lambda: main_pid(lab) not in (0, before), 20, "a new head process")
    lab.eventually(lambda: answers(lab), 90, "the head answers again")


def test_head_is_back_after_worker_kill(lab):
    lab.node2.check_output("systemctl kill --signal=KILL llama-rpc-chat.service")
    lab.eventually(lambda: answers(lab), 120, "the head answers again")


def test_head_waits_for_its_workers(lab):
    lab.node1.check_output("systemctl stop %s", UNIT)
    lab.node3.check_output("systemctl stop llama-rpc-chat.service")
    lab.node1.check_output("systemctl start --no-block %s", UNIT)
    waiting = "waits for RPC worker %s:50052" % lab.fabric("node3")
    lab.eventually(
        lambda: waiting in lab.node1.check_output("journalctl -u %s -o cat -n 5", UNIT),
        20,
        "the journal names the missing worker",
    )
    assert lab.node1.check_output("systemctl show --property=ActiveState --value %s", UNIT) == "activating"
    lab.node3.check_output("systemctl start llama-rpc-chat.service")
    lab.eventually(lambda: answers(lab), 90, "the head answers once its worker is there")


def test_process_and_unit_show_no_secret(lab):
    assert "--api-key" not in lab.node1.check_output("systemctl cat %s", UNIT)
    assert "primary colors" not in lab.node1.check_output("journalctl -u %s -o cat", UNIT)


def test_head_starts_at_boot(lab):
    assert lab.node1.check_output("systemctl is-enabled %s", UNIT) == "enabled"


def test_the_primary_service_has_the_short_names(lab):
    """As operators type them, and gone again with the key."""
    intent = json.dumps({"llama_services": lab.chat(primary=True, tensor_split={"node2": 15, "node3": 15})})
    tags = ("--tags", "rpc,head")
    status, output = lab.playbook("site", *tags, "-e", intent)
    assert status == 0, output
    lab.eventually(lambda: answers(lab), 120, "the head answers")
    for node, short in ((lab.node1, "llama-head"), (lab.node2, "llama-rpc")):
        units = node.check_output("ls /etc/systemd/system").split()
        assert short + ".service" in units and short + "-chat.service" not in units
        assert node.check_output("systemctl is-active %s", short) == "active"
        assert short + ".service" in node.check_output("systemctl status --no-pager -n 0 %s", short)
        assert node.check_output("journalctl -u %s -n 1 --no-pager -q", short)
        node.check_output("systemctl disable --now %s", short)
        assert node.run("systemctl is-enabled %s", short).stdout.strip() == "disabled"
        node.check_output("systemctl enable --now %s", short)
        lab.eventually(lambda: answers(lab), 120, "the head answers again")
    lab.node1.check_output("systemctl restart llama-head")
    lab.eventually(lambda: answers(lab), 120, "the head answers after a restart")
    status, output = lab.playbook("site", *tags, "-e", intent)
    assert (status, lab.changed(output)) == (0, 0), output
    status, output = lab.playbook("site", *tags)
    assert status == 0, output
    assert lab.node1.run("systemctl cat llama-head.service").rc != 0


# Ansible would fail at its variables, and a file without its last line break is another one.
TEMPLATE = (
    "{% for one in messages %}<|im_start|>{{ one.role }}\n{{ one.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)


@pytest.fixture(scope="module", name="another")
def fixture_another(lab, tmp_path_factory):
    """Deploys other settings, of every kind that a head has -> Ansible's output."""
    template = tmp_path_factory.mktemp("templates") / "chat.jinja"
    template.write_text(TEMPLATE)
    family = {
        "chat_template": str(template),
        "reasoning": "off",
        "temperature": 0.5,
        "cache": "q8_0",
        "extra_args": ["--keep", "8"],
    }
    settings = {
        "llama_services": lab.chat(
            ctx_size=2048, parallel=2, tensor_split={"node2": 20, "node3": 10}, memory_max="1G", **family
        ),
        "llama_api_keys": {"chat": KEYS},
        # The build has none; what its unit may do on CUDA is what is tried. By a fact, which only a run knows.
        "head_server_instances": "{{ (llama_services | thefermisea.llama_cluster.node_serving(llama_models, "
        "inventory_hostname, groups, hostvars, '/opt/models', preflight_plan | default({}))).heads "
        "| map('combine', {'accelerator': 'cuda' if ansible_facts else 'cpu'}) }}",
        "head_server_numa_node": 0,
    }
    status, output = lab.playbook("site", "--tags", "head,verify", "-vvv", "--diff", "-e", json.dumps(settings))
    assert status == 0, output
    return output


def test_another_setting_is_applied(lab, another):
    slots = requests.get(
        "http://%s:8000/slots" % lab.ethernet("node1"), headers={"Authorization": "Bearer " + KEYS[0]}, timeout=10
    ).json()
    assert [slot["n_ctx"] for slot in slots] == [1024, 1024]
    assert "$LLAMA_API_KEY" in another
    assert lab.node1.check_output("systemctl show --property=MemoryMax --value %s", UNIT) == str(1 << 30)


def test_its_chat_template_comes_from_the_controller(lab, another):
    path = "/etc/llama-cluster/template-chat.jinja"
    file = lab.node1.file(path)
    assert (file.user, file.group, file.mode) == ("root", "root", 0o644) and file.content_string == TEMPLATE
    assert "+{% for one in messages %}" in another  # the diff
    headers = {"Authorization": "Bearer " + KEYS[0]}
    props = requests.get("http://%s:8000/props" % lab.ethernet("node1"), headers=headers, timeout=10).json()
    assert props["chat_template"].strip() == TEMPLATE.strip()
    assert round(props["default_generation_settings"]["params"]["temperature"], 3) == 0.5
    words = lab.node1.check_output("systemctl cat %s", UNIT)
    for setting in ("--reasoning off", "--cache-type-k q8_0 --cache-type-v q8_0", "--keep 8", "file " + path):
        assert setting in words


def test_a_flag_that_the_build_lacks_stops_nothing(lab, another):
    before, unit = main_pid(lab), lab.node1.check_output("systemctl cat %s", UNIT)
    services = lab.chat(ctx_size=2048, extra_args=["--no-such-flag"])
    status, output = lab.playbook("site", "--tags", "head", "-e", json.dumps({"llama_services": services}))
    assert status and "llama_services.chat.extra_args: --no-such-flag seen, a flag that " in output
    assert (main_pid(lab), lab.node1.check_output("systemctl cat %s", UNIT)) == (before, unit)


def test_head_accepts_only_its_keys(lab, another):
    assert post(lab).status_code == 401
    assert post(lab, "lab-k3y-unknown").status_code == 401
    assert all(answers(lab, key) for key in KEYS)


def test_its_keys_stay_secret(lab, another):
    file = lab.node1.file("/etc/llama-cluster/keys/chat")
    assert (file.user, file.group, file.mode) == ("root", "llama", 0o640)
    places = {
        "unit": lab.node1.check_output("systemctl cat %s", UNIT),
        "process": lab.node1.check_output(
            "cat /proc/%s/cmdline /proc/%s/environ", str(main_pid(lab)), str(main_pid(lab))
        ),
        "journal": lab.node1.check_output("journalctl -o cat"),
        "Ansible": another,
        "directory": ""
        if lab.node1.run("setpriv --reuid=nobody --clear-groups ls /etc/llama-cluster/keys").rc
        else "k3y",
    }
    assert [place for place, text in places.items() if "k3y" in text] == []
    # The salt of the unit's digest: without it keys could be tried against the digest.
    salt = lab.node1.file("/etc/llama-cluster/salt")
    assert (salt.user, salt.group, salt.mode, salt.size) == ("root", "root", 0o600, len("llama-cluster ") + 32)


def test_the_sandbox_of_cuda_answers_on_the_cpu(lab, another):
    """Runs on the CPU; the access to a GPU is not tested here."""
    assert "DeviceAllow=char-nvidia* rw" in lab.node1.check_output("systemctl cat %s", UNIT)
    assert lab.exposure(lab.node1, UNIT) == 1.8
    assert answers(lab, KEYS[0])
    assert "not proven on a GPU" in another


def test_head_is_bound_to_its_numa_node(lab, another):
    pid = str(main_pid(lab))
    assert lab.node1.check_output("cat /proc/%s/cmdline", pid).replace("\0", " ").split()[-2:] == ["--numa", "numactl"]
    assert {line.split()[1] for line in lab.node1.check_output("cat /proc/%s/numa_maps", pid).splitlines()} == {
        "bind:0"
    }


def test_an_automatic_split_is_planned_and_stays(lab):
    intent = json.dumps({"llama_services": lab.chat(ctx_size=2048)})
    status, output = lab.playbook("site", "--tags", "head,verify", "-e", intent)
    assert status == 0, output
    rows = {row["node"]: row for row in lab.report("chat")["plan"]}
    assert set(rows) >= {"node2", "node3"} and all(row["error_percent"] is not None for row in rows.values())
    assert not lab.node1.file("/etc/llama-cluster/keys/chat").exists
    assert not lab.node1.file("/etc/llama-cluster/template-chat.jinja").exists
    unit = lab.node1.check_output("systemctl cat %s", UNIT)
    counts = [int(count) for count in unit.split("--tensor-split ")[1].split()[0].split(",")]
    assert sum(counts) == 31 and min(counts) > 0  # the output layer counts
    plan = json.loads(lab.node1.check_output("cat /etc/llama-cluster/plan-chat.json"))[0]
    assert plan["tensor_split"] == counts
    assert answers(lab)
    status, output = lab.playbook("site", "--tags", "head", "-e", intent)
    assert status == 0, output
    assert lab.changed(output) == 0


def test_experts_in_main_memory_answer(lab):
    """Without a GPU all weights are in main memory: tests the flag, the answer and the second run. Memory is
    interleaved, and a draft model is used."""
    quant = "Q4_1"
    path = "/var/tmp/smollm2-mixture.gguf"
    program = (pathlib.Path(__file__).resolve().parents[3] / "tests/lab/mixture.py").read_text()
    lab.node1.check_output("python3 -c %s /srv/llama-lab/SmolLM2-135M-Instruct.Q4_1.gguf %s", program, path)
    experts = {"model": "mixture", "quant": quant, "head": "node1", "port": 8010, "slot_ctx_size": 1024, "threads": 1}
    experts.update(numa="interleave", draft={"model": "smollm2-135m-instruct", "quant": quant, "max": 4})
    dense = {"urls": ["file:///srv/llama-lab/SmolLM2-135M-Instruct.Q4_1.gguf"]}
    models = {"smollm2-135m-instruct": dense, "mixture": {"urls": ["file://" + path]}}
    intent = json.dumps(
        {
            "llama_services": dict(lab.chat(ctx_size=2048), experts=dict(experts, cpu_moe=12)),
            "llama_models": {name: {"quants": {quant: spec}} for name, spec in models.items()},
        }
    )
    status, output = lab.playbook("site", "--tags", "model,head,verify", "-e", intent)
    assert status == 0, output
    assert "--n-cpu-moe 12 " in lab.node1.check_output("systemctl cat llama-head-experts.service")
    pid = lab.node1.check_output("systemctl show --property=MainPID --value llama-head-experts.service")
    policies = {line.split()[1] for line in lab.node1.check_output("cat /proc/%s/numa_maps", pid).splitlines()}
    assert {policy.partition(":")[0] for policy in policies} == {"interleave"}
    # Its experts are all the dense model's own feed-forward, so it has words.
    assert lab.report("experts")["answer"].split()
    assert "drafted tokens accepted" in lab.report("experts")["conversation"]["draft"]
    status, output = lab.playbook("site", "--tags", "head", "-e", intent)
    assert status == 0, output
    assert lab.changed(output) == 0
