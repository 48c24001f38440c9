"""Faults that can be made in a lab: the doctor names each, and its command, run as it is printed, puts it right."""

import base64
import concurrent.futures
import json
import re
import shlex
import time
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._doctor import judge
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._doctor.journal import BEFORE
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._doctor import cluster

REPOSITORY = Path(__file__).resolve().parents[3]
INVENTORY = ("-i", "molecule/monitoring/inventory")
HEAD, WORKER = "llama-head-chat.service", "llama-rpc-chat.service"
MODEL = "/opt/models/SmolLM2-135M-Instruct.Q4_1.gguf"
PLAYBOOK = re.compile(r"ansible-playbook playbooks/(\w+)\.yml -i inventories/mine([^;&|#]*)")


class Doctor:
    """Looks at nodes since a moment, and does what its findings say."""

    def __init__(self, lab):
        self.lab = lab
        self.since = time.time()

    def begin(self):
        """Starts the window of the doctor."""
        self.lab.eventually(self.answers, 120, "an answer of the head")
        time.sleep(1)
        self.since = time.time()

    def node(self, name):
        return getattr(self.lab, name)

    def answers(self):
        ask = 'curl -sS --max-time 20 http://%s:8000/completion -d \'{"prompt": "Red,", "n_predict": 2}\''
        return '"content"' in self.node("node1").run(ask % self.lab.ethernet("node1")).stdout

    def findings(self, name):
        done = self.node(name).run("llama-doctor --json --since %d" % self.since)
        assert done.rc in (0, 1), done.stderr
        return json.loads(done.stdout)["findings"]

    def names(self, wanted, seconds=45):
        """{node: {rules}} -> {rule: its finding}, once all of them are found"""
        found, until = {}, time.monotonic() + seconds
        missing = {(name, rule) for name, named in wanted.items() for rule in named}
        while missing:
            with concurrent.futures.ThreadPoolExecutor() as pool:
                seen = dict(zip(wanted, pool.map(self.findings, wanted)))
            for name, rule in sorted(missing):
                for one in seen[name]:
                    if one["rule"] == rule:
                        found[rule] = dict(one, on=name)
                        missing.discard((name, rule))
            reports = {name: ["%(rule)s: %(sentence)s" % one for one in found] for name, found in seen.items()}
            assert not missing or time.monotonic() < until, (missing, reports)
        for rule, one in found.items():
            print("%s on %s: %s" % (rule, one["on"], one["sentence"]))
        return found

    def gone(self, wanted, seconds=60):
        """Whether these findings are over."""
        until = time.monotonic() + seconds
        while True:
            left = {
                (name, one["rule"])
                for name, named in wanted.items()
                for one in judge.needed(self.findings(name))
                if one["rule"] in named
            }
            if not left:
                return
            assert time.monotonic() < until, left

    def do(self, finding, *more):
        """Runs a finding's command: a shell's words on its node, a playbook on the controller -> the output"""
        command, output = finding["command"], ""
        playbook = PLAYBOOK.search(command)
        shell = (command[: playbook.start()] if playbook else command).strip().rstrip("&;| ")
        if shell:
            done = self.node(finding["on"]).run(shell)
            assert done.rc == 0 and "not found" not in done.stderr, (command, done.stdout, done.stderr)
            output += done.stdout
        if playbook:
            status, said = self.lab.playbook(playbook.group(1), *shlex.split(playbook.group(2)), *INVENTORY, *more)
            assert status == 0, said
            output += said
        return output


def taker(address, port):
    """The words that start a program which has somebody's port."""
    program = (
        "import socket, time; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); "
        "s.bind((%r, %d)); s.listen(); time.sleep(999)"
    )
    words = shlex.quote(program % (address, port))
    return "systemd-run --quiet --collect --unit=taker python3 -c " + words


@pytest.fixture(scope="module")
def doctor(lab):
    return Doctor(lab)


@pytest.fixture
def begun(doctor):
    doctor.begin()
    return doctor


