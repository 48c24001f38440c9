# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the collection's own playbooks over two nodes that are directories: seconds where containers take minutes, and
any moment can be kept.

Real are the playbooks, roles acceptance, adoption, apply and upgrade, all filters, snapshots and the reading of builds.
Replaced are the modules that touch a node (simulated_node.py) and the roles that take long. What those do on a node is
for the scenarios in containers. Tasks run in the process of ansible-playbook (tests/lab/callback), which is loaded
once for many runs (playbook_servers.py), also for tests with the real collection.
"""

import atexit
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import builds

ROOT = Path(__file__).resolve().parents[3]
# The search path of the real collection.
COLLECTIONS = os.path.abspath(__file__).partition("/ansible_collections/")[0]
ANSIBLE = ("async_status", "command", "copy", "file", "shell", "slurp", "systemd_service", "wait_for")
OURS = (
    "async_progress",
    "adoption",
    "evaluation",
    "firewalld_rules",
    "gateway_endpoints",
    "gguf_share",
    "gguf_verify",
    "link_capacity",
    "llama_ask",
    "llama_bench",
    "llama_bench_watch",
    "llama_drain",
    "llama_fabric_facts",
    "llama_health",
    "llama_load_info",
    "llama_long_prompt",
    "llama_plan",
    "llama_process",
    "llama_snapshot",
    "llama_trial",
    "llama_unit_info",
    "llama_variant",
    "llama_wire",
    "model_facts",
    "node_facts",
    "node_files",
    "node_history",
    "nvidia_smi_facts",
    "port_probe",
    "remove_managed",
    "rpc_seed",
    "slurm_accounting",
    "slurm_jobs",
    "slurm_node",
    "slurm_reservation",
)
ROLES = ("activate", "configure", "model", "stage")
NODES = ("node1", "node2")
BRIEF = {"ANSIBLE_STDOUT_CALLBACK": "thefermisea.llama_cluster.brief"}
# Callbacks that only make a run cheaper.
CALLBACKS = "thefermisea.llama_cluster.warm,compiled_once"
SETTINGS = {
    "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
    "ANSIBLE_LOCALHOST_WARNING": "false",
    "ANSIBLE_NOCOLOR": "1",
    # As the repository's ansible.cfg has it.
    "ANSIBLE_INJECT_FACT_VARS": "false",
    "ANSIBLE_PIPELINING": "1",
    "ANSIBLE_STDOUT_CALLBACK": "default",
    "ANSIBLE_CALLBACKS_ENABLED": CALLBACKS + ",one_process",
    "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "tests/lab/callback"),
}

BUILDS = (
    "(llama_builds | thefermisea.llama_cluster.node_builds(llama_services, inventory_hostname, groups, hostvars))"
    ".builds | map(attribute='release')"
)
STAGE = """
- name: Stage
  thefermisea.llama_cluster.stage: {builds: "{{ %s }}"}
- name: Look at what was staged
  thefermisea.llama_cluster.node_facts:
    build: {prefix: /opt/llama.cpp, releases: "{{ %s }}"}
    units: true
""" % (BUILDS, BUILDS)
ACTIVATE = (
    """
- name: Activate
  thefermisea.llama_cluster.activate: {build: "{{ llama_cpp_release | default((%s) | first) }}"}
"""
    % BUILDS
)
CONFIGURE = """
- name: Configure
  thefermisea.llama_cluster.configure:
    kind: %s
    only: "{{ %s_services | default([]) }}"
    instances: "{{ %s }}"
"""
WORKERS = "(llama_services | thefermisea.llama_cluster.node_rpc(inventory_hostname, groups, hostvars)).workers"
HEADS = (
    "(llama_services | thefermisea.llama_cluster.node_serving(llama_models, inventory_hostname, groups, hostvars, "
    "'/opt/models', preflight_plan | default({}))).heads | selectattr('kind', 'eq', '%s')"
)
REMOVE = """
- name: Remove
  thefermisea.llama_cluster.remove_managed: {role: %s}
