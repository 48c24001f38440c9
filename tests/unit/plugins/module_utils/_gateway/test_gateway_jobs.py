# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services by SLURM: their servers are in the registry, beside the keeper's word on jobs to come."""

import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway import config, watched
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.affinity import NONE
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.replicas import (
    DOWN,
    LOADING,
    NO_WORD,
    READY,
    STOPPED,
    WAITING,
    Drained,
    Fleet,
    Waiter,
)
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_gateway import (
    Server,
    chat,
    gateways,
    request,
    service,
    wait_for,
)

WHY = "job 4711 waits (Priority), expected 14:05"
PLACE = {"node": "n1", "address": "127.0.0.1", "port": 9, "slots": 1}
REGISTRY = {"hosts": {"n1": "127.0.0.1"}}


def entry(name="big", **changed):
    return {**PLACE, "service": name, "models": [name], "tier": None, "state": "ready", **changed}


def waits(name="big", **changed):
    return entry(name, **{"state": "waiting", "why": WHY, "retry_after": 240, **changed})


def job(name="big", **keys):
    return service(name, launcher="slurm", **keys)


def pool_of(entries, services=None, seen=None):
    """The pool of big. seen: state of its servers."""
    own = config.parse({"version": 1, "services": services or job(), "registry": REGISTRY})
    merged, drains = watched.merged(own, {"endpoints": entries})
    fleet = Fleet()
    for endpoint in fleet.configure(merged, 0, 0):
        if seen:
            fleet.observe(endpoint, seen, 0, 0)
    fleet.drain(drains)
    return fleet.pools["big"]


@pytest.mark.parametrize(
    "entries, seen, judged, why",
    [
        ([], None, WAITING, NO_WORD.why),
        ([waits()], None, WAITING, WHY),
        ([waits(why=None, retry_after=None)], None, WAITING, NO_WORD.why),
        ([entry()], READY, READY, None),
        ([entry()], LOADING, LOADING, None),
        ([entry()], DOWN, DOWN, None),
        ([waits(), entry()], READY, READY, WHY),
        ([waits(), entry()], LOADING, LOADING, WHY),
        # A node that died: its file lives on for a while.
        ([waits(), entry()], DOWN, WAITING, WHY),
        ([entry(state="draining")], READY, WAITING, "its job gives up its GPUs"),
    ],
)
def test_what_a_request_of_a_job_meets(entries, seen, judged, why):
    pool = pool_of(entries, seen=seen)
    assert (pool.judge(), pool.waiting and pool.waiting.why) == (judged, why)


def test_waiting_endpoint_is_no_server():
    pool = pool_of([waits()])
    assert pool.endpoints == []
    assert (pool.take("big", NONE), pool.take("big", NONE, patient=0), pool.visit(), pool.state) == (WAITING,) * 4


def test_service_of_systemd_waits_for_no_job():
    server = Server("big")
    pool = pool_of([waits(port=server.port)], services=service("big", server), seen=DOWN)
    assert (pool.judge(), pool.waiting, len(pool.endpoints)) == (DOWN, None, 1)


def test_service_only_of_the_registry_may_wait():
    own = config.parse({"version": 1, "services": {}, "registry": REGISTRY})
    merged, _drains = watched.merged(own, {"endpoints": [waits("new", tier="fast")]})
    assert merged.services["new"].waiting == ("n1", WHY, 240)
    assert (merged.names["new"], merged.tiers) == (("new", "new"), {"fast": "new"})
    assert watched.merged(own, {"endpoints": [waits("new", address="10.9.9.9")]})[0].services == {}


def test_stopped_service_does_not_wait():
    assert pool_of([waits()], services=job(state="stopped")).judge() == STOPPED


def test_draining_job_is_not_soon_back():
    own = config.parse({"version": 1, "services": job(), "registry": REGISTRY})
    drains = watched.merged(own, {"endpoints": [entry(state="draining")]})[1]
    assert drains == [Drained("big", "127.0.0.1:9", "maintenance")]


