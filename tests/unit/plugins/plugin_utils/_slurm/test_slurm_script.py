# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scripts of jobs: what sbatch reads in them, what bash makes of them, and what changes their digest."""

import copy
import json
import re
import subprocess

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import job as slurm_job
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._slurm import script
from ansible_collections.thefermisea.llama_cluster.tests.unit.intents import GROUPS, HOSTVARS, MODELS, changed

ASKED = {
    "partition": "gpu_ai",
    "qos": "ai_opportunistic",
    "account": "lab",
    "mem": "200G",
    "cpus": 8,
    "gres": "gpu:v100s:1",
    "time": "7-00:00:00",
    "job_name": "llama-72b",
    "grace": 60,
    "nodes": 3,
}
JOB = changed(launcher="slurm", rpc_cache=True, **ASKED)
ROUTER = {
    "fast": {
        "kind": "router",
        "head": "node2",
        "models": {"big": {"quant": "Q8_0", "chat_template": "own.jinja"}},
        "models_max": 1,
        "slot_ctx_size": 4096,
        "port": 8080,
        "launcher": "slurm",
    }
}
SUBMITS = {
    "slurm_user": "llama",
    "slurm_scripts": {"reasoning": "run-72b-distributed.slurm"},
    "gateway_registry_suffix": {"reasoning": "72b"},
}
TEMPLATES = {"fast.big": "{{ messages }}'\n"}
GATEWAY = {"gateway_registry_dir": "/cluster/shared/ai/endpoints"}


def node(host, sha="1", **more):
    class Built(dict):
        """Any release, since its name depends on all of its options."""

        def get(self, release, _otherwise=None):
            return {"current_build": release, "build_sha256": sha * 64}

    files = {"/opt/models/Big.Q8_0.gguf": [8, 1.5]}
    return dict(HOSTVARS[host], ansible_facts={"llama_node": {"build": {"of": Built()}, "files": files}}, **more)


def scripts(services, templates=None, **facts):
    """facts: of hosts, in place of those here."""
    hostvars = dict({host: node(host) for host in GROUPS["llama_nodes"]}, ctl=dict(SUBMITS, **GATEWAY))
    hostvars.update(facts)
    groups = dict(GROUPS, llama_slurm=["ctl"], llama_gateway=["ctl"])
    wanted = script.slurm_jobs(services, MODELS, groups, hostvars, "/opt/models")
    return script.slurm_scripts(wanted, hostvars, TEMPLATES if templates is None else templates)


def options(text):
    return dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", text, re.MULTILINE))


def exported(text):
    """LLAMA_JOB as bash exports it to the program."""
    shown = text.replace("exec /opt/llama-cluster/bin/llama-program slurm_batch", 'exec printenv "LLAMA_JOB"')
    assert shown != text
    return subprocess.run(["bash", "-c", shown], capture_output=True, text=True, check=True).stdout


def digest(*args, **nodes):
    return scripts(*args, **nodes)[0]["digest"]


def test_script_asks_what_the_service_asks():
    (one,) = scripts(JOB)
    assert one["path"] == "/cluster/shared/scripts/llama-cpp/run-72b-distributed.slurm"
    assert options(one["content"]) == {
        "job-name": "llama-72b",
        "comment": f"llama_cluster:reasoning:{one['digest']}",
        "partition": "gpu_ai",
        "qos": "ai_opportunistic",
        "account": "lab",
        "cpus-per-task": "8",
        "mem": "200G",
        "gres": "gpu:v100s:1",
        "time": "7-00:00:00",
        "nodelist": "node1,node2,node3",
        "nodes": "3",
        "ntasks-per-node": "1",
        "requeue": "",
        "open-mode": "append",
        "dependency": "singleton",
        "export": "NIL",
        "propagate": "NONE",
        "chdir": "/",
        "output": "/scratch/ai/logs/%x-%j.log",
    }
    head = one["content"].partition("\n\n")[0].splitlines()
    assert head[0] == "#!/bin/bash" and all(line.startswith("#SBATCH --") for line in head[1:])
    assert slurm_job.COMMENT.match(options(one["content"])["comment"]).groups() == ("reasoning", one["digest"])


def test_keys_without_a_value_leave_slurm_s_default():
    (one,) = scripts({"chat": changed(launcher="slurm")["reasoning"]})
    assert one["path"].endswith("/run-chat.slurm") and options(one["content"])["job-name"] == "llama-chat"
    assert not {"partition", "qos", "account", "mem", "gres", "time"} & set(options(one["content"]))


