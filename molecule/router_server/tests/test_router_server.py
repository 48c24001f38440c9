"""A router beside the lab's split service: two models of different architecture, of which one is loaded at a time."""

import concurrent.futures
import json
import pathlib
import re

import pytest
import requests

UNIT = "llama-router-fast.service"
PRESET = "/etc/llama-cluster/preset-fast.ini"
PORT = 8010
DENSE, MIXTURE = "smollm2-135m-instruct", "mixture"
MODELS = (DENSE, MIXTURE)
ALIASES = {DENSE: "smollm2", MIXTURE: "experts"}
KEY = "lab-k3y-of-the-fast-tier"


def url(lab, path):
    return "http://%s:%d%s" % (lab.ethernet("node1"), PORT, path)


def get(lab, path):
    return requests.get(url(lab, path), headers={"Authorization": "Bearer " + KEY}, timeout=30)


def ask(lab, model, tokens=4, timeout=120):
    """One answer over HTTP from outside the containers -> (name of the model, text)."""
    request = {"model": model, "max_tokens": tokens, "temperature": 0}
    request["messages"] = [{"role": "user", "content": "Name a color."}]
    reply = requests.post(
        url(lab, "/v1/chat/completions"), json=request, headers={"Authorization": "Bearer " + KEY}, timeout=timeout
    )
    assert reply.status_code == 200, reply.text
    return reply.json()["model"], reply.json()["choices"][0]["message"]["content"]


def states(lab):
    return {one["id"]: one["status"]["value"] for one in get(lab, "/models").json()["data"]}


def loaded(lab):
    return [name for name, state in states(lab).items() if state == "loaded"]


def answers(lab, model):
    try:
        return ask(lab, model)[0] == model
    except (AssertionError, requests.RequestException):
        return False


@pytest.fixture(scope="module")
def intent(lab):
    path = "/var/tmp/mixture.gguf"
    program = (pathlib.Path(__file__).resolve().parents[3] / "tests/lab/mixture.py").read_text()
    lab.node1.check_output("python3 -c %s /srv/llama-lab/SmolLM2-135M-Instruct.Q4_1.gguf %s", program, path)
    files = {DENSE: "/srv/llama-lab/SmolLM2-135M-Instruct.Q4_1.gguf", MIXTURE: path}
    fast = {
        "kind": "router",
        "head": "node1",
        "models": {DENSE: "Q4_1", MIXTURE: {"quant": "Q4_1", "parallel": 2}},
        "models_max": 1,
        "port": PORT,
        "slot_ctx_size": 1024,
        "parallel": 4,
        "threads": 1,
    }
    return {
        "llama_services": dict(lab.chat(ctx_size=4096, tensor_split={"node2": 15, "node3": 15}), fast=fast),
        "llama_models": {
            name: {"aliases": [ALIASES[name]], "quants": {"Q4_1": {"urls": ["file://" + files[name]]}}}
            for name in MODELS
        },
        "llama_api_keys": {"fast": [KEY]},
    }


@pytest.fixture(scope="module")
def site(lab, intent):
    def run(*arguments):
        return lab.playbook("site", "--tags", "model,head,router,verify", "-e", json.dumps(intent), *arguments)

    return run


@pytest.fixture(scope="module")
def foretold(lab, site):
    return site("--check", "-v"), lab.node1.file("/etc/systemd/system/" + UNIT).exists


@pytest.fixture(scope="module")
def deployed(lab, site, foretold):
    status, output = site()
    assert status == 0, output
    return output


def test_check_mode_foretells_it(foretold):
    (status, output), exists = foretold
    assert status == 0, output
    assert "fast loads 1 of its 2 models at a time on node1" in output
    assert not exists


def test_each_of_its_models_has_answered(lab, deployed):
    for model in MODELS:
        report = lab.report("fast.%s" % model)
        assert (report["model"], report["state"]) == (model, "ready")
        assert report["answer"].split() and report["context"].startswith("1024 tokens a slot")
    assert sorted(states(lab)) == sorted(MODELS)  # nothing that lies where downloads go


def test_a_second_run_changes_and_loads_nothing(lab, deployed, site):
    before = loaded(lab)
    status, output = site()
    assert status == 0, output
    assert lab.changed(output) == 0
    assert "1 of its 2 models loaded (%s)" % before[0] in output
    assert loaded(lab) == before


def test_unit_is_confined(lab, deployed):
    assert lab.exposure(lab.node1, UNIT) == 1.1
    preset = lab.node1.file(PRESET)
    assert (preset.user, preset.mode) == ("root", 0o644)
    places = {"unit": lab.node1.check_output("systemctl cat %s", UNIT), "preset": preset.content_string}
    assert [place for place, text in places.items() if KEY in text] == []
    assert requests.get(url(lab, "/models"), timeout=10).status_code == 401


def test_a_look_loads_nothing(lab, deployed, intent):
    before = loaded(lab)
    other = next(model for model in MODELS if model not in before)
    for path in ("/slots", "/metrics", "/props"):
        assert get(lab, "%s?model=%s&autoload=false" % (path, other)).status_code == 400
    status, output = lab.playbook("status", "-e", json.dumps(intent))
    assert status == 0, output
    said = r"fast +node\d +ready .*%s .* 1 of its 2 models loaded \(%s\)"
    assert re.search(said % (re.escape(url(lab, "/v1")), re.escape(before[0])), output), output
    assert loaded(lab) == before


def test_names_and_aliases_find_their_model(lab, deployed):
    for model in MODELS:
        assert ask(lab, ALIASES[model])[0] == model


def test_64_concurrent_requests_reach_their_models(lab, deployed):
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        asked = [MODELS[number % 2] for number in range(64)]
        found = list(pool.map(lambda model: ask(lab, model, 2, 180), asked))
    assert [model for model, _text in found] == asked


def test_router_is_back_after_kills(lab, deployed):
    assert ask(lab, DENSE)[0] == DENSE
    pid = lab.node1.check_output("systemctl show --property=MainPID --value %s", UNIT)
    lab.node1.check_output("kill -9 $(pgrep --parent %s)" % pid)
    lab.eventually(lambda: answers(lab, DENSE), 30, "the model's server was killed, and it answers again")
    assert lab.node1.check_output("systemctl show --property=MainPID --value %s", UNIT) == pid
    lab.node1.check_output("kill -9 %s", pid)
    for model in MODELS:
        lab.eventually(lambda: answers(lab, model), 30, "the router was killed, and %s answers again" % model)  # noqa: B023


def test_removed_router_leaves_the_node(lab, deployed, intent):
    del intent["llama_services"]["fast"], intent["llama_api_keys"]
    status, output = lab.playbook("site", "--tags", "router", "--skip-tags", "preflight", "-e", json.dumps(intent))
    assert status == 0, output
    left = lab.node1.check_output("ls /etc/llama-cluster /etc/llama-cluster/* /etc/systemd/system")
    assert [line for line in left.split() if "fast" in line] == []
