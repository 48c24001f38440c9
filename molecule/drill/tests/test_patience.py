"""A head that waits for another node, or is slow, is not touched. No test here asserts seconds: those are in scenario
recovery, which runs by itself."""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "recovery"))
import watched  # noqa: E402
from watched import (  # noqa: E402
    HEAD,
    WORKER,
    ask,
    clock,
    pid,
    repaired,
    said,
    status_text,
)

at_rest, fabric_device = watched.fixture_at_rest, watched.fixture_fabric_device


def test_long_prompt_on_slow_fabric_is_not_touched(lab):
    before = pid(lab.node1, HEAD)
    lab.node1.check_output("tc qdisc add dev %s root tbf rate 2mbit burst 32kb latency 400ms", lab.fabric_device)
    since = clock(lab.node1)
    started = time.monotonic()
    reply = ask(lab, prompt="color " * 1010, tokens=1, timeout=280).json()
    seconds = time.monotonic() - started
    print("a prompt of %d tokens took %.0f s" % (reply["usage"]["prompt_tokens"], seconds))
    assert reply["usage"]["prompt_tokens"] > 1024 and reply["usage"]["completion_tokens"] == 1
    assert seconds > 40, "several micro-batches, each longer than an idle head's deadline"
    assert pid(lab.node1, HEAD) == before
    assert said(lab.node1, "restarting", since) == []


def test_too_few_workers(lab):
    lab.node2.check_output("systemctl stop %s", WORKER)
    lab.eventually(
        lambda: (
            "waits for RPC worker %s:50052: the port is closed" % lab.fabric("node2") in status_text(lab.node1, HEAD)
        ),
        40,
        "whom it waits for",
    )
    assert lab.node1.check_output("systemctl show --property=ActiveState --value %s", HEAD) == "activating"
    since = clock(lab.node1)
    lab.node2.check_output("systemctl start %s", WORKER)
    repaired(lab, lab.node1, "head chat: serves", since, 60)
