# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that a script exports: what is sound, and what a refusal names."""

import copy
import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import job
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

HEAD = {
    "role": "head",
    "argv": ["/opt/llama-server", "--port", "8000"],
    "environment": {"A": "two words"},
    "address": "10.0.0.31",
    "port": 8000,
    "files": {},
    "cache": "",
    "endpoints": ["10.0.0.32:50052"],
    "build": "b11434-cuda-0123",
    "ubatch": 512,
    "embeddings": False,
    "reranking": False,
}
WORKER = dict(HEAD, role="rpc", endpoints=[], address="10.0.0.32", port=50052, cache="/var/cache/x")
JOB = {
    "service": "reasoning",
    "digest": "0123456789abcdef",
    "user": "llama",
    "grace": 30,
    "log_dir": "/logs",
    "state_dir": "/var/cache/x",
    "registry": {"directory": "/e", "suffix": "72b", "url": "http://10.0.0.31:8000", "record": {"host": "n1"}},
    "tasks": {"n1": HEAD, "n2": WORKER},
}


def with_task(**fields):
    return dict(JOB, tasks={"n1": dict(HEAD, **fields), "n2": WORKER})


def without(entry, *names):
    found = copy.deepcopy(entry)
    for name in names:
        del found[name]
    return found


def test_sound_job_is_read():
    found = job.parse(json.dumps(JOB))
    assert found.head.node == "n1" and found.head.endpoints == ["10.0.0.32:50052"]
    assert found.registry.suffix == "72b" and found.tasks["n2"].cache == "/var/cache/x"
    assert job.parse(json.dumps(dict(JOB, registry=None))).registry is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("", "LLAMA_JOB: no JSON object seen, one is needed: "),
        ("[]", "LLAMA_JOB: no JSON object seen"),
        ("[" * 100000, "LLAMA_JOB: no JSON object seen"),
        (" " * 130000, "LLAMA_JOB: 130000 bytes seen, at most 122880 bytes are needed: "),
        (without(JOB, "grace"), "LLAMA_JOB.grace: nothing seen, a number of seconds is needed: "),
        (dict(JOB, grace=True), "LLAMA_JOB.grace: true seen"),
        (dict(JOB, service="a/b"), 'LLAMA_JOB.service: "a/b" seen'),
        (dict(JOB, log_dir="logs"), 'LLAMA_JOB.log_dir: "logs" seen, a path is needed'),
        (dict(JOB, log_dir="/a/../b"), "LLAMA_JOB.log_dir: "),
        (dict(JOB, registry=[]), "LLAMA_JOB.registry: no map seen"),
        (dict(JOB, registry={}), "LLAMA_JOB.registry.directory: nothing seen"),
        (dict(JOB, tasks={}), "LLAMA_JOB.tasks: 0 nodes seen"),
        (dict(JOB, tasks={"n2": WORKER}), "LLAMA_JOB.tasks: another number of heads seen, exactly one is needed"),
        (dict(JOB, tasks={"n1": HEAD, "n2": HEAD}), "LLAMA_JOB.tasks: another number of heads seen"),
        (dict(JOB, tasks={"../x": HEAD}), "LLAMA_JOB.tasks: 1 nodes seen"),
        (with_task(argv=[]), "LLAMA_JOB.tasks.n1.argv: [] seen, a path and words is needed"),
        (with_task(argv=["llama-server"]), "LLAMA_JOB.tasks.n1.argv: "),
        (with_task(argv=["/x", "a\0b"]), "LLAMA_JOB.tasks.n1.argv: "),
        (with_task(environment={"A B": "1"}), "LLAMA_JOB.tasks.n1.environment: "),
        (with_task(port=0), "LLAMA_JOB.tasks.n1.port: 0 seen, a port is needed"),
        (with_task(role="boss"), 'LLAMA_JOB.tasks.n1.role: "boss" seen, head, router or rpc is needed'),
        (with_task(files={"/a/x": "", "/b/x": ""}), "LLAMA_JOB.tasks.n1.files: "),
        (with_task(files={"/a/..": ""}), "LLAMA_JOB.tasks.n1.files: "),
        (with_task(endpoints=["here"]), "LLAMA_JOB.tasks.n1.endpoints: "),
        (with_task(embeddings=0), "LLAMA_JOB.tasks.n1.embeddings: 0 seen"),
    ],
)
def test_unsound_job_is_refused_by_name(given, sentence):
    with pytest.raises(Refusal) as refused:
        job.parse(given if isinstance(given, str) else json.dumps(given))
    assert str(refused.value).startswith(sentence) and str(refused.value).endswith("--tags slurm again")


def test_files_of_a_task_are_placed():
    files = {"/etc/x/a.ini": "see /etc/x/a.ini.more", "/etc/x/a.ini.more": "text", "/run/empty": None}
    task = job.parse(
        json.dumps(with_task(files=files, argv=["/bin/s", "--p=/etc/x/a.ini"], environment={"E": "/run/empty"}))
    ).head
    assert task.placed("/tmp/mine") == (
        ["/bin/s", "--p=/tmp/mine/a.ini"],
        {"E": "/tmp/mine/empty"},
        {"/tmp/mine/a.ini": "see /tmp/mine/a.ini.more", "/tmp/mine/a.ini.more": "text", "/tmp/mine/empty": None},
    )


def test_comment_is_read_back():
    assert job.COMMENT.match(job.comment("reasoning", "0123456789abcdef")).groups() == (
        "reasoning",
        "0123456789abcdef",
    )
    assert not job.COMMENT.match("llama_cluster:x:abc") and not job.COMMENT.match("")