"""
MODEL = """
- name: Handle the model
  thefermisea.llama_cluster.model: {step: %s}
"""
GATEWAY = """
- name: Set up the managed gateway
  thefermisea.llama_cluster.adoption: {part: gateway, step: managed}
"""
# Shows that the host can be reached.
GATEWAY_ASKED = """
- name: Look at the units
  thefermisea.llama_cluster.llama_unit_info:
"""
SCRIPTS = """
- name: Write the scripts
  thefermisea.llama_cluster.node_files:
    files: "{{ __slurm_launcher_files.files }}"
  register: __slurm_launcher_written
- name: Wait
  ansible.builtin.include_tasks: wait.yml
  when: not ansible_check_mode
"""
# Its services are real.
SAMPLER = """
- name: Write its services
  thefermisea.llama_cluster.copy:
    dest: /etc/llama-cluster/sampler.json
    content: "{{ monitoring_services | to_json }}"
"""
# A disk that has no room for both where the old model is to be parked.
ROOM = """
- name: Note where the old model is
  ansible.builtin.set_fact: {model_parked: true}
  when: model_park_on != ''
"""
# Nothing is known of memory: candidates are planned as services without a plan are.
PLANNER = """
- name: Record what plans are computed from
  ansible.builtin.set_fact:
    preflight_planner: {nodes: {}, headers: [], builds: "{{ llama_builds }}", previous: []}
"""
REPLACED = {
    "preflight/tasks/planner.yml": PLANNER,
    "llama_cpp/tasks/stage.yml": STAGE,
    "llama_cpp/tasks/activate.yml": ACTIVATE,
    "llama_cpp/tasks/main.yml": STAGE + ACTIVATE,
    "rpc_worker/tasks/configure.yml": CONFIGURE % ("rpc", "rpc_worker", WORKERS),
    "rpc_worker/tasks/main.yml": CONFIGURE % ("rpc", "rpc_worker", WORKERS),
    "head_server/tasks/configure.yml": CONFIGURE % ("head", "head_server", HEADS % "head"),
    "head_server/tasks/main.yml": CONFIGURE % ("head", "head_server", HEADS % "head"),
    "router_server/tasks/configure.yml": CONFIGURE % ("router", "head_server", HEADS % "router"),
    "router_server/tasks/main.yml": CONFIGURE % ("router", "head_server", HEADS % "router"),
    "gateway/tasks/main.yml": GATEWAY,
    "gateway/tasks/status.yml": GATEWAY_ASKED,
    "monitoring/tasks/node_services.yml": SAMPLER,
    "slurm_launcher/tasks/configure.yml": SCRIPTS,
    "model/tasks/main.yml": MODEL % "fetch",
    "model/tasks/old_files.yml": MODEL % "record",
    "model/tasks/retire.yml": MODEL % "retire",
    "model/tasks/room.yml": ROOM,
    "model/tasks/unpark.yml": MODEL % "unpark",
}
# The change and the end of jobs.
REAL = ["slurm_launcher/" + path for path in ("defaults/main.yml", "vars/main.yml")]
REAL += [
    "slurm_launcher/tasks/%s.yml" % name
    for name in (
        "changing",
        "drain",
        "leave",
        "note",
        "proved",
        "read",
        "remove",
        "reserve",
        "restore",
        "settle",
        "switch",
        "undo",
    )
]
REAL += ["slurm_launcher/tasks/%s.yml" % name for name in ("release", "unreserve", "wait")]
REPLACED["node_setup/tasks/firewall.yml"] = """
- name: Write the firewall
  thefermisea.llama_cluster.firewalld_rules: {access: "{{ node_setup_rpc_access }}"}
"""
REPLACED["slurm_launcher/tasks/nodes.yml"] = """
- name: Prepare a node
  thefermisea.llama_cluster.slurm_node: {node: "{{ inventory_hostname }}", state: prepared}
