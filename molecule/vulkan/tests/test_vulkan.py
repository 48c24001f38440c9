"""A head and a worker that compute with Vulkan, and a worker of the CPU, serve one model on Debian 13."""

import time

import pytest
import requests

UNITS = {"node1": "llama-head-chat", "node2": "llama-rpc-chat", "node3": "llama-rpc-chat"}
ACCELERATORS = {"node1": "vulkan", "node2": "vulkan", "node3": "cpu"}
# The first tokens of workers of the CPU.
ANSWER = "The three primary colors are:\n\nRed"


def answer(lab):
    """The answer, or None from a head that does not respond."""
    body = {
        "max_tokens": 9,
        "temperature": 0,
        "messages": [{"role": "user", "content": "Name the three primary colors."}],
    }
    try:
        reply = requests.post(
            "http://%s:8000/v1/chat/completions" % lab.ethernet("node1"), json=body, timeout=60
        ).json()
        return reply["choices"][0]["message"]["content"]
    except (requests.RequestException, KeyError, ValueError):
        return None


@pytest.mark.parametrize("name", UNITS)
def test_unit_runs_the_build_of_its_node(lab, name):
    node = getattr(lab, name)
    assert 'PRETTY_NAME="Debian GNU/Linux 13' in node.check_output("cat /etc/os-release")
    started = node.check_output("systemctl show --property=ExecStart --value %s", UNITS[name])
    assert "/opt/llama.cpp/releases/b11434-%s-" % ACCELERATORS[name] in started


def test_plan_is_what_the_devices_hold(lab):
    seen = lab.report("chat")
    assert [worker["layers"] for worker in seen["workers"]] == [10, 10]
    assert [(row["node"], row["device"]) for row in seen["plan"]] == [
        ("node2", "GPU0"),
        ("node3", "main"),
        ("node1", "GPU0"),
        ("node1", "main"),
    ]
    # The head's embedding is in its main memory. Plans are rounded up to MiB.
    for row in seen["plan"]:
        assert abs(row["error_percent"]) <= 2, row


def test_answer_is_that_of_the_cpu(lab):
    assert answer(lab) == ANSWER
    said = lab.report("chat")["answer"]
    assert said and ANSWER.startswith(said)


@pytest.mark.parametrize("name", UNITS)
def test_killed_process_recovers(lab, name):
    since = time.monotonic()
    getattr(lab, name).check_output("systemctl kill --signal=KILL %s", UNITS[name])
    lab.eventually(lambda: answer(lab) == ANSWER, 60, "the same answer")
    print("%s of %s was killed: answers after %.1f s" % (UNITS[name], name, time.monotonic() - since))
