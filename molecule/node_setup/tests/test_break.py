"""break.sh on a unit of its own: each fault is really there, and gone without a trace when it is undone."""

import pathlib

import pytest

FILES = pathlib.Path(__file__).resolve().parents[3] / "roles/drill/files"
SCRIPT = "\n".join((FILES / name).read_text() for name in ("peers.sh", "break.sh"))
UNIT = "drill-dummy.service"
# Two builds of a server that only waits, a model of three MiB, a directory that it needs room in.
PREPARE = """
mkdir -p /srv/drill-dummy/releases/b1/bin /srv/drill-dummy/releases/b2/bin /srv/drill-dummy/room
for build in b1 b2; do
  printf '#!/bin/sh\\nexec sleep 1000\\n' >/srv/drill-dummy/releases/$build/bin/ggml-rpc-server
  chmod +x /srv/drill-dummy/releases/$build/bin/ggml-rpc-server
done
head -c 3145728 /dev/urandom >/srv/drill-dummy/model.gguf
cat >/etc/systemd/system/drill-dummy.service <<UNIT
[Service]
ExecStart=/srv/drill-dummy/releases/b2/bin/ggml-rpc-server --port 1
Restart=always
RestartSec=0.2
UNIT
systemctl daemon-reload
systemctl start drill-dummy
"""
# An unused address: the node's own loopback replaces another node.
PEER = "127.0.0.9"
ENVIRONMENT = {
    "UNIT": UNIT,
    "PEERS": PEER,
    "HOLD": "600",
    "MODEL": "/srv/drill-dummy/model.gguf",
    "FULL": "/srv/drill-dummy/room",
    "RELEASES": "/srv/drill-dummy/releases",
}


class Victim:
    def __init__(self, lab):
        self.lab, self.node = lab, lab.node3

    def script(self, what, action, **environment):
        """-> the last line that break.sh prints."""
        variables = " ".join("%s=%s" % item for item in dict(ENVIRONMENT, **environment).items())
        command = "printf '%%s' %s | env " + variables + " bash -s -- %s %s"
        return self.node.check_output(command, SCRIPT, what, action).splitlines()[-1]

    def shown(self, name):
        return self.node.check_output("systemctl show --property=%s --value %s", name, UNIT)

    def pid(self):
        return self.shown("MainPID")

    def runs_anew(self, before):
        self.lab.eventually(
            lambda: self.shown("ActiveState") == "active" and self.pid() not in ("0", before),
            10,
            "another process of the unit",
        )

    def reaches_its_peer(self):
        """Refused is reached; 124 is timeout's silence."""
        return self.node.run("timeout 1 bash -c 'exec 3<>/dev/tcp/%s/9'", PEER).rc != 124

    def state(self):
        """Possible leftovers of a fault."""
        looks = (
            "systemctl show -p DropInPaths -p MemoryMax -p ExecStart --value drill-dummy | sed 's/ ; "
            "ignore_errors.*//'",
            "findmnt -rno TARGET | sort",
            "nft list tables",
            "ls -d /run/llama-drill* /run/systemd/system/drill-dummy* 2>/dev/null",
            "systemctl list-timers --all --no-legend 'llama-drill*'",
        )
        return [self.node.run(look).stdout for look in looks]


@pytest.fixture(name="victim")
def fixture_victim(lab):
    lab.node3.check_output(PREPARE)
    victim = Victim(lab)
    victim.runs_anew("0")
    before = victim.state()
    yield victim
    lab.eventually(lambda: victim.shown("ActiveState") == "active", 10, "the unit runs again")
    after = victim.state()
    lab.node3.check_output(
        "systemctl stop drill-dummy; rm -r /srv/drill-dummy /etc/systemd/system/drill-dummy.service; systemctl "
        "daemon-reload"
    )
    assert after == before


def test_timer_reconnects_a_cut_off_node(victim):
    assert victim.reaches_its_peer()
    broken_at = float(victim.script("break", "cut_off", HOLD="15"))
    assert not victim.reaches_its_peer()
    # The playbook has died.
    victim.lab.eventually(victim.reaches_its_peer, 30, "the node reaches its peers again")
    assert float(victim.node.check_output("date +%s.%N")) - broken_at >= 14.5, "it was cut off as long as it was to be"


@pytest.mark.parametrize("action", ["cut_off", "gone"])
def test_cut_off_node_is_connected_again(victim, action):
    before = victim.pid()
    victim.script("break", action)
    assert not victim.reaches_its_peer()
    if action == "gone":
        victim.runs_anew(before)
    victim.script("undo", action)
    assert victim.reaches_its_peer()
    assert (victim.pid() == before) == (action == "cut_off")


def test_there_is_no_room(victim):
    before = victim.pid()
    victim.script("break", "full")
    assert victim.node.run("touch /srv/drill-dummy/room/x").rc != 0
    victim.runs_anew(before)
    victim.script("undo", "full")
    victim.node.check_output("touch /srv/drill-dummy/room/x")


def test_model_is_damaged_only_for_the_unit(victim):
    def size():
        return victim.node.check_output(
            "nsenter --mount --target %s stat -c %%s /srv/drill-dummy/model.gguf", victim.pid()
        )

    before, digest = victim.pid(), victim.node.check_output("sha256sum /srv/drill-dummy/model.gguf")
    victim.script("break", "damage")
    victim.runs_anew(before)
    assert size() == "1048576"
    before = victim.pid()
    victim.script("undo", "damage")
    victim.runs_anew(before)
    assert size() == "3145728"
    assert victim.node.check_output("sha256sum /srv/drill-dummy/model.gguf") == digest


def test_the_memory_is_limited(victim):
    before = victim.pid()
    kib = int(victim.node.check_output("sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\) kB/\\1/p' /proc/%s/status", before))
    victim.script("break", "limit_memory")
    # Rounded down to pages.
    assert kib * 512 - 4096 <= int(victim.shown("MemoryMax")) <= kib * 512
    victim.script("undo", "limit_memory")
    assert victim.shown("MemoryMax") == "infinity"
    victim.lab.eventually(lambda: victim.pid() not in ("0", before), 10, "another process")


def test_the_other_build_runs(victim):
    before = victim.pid()
    victim.script("break", "wrong_build")
    victim.runs_anew(before)
    assert "/releases/b1/bin/ggml-rpc-server --port 1 " in victim.shown("ExecStart")
    before = victim.pid()
    victim.script("undo", "wrong_build")
    victim.runs_anew(before)
    assert "/releases/b2/bin/ggml-rpc-server --port 1 " in victim.shown("ExecStart")