def test_killed_unit_is_a_notice(lab, begun):
    """Repaired faults are notices."""
    # Without an end, so that the worker is killed in the middle of it.
    asks = "curl -s --max-time 60 http://%s:8000/completion -d "
    asks += '\'{"prompt": "A", "n_predict": 900, "ignore_eos": true}\''
    lab.node1.check_output(asks % lab.ethernet("node1") + " >/dev/null 2>&1 &")
    time.sleep(3)
    lab.node2.check_output("systemctl kill --signal=KILL %s", WORKER)
    begun.names({"node1": {"rpc_disconnected"}, "node2": {"worker_killed"}})
    lab.eventually(begun.answers, 90, "an answer")
    lab.node3.check_output(
        "systemctl kill --signal=SEGV %s; systemctl kill --signal=KILL llama-gateway.service", WORKER
    )
    begun.names({"node1": {"head_lost_worker"}, "node3": {"crashed", "gateway_engine_killed"}})
    lab.eventually(begun.answers, 90, "an answer")
    # An end within seconds of the watchdog's restart counts as its own.
    time.sleep(BEFORE + 1)
    lab.node1.check_output("systemctl kill --signal=KILL %s", HEAD)
    found = begun.names({"node1": {"head_killed"}})
    lab.eventually(begun.answers, 90, "an answer")
    # Its command only shows something.
    assert "MemoryMax=" in begun.do(found["head_killed"])
    all_of_them = {"rpc_disconnected", "worker_killed", "head_lost_worker", "crashed", "gateway_engine_killed"}
    begun.gone({name: all_of_them | {"head_killed"} for name in ("node1", "node2", "node3")})
    status, output = lab.playbook("doctor", *INVENTORY, "-e", "since=%d" % int(begun.since))
    assert status == 0 and re.search(r"healthy; repaired in the last [^:]*: [5-9]", output), output


def test_what_was_stopped_is_started_again(lab, begun):
    lab.node3.check_output("systemctl stop nginx prometheus llama-watchdog && chmod 0 /var/lib/prometheus/metrics2")
    lab.node3.run("systemctl start prometheus")
    lab.node3.check_output("nft delete table inet llama_cluster")
    lab.node1.check_output("systemctl stop llama-watchdog && systemctl kill --signal=STOP %s", HEAD)
    wanted = {
        "node1": {"head_silent", "unit_down"},
        "node3": {"gateway_nginx_down", "monitoring_down", "rpc_open", "unit_down"},
    }
    found = begun.names({"node1": {"head_silent"}, **wanted})
    first = begun.names({"node1": {"unit_down"}})["unit_down"]
    for one in (found["head_silent"], found["gateway_nginx_down"], found["rpc_open"], found["unit_down"], first):
        begun.do(one)
    begun.do(found["monitoring_down"])
    begun.gone(wanted)
    begun.names({"node3": {"gateway_nginx_stopped"}})
    lab.node3.check_output("nft delete table inet llama_cluster")
    begun.names({"node3": {"firewall_lost"}})
    begun.gone({"node3": {"firewall_lost", "rpc_open"}})


def test_starts_that_fail(lab, begun):
    lab.node1.check_output("chmod 0 %s && systemctl restart --no-block %s", MODEL, HEAD)
    found = begun.names({"node1": {"model_not_readable", "failed_in_a_row"}}, 60)
    begun.do(found["model_not_readable"])
    begun.do(found["failed_in_a_row"])
    begun.gone({"node1": {"model_not_readable", "failed_in_a_row"}})
    lab.node2.check_output(
        "mkdir /opt/moved && mv /usr/lib/x86_64-linux-gnu/libgomp.so.1* /opt/moved && echo /opt/moved "
        ">/etc/ld.so.conf.d/moved.conf && systemctl restart --no-block %s",
        WORKER,
    )
    lab.node3.check_output("systemctl stop %s", WORKER)
    lab.node3.check_output(taker(lab.fabric("node3"), 50052))
    lab.node3.check_output("systemctl start --no-block %s", WORKER)
    wanted = {"node1": {"waits_port_closed"}, "node2": {"library_missing"}, "node3": {"port_taken_worker"}}
    found = begun.names(wanted, 60)
    begun.do(found["library_missing"])
    begun.do(dict(found["waits_port_closed"], on="node2"))
    # Only the operator knows the other program.
    assert "python3" in begun.do(found["port_taken_worker"])
    lab.node3.check_output("systemctl stop taker; systemctl restart %s", WORKER)
    begun.gone(wanted)