@pytest.mark.parametrize("patient", [False, True])
def test_queue_ends_when_the_job_drains(patient):
    pool, granted = pool_of([entry()], seen=READY), []
    pool.take("big", NONE)
    pool.wait(Waiter("big", NONE, granted.append, patient))
    pool.endpoints[0].drained("maintenance")
    pool.pump()
    assert granted == [WAITING]


@pytest.fixture
def made(tmp_path):
    """made(services, **keys of gateway.json) -> a gateway that is stopped after the test."""
    yield from gateways(tmp_path)


def said(gateway, *entries):
    gateway.write("registry.json", {"version": 1, "endpoints": list(entries)})


def test_client_reads_why_the_job_waits(made):
    gateway = made(job(), registry=REGISTRY)
    status, headers, body = gateway.ask(body=chat())
    assert (status, body["error"]["message"]) == (503, "big: no job of SLURM serves it")
    said(gateway, waits())
    wait_for(lambda: gateway.state("big")["why"] == WHY)
    status, headers, body = gateway.ask(body=chat())
    assert (status, headers["retry-after"]) == (503, "240")
    assert (body["error"]["code"], body["error"]["message"]) == ("waiting_for_gpus", f"big: {WHY}")
    assert [gateway.ask(path, chat())[0] for path in ("/v1/embeddings", "/tokenize")] == [503, 503]
    seen = gateway.state("big")
    assert (seen["state"], seen["endpoints"]) == ("waiting", [])
    assert [one["meta"]["why"] for one in gateway.ask("/v1/models")[2]["data"]] == [WHY, WHY]
    state = '{node="n1",service="big",state="waiting"} 1'
    assert "llama_gateway_endpoint_state" + state in gateway.ask("/metrics")[2].decode()
    # While it serves, jobs to come are shown.
    server = Server("big")
    ahead = "a job of partition gpu_vasp wants n1 at 14:00"
    said(gateway, waits(port=server.port, why=ahead), entry(port=server.port))
    wait_for(lambda: gateway.ask(body=chat())[0] == 200)
    assert (gateway.state("big")["state"], gateway.state("big")["why"]) == ("ready", ahead)


def test_fallback_serves_while_the_job_waits(made):
    gateway = made({**job(fallback="small"), **service("small", Server("small"))}, registry=REGISTRY)
    said(gateway, waits())
    wait_for(lambda: gateway.state("big")["why"] == WHY)
    status, headers, _body = gateway.ask(body=chat())
    assert (status, headers["x-llama-service"], headers["x-llama-fallback"]) == (200, "small", "big")


def test_fallback_that_waits_too_says_the_first(made):
    both = {**job(fallback="small"), **job("small")}
    gateway = made(both, registry=REGISTRY)
    said(gateway, waits(), waits("small", why="job 4712 waits (Resources)", port=10))
    wait_for(lambda: gateway.state("small")["why"] != NO_WORD.why)
    assert gateway.ask(body=chat())[2]["error"]["message"] == f"big: {WHY}"


def test_drained_job_gets_nothing_within_half_a_second(made):
    server = Server("big").waits()
    gateway = made({**job(fallback="small"), **service("small", Server("small"))}, registry=REGISTRY)
    said(gateway, entry(port=server.port))
    wait_for(lambda: gateway.state("big")["state"] == "ready")
    with gateway.open(request(body=chat())):
        wait_for(lambda: server.requests)
        said(gateway, entry(port=server.port, state="draining"))
        began = time.monotonic()
        wait_for(lambda: gateway.state("big")["state"] == "draining")
        # The engine looks twice a second.
        assert time.monotonic() - began < 1
        # Running requests go on, new ones go elsewhere.
        assert gateway.ask(body=chat())[1]["x-llama-service"] == "small"
        assert (len(server.requests), server.left) == (1, 0)
        said(gateway)
        wait_for(lambda: gateway.state("big")["state"] == "waiting")
        assert server.left == 0
