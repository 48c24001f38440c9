# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links to releases, and the releases that stay."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.links import build_links

LINKS = {"current": "releases/b2", "previous": "releases/b1", "build": "current"}


def node(links=None, releases=("b1", "b2"), taken=(), arguments=(), kept=()):
    build = {
        "links": LINKS if links is None else links,
        "releases": list(releases),
        "taken": list(taken),
        "kept": list(kept),
    }
    return {"build": build, "units": [{"arguments": list(arguments)}]}


def links(release="b2", others=(), **seen):
    return build_links(node(**seen), "/opt/llama.cpp", release, others)


def test_a_node_that_is_as_it_should_be():
    assert links() == {
        "wanted": "releases/b2",
        "current": "releases/b2",
        "strange": [],
        "linked": True,
        "used": ["/opt/llama.cpp/releases/b1", "/opt/llama.cpp/releases/b2"],
        "settled": True,
    }
    assert links(links={"current": "releases/b2", "build": "current"}, releases=["b2"])["settled"]


def test_new_release_becomes_current_old_one_previous():
    found = links("b3", releases=["b1", "b2", "b3"])
    assert not found["settled"] and found["used"] == ["/opt/llama.cpp/releases/b2", "/opt/llama.cpp/releases/b3"]


def test_a_release_that_a_unit_names_stays():
    program = "/opt/llama.cpp/releases/b0/bin/ggml-rpc-server"
    found = links(
        releases=["b0", "b1", "b2"], arguments=["/usr/bin/stdbuf", "-oL", program, "/opt/llama-cpp/releases/b9"]
    )
    assert found["settled"] and found["used"][0] == "/opt/llama.cpp/releases/b0" and len(found["used"]) == 3
    assert not links(releases=["b0", "b1", "b2"])["settled"]


def test_builds_of_services_and_rollback_stay():
    four = ["b0", "b1", "b2", "b3"]
    assert not links(releases=four)["settled"] and not links(releases=four, others=["b3"])["settled"]
    found = links(releases=four, others=["b3"], kept=["b0"])
    assert found["settled"] and len(found["used"]) == 4


@pytest.mark.parametrize(
    "seen, strange",
    [
        ({"links": dict(LINKS, previous="/srv/b1"), "releases": ["b2"]}, ["previous"]),
        ({"links": {"build": "current"}, "taken": ["current"]}, ["current"]),
        ({"links": dict(LINKS, current="releases/b1/bin")}, ["current"]),
        # The path that operators know may be unmanaged.
        ({"links": dict(LINKS, build="/srv/llama")}, []),
    ],
)
def test_unmanaged_links_are_strange(seen, strange):
    found = links(**seen)
    assert found["strange"] == strange and found["settled"] == (not strange)


def test_the_path_that_operators_know():
    bare = {"current": "releases/b2", "previous": "releases/b1"}
    assert not links(links=bare)["linked"] and not links(links=bare)["settled"]
    assert links(links=bare, taken=["build"])["settled"]
