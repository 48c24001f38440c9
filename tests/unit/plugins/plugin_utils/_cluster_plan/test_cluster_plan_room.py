# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.room import way

SERVICES = {"reasoning": {"model": "big", "quant": "Q8_0", "head": "node1", "port": 8000}}
MODELS = {
    "big": {
        "repo": "some/big-GGUF",
        "quants": {
            "Q4_K_M": {"files": ["big.Q4_K_M.gguf"]},
            "Q6_K": {"files": ["big.Q6_K-00001-of-00002.gguf", "big.Q6_K-00002-of-00002.gguf"]},
            "Q8_0": {"files": ["big.Q8_0.gguf.part1of2", "big.Q8_0.gguf.part2of2"], "file": "big.Q8_0.gguf"},
        },
    }
}
ITEM = {"model": "big", "quant": "Q8_0"}
# The operators' first node: 77.0 of 77.3 GB free beside the smaller quant.
DISK = {"free": 77_000_000_000, "missing": 77_330_000_000}
SMALL = {"path": "/opt/models/big.Q4_K_M.gguf", "size": 47_400_000_000}


def words(files, disk=None, item=None):
    return way(item or ITEM, disk or DISK, files, SERVICES, MODELS, "node1", {"all": ["node1"]})


def test_what_is_there_is_deployed_first_and_makes_room():
    assert words([SMALL]) == (
        "; or set llama_services.reasoning.quant to Q4_K_M, which is there, and run site.yml, then switch_model.yml -e "
        "service=reasoning -e quant=Q8_0 -e retire=first"
    )


@pytest.mark.parametrize(("missing", "enough"), [(SMALL["size"] + 7, True), (SMALL["size"] + 8, False)])
def test_room_is_enough_to_the_byte(missing, enough):
    assert bool(words([SMALL], {"free": 7, "missing": missing})) == enough


def test_shards_make_room_together():
    shards = [{"path": "/opt/models/big.Q6_K-0000%d-of-00002.gguf" % number, "size": 200_000_000} for number in (1, 2)]
    assert "quant to Q6_K" in words(shards)
    assert words(shards[:1]) == ""


@pytest.mark.parametrize("files", [[], [{"path": "/opt/models/other.gguf", "size": 10**12}], [dict(SMALL, size=1000)]])
def test_nothing_is_offered_that_makes_no_room(files):
    assert words(files) == ""
    assert words([SMALL], item={"model": "big", "quant": "Q6_K"}) == ""
