# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the card test, in their order. Each takes a State, checks and notes figures."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import graphics
from machine import CHECKOUT, NODES, Failed, words_of

# Q8_0 and Q4_0 of one shape. With a card: the layers of Llama 3.1 8B, whose kernels the build has.
SHAPE = {False: ("8b", 8), True: ("small", 4)}
CONTEXT = {False: 8192, True: 2048}
URL = "http://10.215.0.11:8000"
ASK = """import json, sys, urllib.request
asked = {"prompt": "The three primary colors are", "n_predict": int(sys.argv[2]), "temperature": 0, "seed": 1,
         "ignore_eos": True, "cache_prompt": False, "return_tokens": True}
message = urllib.request.Request(sys.argv[1] + "/completion", json.dumps(asked).encode())
with urllib.request.urlopen(message, timeout=120) as reply:
    print(json.dumps(json.load(reply)["tokens"]))
"""
# An attacker inside a unit would try these; each must end with an error.
REFUSED = (
    "kernel_log",
    "write_etc",
    "write_usr",
    "read_root_home",
    "mount",
    "new_user_namespace",
    "raw_packets",
    "connect_elsewhere",
)


def content():
    """-> what is tested, by its content"""
    listed = subprocess.run(
        ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--", "plugins", "roles", "playbooks", "tests/card"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split("\0")
    # A copy without git's own data.
    names = sorted(filter(None, listed)) or sorted(
        str(path.relative_to(CHECKOUT))
        for folder in ("plugins", "roles", "playbooks", "tests/card")
        for path in (CHECKOUT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and "results" not in path.parts
    )
    digest = hashlib.sha256()
    for name in names:
        if "/results/" not in name and (CHECKOUT / name).is_file():
            digest.update(name.encode() + b"\0" + (CHECKOUT / name).read_bytes())
    return digest.hexdigest()[:12]


def build_of(machine):
    """-> the release that the prepared archive has"""
    debian = "debian13" if machine.kind == "vulkan" else "debian12"
    found = sorted(machine.builds().glob("llama.cpp-b11434-%s-*-%s.tar.gz" % (machine.kind, debian)))
    if not found:
        raise Failed(
            "%s: no build for %s on %s, one is needed: run make card WHAT=prepare%s first"
            % (machine.builds(), debian, machine.kind, words_of(machine.kind))
        )
    return re.sub(r"^llama\.cpp-|-x86_64-debian1[23]\.tar\.gz$", "", found[-1].name)


class State:
    def __init__(self, machine):
        self.machine, self.kind, self.cpu = machine, machine.kind, machine.kind == "cpu"
        # llama.cpp's word for the first card.
        self.first = {"cuda": "CUDA0", "vulkan": "Vulkan0"}.get(machine.kind)
        self.checks, self.figures = [], {}

    def check(self, what, ok, seen=""):
        """ok: True, False, or None for what could not be looked at here."""
        # No identity of a card leaves the machine.
        said = re.sub(r"(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{27}", r"\1-...", str(seen))
        self.checks.append({"what": what, "ok": ok, "seen": " ".join(said.split())[:400]})

    def needs_card(self, what):
        if self.cpu:
            self.check(what, None, "needs a card")
        return not self.cpu

    def needs_cuda(self, what):
        if self.kind != "cuda":
            self.check(what, None, "needs a card of NVIDIA")
        return self.kind == "cuda"

    def stage(self, services=None, quant="Q8_0"):
        """Writes what the inventory does not say -> words for ansible-playbook. services: split by default"""
        models = json.loads((self.machine.state / "models.json").read_text())
        threads = {"threads": 1} if self.cpu else {}
        split = {"model": "random", "quant": quant, "head": "llama_head", "workers": "llama_rpc"}
        split.update(port=8000, rpc_port=50052, ctx_size=CONTEXT[self.cpu], parallel=1, force_split=True, **threads)
        # Beside the inventory and not as extra variables, which playbooks could not change for a run.
        folder = self.machine.state / "stage"
        (folder / "group_vars").mkdir(parents=True, exist_ok=True)
        (folder / "hosts.yml").write_text("all: {}\n")
        variables = {"llama_models": models, "llama_services": services or {"chat": split}}
        (folder / "group_vars/all.yml").write_text(json.dumps(variables, indent=1))
        build = "/srv/prepared/%s.yml" % {"cuda": "build"}.get(self.kind, self.kind)
        return ["-i", "/srv/state/stage", "-e", "@" + build, "-e", "llama_cpp_cache=/srv/builds"]

    def ansible(self, program, *words, timeout=480):
        """-> (status, output) of a program of Ansible on the controller"""
        environment = [
            "HOME=/srv/state/home",
            "PYTHONPATH=/srv/site",
            "NO_COLOR=1",
            "ANSIBLE_NOCOLOR=1",
            "ANSIBLE_CONNECTION_PLUGINS=/srv/checkout/tests/card/connection",
            "ANSIBLE_CONFIG=/srv/checkout/ansible.cfg",
            "PYTHONPYCACHEPREFIX=/srv/state/home/compiled",
            "ANSIBLE_CALLBACKS_ENABLED=one_process",
            "ANSIBLE_CALLBACK_PLUGINS=/srv/checkout/tests/lab/callback",
        ]
        if program == "adhoc":
            environment += ["ANSIBLE_STDOUT_CALLBACK=ansible.builtin.minimal", "ANSIBLE_CALLBACK_RESULT_FORMAT=json"]
        command = "cd /srv/checkout && exec env %s python3 -m ansible %s %s" % (
            " ".join(environment),
            program,
            " ".join("'%s'" % word for word in words),
        )
        done = self.machine.inside("controller", "sh", "-c", command, timeout=timeout)
        log = self.machine.state / "ansible.log"
        with log.open("a") as stream:
            stream.write("== %s %s\n%s%s\n" % (program, " ".join(words), done.stdout, done.stderr))
        return done.returncode, done.stdout + done.stderr

    def playbook(self, name, *words, expected=(0,), timeout=480, stage=None):
        words = ("playbooks/%s.yml" % name, "-i", "tests/card/inventory", *(stage or self.stage()), *words)
        status, output = self.ansible("playbook", *words, timeout=timeout)
        if status not in expected:
            raise Failed("%s.yml ends with %d: %s" % (name, status, output[-1500:]))
        return output

    def answer(self, tokens=32, url=URL):
        done = self.machine.inside("controller", "python3", "-c", ASK, url, str(tokens), timeout=180)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def recovered(self, within, url=URL):
        """-> (answer, seconds until it came)"""
        began = time.monotonic()
        while time.monotonic() - began < within:
            found = self.answer(url=url)
            if found:
                return found, round(time.monotonic() - began, 1)
            time.sleep(0.2)
        return None, None

    def main_pid(self, node, unit):
        """-> the unit's main process as the node counts"""
        return int(self.machine.sh(node, "systemctl show --value -p MainPID " + unit))

    def journal(self, node, unit):
        return self.machine.sh(node, "journalctl --no-pager -o cat -u '%s' | tail -n 4000" % unit)

    def report(self, name):
        return json.loads((self.machine.state / "reports" / name).read_text())

    def used(self):
        """-> MiB of the card in use, as this machine's own nvidia-smi or sysfs says; None without a card"""
        if self.kind != "cuda":
            return None if self.cpu else int(graphics.used())
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
        return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout)

    def returned(self, before, within=20):
        """-> seconds until the card has as much in use as before, None where that does not come"""
        began = time.monotonic()
        while time.monotonic() - began < within:
            if self.used() <= before + 32:
                return round(time.monotonic() - began, 1)
            time.sleep(0.1)
        return None

    def doctor(self):
        """-> what doctor.yml writes for programs"""
        path = self.machine.state / "doctor.json"
        path.unlink(missing_ok=True)
        self.playbook("doctor", "-e", "doctor_json=/srv/state/doctor.json", "-e", "since=10m", expected=(0, 2))
        return json.loads(path.read_text())

    def drop_in(self, node, unit, lines):
        """Adds to a unit until drop_out."""
        text = "\\n".join(["[Service]", *lines, ""])
        folder = "/run/systemd/system/%s.d" % unit
        self.machine.sh(
            node,
            "mkdir -p %s && printf '%s' >%s/card-test.conf && systemctl daemon-reload"
            % (folder, text.replace("%", "%%").replace("'", "'\\''"), folder),
        )

    def drop_out(self, node, unit):
        self.machine.sh(node, "rm -r /run/systemd/system/%s.d && systemctl daemon-reload" % unit)


def last(output):
    """-> what a playbook ended with"""
    lines = [line for line in output.splitlines() if re.search(r"change.*, verified|^stopped|FAILED|fatal", line)]
    return (lines or output.strip().splitlines() or [""])[-1]


def unchanged(output):
    return re.search(r"^no change, verified", output, re.MULTILINE) is not None


# -- the parts


def boot(state):
    before = state.used()
    state.machine.make()
    (state.machine.state / "used").write_text(str(before))
    seen = {}
    for node in NODES:
        seen[node] = state.machine.inside(node, "systemctl", "is-system-running").stdout.strip()
        failed = state.machine.sh(node, "systemctl --failed --no-legend --plain | cut -d' ' -f1").split()
        state.check("systemd runs on " + node, seen[node] == "running", seen[node] + " " + " ".join(failed))
    state.machine.sh("card1", "nft add table inet llama_try && nft delete table inet llama_try")
    state.check("a node has a firewall of its own", True, "nft answers")
    ping = "python3 -c \"import socket; socket.create_connection(('10.216.0.12', 9), 2)\""
    said = state.machine.inside("card1", "sh", "-c", ping).stderr
    state.check("nodes reach each other over the fabric", "refused" in said, said.strip().rpartition("\n")[2])
    if state.needs_card("the driver answers on a node"):
        if state.kind == "cuda":
            listed = state.machine.inside("card1", "nvidia-smi", "-L")
        else:
            listed = state.machine.inside("card1", "sh", "-c", "ls -l /dev/dri && exec 3<>/dev/dri/renderD*")
        name = re.sub(r" \(UUID.*", "", listed.stdout.strip())
        state.check("the driver answers on a node", listed.returncode == 0, name or listed.stderr)
        state.figures["MiB of the card in use before"] = before


def deploy(state):
    machine = state.machine
    shape, layers = SHAPE[state.cpu]
    models = {}
    for quant in ("Q8_0", "Q4_0"):
        path = machine.state / "models" / ("random-%s.gguf" % quant)
        command = (
            "python3 /srv/checkout/tests/benchmarks/random_model.py /srv/prepared/vocabulary.gguf %s --shape %s "
            "--layers %d --type %s" % ("/srv/state/models/" + path.name, shape, layers, quant)
        )
        machine.sh("controller", command)
        path.chmod(0o644)
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            for block in iter(lambda: stream.read(1 << 22), b""):
                digest.update(block)
        models[quant] = {"urls": ["file:///srv/models/" + path.name], "sha256": [digest.hexdigest()], "file": path.name}
    (machine.state / "models.json").write_text(json.dumps({"random": {"aliases": ["noise"], "quants": models}}))
    began = time.monotonic()
    output = state.playbook("site", "--skip-tags", "monitoring")
    state.figures["site.yml, s"] = round(time.monotonic() - began, 1)
    state.check("site.yml deploys a split over two workers", URL in output, last(output))
    command = machine.sh("card2", "systemctl show -p ExecStart,Environment llama-rpc-chat.service")
    if state.needs_card("units run the build for the card"):
        state.check("units run the build for the card", build_of(machine) in command, command[:200])
    if state.needs_cuda("cards are counted as nvidia-smi does"):
        state.check("cards are counted as nvidia-smi does", "CUDA_DEVICE_ORDER=PCI_BUS_ID" in command, command[-200:])


def again(state):
    began = time.monotonic()
    output = state.playbook("site")
    state.figures["site.yml that changes nothing, s"] = round(time.monotonic() - began, 1)
    state.check("a second run changes nothing", unchanged(output), last(output))


def sandbox(state):
    machine = state.machine
    probe = (Path(__file__).resolve().parent / "probe.py").read_text()
    for node, unit, other in (
        ("card2", "llama-rpc-chat.service", "10.215.0.1"),
        ("card1", "llama-head-chat.service", ""),
    ):
        machine.inside(node, "sh", "-c", "cat >/usr/local/lib/card-probe.py", input=probe)
        state.drop_in(node, unit, ["ExecStartPre=/usr/bin/python3 /usr/local/lib/card-probe.py '%s'" % other])
        try:
            machine.sh(node, "systemctl restart " + unit)
            state.recovered(120)
            lines = [line for line in state.journal(node, unit).splitlines() if line.startswith("probe ")]
            if not lines:
                state.check("%s: the probe speaks" % unit, False, state.journal(node, unit)[-300:])
                continue
            seen = json.loads(lines[-1][len("probe ") :])
            refused = [one for one in REFUSED if other or one != "connect_elsewhere"]
            wrong = {one: seen[one] for one in refused if seen[one] == "allowed"}
            # Nothing listens there: a refused connection has passed the firewall.
            if other and seen["connect_elsewhere"] == "ECONNREFUSED":
                wrong["connect_elsewhere"] = "ECONNREFUSED"
            wrong.update({one: seen[one] for one in ("keys_of_others", "processes_of_others") if seen[one]})
            state.check(
                "%s: what may not be done is refused" % unit,
                not wrong and seen["user"] != 0,
                wrong or ", ".join("%s %s" % (one, seen[one]) for one in refused),
            )
            if state.needs_card("%s: the card's devices open" % unit):
                state.check(
                    "%s: the card's devices open" % unit, set(seen["devices"].values()) == {"allowed"}, seen["devices"]
                )
        finally:
            state.drop_out(node, unit)
            machine.sh(node, "rm /usr/local/lib/card-probe.py && systemctl restart " + unit)
    found, seconds = state.recovered(120)
    state.check("it answers under its sandbox", bool(found), "%s s after the restart" % seconds)
    log = state.journal("card2", "llama-rpc-chat.service")
    if state.needs_card("a worker computes on the card"):
        seen = re.findall(r".*%s.*" % state.first, log)
        state.check("a worker computes on the card", bool(seen), (seen or [""])[-1])
    # From outside: only the head gets a connection.
    connect = "python3 -c \"import socket; socket.create_connection(('10.216.0.12', 50052), 2)\""
    for who in ("card3", "controller"):
        done = machine.inside(who, "sh", "-c", connect)
        state.check(
            "%s gets no connection to a worker" % who, done.returncode != 0, done.stderr.strip().rpartition("\n")[2]
        )


def facts(state):
    if not state.needs_card("facts of the card"):
        return
    if state.kind == "vulkan":
        facts_of_vulkan(state)
        return
    words = ("card1", "-i", "tests/card/inventory", "-m", "thefermisea.llama_cluster.nvidia_smi_facts")
    status, output = state.ansible("adhoc", *words)
    if status:
        raise Failed("nvidia_smi_facts: " + output[-500:])
    found = json.JSONDecoder().raw_decode(output[output.index("{") :])[0]["ansible_facts"]["nvidia_smi"]
    card = found["gpus"][0]
    state.check(
        "nvidia_smi_facts of the card",
        bool(found["available"]),
        "%s, driver %s, %s MiB, compute capability %s"
        % (card["name"], found["driver"], card["memory_total_mib"], card["compute_cap"]),
    )
    lacking = [
        name
        for name in ("memory_total_mib", "memory_used_mib", "compute_cap", "uuid", "pci_bus_id")
        if card.get(name) in (None, "")
    ]
    state.check("nothing that the plan needs is missing", not lacking, lacking or "all there")


def facts_of_vulkan(state):
    asked = {"vulkan": {"environment": {}, "program": "/opt/llama.cpp/current/bin/llama-server"}}
    words = (
        "card1",
        "-i",
        "tests/card/inventory",
        "-m",
        "thefermisea.llama_cluster.node_facts",
        "-a",
        json.dumps(asked),
    )
    status, output = state.ansible("adhoc", *words)
    if status:
        raise Failed("node_facts: " + output[-500:])
    found = json.JSONDecoder().raw_decode(output[output.index("{") :])[0]["ansible_facts"]["llama_node"]["vulkan"]
    state.check("llama-server lists the card", found["available"], found["reason"] or found["gpus"][0]["name"])
    for card in found["gpus"][:1]:
        seen = {name: card.get(name) for name in ("memory_total_mib", "memory_used_mib", "slot", "source", "unified")}
        state.check("nothing that the plan needs is missing", None not in seen.values(), seen)


def verify(state):
    output = state.playbook("verify", expected=(0, 2))
    report = state.report("chat.json")
    state.check(
        "verify: a real answer over two workers",
        report["state"] == "ready" and len(report["workers"]) == 2,
        "%s, layers %s" % (report["state"], [one["layers"] for one in report["workers"]]),
    )
    said = report.get("conversation") or {}
    state.check("verify: a conversation is held", bool(said.get("question")), said)
    kept = state.report("verify/latest.json")
    verdicts = {one["name"]: one for one in kept["criteria"]}
    counted = " of 10 criteria met" in output
    state.check("verify ends with its report", counted, re.findall(r".*criteria met.*", output)[-1:] or output[-300:])
    # Random weights have no expected speed, and a fresh deployment has not run for a day.
    judged = (
        "binaries of one version",
        "model complete and verified",
        "workers and head supervised",
        "all GPUs active",
        "restart on failure",
    )
    wrong = {name: verdicts[name]["value"] for name in judged if verdicts[name]["verdict"] != "met"}
    if state.cpu and "all GPUs active" in wrong and verdicts["all GPUs active"]["verdict"] != "not met":
        wrong.pop("all GPUs active")
    state.check("criteria of builds, models, units, workers and restarts are met", not wrong, wrong or "met")
    wire = state.report("wire/latest-chat.json")
    checks = {one["name"]: one for one in wire["checks"]}
    state.check(
        "the answer came over the wire as planned",
        wire["verdict"] == "true",
        "; ".join(wire["sentences"]) or wire["verdict"],
    )
    if state.needs_card("each card works more than 0.7/N of the time"):
        state.check("each card works more than 0.7/N of the time", checks["work"]["holds"], checks["work"]["said"])
    state.figures["tokens/s"] = report["tokens_per_second"]


def plan(state):
    """Compares planned with used memory, at rest and after a prompt that fills a slot."""
    report = state.report("chat.json")
    for row in report["plan"]:
        planned, loaded = sum(row["planned_mib"].values()), sum((row["loaded_mib"] or {}).values())
        off = loaded / planned if planned else 0
        state.figures["%s planned, MiB" % row["node"]] = round(planned, 1)
        state.figures["%s loaded, MiB" % row["node"]] = round(loaded, 1)
        state.check("%s: llama.cpp placed what was planned" % row["node"], 0.9 <= off <= 1.1, "%.3f of it" % off)
    if not state.needs_card("the driver's figure for each process lies within plan and margin"):
        return
    for name, words in (("at rest", ()), ("after a full slot", ("-e", "deep=true"))):
        if words:
            state.playbook("verify", *words, expected=(0, 2))
        state.figures["card in use %s, MiB" % name] = state.used()
        per = of_processes(state)
        for node, mib in per.items():
            row = next((one for one in report["plan"] if one["node"] == node), None)
            state.figures["%s by the driver %s, MiB" % (node, name)] = mib if mib is not None else "not reported"
            if row:
                planned = sum(row["planned_mib"].values())
                state.check(
                    "%s: its process within plan and margin %s" % (node, name),
                    None if mib is None else mib <= planned + 1024,
                    "the driver does not tell" if mib is None else "%d of %d + 1024" % (mib, planned),
                )


def of_processes(state):
    """-> {node: MiB of its server, None if the driver does not report it}"""
    reported = of_nvidia() if state.kind == "cuda" else of_graphics()
    found = {}
    for node, unit in (("card1", "llama-head-chat"), ("card2", "llama-rpc-chat"), ("card3", "llama-rpc-chat")):
        # Each node numbers its own processes.
        wanted = (namespace(state.machine.pid(node)), state.main_pid(node, unit))
        pids = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/status") if inside(path) == wanted]
        found[node] = next((reported[pid] for pid in pids if pid in reported), None)
    return found


def of_graphics():
    """-> {process id: MiB on the first card}"""
    cards, held = graphics.graphics(usage=True)
    return held.get(cards[0]["slot"], {})


def of_nvidia():
    """-> {process id: MiB, None if nvidia-smi does not tell}"""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    reported = {}
    for line in subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines():
        pid, _comma, mib = line.partition(",")
        reported[int(pid)] = int(mib) if mib.strip().isdigit() else None
    return reported


def namespace(pid):
    return os.readlink("/proc/%d/ns/pid" % pid)


def inside(path):
    """-> (PID namespace, number in it) of a process by its status file, None where it has ended"""
    try:
        line = re.search(r"^NSpid:\s*(.*)$", path.read_text(), re.MULTILINE)
        return namespace(int(path.parent.name)), int(line.group(1).split()[-1])
    except OSError:
        return None


def kills(state):
    want = state.answer()
    if not want:
        raise Failed("no answer before the first kill")
    whole = state.used()
    for node, unit in (("card2", "llama-rpc-chat.service"), ("card1", "llama-head-chat.service")):
        state.machine.sh(node, "systemctl kill --kill-whom=main --signal=KILL " + unit)
        found, seconds = state.recovered(180)
        state.check(
            "%s: the same answer after kill -9, token by token" % unit,
            found == want,
            "%d tokens after %s s" % (len(found or []), seconds),
        )
        state.figures["%s killed, s until an answer" % unit] = seconds
        if state.needs_card("%s: the card's memory is what it was" % unit):
            seen = state.used()
            # A server that has just begun holds less than one that has read a long prompt.
            state.check(
                "%s: the card's memory is what it was" % unit, seen - whole <= 64, "%d of %d MiB" % (seen, whole)
            )


def watchdog(state):
    want = state.answer()
    pid = state.main_pid("card3", "llama-rpc-chat.service")
    state.machine.sh("card3", "kill -STOP %d" % pid)
    began = time.monotonic()
    # This request waits for the stopped worker, so that a request hangs.
    state.answer(tokens=8)
    found, _seconds = state.recovered(180)
    state.figures["stopped worker, s until an answer"] = round(time.monotonic() - began, 1)
    state.check(
        "the same answer after a worker was stopped",
        found == want and found is not None,
        "%d tokens" % len(found or []),
    )
    gone = state.machine.inside("card3", "sh", "-c", "kill -0 %d" % pid).returncode != 0
    said = state.journal("card1", "llama-watchdog") + state.journal("card3", "llama-watchdog")
    lines = [line for line in said.splitlines() if "chat" in line and "has been stopped" in line]
    state.check("the watchdog saw it and ended it", gone and bool(lines), lines[-1:] or said[-200:])


def doctor(state):
    machine, began = state.machine, time.time()
    machine.sh("card2", "systemctl kill --kill-whom=main --signal=KILL llama-rpc-chat.service")
    state.recovered(120)
    look_for(state, "a killed worker", "worker_killed", began)
    if not state.needs_card("hidden devices are named"):
        return
    unit = "llama-rpc-chat.service"
    hidden = ["DeviceAllow=", "DeviceAllow=/dev/null rw"]
    faults = {"devices hidden": (hidden, "render_node_not_opened" if state.kind == "vulkan" else "card_not_opened")}
    if state.needs_cuda("a build without kernels for the card is named"):
        # The driver ignores the build's machine code, as if it were compiled for another architecture.
        faults["a build without kernels for the card"] = (["Environment=CUDA_FORCE_PTX_JIT=1"], "no_kernel_image")
    for name, (lines, rule) in faults.items():
        began = time.time()
        state.drop_in("card2", unit, lines)
        try:
            machine.sh("card2", "systemctl restart --no-block " + unit)
            look_for(state, name, rule, began)
        finally:
            state.drop_out("card2", unit)
            machine.sh("card2", "systemctl restart " + unit)
            state.recovered(120)
    if not state.needs_cuda("a full card is named"):
        return
    began = time.time()
    holder = subprocess.Popen([sys.executable, "-c", FILL], stdout=subprocess.PIPE, text=True)
    try:
        state.check("the card is filled", holder.stdout.readline().startswith("full"), state.used())
        machine.sh("card2", "systemctl kill --kill-whom=main --signal=KILL " + unit)
        look_for(state, "a full card", "card_out_of_memory", began)
    finally:
        holder.kill()
        holder.wait()
    # Not after the back-off of what failed while the card was full.
    machine.sh("card2", "systemctl restart " + unit)
    found, seconds = state.recovered(180)
    state.check("it serves again once the card is free", bool(found), "%s s" % seconds)


def look_for(state, name, rule, began, within=60):
    """Asks the doctor until it names what has happened on card2 since then: a fault shows once the model is loaded."""
    until = time.monotonic() + within
    while True:
        findings = state.doctor()["findings"]
        named = [
            one for one in findings if one["rule"] == rule and one["node"] == "card2" and (one["at"] or 0) >= began
        ]
        if named or time.monotonic() > until:
            break
        time.sleep(2)
    state.check("doctor names %s" % name, bool(named), rule if named else sorted({one["rule"] for one in findings}))


# Takes what is free of the first card, but 256 MiB, and what others give back while it runs. Says once that it is full.
FILL = """import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
spare, least, no_memory, reported = 256 << 20, 64 << 20, 2, False
def sure(name, *words):
    done = getattr(cuda, name)(*words)
    if done not in (0, no_memory):
        sys.exit("%s: CUDA error %d" % (name, done))
    return done == 0
sure("cuInit", 0)
sure("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
began = time.monotonic()
while time.monotonic() - began < 300:
    sure("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    size = free.value - spare
    while size > least:
        if sure("cuMemAlloc_v2", ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(size)):
            break
        size //= 2
    if size <= least and not reported:
        print("full", flush=True)
        reported = True
    time.sleep(0.02)
"""


def sampler(state):
    """Monitoring, which a deployment gets later."""
    output = state.playbook("site", "--tags", "monitoring")
    state.check("monitoring is added to what runs", "changed" in last(output), last(output))
    # A look at the card comes every 15 s.
    time.sleep(0 if state.cpu else 16)
    page = state.machine.sh("card2", "cat /run/llama-cluster/samples.prom")
    state.check("the sampler tells of its unit", "llama_" in page, "%d lines" % len(page.splitlines()))
    if state.needs_card("the sampler tells of the card"):
        names = sorted(set(re.findall(r"^(llama_[a-z_]*(?:card|gpu)[a-z_]*)", page, re.MULTILINE)))
        state.check("the sampler tells of the card", len(names) > 3, names)


def switch(state):
    before = state.answer()
    output = state.playbook("switch_model", "-e", "service=chat", "-e", "quant=Q4_0")
    found = state.answer()
    command = state.machine.sh("card1", "systemctl show -p ExecStart llama-head-chat.service")
    state.check("another quant serves", "Q4_0" in command and bool(found), last(output))
    state.check("and says something else", found != before, "%d tokens" % len(found or []))


def benchmark(state):
    state.playbook("benchmark", "-e", "prompts=short", "-e", "concurrency=1", "-e", "requests=3", "-e", "max_tokens=32")
    kept = state.report("benchmarks/latest-chat.json")
    figures = kept["cells"][0]["figures"]
    rate = figures["request_tokens_per_second"]["p50"]
    state.check("benchmark.yml measures it", figures["errors"] == 0 and rate > 0, "%.1f tokens/s" % rate)
    state.figures["tokens/s over two workers, p50"] = round(rate, 1)


def one_node(state):
    """Two services beside each other on one node and its card."""
    before = state.used()
    threads = {"threads": 1} if state.cpu else {}
    common = {"model": "random", "head": "card1", "parallel": 1, "ctx_size": CONTEXT[state.cpu], **threads}
    services = {
        "left": {"quant": "Q8_0", "port": 8000, **common},
        "right": {"quant": "Q4_0", "port": 8001, **common},
    }
    stage = state.stage(services)
    state.playbook("site", stage=stage)
    left, right = state.answer(), state.answer(url=URL.replace("8000", "8001"))
    state.check(
        "two services beside each other answer",
        bool(left and right) and left != right,
        "%d and %d tokens" % (len(left or []), len(right or [])),
    )
    rest = state.machine.sh("card2", "systemctl list-units --all --no-legend 'llama-rpc-*'").strip()
    state.check("the split's workers are gone", not rest, rest or "no unit")
    again = state.playbook("site", stage=stage)
    state.check("a second run changes nothing", unchanged(again), last(again))
    if state.needs_card("both lie on the card"):
        state.figures["MiB of the card, split and one node twice"] = "%s, %s" % (before, state.used())
        log = state.journal("card1", "llama-head-right.service")
        seen = re.findall(r".*%s.*" % state.first, log)
        state.check("both lie on the card", bool(seen), (seen or [""])[-1])


def teardown(state):
    state.playbook("teardown", "-e", "teardown_models=true")
    for node in NODES:
        left = state.machine.sh(
            node,
            "systemctl list-unit-files --no-legend 'llama-*' | cut -d' ' -f1; "
            "ls -d /etc/llama-cluster /opt/llama.cpp /opt/models/* /opt/llama-cluster "
            "/var/lib/llama-cluster 2>/dev/null || true",
        ).split()
        state.check("%s: nothing is left" % node, not left, " ".join(left) or "nothing")
    if state.needs_card("the card is empty"):
        seconds = state.returned(int((state.machine.state / "used").read_text()))
        state.check("the card is empty", seconds is not None, "%d MiB after %s s" % (state.used(), seconds))
    shutil.rmtree(state.machine.state / "reports", ignore_errors=True)


PARTS = {
    "boot": boot,
    "deploy": deploy,
    "facts": facts,
    "verify": verify,
    "plan": plan,
    "sandbox": sandbox,
    "kills": kills,
    "watchdog": watchdog,
    "doctor": doctor,
    "sampler": sampler,
    "again": again,
    "benchmark": benchmark,
    "switch": switch,
    "one_node": one_node,
    "teardown": teardown,
}
