"""Shared by the scenarios' tests: the nodes of the running scenario, and ansible-playbook against them."""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import typing

import pytest
import testinfra
from testinfra.backend.docker import DockerBackend

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests/lab/callback"))
import entered  # noqa: E402

# As inventories/lab/containers.yml has it for a scenario.
SLOT = int(os.environ.get("LLAMA_LAB_SLOT") or 1)
ADDRESSES = {"node1": 11, "node2": 12, "node3": 13}
# The lab's service as far as a test that changes it must repeat it; preflight checks that it is sound.
CHAT = {
    "model": "smollm2-135m-instruct",
    "quant": "Q4_1",
    "head": "llama_head",
    "workers": "llama_rpc",
    "port": 8000,
    "rpc_port": 50052,
    "threads": 1,
    "force_split": True,
}
# The directory of the other collections that playbooks name.
OTHERS = sysconfig.get_path("purelib")


class Node(DockerBackend):
    """As docker://, without the cost of docker exec."""

    nodes = entered.Nodes()

    def run(self, command, *args, **kwargs):
        words = self.nodes.words(self.name)
        if words is None or self.user:
            return super().run(command, *args, **kwargs)
        asked = self.get_command(command, *args)
        done = self.run_local(" ".join(["%s"] * (len(words) + 3)), *words, "/bin/sh", "-c", asked)
        done.command = self.encode(asked)
        return done


@functools.cache
def programs(core):
    """The directory with the programs of an ansible-core. A machine without a Python for it has the one of
    requirements.txt only; gate versions reports it."""
    found = core and subprocess.check_output([REPOSITORY / "tests/gates/core.sh", core], text=True).strip()
    return found or os.path.dirname(sys.executable)


def environment(core=None):
    """That of ansible-playbook. Tests read the recap, and tasks by name."""
    return dict(
        os.environ,
        PATH=programs(core) + os.pathsep + os.environ["PATH"],
        ANSIBLE_CONFIG=str(REPOSITORY / "ansible.cfg"),
        ANSIBLE_COLLECTIONS_PATH=os.pathsep.join((str(REPOSITORY / ".collections"), OTHERS)),
        ANSIBLE_NOCOLOR="1",
        ANSIBLE_STDOUT_CALLBACK="default",
        ANSIBLE_CALLBACKS_ENABLED="thefermisea.llama_cluster.warm,compiled_once,entered,one_process",
        ANSIBLE_CALLBACK_PLUGINS=str(REPOSITORY / "tests/lab/callback"),
        COLUMNS="10000",
    )


class Playbooks:
    """ansible-playbook of requirements.txt, loaded once for all runs of a scenario's tests: a second of each run."""

    def __init__(self):
        self.lock = threading.Lock()
        program = REPOSITORY / "tests/unit/playbooks/playbook_server.py"
        self.server = subprocess.Popen(
            [sys.executable, program],
            cwd=REPOSITORY,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, arguments):
        """-> (exit status, output)"""
        with self.lock, tempfile.NamedTemporaryFile("r") as output:
            asked = {"arguments": arguments, "environment": environment(), "output": output.name, "simulated": False}
            self.server.stdin.write(json.dumps(asked) + "\n")
            self.server.stdin.flush()
            return int(self.server.stdout.readline()), output.read()


playbooks = functools.cache(Playbooks)


class Lab:
    """The scenario's nodes: `lab.node1.run(...)`, addresses, and playbooks."""

    # The ansible-cores that may be used; without one it is that of requirements.txt, as in molecule's own steps.
    OLDEST, NEWEST = "2.18", "2.21"
    # The benchmarks of an upgrade and a switch; whether a good build is fast enough is not for a machine to say that
    # does other things beside.
    SHORT: typing.ClassVar = {
        "upgrade_requests": 2,
        "upgrade_max_tokens": 3,
        "upgrade_prompt": "Name one color.",
        "upgrade_min_ratio": 0.01,
        "acceptance_max_tokens": 3,
    }

    def __init__(self):
        self.name = "llama-lab%d" % SLOT
        for name in ADDRESSES:
            setattr(self, name, testinfra.host.Host(Node("llama-lab%d-%s" % (SLOT, name))))

    @staticmethod
    def ethernet(name):
        return "10.213.%d.%d" % (SLOT, ADDRESSES[name])

    @staticmethod
    def fabric(name):
        return "10.214.%d.%d" % (SLOT, ADDRESSES[name])

    @staticmethod
    def playbook(name, *arguments, inventory="inventories/lab", core=None):
        """Runs playbooks/NAME.yml with an ansible-core -> (exit status, output without line folding)."""
        words = ["playbooks/%s.yml" % name, "-i", inventory, *arguments]
        if core is None:
            status, output = playbooks().run(words)
            return status, " ".join(output.split())
        done = subprocess.run(
            ["ansible-playbook", *words],
            cwd=REPOSITORY,
            env=environment(core),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, " ".join(done.stdout.split())

    @staticmethod
    def chat(**changes):
        """llama_services with a changed lab's service; None drops a key."""
        return {"chat": {key: value for key, value in dict(CHAT, **changes).items() if value is not None}}

    @property
    def reports(self):
        """The inventory's directory of reports."""
        cache = os.environ.get("LLAMA_CLUSTER_CACHE") or os.path.join(
            os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "llama-cluster"
        )
        return pathlib.Path(cache, "reports/llama-lab%d" % SLOT)

    def report(self, service):
        """The last acceptance report of a service."""
        return json.loads((self.reports / ("%s.json" % service)).read_text())

    @staticmethod
    def restart(name):
        """The node loses power and boots again."""
        container = "llama-lab%d-%s" % (SLOT, name)
        subprocess.check_call(["docker", "kill", container], stdout=subprocess.DEVNULL)
        subprocess.check_call(["docker", "start", container], stdout=subprocess.DEVNULL)

    @staticmethod
    def changed(output):
        """Sum of changed= over the hosts of a play recap."""
        counts = re.findall(r"changed=(\d+)", output)
        assert counts, output
        return sum(int(count) for count in counts)

    @staticmethod
    def connects(node, address, port, user="root"):
        """Whether a TCP connection of a user of a node succeeds (a refusal or three seconds of silence is a no)."""
        command = "setpriv --reuid=%s --clear-groups timeout 3 bash -c 'exec 3<>/dev/tcp/%s/%s'"
        return node.run(command, user, address, str(port)).rc == 0

    @staticmethod
    def exposure(node, unit):
        """-> the exposure of a unit from 0 to 10, by systemd-analyze security"""
        last = node.check_output("systemd-analyze security --no-pager %s", unit).splitlines()[-1]
        return float(re.search(r"exposure level for \S+: ([0-9.]+)", last).group(1))

    @staticmethod
    def eventually(condition, seconds, what):
        """Waits until condition() is true; fails with what was waited for."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "%s: not so after %d s" % (what, seconds)
            time.sleep(0.5)


@pytest.fixture(scope="session")
def lab():
    found = Lab()
    # Figures of an earlier run are of other nodes.
    shutil.rmtree(found.reports / "benchmarks", ignore_errors=True)
    return found