def test_starts_that_wait(lab, begun):
    lab.node1.check_output("systemctl stop llama-watchdog %s && nft delete table inet llama_cluster", HEAD)
    lab.node1.check_output("systemctl start --no-block %s", HEAD)
    found = begun.names({"node1": {"waits_firewall"}}, 60)
    begun.do(found["waits_firewall"])
    lab.node1.check_output("systemctl start llama-watchdog && systemctl stop %s", HEAD)
    # Somebody holds a worker, which serves one client at a time. Its watchdog would end that: no head is connected.
    lab.node3.check_output("systemctl stop llama-watchdog")
    hold = "exec 3<>/dev/tcp/%s/50052; sleep 999" % lab.fabric("node3")
    lab.node1.check_output("systemd-run --quiet --collect --unit=holder --uid=llama bash -c %s", hold)
    time.sleep(1)
    lab.node1.check_output("systemctl start --no-block %s", HEAD)
    found = begun.names({"node1": {"waits_handshake"}}, 60)
    shown = begun.do(dict(found["waits_handshake"], on="node3"))
    assert lab.fabric("node1") in shown
    lab.node1.check_output("systemctl stop holder %s", HEAD)
    lab.node3.check_output("systemctl start llama-watchdog")
    lab.node1.check_output(taker(lab.ethernet("node1"), 8000))
    lab.node1.check_output("systemctl start --no-block %s", HEAD)
    found = begun.names({"node1": {"port_taken_head"}}, 60)
    assert "python3" in begun.do(found["port_taken_head"])
    lab.node1.check_output("systemctl stop taker && systemctl restart %s", HEAD)
    begun.gone({"node1": {"port_taken_head"}})
    begun.gone({"node1": {"waits_handshake", "waits_firewall"}}, 90)


def test_drop_ins(lab, begun):
    folder = "/etc/systemd/system/%s.d" % HEAD
    lab.node1.check_output(
        "mkdir %s && printf '[Service]\\nExecStartPre=/bin/false\\n' >%s/override.conf && systemctl daemon-reload",
        folder,
        folder,
    )
    lab.node1.run("systemctl restart --no-block %s", HEAD)
    found = begun.names({"node1": {"drop_in"}})["drop_in"]
    assert "override.conf: ExecStartPre=/bin/false" in found["sentence"]
    begun.do(found)
    begun.gone({"node1": {"drop_in", "failed_in_a_row"}})
    lab.eventually(begun.answers, 60, "an answer")


