"""adopt.yml took over the manual deployment of prepare.yml: verification, maintenance of a node, undo, and an adoption
that fails."""

import json
import threading
import time

import requests

QUESTION = {"max_tokens": 1, "temperature": 0, "messages": [{"role": "user", "content": "Name a color."}]}
MODEL = "/opt/models/SmolLM2-135M-Instruct.Q4_1.gguf"
NAMES = ("node1", "node2", "node3")
SERVERS = r"ps -eo pid=,user:32=,args= | grep -E '^ *[0-9]+ +[a-z-]+ +[^ ]*(llama-server|rpc-server) ' || true"


def playbook(lab, name, *words):
    """With the primary service, whose units have the names of the manual ones."""
    return lab.playbook(name, "-i", "molecule/adoption/inventory", *words)


def answers(lab, port=8000, timeout=10):
    try:
        reply = requests.post(
            "http://%s:%d/v1/chat/completions" % (lab.ethernet("node1"), port), json=QUESTION, timeout=timeout
        )
        return reply.status_code == 200 and reply.json()["usage"]["completion_tokens"] == 1
    except (requests.RequestException, KeyError):
        return False


class Outage(threading.Thread):
    """Sends requests until it is stopped, and measures for how long none was answered."""

    def __init__(self, lab):
        super().__init__(daemon=True)
        self.lab, self.over, self.silent = lab, threading.Event(), []

    def run(self):
        while not self.over.wait(0.2):
            sent = time.monotonic()
            if not answers(self.lab, timeout=60):
                self.silent.append((sent, time.monotonic()))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_exception):
        self.over.set()
        self.join()

    @property
    def seconds(self):
        return self.silent[-1][1] - self.silent[0][0] if self.silent else 0.0


def servers(node):
    return [line.split() for line in node.check_output(SERVERS).splitlines()]


def record(node):
    return json.loads(node.check_output("cat /var/lib/llama-cluster/adopted/record.json"))


def test_only_managed_servers_run(lab):
    assert answers(lab)
    for name in NAMES:
        node = getattr(lab, name)
        (server,) = servers(node)
        assert server[1] == ("llama" if name == "node1" else "llama-rpc")
        assert server[2].startswith("/opt/llama.cpp/releases/")


def test_rpc_listens_only_on_the_fabric(lab):
    for name in ("node2", "node3"):
        assert getattr(lab, name).check_output("ss -Hltn sport = :50052").split()[3] == "%s:50052" % lab.fabric(name)
    assert not lab.connects(lab.node3, lab.fabric("node2"), 50052)


def test_units_paths_and_names_are_managed(lab):
    for name, kind in (("node1", "head"), ("node2", "rpc"), ("node3", "rpc")):
        node = getattr(lab, name)
        unit = node.file("/etc/systemd/system/llama-%s.service" % kind)
        assert not unit.is_symlink and unit.contains("LLAMA_CLUSTER_DIGEST=")
        assert node.check_output("systemctl is-enabled llama-%s", kind) == "enabled"
        assert node.file("/opt/llama.cpp/build").is_symlink
        assert node.file("/opt/llama.cpp/build.by-hand/bin/llama-server").exists
        # The operators' clone is theirs.
        assert node.file("/opt/llama.cpp/NOTES").exists


def test_record_is_readable_by_root_only(lab):
    for name in NAMES:
        folder = getattr(lab, name).file("/var/lib/llama-cluster/adopted")
        assert (folder.mode, folder.user) == (0o700, "root")
        assert [unit["active"] for unit in record(getattr(lab, name))["units"]] == [True]


def test_existing_model_was_kept(lab):
    # The inode that prepare.yml made, not a second copy.
    assert lab.node1.check_output("ls /opt/models").split() == [
        MODEL.rpartition("/")[2],
        MODEL.rpartition("/")[2] + ".manifest.json",
    ]


def test_held_node_stays_down_after_site(lab):
    status, output = playbook(lab, "maintenance", "-e", "node=node2 maintenance_drain=5")
    assert status == 0, output
    assert "maintenance: node2 is held, chat cannot answer until it returns" in output
    assert servers(lab.node2) == []
    assert lab.node2.run("systemctl is-enabled llama-rpc").stdout.strip() == "disabled"
    # Both are the node's, not a service's.
    lab.node2.check_output("systemctl is-active llama-watchdog llama-firewall")
    lab.node2.check_output("systemctl is-enabled llama-watchdog llama-firewall")
    assert lab.node1.check_output("systemctl show -p ActiveState --value llama-head") == "activating"
    status, output = playbook(lab, "maintenance", "-e", "node=node2")
    assert status == 0, output
    assert lab.changed(output) == 0
    status, output = playbook(lab, "site")
    assert status == 0, output
    assert lab.changed(output) == 0
    assert "chat: not verified, node2 held for maintenance" in output
    assert servers(lab.node2) == []


def test_a_held_node_stays_down_through_a_reboot(lab):
    lab.restart("node2")
    lab.eventually(
        lambda: lab.node2.run("systemctl is-system-running").stdout.strip() in ("running", "degraded"),
        60,
        "node2 is up",
    )
    assert servers(lab.node2) == []
    status, output = playbook(lab, "status")
    assert status == 0, output
    assert "node2: held for maintenance since 2" in output
    assert "it waits for node2, held for maintenance" in output


