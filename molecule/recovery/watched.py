"""A head and its workers that a test breaks, and what the watchdog said of it. Times are from the nodes' journals."""

import json
import re

import pytest
import requests

HEAD, WORKER = "llama-head-chat", "llama-rpc-chat"


def url(lab, path):
    return "http://%s:8000%s" % (lab.ethernet("node1"), path)


def ask(lab, prompt="Name the three primary colors.", tokens=8, timeout=120):
    body = {
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "messages": [{"role": "user", "content": prompt}],
    }
    return requests.post(url(lab, "/v1/chat/completions"), json=body, timeout=timeout)


def answers(lab):
    try:
        return ask(lab).json()["usage"]["completion_tokens"] == 8
    except (requests.RequestException, KeyError, ValueError):
        return False


def clock(node):
    """The node's time in seconds, as its journal counts it."""
    return float(node.check_output("date +%s.%N"))


def said(node, what, since, identifier="llama-watchdog"):
    """Times of a program's journal lines that match, since a time of that node."""
    text = node.check_output("journalctl -t %s --since=@%s -o json --no-pager", identifier, str(int(since)))
    found = []
    for line in text.splitlines():
        entry = json.loads(line)
        moment = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
        if moment >= since and re.search(what, str(entry["MESSAGE"])):
            found.append(moment)
    return found


def repaired(lab, node, what, since, within):
    """Waits for the watchdog's line -> seconds since then, which must not be more than within."""
    lab.eventually(lambda: said(node, what, since), within + 10, "the line %r" % what)
    seconds = said(node, what, since)[0] - since
    print("%s: after %.2f s" % (what, seconds))
    assert seconds <= within
    return seconds


def pid(node, unit):
    return node.check_output("systemctl show --property=MainPID --value %s", unit)


def status_text(node, unit):
    return node.check_output("systemctl show --property=StatusText --value %s", unit)


@pytest.fixture(autouse=True)
def fixture_at_rest(lab):
    """Each test begins with a head that has just loaded and has been asked for nothing but the watchdog's token."""
    since = clock(lab.node1)
    lab.node1.check_output("systemctl restart %s", HEAD)
    lab.eventually(lambda: said(lab.node1, "head chat: serves", since), 60, "the head serves")
    lab.eventually(lambda: tokens(lab) > 0, 30, "the watchdog has asked for a token")
    yield
    for name in ("node2", "node3"):
        getattr(lab, name).run(
            "nft delete table inet partition; systemctl kill --signal=CONT %s; systemctl start %s llama-watchdog",
            WORKER,
            WORKER,
        )
    lab.node1.run("tc qdisc del dev %s root", lab.fabric_device)


def tokens(lab):
    try:
        return int(
            re.search(
                r"^llamacpp:tokens_predicted_total (\d+)",
                requests.get(url(lab, "/metrics"), timeout=5).text,
                re.MULTILINE,
            ).group(1)
        )
    except (requests.RequestException, AttributeError):
        return 0


@pytest.fixture(scope="module", autouse=True)
def fixture_fabric_device(lab):
    lab.fabric_device = re.search(
        r"^\d+: (\S+) .*inet %s/" % re.escape(lab.fabric("node1")),
        lab.node1.check_output("ip -o -4 addr"),
        re.MULTILINE,
    ).group(1)