def test_settings_that_are_not_the_inventorys(lab, begun):
    """A context that the model has not, an end before its thoughts end, another build's flag, and an unknown name."""
    unit = "/etc/systemd/system/" + HEAD
    template = "{% for m in messages %}{{ m.content }}{% endfor %}<think>"
    lab.node1.check_output("printf %%s %s >/opt/think.jinja", template)
    lab.node1.check_output(
        "cp %s /root/unit && sed -i -E '/^ExecStart=/ s/--ctx-size [0-9]+/--ctx-size 16384 --predict 512 --jinja "
        "--chat-template-file \\/opt\\/think.jinja/' %s && systemctl daemon-reload && systemctl restart --no-block %s",
        unit,
        unit,
        HEAD,
    )
    lab.node2.check_output("sed -i 's/LLAMA_CLUSTER_DIGEST=/LLAMA_CLUSTER_DIGEST=0/' /etc/systemd/system/%s", WORKER)
    lab.node1.check_output("echo '{\"tokens_per_second\": 100000}' >/var/lib/llama-cluster/baseline-chat.json")
    lab.eventually(begun.answers, 90, "an answer")
    lab.node1.check_output(
        'python3 -c \'import json; print(json.dumps({"prompt": "a " * 20000}))\' >/root/long && curl -s '
        'http://%s:8000/completion -d @/root/long; curl -s http://%s:8000/completion -d \'{"prompt": "A", '
        '"n_predict": 510, "ignore_eos": true}\'',
        lab.ethernet("node1"),
        lab.ethernet("node1"),
    )
    key = lab.node3.file("/etc/llama-cluster/gateway/curl-header").content_string.strip()
    lab.node3.check_output(
        'curl -s -H %s http://%s:8000/v1/chat/completions -d \'{"model": "gpt-4", "messages": []}\'',
        key,
        lab.ethernet("node3"),
    )
    wanted = {
        "node1": {"content_empty", "context_capped", "slower_than_baseline"},
        "node2": {"unit_stale"},
        "node3": {"name_not_served"},
    }
    found = begun.names(dict(wanted, node1=wanted["node1"] | {"context_exceeded"}))
    lab.node1.check_output(
        "sed -i -E '/^ExecStart=/ s/--jinja/--no-such-flag/' %s && systemctl daemon-reload && systemctl "
        "restart --no-block %s",
        unit,
        HEAD,
    )
    found.update(begun.names({"node1": {"unknown_argument"}}))
    assert all("playbooks/site.yml" in found[one]["command"] for one in found if one != "slower_than_baseline")
    models = yaml.safe_load((REPOSITORY / "inventories/lab/group_vars/all/models.yml").read_text())
    models["llama_models"]["smollm2-135m-instruct"]["aliases"].append("gpt-4")
    lab.node1.check_output("rm /var/lib/llama-cluster/baseline-chat.json")
    begun.do(found["unknown_argument"], "-e", json.dumps(models), "--tags", "rpc,head,gateway")
    begun.gone(dict(wanted, node1=wanted["node1"] | {"unknown_argument", "context_exceeded"}))


def test_models_that_are_not_whole(lab, begun):
    """Each is fetched again by the same run, which is not repeated for each."""
    size = lab.node1.check_output("stat -c %%s %s", MODEL)
    lab.node1.check_output("truncate -s 50000000 %s && systemctl restart --no-block %s", MODEL, HEAD)
    found = begun.names({"node1": {"model_damaged"}})
    lab.node1.check_output("systemctl stop %s && rm %s", HEAD, MODEL)
    found.update(begun.names({"node1": {"model_not_found"}}))
    lab.node1.check_output("printf '<html>' >%s && truncate -s %s %s", MODEL, size, MODEL)
    found.update(begun.names({"node1": {"model_no_gguf", "model_zero_filled"}}))
    again = found["model_not_found"]["command"]
    assert found["model_damaged"]["command"] == again
    assert found["model_no_gguf"]["command"] == found["model_zero_filled"]["command"] == "rm %s && %s" % (MODEL, again)
    begun.do(found["model_no_gguf"])
    lab.node1.check_output("systemctl restart %s", HEAD)
    begun.gone({"node1": set(found)})


def test_full_disks(lab, begun):
    lab.node2.check_output(
        "mount -t tmpfs -o size=1m none /var/tmp && mkdir /var/tmp/heap && head -c 1040000 /dev/zero >/var/tmp/heap/a; "
        "mount -t tmpfs -o nr_inodes=30 none /opt/llama.cpp && cd /opt/llama.cpp && mkdir many && touch "
        "$(seq -f many/%g 60) 2>/dev/null; true"
    )
    try:
        found = begun.names({"node2": {"disk_full", "inodes_gone"}})
        # The operator decides what to remove; the commands show the largest directories.
        assert "/var/tmp/heap" in begun.do(found["disk_full"])
        assert "many" in begun.do(found["inodes_gone"])
    finally:
        lab.node2.check_output("cd /; umount /var/tmp /opt/llama.cpp")
    begun.gone({"node2": {"disk_full", "inodes_gone"}})


