# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of a job as real processes, with stand-ins for SLURM's commands; molecule/slurm has a real SLURM.

The stand-ins note how they were called. scontrol prints what the file `shown` says, in the form of 22.05.
"""

import contextlib
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs."
SERVER, RPC = (str(Path(__file__).with_name(f"stand_in_{name}.py")) for name in ("llama_server", "rpc_server"))
DIGEST = "0123456789abcdef"
SHOWN = "JobId=4711 JobName=llama-chat JobState=RUNNING Restarts=%d StartTime=%d EndTime=%s PreemptTime=%s\n"
COMMANDS = {
    "systemctl": "exit 0",
    "scancel": 'echo "$@" >>{folder}/scancel.calls; exec {python} {kill_tasks} "$@"',
    "scontrol": 'echo "$@" >>{folder}/scontrol.calls; [ ! -e {folder}/hangs ] || exec sleep 60; cat {folder}/shown',
    # Runs a task for each node, and has the highest of their exit codes, as srun has.
    "srun": 'echo "$@" >>{folder}/srun.calls; exec {python} {srun} {folder}',
}
SRUN = (
    """
import os, signal, subprocess, sys
folder = sys.argv[1]
tasks = []
for node in open(folder + "/nodes").read().split():
    words = [sys.executable, "-S", "-m", "%sslurm_task"]
    tasks.append(subprocess.Popen(words, env=dict(os.environ, SLURMD_NODENAME=node)))
    open(folder + "/pids", "a").write("%%d\\n" %% tasks[-1].pid)
signal.signal(signal.SIGTERM, lambda number, frame: [task.send_signal(number) for task in tasks])
codes = [task.wait() for task in tasks]
sys.exit(max(128 - code if code < 0 else code for code in codes))
"""
    % PACKAGE
)
# As scancel does with a step: every process of its tasks gets the signal.
SIGNAL = """
import os, signal, sys
number = getattr(signal, "SIG" + sys.argv[1].rpartition("=")[2])
for pid in open(os.path.dirname(sys.argv[0]) + "/pids").read().split():
    try:
        os.kill(int(pid), number)
    except ProcessLookupError:
        pass
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(condition, within=15.0):
    until = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < until, "not within %.0f s" % within
        time.sleep(0.02)
    return found


def get(port, path, timeout=10):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout) as answer:
        return answer.read().decode()


def answers(port):
    with contextlib.suppress(OSError):
        return get(port, "/health", 1)
    return ""


def tree(pid):
    """A process and all that it started."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in below for one in tree(int(child)))]


def is_running(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class Cluster:
    """A job of a service on nodes of this machine. tmp_path: with the share, local directories and SLURM's commands."""

    def __init__(self, tmp_path, grace=10, workers=0):
        self.folder, self.grace = tmp_path, grace
        self.port, self.registry = free_port(), tmp_path / "registry"
        self.worker_ports = [free_port() for _number in range(workers)]
        for name in ("slurm", "logs", "state", "registry"):
            (tmp_path / name).mkdir()
        self.slurm = tmp_path / "slurm"
        (self.slurm / "srun.py").write_text(SRUN)
        (self.slurm / "kill_tasks.py").write_text(SIGNAL)
        (self.slurm / "pids").touch()
        self.shows()
        words = {"folder": self.slurm, "python": f"{sys.executable} -S"}
        words.update({name: self.slurm / f"{name}.py" for name in ("srun", "kill_tasks")})
        for name, text in COMMANDS.items():
            (self.slurm / name).write_text("#!/bin/sh\n" + text.format(**words) + "\n")
            (self.slurm / name).chmod(0o755)
        self.environment = {"SECRET_OF_THE_USER": "x", "CUDA_VISIBLE_DEVICES": "1"}
        self.processes = []
        self.head = {"role": "head", "argv": [sys.executable, "-S", SERVER, "--port", str(self.port)]}
        for port in self.worker_ports:
            self.head["argv"] += ["--rpc", f"127.0.0.1:{port}"]
        self.worker = {"role": "rpc", "argv": [sys.executable, "-S", RPC, "--port"]}

    def shows(self, ends="Unknown", preempted="None", restarts=0):
        """Sets what scontrol shows of the job."""
        (self.slurm / "shown").write_text(SHOWN % (restarts, time.time() - 60, ends, preempted))

    def job(self):
        common = {
            "environment": {"HOME": str(self.folder / "state"), "GGML_NO_BACKTRACE": "1"},
            "address": "127.0.0.1",
            "files": {},
            "cache": "",
            "endpoints": [],
            "build": "b11434-cpu-01234567",
            "ubatch": 512,
            "embeddings": False,
            "reranking": False,
        }
        endpoints = [f"127.0.0.1:{port}" for port in self.worker_ports]
        tasks = {"n1": {**common, **self.head, "port": self.port, "endpoints": endpoints}}
        for number, port in enumerate(self.worker_ports, 2):
            argv = [*self.worker["argv"], str(port)]
            tasks[f"n{number}"] = {**common, **self.worker, "argv": argv, "port": port}
        record = {"service": "chat", "host": "n1", "port": self.port, "models": ["m"]}
        registry = {"directory": str(self.registry), "suffix": "chat", "url": f"http://127.0.0.1:{self.port}"}
        return {
            "service": "chat",
            "digest": DIGEST,
            "user": user(),
            "grace": self.grace,
            "log_dir": str(self.folder / "logs"),
            "state_dir": str(self.folder / "state"),
            "registry": dict(registry, record=record),
            "tasks": tasks,
        }

    def start(self, program, **environment):
        """A program of the job -> its process."""
        job = self.job()
        (self.slurm / "nodes").write_text(" ".join(job["tasks"]))
        variables = {
            "PATH": f"{self.slurm}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / ".collections"),
            "LLAMA_JOB": json.dumps(job),
            "SLURM_JOB_ID": "4711",
            "SLURM_STEP_ID": "0",
        }
        with open(self.folder / f"output-{len(self.processes)}", "wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-S", "-m", PACKAGE + program],
                env={**variables, **self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
            )
        self.processes.append(process)
        return process

    def task(self, node="n1", **environment):
        """slurm_task on a node."""
        process = self.start("slurm_task", SLURMD_NODENAME=node, **environment)
        with open(self.slurm / "pids", "a") as stream:
            stream.write("%d\n" % process.pid)
        return process

    def output(self, process):
        return (self.folder / f"output-{self.processes.index(process)}").read_text()

    def log(self, name):
        path = self.folder / "logs" / "4711" / name
        return path.read_text() if path.exists() else ""

    def state(self):
        """The head's state in the registry."""
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.registry / "4711-chat.json").read_text())["state"]
        return None

    def calls(self, name):
        path = self.slurm / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def serves(self):
        """Waits until the head serves."""
        wait_for(lambda: self.state() == "ready")
        wait_for((self.folder / "logs/4711/served-0").exists)

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                for pid in reversed(tree(process.pid)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.wait()


def user():
    return pwd.getpwuid(os.getuid()).pw_name


def signal_all(process, number):
    """As SLURM does: every process of a step gets its signals."""
    for pid in tree(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
