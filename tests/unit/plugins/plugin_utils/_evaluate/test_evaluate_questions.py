# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The models of an inventory, and what they are asked."""

import copy

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate import questions
from ansible_collections.thefermisea.llama_cluster.tests.unit.plugins.plugin_utils._evaluate.evaluations import (
    BEHIND,
    GROUPS,
    HOSTVARS,
    MODELS,
    SERVICES,
    heads,
)

TASKS = [{"name": "fix/x", "prompt": "Fix it.", "max_tokens": 256}, {"name": "fix/y", "prompt": "?", "max_tokens": 8}]


def models(wanted=(), groups=None, hostvars=None, of_models=None, services=None):
    known = (of_models or MODELS, groups or GROUPS, hostvars or HOSTVARS)
    return questions.models_of(heads(services), *known, wanted)


def one(**arguments):
    return models(["chat"], **arguments)[0][0]


def keys(about, tasks=None, samples=1):
    return [each["key"] for each in questions.questions(tasks or TASKS, about, samples)]


def test_services_and_models_of_routers_are_asked():
    found, left_out = models()
    assert [(each["name"], each["host"], each["asks"]) for each in found] == [
        ("a", "node1", "a"),
        ("b of solo", "node1", "b"),
        ("b of many", "node2", "b"),
        ("c", "node2", "c"),
    ]
    assert left_out == ["embed: not asked, it generates nothing", "c: not asked, off is stopped"]
    assert (found[0]["url"], found[0]["unit"], found[0]["gateway"]) == (
        "http://10.0.0.1:8000",
        "llama-head-chat.service",
        False,
    )


def test_gateway_is_asked_where_there_is_one():
    about = one(groups=BEHIND)
    assert (about["host"], about["url"], about["gateway"], about["unit"]) == (
        "node3",
        "http://127.0.0.1:8000",
        True,
        "",
    )
    tls = {"gateway_tls": {"certificate": "c", "key": "k"}, "gateway_addresses": ["10.0.0.3"]}
    hostvars = {**HOSTVARS, "node3": {**HOSTVARS["node3"], **tls}}
    assert one(groups=BEHIND, hostvars=hostvars)["url"] == "https://10.0.0.3:443"


@pytest.mark.parametrize(("word", "names"), [("chat", ["a"]), ("A", ["a"]), ("many", ["b", "c"]), ("a", ["a"])])
def test_models_are_chosen_by_each_name(word, names):
    assert [each["name"] for each in models([word])[0]] == names


def test_unknown_models_are_refused():
    with pytest.raises(Refusal, match="model chatt seen, one of .* is needed, did you mean chat"):
        models(["chatt"])


def test_files_build_and_settings_make_a_key():
    about = one()
    of_models = copy.deepcopy(MODELS)
    of_models["a"]["quants"]["Q4"]["sha256"] = ["f" * 64]
    services = {**SERVICES, "chat": {**SERVICES["chat"], "temperature": 0.3}}
    others = [one(of_models=of_models), one(services=services), {**about, "build": "other"}]
    assert len({keys(each)[0] for each in (about, *others)}) == 4
    # Where it runs, and on how many threads, does not change an answer.
    moved = {**SERVICES, "chat": {**SERVICES["chat"], "threads": 3, "port": 8010, "head": "node2", "workers": "node1"}}
    assert keys(one(services=moved)) == keys(about)


def test_prompt_limit_and_sample_make_a_key():
    about = one()
    assert len({*keys(about), *keys(about, [{**TASKS[0], "max_tokens": 7}]), *keys(about, samples=2)}) == 7
    asked = list(questions.questions(TASKS, about, 2))
    assert [(each["task"], each["sample"], each["seed"], each["temperature"]) for each in asked] == [
        ("fix/x", 0, 0, 0.7),
        ("fix/y", 0, 0, 0.7),
        ("fix/x", 1, 1, 0.7),
        ("fix/y", 1, 1, 0.7),
    ]
    assert [each["temperature"] for each in questions.questions(TASKS, about, 1)] == [0.0, 0.0]


def test_files_without_digest_count_by_source():
    of_models = copy.deepcopy(MODELS)
    del of_models["a"]["quants"]["Q4"]["sha256"]
    first = one(of_models=of_models)["sha256"]
    of_models["a"]["quants"]["Q4"]["urls"] = ["https://elsewhere.example.org/a.gguf"]
    assert first != one(of_models=of_models)["sha256"]


def test_arguments_are_kept_with_their_values():
    args = ["--model", "/m.gguf", "--temp", "-0.5", "--rpc", "a:1,b:2", "--jinja", "-np", "4", "--threads", "3"]
    assert questions.arguments_of(args) == ["--temp", "-0.5", "--jinja", "-np", "4"]