def test_bash_hands_the_job_to_the_program():
    (one,) = scripts(JOB)
    subprocess.run(["bash", "-n"], input=one["content"], text=True, check=True)
    found = slurm_job.parse(exported(one["content"]))
    assert (found.service, found.digest, found.user, found.grace) == ("reasoning", one["digest"], "llama", 60)
    assert found.head.endpoints == ["10.100.0.32:50052", "10.100.0.33:50052"]
    assert found.registry[:3] == ("/cluster/shared/ai/endpoints", "72b", "http://10.0.0.31:8000")
    assert found.registry.record["host"] == "node1" and found.registry.record["build"].startswith("b11434-cpu-")
    head, worker = found.tasks["node1"], found.tasks["node2"]
    assert found.head is head and head.role == "head" and worker.role == "rpc"
    assert head.argv[0] == f"/opt/llama.cpp/releases/{head.build}/bin/llama-server" and "--rpc" in head.argv
    assert worker.argv[:2] == ["/usr/bin/stdbuf", "-oL"] and worker.argv[-1] == "--cache"
    home = "/var/cache/llama-cluster/jobs"
    assert head.environment == {"HOME": home, "CUDA_CACHE_PATH": home + "/cuda", "GGML_NO_BACKTRACE": "1"}
    assert worker.environment["LLAMA_CACHE"] == worker.cache == home + "/rpc-reasoning"
    assert (worker.address, worker.port, head.port, head.ubatch) == ("10.100.0.32", 50052, 8000, 512)


def test_text_of_a_template_survives_bash():
    evil = "'\n\"$(touch /tmp/no)`x`\\ END_OF_THE_JOB \u00e9"
    (one,) = scripts(ROUTER, {"fast.big": evil})
    subprocess.run(["bash", "-n"], input=one["content"], text=True, check=True)
    task = slurm_job.parse(exported(one["content"])).head
    assert task.files["/etc/llama-cluster/template-fast.big.jinja"] == evil


def test_router_has_its_files_in_the_job():
    (one,) = scripts(ROUTER)
    task = slurm_job.parse(exported(one["content"])).head
    placed = task.placed("/private")
    assert task.role == "router"
    assert placed.argv[1:3] == ["--models-preset", "/private/preset-fast.ini"]
    assert placed.environment["LLAMA_CACHE"] == "/private/no-models"
    assert set(placed.files) == {
        "/private/" + name for name in ("preset-fast.ini", "template-fast.big.jinja", "no-models")
    }
    assert placed.files["/private/no-models"] is None
    assert "chat-template-file = /private/template-fast.big.jinja" in placed.files["/private/preset-fast.ini"]


def test_numa_and_environment_are_those_of_the_unit():
    more = {"head_server_numa_node": 0, "head_server_environment": {"LD_LIBRARY_PATH": "/cuda", "A": 1}}
    (one,) = scripts(JOB, node1=node("node1", **more))
    head = slurm_job.parse(exported(one["content"])).head
    assert head.argv[:4] == ["/usr/bin/numactl", "--cpunodebind=0", "--membind=0", "--"]
    assert head.argv[-2:] == ["--numa", "numactl"]
    assert head.environment["LD_LIBRARY_PATH"] == "/cuda" and head.environment["A"] == "1"


def test_jobs_of_vulkan_keep_compiled_shaders():
    hosts = {host: node(host, llama_builds={"default": {"accelerator": "vulkan"}}) for host in GROUPS["llama_nodes"]}
    (one,) = scripts(JOB, **hosts)
    found = slurm_job.parse(exported(one["content"]))
    folder = "/var/cache/llama-cluster/jobs/shaders"
    assert {task.environment["MESA_SHADER_CACHE_DIR"] for task in found.tasks.values()} == {folder}
    assert "-vulkan-" in found.head.argv[0]


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES"])
@pytest.mark.parametrize(("gres", "shown"), [("gpu:1", None), (None, "0")])
def test_slurm_gives_the_cards_of_a_gres(gres, shown, name):
    services = changed(launcher="slurm", **({"gres": gres} if gres else {}))
    (one,) = scripts(services, node1=node("node1", head_server_environment={name: "0"}))
    head = slurm_job.parse(exported(one["content"])).head
    assert head.environment.get(name) == shown


def test_everything_of_a_job_changes_its_digest():
    base = digest(JOB)
    assert digest(copy.deepcopy(JOB)) == base
    services = [
        {"reasoning": dict(JOB["reasoning"], **one)} for one in ({"mem": "100G"}, {"threads": 8}, {"grace": 30})
    ]
    other = node("node1")
    other["ansible_facts"]["llama_node"]["files"] = {"/opt/models/Big.Q8_0.gguf": [8, 2.5]}
    others = [digest(one) for one in services]
    others += [digest(JOB, ctl=dict(SUBMITS, slurm_log_dir="/elsewhere", **GATEWAY)), digest(JOB, ctl=SUBMITS)]
    others += [digest(JOB, node1=other), digest(JOB, node2=node("node2", "2"))]
    others.append(digest(JOB, node3=node("node3", rpc_worker_environment={"A": "1"})))
    assert len({base, *others}) == len(others) + 1
    assert digest(changed(launcher="slurm", rpc_cache=True, state="stopped", **ASKED)) == base


def test_script_has_no_registry_without_a_directory():
    (one,) = scripts(JOB, ctl=SUBMITS)
    assert slurm_job.parse(exported(one["content"])).registry is None


def test_job_that_no_variable_can_hold_is_refused():
    with pytest.raises(Refusal, match="^llama_services.fast: a job of .* seen, at most 122,880 bytes are allowed: "):
        scripts(ROUTER, {"fast.big": "x" * 125000})


def test_exported_job_is_plain_ascii():
    (one,) = scripts(JOB)
    text = exported(one["content"])
    assert json.loads(text)["digest"] == one["digest"] and text.isascii()
