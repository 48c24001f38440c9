# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics of the gateway's engine."""

import json
import re

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter.exposition import parse
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway import metrics
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.clients import CLIENTS
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.log import Entry
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.replicas import Fleet
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.status_page import PAGE
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_gateway import (
    CHUNKED,
    Server,
    chat,
    gateways,
    plain,
    request,
    service,
    wait_for,
)

CONTEXT = {
    "error": {
        "code": 400,
        "message": "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 9000,
        "n_ctx": 4096,
    }
}


@pytest.fixture
def made(tmp_path):
    """made(services, **keys of gateway.json) -> a gateway that is stopped after the test."""
    yield from gateways(tmp_path)


def page(gateway):
    status, headers, body = gateway.ask("/metrics")
    assert (status, headers["content-type"]) == (200, metrics.TYPE)
    return body.decode("utf-8")


def samples(text):
    """{name: {labels without braces: value}}, and no sample twice."""
    found = {}
    for one in parse(text):
        labels = ",".join("%s=%s" % item for item in sorted(one.labels.items()))
        assert labels not in found.setdefault(one.name[len("llama_gateway_") :], {}), (one.name, labels)
        found[one.name[len("llama_gateway_") :]][labels] = one.value
    return found


def counted(gateway, seen):
    """The samples once seen(samples) is true: a request is counted after its last byte."""
    found = []

    def look():
        found[:] = [samples(page(gateway))]
        return seen(found[0])

    wait_for(look)
    return found[0]


def requests(count, **labels):
    wanted = ",".join("%s=%s" % item for item in sorted(labels.items()))
    return lambda found: found.get("requests_total", {}).get(wanted) == count


def ended(**fields):
    entry = Entry()
    entry.set(**dict({"service": "big", "status": 200, "seconds": 1.0, "ttfb": 0.2, "tries": 1}, **fields))
    return entry.fields


def test_request_is_counted_with_its_times(made):
    gateway = made(service("big", Server()))
    for _one in range(3):
        assert gateway.ask(body=chat())[0] == 200
    found = counted(gateway, requests(3, service="big", code="200"))
    assert found["seconds_count"] == found["first_byte_seconds_count"] == {"service=big": 3}
    assert found["queue_seconds_bucket"]["le=0.05,service=big"] == 3
    assert 0 < found["first_byte_seconds_sum"]["service=big"] <= found["seconds_sum"]["service=big"] < 10
    assert found["in_flight"] == {"node=n1,service=big": 0} and found["queued"] == {"service=big": 0}
    assert found["endpoint_state"] == {"node=n1,service=big,state=ready": 1}
    assert found["retries_total"] == found["fallbacks_total"] == found["context_refused_total"] == {"service=big": 0}


def test_waiting_and_running_requests(made):
    server = Server().waits()
    gateway = made(service("big", server))
    ends = [gateway.open(request(body=chat()))]
    wait_for(lambda: server.requests)
    ends.append(gateway.open(request(body=chat())))
    found = counted(gateway, lambda found: found["queued"]["service=big"] == 1)
    assert found["in_flight"] == {"node=n1,service=big": 1}
    for end in ends:
        end.close()
    counted(gateway, requests(2, service="big", code="499"))


def test_retries_and_fallbacks_are_counted(made):
    broken = Server(act=lambda server, end: None)
    gateway = made(
        {
            **service("big", broken, Server("two")),
            **service("off", fallback="small", state="stopped"),
            **service("small", Server("three")),
        }
    )
    assert [gateway.ask(body=chat(name))[0] for name in ("big", "big", "off")] == [200] * 3
    found = counted(gateway, requests(1, service="small", code="200"))
    assert broken.requests and found["retries_total"]["service=big"] == len(broken.requests)
    assert found["fallbacks_total"] == {"service=big": 0, "service=off": 1, "service=small": 0}


BODY = json.dumps(CONTEXT).encode()
# The answer of a model's server through a router.
CHUNKS = CHUNKED.replace(b"200 OK", b"400 Bad Request") + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


@pytest.mark.parametrize(
    ("sent", "status", "count"),
    [
        (plain(BODY, 400), 400, 1),
        (CHUNKS, 400, 1),
        (plain(b'{"error":{"code":400,"message":"bad","type":"invalid_request_error"}}', 400), 400, 0),
        (plain(BODY), 200, 0),
    ],
)
def test_prompts_longer_than_a_slot_are_counted(made, sent, status, count):
    gateway = made(service("big", Server(act=lambda server, end: end.sendall(sent))))
    assert gateway.ask(body=chat())[0] == status
    found = counted(gateway, requests(1, service="big", code=str(status)))
    assert found["context_refused_total"] == {"service=big": count}