# Copies of the model, each with one fault, and what the server says of it.
BROKEN = """
import json, os, struct, subprocess, sys
model = sys.argv[1]
data = open(model, "rb").read()
def word(text):
    return struct.pack("<Q", len(text)) + text
def put(old, new):
    place = data.index(old)
    return data[:place] + new + data[place + len(old):]
tensor = word(b"blk.0.ffn_down.weight")
kind = data.index(tensor) + len(tensor) + 4 + 16
files = {
    "architecture": put(word(b"general.architecture") + struct.pack("<I", 8) + word(b"llama"),
                        word(b"general.architecture") + struct.pack("<I", 8) + word(b"newfa")),
    "pre-tokenizer": put(word(b"smollm"), word(b"newfam")),
    "tokenizer": put(word(b"tokenizer.ggml.model") + struct.pack("<I", 8) + word(b"gpt2"),
                     word(b"tokenizer.ggml.model") + struct.pack("<I", 8) + word(b"gpt9")),
    "tensor type": data[:kind] + struct.pack("<I", 146) + data[kind + 4:],
    "version": data[:4] + struct.pack("<I", 9) + data[8:],
    "missing tensor": put(word(b"blk.0.attn_norm.weight"), word(b"blk.0.attn_nurm.weight")),
    "missing key": put(word(b"llama.block_count"), word(b"llama.block_caunt")),
    "truncated": data[:50000000],
    "header cut": data[:3000],
    "context": data,
}
reports = {}
for name, content in files.items():
    with open("/tmp/broken.gguf", "wb") as stream:
        stream.write(content)
    size = "16384" if name == "context" else "256"
    command = "timeout 30 %s -m /tmp/broken.gguf --port 51777 --fit off --parallel 1 -c %s --threads 1 -lv 4 2>&1"
    # A whole one would go on.
    command = command % ("/opt/llama.cpp/current/bin/llama-server", size) + " | sed '/capping/q'"
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE)
    reports[name] = done.stdout.decode("utf-8", "replace").splitlines()[-60:]
os.unlink("/tmp/broken.gguf")
print(json.dumps(reports))
"""


def test_files_that_this_build_cannot_load(lab, doctor):
    """model_newer_than_build, model_does_not_fit, model_damaged: what the real server says of them, and of a router's
    context: context_capped_of_router."""
    script = base64.b64encode(BROKEN.encode()).decode()
    reports = json.loads(lab.node1.check_output("echo %s | base64 -d | python3 - %s", script, MODEL))
    expected = {
        "model_newer_than_build": {"architecture", "pre-tokenizer", "tokenizer", "tensor type", "version"},
        "model_does_not_fit": {"missing tensor", "missing key"},
        "model_damaged": {"truncated", "header cut"},
        "context_capped_of_router": {"context"},
    }
    for name, lines in reports.items():
        unit = {"name": "llama-router-chat.service", "service": "chat", "kind": "router", "model": MODEL}
        said = [
            {
                "at": 1.0,
                "unit": unit["name"],
                "by": "server",
                "text": line,
                "over": False,
                "current": True,
                "stopping": False,
            }
            for line in lines
        ]
        found = {one["rule"] for one in judge.judge(cluster.load(), {"node": "node1", "lines": said, "units": [unit]})}
        assert found == {rule for rule, names in expected.items() if name in names}, (name, found, lines[-8:])


def test_every_rule_of_a_lab_is_here():
    """This file makes its fault, or says why its command cannot be run on it."""
    text = Path(__file__).read_text(encoding="utf-8")
    here = {rule["name"] for rule in cluster.load() if rule["seen"].endswith("test_named_by_the_doctor.py")}
    assert {name for name in here if name not in text} == set()
