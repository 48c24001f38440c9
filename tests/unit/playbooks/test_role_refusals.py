# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The refusals of parts of roles by their variables and by files in a directory of the test: all in
one run."""

import json
import os
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import OTHER_USER
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    done,
    once,
    run_playbook,
)

# A node of which nothing is asked.
FACTS = {"architecture": "riscv64", "os_family": "Debian", "distribution": "Debian", "distribution_major_version": "13"}
DRILL = {"drill_service": "chat", "drill_deadline": 1}
WORKED = {"workers": ["node1"], "shares": [{"node": "node1", "unit": "llama-rpc-chat.service"}]}
ALONE = {"workers": [], "shares": [], "rpc_endpoints": [], "unit": "llama-head-chat.service"}
HELD = {"held": "worker", "kind": "start", "where": "worker", "action": "kill"}
HEAD = {"service": "chat", "primary": False, "kind": "head", "workers": [], "layers": {}}
HEAD.update(tensor_split=None, model_path="FOLDER/old.gguf", model_paths=["FOLDER/old.gguf"])
# role, part of it, variables (FOLDER is the test's), what it says.
REFUSALS = {
    "drill of a service without workers": (
        "drill",
        "choose",
        dict(DRILL, drill_names=["head_kill", "worker_kill_idle"], drill_head=ALONE),
        "drills: worker_kill_idle: chat has no workers: leave them out of -e drills=",
    ),
    "drill of a service that is stopped": (
        "drill",
        "names",
        dict(DRILL, drill_names=["all"], drill_head=dict(WORKED, state="stopped")),
        "drills: llama_services.chat.state stopped seen, started is needed: name another service with -e service=NAME, "
        "or start this one",
    ),
    "drill of a service of embeddings": (
        "drill",
        "choose",
        dict(DRILL, drill_names=["head_kill_idle", "head_kill"], drill_head=dict(ALONE, serves="embeddings")),
        "drills: head_kill: chat serves embeddings, nothing is generated: leave them out of -e drills=",
    ),
    "drill of a service of reranking": (
        "drill",
        "names",
        dict(DRILL, drill_names=["all"], drill_head={"workers": ["node1"], "serves": "scores"}),
        "drills: chat serves only scores, a service that generates or gives embeddings is needed: name another one "
        "with -e service=NAME",
    ),
    "chat template that is not there": (
        "head_server",
        "templates",
        {
            "head_server_instances": [
                {"service": "sound", "chat_template_file": "FOLDER/old.gguf"},
                {"service": "built-in", "chat_template_file": ""},
                {"service": "chat", "chat_template_file": "FOLDER/t.jinja"},
            ]
        },
        "llama_services.chat.chat_template: no file FOLDER/t.jinja seen on the controller, the template is needed "
        "there: correct the path, which is relative to the inventory",
    ),
    "flag that the build lacks": (
        "head_server",
        "preflight",
        {
            "__head_server_prefix": "FOLDER/llama.cpp",
            "head_server_instances": [
                dict(HEAD, build="b1", args=["--model", "/m.gguf", "--mine", "-1"], asks_build=True)
            ],
        },
        "llama_services.chat.extra_args: --mine seen, a flag that b1 of node1 has is needed: choose one of its "
        "llama-server --help, or another release",
    ),
    "drill that nothing notices": (
        "drill",
        "held",
        dict(DRILL, __drill=HELD, __drill_name="port_taken", __drill_broken_at=1e9, drill_head=WORKED),
        "port_taken: not noticed by the worker in 1 s, a line in its journal is needed",
    ),
    "bundle without a source": (
        "llama_cpp",
        "bundle",
        {
            "llama_builds": {"default": {"version": "b11434", "source": "/nonexistent/x.tar.gz"}},
            "llama_cpp_bundle_folder": "FOLDER",
        },
        "llama_builds.default.source: /nonexistent/x.tar.gz is no file on this machine, the source archive of "
        "llama.cpp b11434 is needed: fetch it or give its URL",
    ),
    "build for another distribution": (
        "llama_cpp",
        "obtain",
        {"llama_cpp_build_host": "node9"},
        "llama_cpp_build_host: node9 made no build for Debian 13 on riscv64, which node1 needs: set "
        "llama_cpp_build_host to a node of the same kind",
    ),
    "build that is not there": (
        "llama_cpp",
        "activate",
        {"llama_cpp_release": "b9"},
        "FOLDER/llama.cpp/releases/b9: no build with a build.json seen on node1, an installed build is needed: run "
        "with --tags build",
    ),
    "link without a target": (
        "llama_cpp",
        "activate",
        {"llama_cpp_release": "b1"},
        "FOLDER/llama.cpp/previous: no link seen on node1, a link to a release or nothing is needed: move it away",
    ),
    "Prometheus of somebody else": (
        "monitoring",
        "preflight",
        {},
        "monitoring_prometheus: install seen, and prometheus.service of somebody else runs on node1, none may: set "
        "monitoring_prometheus to external, which writes configuration and rules for it",
    ),
    "keys that no account of Prometheus could read": (
        "monitoring",
        "preflight",
        {
            "monitoring_prometheus": "external",
            "monitoring_group": "nobodys-group",
            "monitoring_api_keys": {"chat": ["key"]},
        },
        "monitoring_group: no group nobodys-group seen on node1, that of Prometheus' account is needed to read the "
        "keys of services: name it",
    ),
    "samples for a node_exporter that is not there": (
        "monitoring",
        "node_export",
        {"monitoring_export": "textfile", "monitoring_textfile_dir": "FOLDER/samples"},
        "monitoring_textfile_dir: no directory FOLDER/samples seen on node1, one that node_exporter reads is needed: "
        "name it, or set monitoring_export to http",
    ),
    "model without a record that is to make room": (
        "model",
        "make_room",
        {"model_old": "FOLDER/unrecorded.gguf", "model_items": [{"dest": "/opt/models/new.gguf"}]},
        "FOLDER/unrecorded.gguf.manifest.json: no record of root's seen, one is needed to remove that model: "
        "run site.yml --tags model, which records the model that serves, then this again",
    ),
    "directory that the user of jobs may not write to": (
        "slurm_launcher",
        "writable",
        {
            "slurm_launcher_jobs": [{"user": "ai"}],
            "folders": [
                {"variable": "slurm_local_log_dir", "path": "FOLDER"},
                {"variable": "slurm_log_dir", "path": "FOLDER/none"},
            ],
        },
        "slurm_log_dir: ai may not write into FOLDER/none of node1, a directory that it may write to is needed: "
        "create, chown or chmod it, or name another one",
    ),
    "logs that others may plant": (
        "slurm_launcher",
        "writable",
        {
            "slurm_launcher_jobs": [{"user": "daemon"}],
            "folders": [
                {"variable": "gateway_registry_dir", "path": "FOLDER/open"},
                {"variable": "slurm_log_dir", "path": "FOLDER/open"},
            ],
        },
        "slurm_log_dir: others than daemon may write into FOLDER/open of node1, a directory of that user or root with "
        "mode 0755 is needed: look at what is in it, then chown and chmod it, or name another one",
    ),
    "logs in a directory of another user": (
        "slurm_launcher",
        "writable",
        {
            "slurm_launcher_jobs": [{"user": "daemon"}],
            "folders": [{"variable": "slurm_local_log_dir", "path": "FOLDER/theirs"}],
        },
        "slurm_local_log_dir: others than daemon may write into FOLDER/theirs of node1, a directory of that user or "
        "root with mode 0755 is needed: look at what is in it, then chown and chmod it, or name another one",
    ),
    "models that do not both fit during a trial": (
        "model",
        "make_room",
        {
            "model_old": "FOLDER/old.gguf",
            "model_old_stays": True,
            "__model_disk": {"folder": "/opt/models", "free": 1500000000, "missing": 8000000000},
        },
        "/opt/models: 1.5 GB free on node1, 8.0 GB beside old.gguf are needed during a trial: free space there, or "
        "switch without -e trial",
    ),
    "model that is smaller than what is missing": (
        "model",
        "make_room",
        {
            "model_old": "FOLDER/old.gguf",
            "model_items": [{"dest": "/opt/models/new.gguf"}],
            "__model_disk": {"folder": "/opt/models", "free": 1500000000, "missing": 8000000000},
        },
        "/opt/models: 1.5 GB free on node1, new.gguf needs 8.0 GB, and old.gguf only has 0.0 GB: free other space",
    ),
}


@pytest.fixture(scope="module", name="said")
def fixture_said(tmp_path_factory):
    """{case: what Ansible's failed task says}"""

    def make(folder):
        for path in ("releases/b1", "previous"):
            (folder / "llama.cpp" / path).mkdir(parents=True)
        (folder / "llama.cpp/releases/b1/build.json").write_text('{"build": "b1", "files": {}}')
        (folder / "old.gguf").write_text("weights")
        (folder / "unrecorded.gguf").write_text("weights")
        recorded = {"version": 1, "files": [{"name": "old.gguf", "size": 7, "pieces": []}]}
        (folder / "old.gguf.manifest.json").write_text(json.dumps(recorded))
        # A journal in which nothing stands, and one unit.
        shown = "Id=prometheus.service\\nLoadState=loaded\\nActiveState=active\\n"
        (folder / "stub_systemd").write_text(
            "#!/bin/sh\ncase \"$*\" in *prometheus.service*) printf '%s';; esac\n" % shown
        )
        (folder / "stub_systemd").chmod(0o755)
        for name in ("journalctl", "systemctl"):
            (folder / name).symlink_to("stub_systemd")
        # The description of a build.
        (folder / "systemd-run").write_text("#!/bin/sh\necho '-m,    --model FNAME    the model'\n")
        (folder / "systemd-run").chmod(0o755)
        # After its own -u USER -- it runs the command here.
        (folder / "runuser").write_text('#!/bin/sh\nshift 3\nexec "$@"\n')
        (folder / "runuser").chmod(0o755)
        (folder / "open").mkdir()
        (folder / "open").chmod(0o1777)
        (folder / "theirs").mkdir(mode=0o755)
        if os.geteuid() == 0:
            os.chown(folder / "theirs", OTHER_USER, OTHER_USER)
        tasks = [{"ansible.builtin.set_fact": dict(FACTS, cacheable=True)}]
        for case, (role, part, variables, _sentence) in REFUSALS.items():
            asked = {"name": "thefermisea.llama_cluster." + role, "tasks_from": part}
            given = json.loads(json.dumps(variables).replace("FOLDER", str(folder)))
            if role == "llama_cpp":
                given.setdefault("__llama_cpp_prefix", "%s/llama.cpp" % folder)
            failed = (
                "ansible_failed_result.results | default([ansible_failed_result]) | selectattr('failed', 'defined') "
                "| "
                "selectattr('failed')"
            )
            kept = {"said": "{{ said | default({}) | combine({case: (%s | first).msg}) }}" % failed}
            rescue = [{"ansible.builtin.set_fact": kept, "vars": {"case": case}}]
            tasks.append({"block": [{"ansible.builtin.include_role": asked, "vars": given}], "rescue": rescue})
        tasks.append({"ansible.builtin.copy": {"content": "{{ said | to_json }}", "dest": str(folder / "said.json")}})
        settings = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        settings["llama_cpp_cache"] = "%s/cache" % folder
        (folder / "hosts.json").write_text(json.dumps({"llama_nodes": {"hosts": {"node1": settings}}}))
        (folder / "play.yml").write_text(json.dumps([{"hosts": "llama_nodes", "gather_facts": False, "tasks": tasks}]))
        path = "%s:%s" % (folder, os.environ["PATH"])
        done(
            run_playbook(
                folder / "play.yml",
                "-i",
                str(folder / "hosts.json"),
                home=folder,
                ANSIBLE_COLLECTIONS_PATH=COLLECTIONS,
                PATH=path,
            )
        )

    folder = once(tmp_path_factory, "refusals", make)
    return {
        case: " ".join(text.replace(str(folder), "FOLDER").split())
        for case, text in json.loads((folder / "said.json").read_text()).items()
    }


@pytest.mark.parametrize("case", REFUSALS)
def test_what_a_part_refuses(said, case):
    assert said[case] == REFUSALS[case][3]
