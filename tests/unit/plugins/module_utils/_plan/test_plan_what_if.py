# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One model on nodes that need not exist: in which ways it would run, and its entry to paste."""

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.entry import entry
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.what_if import what_if
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.cards import cards
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.check_models import model_errors
from ansible_collections.thefermisea.llama_cluster.tests.unit import mixture, model_files

HUB = "https://huggingface.co"
OPTIONS = {
    "slot_ctx_size": 16384,
    "parallel": 1,
    "cache": "f16",
    "build": "b11434",
    "margin_mib": 1024,
    "force_split": False,
    "batch_size": 2048,
    "ubatch_size": 512,
    "urls": None,
    "repo": None,
    "files": None,
    "revision": "main",
    "endpoint": HUB,
}
BIG, SMALL, DENSE = mixture.SHAPE, mixture.shape_of(model_files.qwen3_30b), mixture.DENSE


def asked(shape, devices, **options):
    return what_if(shape, dict(OPTIONS, devices=cards(devices), **options))


def ways(shape, devices, **options):
    """{way: what is said of it}"""
    lines = [line.strip() for line in asked(shape, devices, **options)["lines"]]
    return dict(
        line.split(": ", 1)
        for line in lines
        if line.startswith(("one node: ", "experts in main memory: ", "split over"))
    )


@pytest.mark.parametrize(
    ("shape", "devices", "said"),
    [
        (SMALL, "24GB", ["fits node1"]),
        (
            SMALL,
            "2x24GB,8GB",
            [
                "fits node1 and node2",
                "not known, give the main memory of a node with cards, as in devices=24GB+main:256GB",
                "fits, and is slower than one node",
            ],
        ),
        (DENSE, "2x12GB", ["fits none of node1 and node2", "does not fit"]),
        (DENSE, "3x12GB", ["fits none of node1, node2 and node3", "fits"]),
        (BIG, "24GB+main:64GB", ["fits none of node1", "fits none of node1"]),
        (BIG, "main:64GB", ["fits none of node1"]),
        (SMALL, "main:64GB,24GB", ["fits node1 and node2", "fits, and is slower than one node"]),
    ],
)
def test_each_way_is_a_line(shape, devices, said):
    assert list(ways(shape, devices).values()) == said


def test_experts_in_main_memory_are_the_way_where_it_fits_no_other():
    result = asked(BIG, "24GB+main:256GB,48GB+main:256GB,8GB")
    assert (result["fits"], result["topology"], result["refused"], result["advice"]) == (True, "single", [], [])
    # On the node with the fewest experts beside the card.
    assert [(row["node"], row["device"]) for row in result["devices"]] == [("node2", "GPU0"), ("node2", "main")]
    assert result["tensor_split"] == [] and result["lines"][1] == "  head node2 (49152 MiB)"
    said = ways(BIG, "24GB+main:256GB,48GB+main:256GB,8GB")
    assert said["experts in main memory"].startswith("fits node1 with cpu_moe: auto (")
    assert " and node2 with cpu_moe: auto (" in said["experts in main memory"]
    number = said["experts in main memory"].rpartition("auto (")[2].partition(" of 94 layers, ")[0]
    assert "  experts of %s of 94 layers in main memory: " % number in "\n".join(result["lines"])


def test_main_memory_beside_a_card_holds_no_layers():
    """Not even those that no card of a split can hold."""
    plain, beside = asked(DENSE, "2x12GB"), asked(DENSE, "12GB+main:256GB,12GB")
    assert plain["devices"] == beside["devices"] and not beside["fits"]


def test_a_split_that_fits_is_not_given_up_for_experts():
    result = asked(SMALL, "12GB+main:64GB,12GB")
    assert result["topology"] == "split" and result["fits"]
    assert ways(SMALL, "12GB+main:64GB,12GB")["experts in main memory"].startswith("fits node1 with cpu_moe: auto (")


def pasted(*urls, name=None, endpoint=HUB):
    """{name: entry} of llama_models, which is sound."""
    models = yaml.safe_load("\n".join(entry(urls, name, endpoint)))["llama_models"]
    for one, model in models.items():
        assert model_errors(one, model) == []
    return models