"""
REPLACED["slurm_launcher/tasks/main.yml"] = """
- name: Submit
  thefermisea.llama_cluster.slurm_accounting: {state: submitted}
"""
# Tensor caches of workers.
REAL += ["model/" + path for path in ("defaults/main.yml", "vars/main.yml", "tasks/seed.yml", "tasks/seed_caches.yml")]
# Drills of jobs.
REAL += ["drill/" + path for path in ("defaults/main.yml", "vars/main.yml")]
REAL += [
    "drill/tasks/%s.yml" % name
    for name in ("choose", "confirm", "gateway", "job", "look", "main", "names", "prove", "report")
]
REPLACED.update(
    {
        "%s/tasks/remove.yml" % role: REMOVE % role
        for role in ("gateway", "head_server", "router_server", "rpc_worker", "llama_cpp", "model", "node_setup")
    }
)
# The last one does not load.
QUANTS = {"F16": "m.gguf", "Q8_0": "m8.gguf", "Q4_X": "m-mute.gguf"}
SERVICE = {"model": "m", "quant": "F16", "head": "node1", "workers": "node2", "port": 8000, "rpc_port": 50052}
INVENTORY = {
    "llama_nodes": {
        "hosts": {name: {"llama_fabric_address": "10.0.0.%d" % index} for index, name in enumerate(NODES, 1)},
        "vars": {
            "ansible_connection": "local",
            "ansible_become": False,
            "llama_builds": {"default": {"version": "{{ tag | default('b1') }}", "accelerator": "cpu"}},
            "llama_services": {"chat": dict(SERVICE, tensor_split={"node2": 30}, rpc_cache=True)},
            "llama_models": {
                "m": {"quants": {name: {"urls": ["file:///" + file], "file": file} for name, file in QUANTS.items()}}
            },
            "acceptance_wait": 1,
            "upgrade_requests": 1,
        },
    }
}


# The suffix of the tag in the name of a build; tests read only the tag.
SUFFIX = re.compile(r"-cpu-[0-9a-f]{8}\b")


def release_of(tag):
    """The name of the build of a tag."""
    entry = {"version": tag, "accelerator": "cpu"}
    return builds.build_on("default", "node1", {"default": entry}, {"node1": {}}, {"llama_nodes": NODES}).release


def build_collection(folder):
    """The collection with what is replaced, in a directory that Ansible can search."""
    collection = folder / "ansible_collections/thefermisea/llama_cluster"
    (collection / "plugins/action").mkdir(parents=True)
    for name in ("filter", "module_utils", "plugin_utils"):
        (collection / "plugins" / name).symlink_to(ROOT / "plugins" / name)
    (collection / "meta").symlink_to(ROOT / "meta")
    (collection / "plugins/action/show_lines.py").symlink_to(ROOT / "plugins/action/show_lines.py")
    (collection / "plugins/modules").mkdir()
    (collection / "plugins/modules/show_lines.py").symlink_to(ROOT / "plugins/modules/show_lines.py")
    (collection / "plugins/callback").mkdir()
    for name in ("brief.py", "warm.py"):
        (collection / "plugins/callback" / name).symlink_to(ROOT / "plugins/callback" / name)
    for name in ANSIBLE + OURS + ROLES:
        (collection / "plugins/action" / (name + ".py")).symlink_to(Path(__file__).with_name("simulated_node.py"))
    for role in ("acceptance", "drill"):
        (collection / "roles" / role).mkdir(parents=True)
        (collection / "roles" / role / "files").symlink_to(ROOT / "roles" / role / "files")
    for source in (*ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/*/*/*.yml")):
        name = str(source.relative_to(ROOT))
        target = collection / name
        target.parent.mkdir(parents=True, exist_ok=True)
        role, _slash, rest = name.partition("roles/")[2].partition("/")
        if role not in ("", "acceptance", "adoption", "apply", "upgrade") and "%s/%s" % (role, rest) not in REAL:
            if rest.startswith("tasks/"):
                target.write_text(REPLACED.get("%s/%s" % (role, rest), "[]\n"))
        else:
            # Nothing here becomes true by waiting for it.
            text = re.sub(r"(ansible\.builtin\.command): ([^\s&*].*)", r'\1: {line: "\2"}', source.read_text())
            text = re.sub(r"\bretries: \d+", "retries: 1", text)
            if role in ("slurm_launcher", "drill"):
                text = re.sub(r"\bdelay: \d", "delay: 0", re.sub(r"\bretries: .*", "retries: 1", text))
            # A simulated action does not run in a process of its own.
            text = re.sub(r"^ +async: .*\n +poll: 0\n", "", text, flags=re.MULTILINE)
            target.write_text(
                re.sub(r"ansible\.builtin\.(%s):" % "|".join(ANSIBLE), r"thefermisea.llama_cluster.\1:", text)
            )
    return collection


def once(tmp_path_factory, name, make):
    """A directory that make(directory) fills, once for all processes of a test run."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with open(root / (name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / name / "complete").exists():
            shutil.rmtree(root / name, ignore_errors=True)
            (root / name).mkdir()
            make(root / name)
            (root / name / "complete").touch()
    return root / name


