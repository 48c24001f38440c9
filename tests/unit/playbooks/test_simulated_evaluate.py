# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""evaluate.yml over simulated nodes (simulation.py): what it asks, from where, and what it writes."""

import copy

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import INVENTORY, SERVICE, deployment

SERVICES = {
    "chat": dict(SERVICE, tensor_split={"node2": 30}),
    "solo": {"model": "n", "quant": "F16", "head": "node2", "port": 8001},
}
MODELS = {
    name: {
        "quants": {"F16": {"urls": ["file:///%s.gguf" % name], "file": name + ".gguf"}},
        "aliases": [name + "-alias"],
    }
    for name in "mn"
}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """As other files have it: nothing here looks at units."""
    return deployment(tmp_path_factory, "deployed")


@pytest.fixture
def cluster(deployed, tmp_path):
    """Two services, and two tasks of a kind."""
    found = deployed.copy(tmp_path)
    found.inventory = copy.deepcopy(INVENTORY)
    found.inventory["llama_nodes"]["vars"].update(llama_services=SERVICES, llama_models=MODELS)
    for name in ("fix/a", "fix/b"):
        folder = tmp_path / "tasks" / name
        folder.mkdir(parents=True)
        (folder / "task.yml").write_text("summary: x\njudge: rust\n")
        (folder / "prompt.md").write_text("Correct {{ this }}: " + name)
        (folder / "tests.rs").write_text("#[test]\nfn x() {}\n")
    return found


def arguments(cluster, *more):
    return ("evaluate", "-e", "task_dir=%s" % (cluster.folder / "tasks"), *more)


def questions(cluster):
    return [event for event in cluster.events if " ask " in event or " judge " in event]


def routes(cluster):
    """The files of the controller, which lie below the nodes that send them."""
    return list(cluster.folder.rglob("group_vars/all/routes.yml"))


def test_every_model_is_asked_and_judged(cluster):
    output = cluster.done(*arguments(cluster))
    assert "m: 2 answers of about 500 tokens, its speed is known after the first one" in output
    assert questions(cluster) == [
        "node1 ask m of http://node1:8000 for 2",
        "node1 ask n of http://node2:8001 for 2 from node2",
        "node1 judge m, n on localhost",
    ]
    assert "write it with -e write=true" in output and routes(cluster) == []


def test_dry_run_only_says_the_cost(cluster):
    output = cluster.done(*arguments(cluster, "--check", "-e", "limit=1", "-e", "samples=3"))
    assert "m: 3 answers of about 500 tokens" in output and "n: 3 answers of about" in output
    assert cluster.events == []


def test_models_and_tasks_are_chosen(cluster):
    for typed in ("models=solo tasks=fix/b", '{"models": ["solo", "n"], "tasks": ["fix/b"], "limit": 1}'):
        cluster.done(*arguments(cluster, "-e", typed))
        assert questions(cluster)[0] == "node1 ask n of http://node2:8001 for 1 from node2"


def test_silent_service_stops_no_other(cluster):
    (cluster.node("node1") / "silent").touch()
    cluster.done(*arguments(cluster))
    assert questions(cluster)[-1] == "node1 judge n on localhost"
    (cluster.node("node2") / "silent").touch()
    output = cluster.refused(*arguments(cluster))
    assert "evaluate: no answer seen" in output


def test_routes_are_written_on_request(cluster):
    output = cluster.done(*arguments(cluster, "-e", "write=true"))
    assert "write it with" not in output
    (path,) = routes(cluster)
    assert "fix: m" in path.read_text()


def test_routes_of_another_file_are_not_overridden(cluster):
    cluster.inventory["llama_nodes"]["vars"]["llama_routes"] = {"default": "n"}
    said = "llama_routes: set in another file than group_vars/all/routes.yml seen (fix: n there, m suggested)"
    assert said in cluster.done(*arguments(cluster))
    assert said in cluster.refused(*arguments(cluster, "-e", "write=true"))
    assert routes(cluster) == []


def test_no_file_is_hidden_by_routes(cluster):
    """Ansible reads a directory group_vars/all, or else group_vars/all.yml."""
    (cluster.folder / "group_vars").mkdir(exist_ok=True)
    (cluster.folder / "group_vars/all.yml").write_text("acceptance_max_tokens: 7\n")
    said = "group_vars/all.yml: a file seen, Ansible does not read it beside a directory all: move it to"
    assert said in cluster.refused(*arguments(cluster, "-e", "write=true"))
    assert routes(cluster) == []


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("samples=none", "evaluate: samples none seen, a number from 1 to 100 is needed: correct -e samples="),
        ("tasks=fixx", "evaluate: task fixx seen, one of fix or KIND/NAME is needed, did you mean fix?"),
        ("models=sol", "evaluate: model sol seen"),
    ],
)
def test_mistakes_are_refused_before_any_request(cluster, typed, said):
    output = cluster.refused(*arguments(cluster, "-e", typed))
    assert said in output and questions(cluster) == []


def test_limit_leaves_out_models_of_other_nodes(cluster):
    cluster.done(*arguments(cluster, "--limit", "node2"))
    assert questions(cluster) == ["node2 ask n of http://node2:8001 for 2", "node2 judge n on localhost"]
    output = cluster.refused(*arguments(cluster, "--limit", "node1", "-e", "models=n"))
    assert "evaluate: model n seen, one of chat, m, m-alias is needed" in output


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (["node2,node1", "--tags", "head"], "tags: head seen, none is known to this playbook: run it without --tags"),
        (["gw"], "--limit gw: no host of llama_nodes seen, one is needed: name a node, or run without --limit"),
    ],
)
def test_limit_hides_no_mistake(cluster, limit, said):
    cluster.inventory["llama_gateway"] = {"hosts": {"gw": {"ansible_connection": "local"}}}
    assert said in cluster.refused(*arguments(cluster, "--limit", *limit))
    assert cluster.events == []