@pytest.mark.parametrize(
    ("url", "name", "quant", "spec"),
    [
        (
            HUB + "/some/m-GGUF/resolve/main/M-7B.Q4_K_M.gguf?download=true",
            "m-7b",
            "Q4_K_M",
            {"repo": "some/m-GGUF", "files": ["M-7B.Q4_K_M.gguf"]},
        ),
        (
            HUB + "/some/m-GGUF/resolve/0a1b/UD-Q3_K_XL/m-UD-Q3_K_XL-00001-of-00003.gguf",
            "m",
            "UD-Q3_K_XL",
            {"repo": "some/m-GGUF", "revision": "0a1b", "files": ["UD-Q3_K_XL/m-UD-Q3_K_XL-00001-of-00003.gguf"]},
        ),
        ("https://x.example/gpt-oss-20b-mxfp4.gguf", "gpt-oss-20b", "MXFP4", {}),
        ("https://x.example/m.i1-IQ2_XXS.gguf", "m.i1", "IQ2_XXS", {}),
        ("file:///srv/OR1-Behemoth.Q8_0.gguf.part1of2", "or1-behemoth", "Q8_0", {}),
        ("https://x.example/m.gguf", "m", "default", {}),
        ("https://x.example/m-bf16-00001-of-00002.gguf", "m", "BF16", {}),
        # Of another hub's, or of no file of a repository.
        ("https://mirror.example/some/m/resolve/main/m.Q8_0.gguf", "m", "Q8_0", {}),
        (HUB + "/some/m.Q8_0.gguf", "m", "Q8_0", {}),
    ],
)
def test_the_entry_of_a_url(url, name, quant, spec):
    ((called, model),) = pasted(url).items()
    expected = spec.pop("files", None)
    given = model.pop("quants")
    assert (called, model) == (name, spec)
    assert given == {quant: {"files": expected} if expected else {"urls": [url]}}


@pytest.mark.parametrize(
    "path",
    [
        "/some/m/resolve/main/x-%7B%7B%20lookup('pipe','id')%20%7D%7D-Q4_K_M.gguf",
        "/some/m/resolve/main/x-{{ lookup('pipe','id') }}-Q4_K_M.gguf",
        "/some/m/resolve/main/x-{%25 raw %25}.gguf",
        "/some%0A  evil: 1/m/resolve/main/x.gguf",
        "/some/m/resolve/v1%0A    evil: 1/x.gguf",
    ],
)
def test_nothing_of_a_url_is_computed_or_becomes_an_entry(path):
    text = "\n".join(entry([HUB + path], None, HUB))
    assert "{{" not in text and "{%" not in text and "}}" not in text
    (model,) = yaml.safe_load(text)["llama_models"].values()
    assert set(model) == {"quants"}


def test_several_files_are_in_order_and_the_header_has_the_name():
    urls = ["https://x.example/m.Q8_0.gguf.part%dof2" % number for number in (1, 2)]
    assert pasted(*urls, name="My Model: 7B, v2") == {"my-model-7b-v2": {"quants": {"Q8_0": {"urls": urls}}}}
    mirror = "http://mirror.example/hub"
    files = [mirror + "/some/m/resolve/main/m-0000%d-of-00002.gguf" % number for number in (1, 2)]
    assert pasted(*files, endpoint=mirror + "/")["m"]["quants"]["default"]["files"] == [
        "m-00001-of-00002.gguf",
        "m-00002-of-00002.gguf",
    ]
    mixed = [HUB + "/a/m/resolve/main/m.gguf", HUB + "/b/m/resolve/main/n.gguf"]
    assert pasted(*mixed)["m"]["quants"]["default"] == {"urls": mixed}


def test_what_grants_access_is_not_printed():
    text = "\n".join(entry(["https://user:secret@x.example/m.Q8_0.gguf?X-Amz-Signature=secret"], None, HUB))
    assert "secret" not in text and "https://x.example/m.Q8_0.gguf" in text


@pytest.mark.parametrize("name", ["../../etc", "'\"\n- x", "é", "x" * 300])
def test_a_name_is_one_that_may_be_used(name):
    assert len(pasted("https://x.example/m.Q8_0.gguf", name=name)) == 1


def test_the_entry_is_below_the_table():
    lines = asked(SMALL, "24GB", repo="some/m", files=["m.Q4_K_M.gguf"], revision="v1")["lines"]
    start = lines.index("for llama_models, to paste:")
    assert yaml.safe_load("\n".join(lines[start + 1 :])) == {
        "llama_models": {"m": {"repo": "some/m", "revision": "v1", "quants": {"Q4_K_M": {"files": ["m.Q4_K_M.gguf"]}}}}
    }
    assert "for llama_models, to paste:" not in asked(SMALL, "24GB")["lines"]