def deployment(tmp_path_factory, name, *arguments, proves=None, **environment):
    """Two nodes on which site.yml has run once for all processes of a test run. What it printed is in first.json;
    proves(cluster, output) looks at that run."""
    home = once(tmp_path_factory, "simulated", build_collection)

    def make(folder):
        cluster = Simulation(folder, home)
        cluster.create()
        status, lines = cluster.run_lines("site", *arguments, **environment)
        assert status == 0, lines
        (folder / "first.json").write_text(json.dumps(lines))
        if proves:
            proves(cluster, one_line(lines))

    return Simulation(once(tmp_path_factory, name, make), home)


def one_line(lines):
    return " ".join(" ".join(lines).split())


class Simulation:
    """Two nodes. folder: where they and what happened to them are; home: what runs share, the collection among it."""

    def __init__(self, folder, home):
        self.folder = folder
        self.home = home
        self.inventory = INVENTORY
        self.collection = home / "ansible_collections/thefermisea/llama_cluster"

    def create(self):
        """The nodes are installed with b1 and other builds, and nothing runs."""
        for name in NODES:
            for part in ("run", "etc/llama-cluster", "etc/systemd/system"):
                (self.node(name) / part).mkdir(parents=True)
            for build in ("b1", "b2", "b2-mute", "b2-deaf"):
                self.install(name, build)
            (self.node(name) / "opt/llama.cpp/current").symlink_to("releases/" + release_of("b1"))

    def copy(self, folder, moment="nodes"):
        """Another one that begins as this one is, or was at a moment of keep_moments()."""
        shutil.copytree(self.folder / moment, folder / "nodes", symlinks=True)
        return Simulation(folder, self.home)

    def install(self, node, build, content="program"):
        release = self.release(node, build)
        release.mkdir(parents=True, exist_ok=True)
        (release / "program").write_text(content)
        files = {"program": hashlib.sha256(content.encode()).hexdigest()}
        (release / "build.json").write_text(json.dumps({"build": build, "files": files}))

    def release(self, node, build):
        return self.node(node) / "opt/llama.cpp/releases" / release_of(build)

    def node(self, name):
        return self.folder / "nodes" / name

    def run(self, playbook, *arguments):
        """-> (exit status, output as one line); `events` is what happened to the nodes meanwhile, in order."""
        status, lines = self.run_lines(playbook, *arguments)
        return status, one_line(lines)

    def done(self, playbook, *arguments):
        return done(self.run(playbook, *arguments))

    def refused(self, playbook, *arguments):
        return refused(self.run(playbook, *arguments))

    def run_lines(self, playbook, *arguments, **environment):
        """-> (exit status, the lines of the output)"""
        self.events = []
        (self.folder / "hosts.json").write_text(json.dumps(self.inventory))
        status, lines = playbook_lines(
            self.collection / "playbooks" / (playbook + ".yml"),
            *("-i", str(self.folder / "hosts.json"), *arguments),
            home=self.home,
            ANSIBLE_COLLECTIONS_PATH=str(self.home),
            SIMULATION=str(self.folder),
            **environment,
        )
        path = self.folder / "events"
        if path.exists():
            self.events = SUFFIX.sub("", path.read_text()).splitlines()
            path.unlink()
        return status, [SUFFIX.sub("", line) for line in lines]

    def keep_moments(self, **patterns):
        """The nodes as they are just before these events, which come in this order: what a controller that dies there
        leaves."""
        (self.folder / "moments").write_text(json.dumps(list(patterns.items())))

    def lose(self, pattern):
        """The node of this event cannot be reached from it on."""
        (self.folder / "loses").write_text(pattern)

    def fail(self, pattern):
        """This event fails once."""
        (self.folder / "fails").write_text(pattern)

    def builds(self):
        """Running units: {unit: build}"""
        paths = sorted(self.folder.glob("nodes/*/run/*"))
        return {
            path.name[len("llama-") : -len(".service")]: SUFFIX.sub("", json.loads(path.read_text())["release"])
            for path in paths
        }

    def current(self):
        links = [os.readlink(self.node(name) / "opt/llama.cpp/current") for name in NODES]
        return [SUFFIX.sub("", link.partition("/")[2]) for link in links]

    def files(self, below=""):
        """{path: content or target}"""
        paths = [
            path
            for name in NODES
            for path in sorted((self.node(name) / below).rglob("*"))
            if path.is_symlink() or path.is_file()
        ]
        return {
            str(path.relative_to(self.folder)): os.readlink(path) if path.is_symlink() else path.read_text()
            for path in paths
        }

    def configuration(self):
        """The files that snapshots keep."""
        return self.files("etc")

    def snapshots(self):
        return [sorted(os.listdir(self.node(name) / "var/lib/llama-cluster/rollback")) for name in NODES]


