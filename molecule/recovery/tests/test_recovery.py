"""Faults that systemd cannot see are repaired in time. What waits, or is slow, is not touched: test_patience.py of
scenario drill."""

import contextlib
import pathlib
import re
import sys
import threading
import time

import pytest
import requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import watched  # noqa: E402
from watched import (  # noqa: E402
    HEAD,
    WORKER,
    answers,
    ask,
    clock,
    pid,
    repaired,
    said,
    status_text,
    url,
)

at_rest, fabric_device = watched.fixture_at_rest, watched.fixture_fabric_device

# Everything to and from the head is lost on a worker's node: a host that has vanished, as seen from either side.
PARTITION = """table inet partition {
  chain input {
    type filter hook input priority -20
    ip saddr %s drop
  }
  chain output {
    type filter hook output priority -20
    ip daddr %s drop
  }
}
"""


class Request(threading.Thread):
    """A request in the background; reply is None when it broke off."""

    def __init__(self, lab, **request):
        super().__init__(daemon=True)
        self.lab, self.request, self.reply = lab, request, None
        self.start()

    def run(self):
        with contextlib.suppress(requests.RequestException):
            self.reply = ask(self.lab, **self.request)


def found_to_hang(lab, since):
    """Waits until the head's watchdog has found that it hangs. This head is quick, so what is promised holds for it:
    within twenty seconds."""
    repaired(
        lab, lab.node1, r"head chat: it says that it is well, but nothing has moved for .*: restarting it", since, 20
    )


def cut_off(lab, node):
    """-> the time from which nothing passes between that node and the head."""
    address = lab.fabric("node1")
    node.check_output("printf '%%s' %s | nft -f -", PARTITION % (address, address))
    return clock(lab.node1)


def test_idle_head_without_worker_restarts_within_a_second(lab):
    since = clock(lab.node1)
    lab.node2.check_output("systemctl kill --signal=KILL %s", WORKER)
    repaired(
        lab,
        lab.node1,
        "head chat: lost its connection to RPC worker %s:50052: restarting it" % lab.fabric("node2"),
        since,
        1,
    )
    lab.eventually(lambda: answers(lab), 60, "an answer")


def test_a_stopped_worker_of_an_idle_head(lab):
    since = clock(lab.node3)
    lab.node3.check_output("systemctl kill --signal=STOP %s", WORKER)
    repaired(lab, lab.node3, "worker chat: its process has been stopped for 3 s: restarting it", since, 6)
    repaired(lab, lab.node1, "head chat: serves", since, 60)
    assert answers(lab)


def test_hanging_worker_during_a_generation(lab):
    # Without its own watchdog: the head's has to find it, by what it has seen of this process.
    lab.node2.check_output("systemctl stop llama-watchdog")
    request = Request(lab, tokens=2000)
    lab.eventually(
        lambda: '"n_decoded":' in requests.get(url(lab, "/slots"), timeout=5).text, 30, "the request is at work"
    )
    time.sleep(3)
    since = clock(lab.node1)
    lab.node2.check_output("systemctl kill --signal=STOP %s", WORKER)
    found_to_hang(lab, since)
    # The new head waits for it, and tells; it serves again as soon as somebody has repaired the worker.
    lab.eventually(
        lambda: (
            "waits for RPC worker %s:50052: it lets the handshake wait" % lab.fabric("node2")
            in status_text(lab.node1, HEAD)
        ),
        40,
        "whom it waits for",
    )
    lab.node2.check_output("systemctl start llama-watchdog")
    repaired(lab, lab.node2, "worker chat: its process has been stopped", since, 80)
    lab.eventually(lambda: answers(lab), 60, "an answer")
    request.join(10)


def test_healthy_head_without_answers_is_restarted(lab):
    since = cut_off(lab, lab.node3)
    assert requests.get(url(lab, "/health"), timeout=5).status_code == 200
    found_to_hang(lab, since)
    lab.eventually(
        lambda: "waits for RPC worker %s:50052: no connection" % lab.fabric("node3") in status_text(lab.node1, HEAD),
        40,
        "whom it waits for",
    )
    status, output = lab.playbook("status")
    assert (
        status == 0
        and re.search(r"chat +node1, node2, node3 +loading ", output)
        and "it waits for RPC worker %s:50052" % lab.fabric("node3") in output
    ), output
    # The host is back: its worker still holds the connection of a head that is gone.
    since = clock(lab.node3)
    lab.node3.check_output("nft delete table inet partition")
    repaired(lab, lab.node1, "head chat: serves", since, 60)
    assert answers(lab)


def test_failed_load_backs_off_until_a_manual_start(lab):
    model = re.search(r"--model (\S+)", lab.node1.check_output("cat /etc/systemd/system/%s.service", HEAD)).group(1)
    lab.node1.check_output("mv %s %s.away", model, model)
    try:
        since = clock(lab.node1)
        lab.node1.check_output("systemctl restart --no-block %s", HEAD)
        lab.eventually(
            lambda: "waits 10 s: 2 runs in a row ended before they served" in status_text(lab.node1, HEAD),
            60,
            "back-off",
        )
        lab.eventually(
            lambda: "waits 30 s: 3 runs in a row ended before they served" in status_text(lab.node1, HEAD),
            60,
            "more back-off",
        )
    finally:
        lab.node1.check_output("mv %s.away %s", model, model)
    assert len(said(lab.node1, "restarting", since)) == 0, "failed loads are not the watchdog's business"
    since = clock(lab.node1)
    lab.node1.check_output("systemctl restart --no-block %s", HEAD)
    repaired(lab, lab.node1, "head chat: serves", since, 25)


@pytest.mark.parametrize("name", ["node1", "node2"])
def test_rules_that_are_flushed_come_back(lab, name):
    node = getattr(lab, name)
    rules = node.check_output("nft --stateless list table inet llama_cluster")
    since = clock(node)
    node.check_output("nft flush ruleset")
    repaired(lab, node, "firewall: rules were gone: loaded again", since, 3)
    assert node.check_output("nft --stateless list table inet llama_cluster") == rules


def test_the_watchdog_costs_next_to_nothing(lab):
    for name in ("node1", "node2"):
        node = getattr(lab, name)
        process = pid(node, "llama-watchdog")

        def ticks(node=node, process=process):
            # Its own time and that of the commands it has run.
            return sum(
                int(field)
                for field in node.check_output("cat /proc/%s/stat", process).rpartition(")")[2].split()[11:15]
            )

        before = ticks()
        time.sleep(10)
        share = (ticks() - before) / 10.0
        print("%s: %.1f %% of a core" % (name, share))
        assert share < 1.0, "percent of a core"


def test_killed_watchdog_remembers_served_heads(lab):
    def running():
        shown = dict(
            line.split("=", 1)
            for line in lab.node1.check_output("systemctl show -p ActiveState,MainPID llama-watchdog").splitlines()
        )
        return shown["ActiveState"] == "active" and shown["MainPID"]

    killed = running()
    lab.node1.check_output("systemctl kill --signal=KILL llama-watchdog")
    # For a moment systemd still calls the one that was killed active.
    lab.eventually(lambda: running() not in (False, killed), 10, "another watchdog runs")
    since = clock(lab.node1)
    lab.node3.check_output("systemctl kill --signal=KILL %s", WORKER)
    # The new watchdog knows which heads had served.
    repaired(lab, lab.node1, "head chat: lost its connection to RPC worker", since, 3)
    lab.eventually(lambda: answers(lab), 60, "an answer")