def test_unknown_names_are_counted_up_to_a_limit(made):
    gateway = made(service("big", Server()), unserved={"old": "retired"})
    for number in range(metrics.NAMES + 5):
        assert gateway.ask(body=chat("gone%d" % number))[0] == 404
    for name in ("gone0", "old", 'a"\\\nb', "BIG"):
        gateway.ask(body=chat(name))
    found = counted(gateway, requests(metrics.NAMES + 8, service="", code="404"))["names_unknown_total"]
    assert len(found) == metrics.NAMES + 1
    assert (found["name=gone0"], found["name=gone31"], found["name=" + metrics.OTHER]) == (2, 1, 7)


def test_name_beside_a_task_does_not_count(made):
    gateway = made(service("big", Server()), routes={"default": None, "tasks": {"code": "big"}})
    assert gateway.ask("/task/code/v1/chat/completions", chat("gpt"))[0] == 200
    assert gateway.ask(body=chat("gpt"), X_Task="code")[0] == 200
    assert gateway.ask(body=chat("gpt"))[0] == 404
    found = counted(gateway, requests(1, service="", code="404"))
    assert found["names_unknown_total"] == {"name=gpt": 1}


def test_pages_are_not_counted(made):
    gateway = made(service("big", Server()))
    for path in ("/health", "/status.json", "/metrics", "/metrics"):
        assert gateway.ask(path)[0] == 200
    assert gateway.ask("/nothing")[0] == 404
    found = counted(gateway, requests(1, service="", code="404"))
    assert found["requests_total"] == {"code=404,service=": 1}


def test_page_has_no_prompt_answer_or_key(made):
    server = Server(act=lambda server, end: end.sendall(plain(b'{"content": "the-answer"}')))
    gateway = made(service("big", server), {"clients": {"alice": "sk-secret"}, "services": {"big": "sk-inner"}})
    gateway.ask(body=chat(text="the-question"), Authorization="Bearer sk-secret", X_Real_IP="192.0.2.7")
    counted(gateway, requests(1, service="big", code="200"))
    text = page(gateway)
    for word in ("the-question", "the-answer", "sk-secret", "sk-inner", "alice", "192.0.2.7"):
        assert word not in text


def test_two_endpoints_on_one_node_are_one_sample(made):
    services = service("big", Server(), Server())
    services["big"]["endpoints"][1]["node"] = "n1"
    found = samples(page(made(services)))
    assert found["in_flight"] == {"node=n1,service=big": 0}
    assert found["endpoint_state"] == {"node=n1,service=big,state=ready": 1}


def test_histogram_counts_up_to_each_bound():
    counts = metrics.Counts()
    for seconds in (0.05, 0.06, 7.0, 5000.0):
        counts.ended(ended(seconds=seconds))
    counts.ended(ended(status=None, seconds=None, ttfb=None))
    found = samples(counts.text(Fleet()))
    bounds = {"0.05": 2, "0.1": 3, "5": 3, "10": 4, "1800": 4, "+Inf": 5}
    assert {bound: found["seconds_bucket"]["le=%s,service=big" % bound] for bound in bounds} == bounds
    assert found["first_byte_seconds_count"] == {"service=big": 4}, "without the request that had no byte"
    assert found["requests_total"] == {"code=200,service=big": 4, "code=499,service=big": 1}


def test_page_loads_nothing_from_other_places():
    links = set(re.findall(r"""\b(?:src|href|action)=["']?([^"' >]*)""", PAGE))
    assert links == {"data:,", "status.json", "clients"}
    assert "//" not in re.sub(r"</?[a-z]+[^>]*>", "", PAGE)
    assert "default-src 'none'; connect-src 'self'" in PAGE
    assert not re.search(r"innerHTML|document\.write|eval\(|@import|url\(", PAGE)


def test_script_finds_its_elements():
    assert set(re.findall(r'byId\("(\w+)"\)', PAGE)) <= set(re.findall(r'\bid="(\w+)"', PAGE))


def test_page_names_every_configuration():
    assert json.loads(re.search(r"CLIENTS = (\[.*?\]);", PAGE).group(1)) == list(CLIENTS)


def test_every_state_has_its_color():
    for state in ("ready", "loading", "draining", "waiting", "down", "stopped"):
        assert re.search(r"\.%s\b[^}]*\{ color" % state, PAGE)


def test_page_without_javascript_has_links():
    assert re.search(r'<noscript>.*href="status\.json".*href="clients".*</noscript>', PAGE, re.DOTALL)