def done(found):
    """The output of a run that has to succeed. found: (exit status, output)"""
    status, output = found
    assert status == 0, output
    return output


def refused(found):
    """The output of a run that has to fail."""
    status, output = found
    assert status != 0, output
    return output


def run_playbook(playbook, *arguments, home, **environment):
    """-> (exit status, output as one line)"""
    status, lines = playbook_lines(playbook, *arguments, home=home, **environment)
    return status, one_line(lines)


def playbook_lines(playbook, *arguments, home, **environment):
    """-> (exit status, the lines of the output)"""
    environment = {"COLUMNS": "10000", **SETTINGS, **environment}
    with tempfile.NamedTemporaryFile("r") as output:
        request = {"arguments": [str(playbook), *arguments], "output": output.name}
        request["environment"] = {**outside(), **places(home), **environment}
        request["settings"] = [name for name in environment if name.startswith("ANSIBLE_")]
        servers = playbook_servers()
        servers.stdin.write(json.dumps(request) + "\n")
        servers.stdin.flush()
        # A test that was killed has left its answer.
        path = status = None
        while path != output.name:
            path, status = servers.stdout.readline().split()
        lines = output.read().splitlines()
        # A run that a signal has ended, also after LONGEST seconds of playbook_server.py, has not refused anything.
        assert int(status) >= 0, "ended by signal %d: %s" % (-int(status), lines)
        return int(status), lines


def places(home):
    """Directories of Ansible's own files. A server reads them once: all its runs share them."""
    return {"ANSIBLE_CONFIG": str(home / "none.cfg"), "ANSIBLE_HOME": str(home)}


def outside():
    """The environment without Ansible's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHONDONT"))}


@functools.cache
def playbook_servers():
    """playbook_servers.py for this process and those that it forks; it ends with the last of them."""
    program = [sys.executable, str(Path(__file__).with_name("playbook_servers.py"))]
    servers = subprocess.Popen(program, env=outside(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(servers.communicate)
    return servers
