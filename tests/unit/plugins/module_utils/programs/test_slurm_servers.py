# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks with the servers of llama.cpp that the lab has built and a real model; with stand-ins where it has none."""

import json
import os
import signal
import tarfile
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.slurm_tasks import (
    Cluster,
    get,
    is_running,
    signal_all,
    tree,
    wait_for,
)

CACHE = Path(os.environ.get("LLAMA_CLUSTER_CACHE", os.path.expanduser("~/.cache/llama-cluster")))
MODEL = CACHE / "files/SmolLM2-135M-Instruct.Q4_1.gguf"
PROGRAMS = ("llama-server", "ggml-rpc-server")


@pytest.fixture(name="build", scope="module")
def fixture_build(tmp_path_factory):
    """A directory with the servers; None without a build."""
    # That of Debian 12 runs with newer C libraries too; the cache also has one of Debian 13.
    found = sorted((CACHE / "builds").glob("llama.cpp-b11434-cpu-*-debian12.tar.gz"))
    if not found or not MODEL.exists():
        return None
    folder = tmp_path_factory.mktemp("build")
    with tarfile.open(found[-1]) as archive:
        for name in PROGRAMS:
            archive.extract(f"./bin/{name}", folder)
    return folder / "bin"


@pytest.fixture(name="cluster")
def fixture_cluster(tmp_path, build):
    """A service split over two nodes, that serves."""
    one = Cluster(tmp_path, grace=20, workers=1)
    if build:
        words = {"--host": "127.0.0.1", "--port": one.port, "--model": MODEL, "--ctx-size": 512, "--threads": 1}
        words.update({"--rpc": f"127.0.0.1:{one.worker_ports[0]}", "--gpu-layers": 99, "--parallel": 1})
        one.head["argv"] = [
            str(build / PROGRAMS[0]),
            "--metrics",
            *(str(word) for pair in words.items() for word in pair),
        ]
        one.worker["argv"] = [str(build / PROGRAMS[1]), "--host", "127.0.0.1", "--port"]
    one.tasks = [one.task("n1"), one.task("n2")]
    wait_for(lambda: one.state() == "ready", 60)
    wait_for((one.folder / "logs/4711/served-0").exists)
    yield one
    one.close()


class Answer(threading.Thread):
    """An answer of some tokens. tokens: that came, None while it runs."""

    def __init__(self, cluster, build, tokens):
        super().__init__(daemon=True)
        self.port, self.build, self.wanted, self.tokens = cluster.port, build, tokens, None
        self.start()
        wait_for(lambda: "requests_processing 1" in get(self.port, "/metrics"))

    def run(self):
        if not self.build:
            get(self.port, "/work?2", 30)
            self.tokens = self.wanted
            return
        asked = {"prompt": "Once", "n_predict": self.wanted, "ignore_eos": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/completion",
            json.dumps(asked).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as stream:
            self.tokens = json.load(stream)["tokens_predicted"]


def test_answer_ends_before_its_servers(cluster, build):
    pids = [pid for task in cluster.tasks for pid in tree(task.pid)]
    answer = Answer(cluster, build, 60)
    for _time in range(2):
        for task in cluster.tasks:
            signal_all(task, signal.SIGTERM)
        wait_for(lambda: cluster.state() == "draining", 1)
    assert [task.wait(25) for task in cluster.tasks] == [0, 0]
    answer.join(1)
    assert answer.tokens == 60
    assert not any(is_running(pid) for pid in pids) and cluster.state() is None


def test_lost_worker_ends_the_head(cluster, build):
    time.sleep(1)
    server = tree(cluster.tasks[1].pid)[-1]
    os.kill(server, signal.SIGKILL)
    assert [task.wait(15) for task in cluster.tasks] == [75, 75]
    assert "ended by itself: SIGKILL" in cluster.output(cluster.tasks[1])