def test_a_driver_that_does_not_match_is_refused(lab):
    # stub_nvidia_smi: there is no NVIDIA driver here that could be updated.
    stub = (
        "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\necho 'NVML library version: "
        "535.183'\nexit 18\n"
    )
    lab.node2.check_output(
        "printf %s %s > /usr/local/bin/nvidia-smi && chmod 755 /usr/local/bin/nvidia-smi", "%s", stub
    )
    status, output = playbook(lab, "maintenance", "-e", "node=node2 state=return")
    lab.node2.check_output("rm /usr/local/bin/nvidia-smi")
    assert status != 0
    assert "Driver/library version mismatch" in output and "reboot the node" in output
    assert lab.changed(output) == 0
    assert servers(lab.node2) == []


def test_held_node_returns(lab):
    status, output = playbook(lab, "maintenance", "-e", "node=node2 state=return")
    assert status == 0, output
    assert answers(lab)
    assert lab.node2.check_output("systemctl is-enabled llama-rpc") == "enabled"


SYSTEMD_FILES = (
    "cd /etc/systemd/system && find . -type l -printf 'link %p %l\\n' && find . -type f -printf 'file %p "
    "%U:%G %m %TY-%Tm-%Td %TT ' -exec sha256sum {} \\;"
)


def test_undo_restores_the_manual_deployment(lab, capsys):
    with Outage(lab) as outage:
        status, output = playbook(lab, "adopt", "-e", "undo=true")
        assert status == 0, output
        lab.eventually(lambda: answers(lab), 60, "the old head responds")
    with capsys.disabled():
        print("\nundo: nothing answered for %.1f s" % outage.seconds)
    for name in NAMES:
        node = getattr(lab, name)
        # As prepare.yml wrote it down before there was any adoption.
        before = node.check_output("cat /root/before.txt").splitlines()
        assert any("llama-" in line for line in before)
        assert set(before) <= set(node.check_output(SYSTEMD_FILES).splitlines())
        assert {server[1] for server in servers(node)} == {"root"}
        assert not node.file("/opt/llama.cpp/build").is_symlink
        assert not node.file("/var/lib/llama-cluster/adopted").exists
        assert node.run("nft list ruleset | grep llama").rc != 0
    assert lab.node1.check_output("systemctl is-enabled llama-head") == "enabled"
    status, output = playbook(lab, "adopt", "-e", "undo=true")
    assert status == 0, output
    assert lab.changed(output) == 0
    assert "adopt: no adoption is recorded on" in output


def test_server_without_a_unit_is_refused(lab):
    command = "/opt/llama.cpp/build/bin/llama-server -m %s --port 8081 -c 256 -t 1" % MODEL
    lab.node1.check_output("setsid nohup %s >/root/second.log 2>&1 </dev/null & echo $!" % command)
    lab.eventually(lambda: any("8081" in line for line in servers(lab.node1)), 10, "the server without a unit runs")
    (left,) = [line[0] for line in servers(lab.node1) if "8081" in line]
    status, output = playbook(lab, "adopt")
    lab.node1.check_output("kill %s", left)
    assert status != 0
    assert "process %s (/opt/llama.cpp/build/bin/llama-server): started by no unit" % left in output
    assert lab.changed(output) == 0 and answers(lab)


def test_failed_adoption_restores_everything(lab, capsys):
    """The model of the new service is whole by its header, of an architecture that llama.cpp does not know."""
    lab.node1.check_output(
        'python3 -c \'import sys; data = open(sys.argv[1], "rb").read();'
        ' place = data.index(b"general.architecture") + 32; assert data[place:place + 5] == b"llama";'
        ' open(sys.argv[2], "wb").write(data[:place] + b"llamb" + data[place + 5:])\' %s '
        "/var/tmp/SmolLM2-135M-Instruct.Q4_X.gguf" % MODEL
    )
    models = {
        "smollm2-135m-instruct": {
            "aliases": ["smollm2"],
            "quants": {"Q4_X": {"urls": ["file:///var/tmp/SmolLM2-135M-Instruct.Q4_X.gguf"]}},
        }
    }
    with Outage(lab) as outage:
        status, output = playbook(lab, "adopt", "-e", json.dumps({"llama_models": models, "llama_quant": "Q4_X"}))
    with capsys.disabled():
        print("\nfailed adoption: nothing answered for %.1f s" % outage.seconds)
    assert status != 0
    assert "adopt: the new deployment does not serve (" in output
    assert "the old one serves again: correct that, then run adopt.yml again" in output
    assert answers(lab)
    for name in NAMES:
        node = getattr(lab, name)
        assert {server[1] for server in servers(node)} == {"root"}
        assert not node.file("/var/lib/llama-cluster/adopted").exists
        assert not node.file("/opt/llama.cpp/build").is_symlink


def test_failed_staging_stops_nothing(lab):
    models = {
        "smollm2-135m-instruct": {
            "quants": {
                "Q4_1": {"urls": ["file:///srv/llama-lab/SmolLM2-135M-Instruct.Q4_1.gguf"], "sha256": ["0" * 64]}
            }
        }
    }
    with Outage(lab) as outage:
        status, output = playbook(lab, "adopt", "-e", json.dumps({"llama_models": models}))
    assert status != 0
    assert "0" * 64 in output
    assert outage.seconds == 0
    assert answers(lab)
