# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with what the head of a service computes on and with, one sentence a mistake: NUMA nodes, layers in
main memory, a draft model. Private to the collection."""

from collections.abc import Iterable

from ...module_utils._llama.args import DRAFTS, DRAFTS_UNKNOWN
from .check_family import Where
from .records import HostVars, Settings
from .values import is_a, shown, unknown_key

KEYS = ("model", "quant", "max", "min")
MOST = 64  # tokens that are drafted at a time


def offload_errors(entry: str, service: Settings) -> list[str]:
    """What layers in main memory do not go with."""
    seen = "%s.n_gpu_layers: %d seen with" % (entry, service["n_gpu_layers"])
    if "workers" in service:
        return [
            "%s workers, a service of one node is needed for it, since the other layers lie in the head's main memory: "
            "drop the key or the workers" % seen
        ]
    if service.get("cards") == []:
        return [
            "%s cards [], a card is needed for it, since without one all layers lie in main memory: drop one of both"
            % seen
        ]
    if "cpu_moe" in service:
        return [
            "%s cpu_moe, one of both is needed, since both say what lies in main memory: drop one (of a mixture of "
            "experts, cpu_moe keeps more on the cards)" % seen
        ]
    if isinstance(service.get("tensor_split"), dict):
        return [
            f"{seen} layers per node in tensor_split, auto is needed there, since not all layers lie on cards: drop it"
        ]
    return []


def numa_errors(entry: str, service: Settings, heads: Iterable[str], hostvars: HostVars) -> list[str]:
    entry, wish = entry + ".numa", service.get("numa")
    if isinstance(wish, dict) and (set(wish) != {"node"} or not is_a(wish["node"], int) or wish["node"] < 0):
        return [
            "%s: %s seen, a map such as {node: 0} is needed: write the number of one NUMA node" % (entry, shown(wish))
        ]
    return [
        "%s: bind seen, head_server_numa_node of %s is empty, the number of a NUMA node is needed: set it, or write "
        "{node: N} here" % (entry, head)
        for head in heads
        if wish == "bind" and str(hostvars[head].get("head_server_numa_node", "")) == ""
    ]


def draft_errors(where: Where, service: Settings) -> list[str]:
    """service: resolved with its model."""
    draft, entry = service.get("draft"), where("draft")
    if draft is None:
        return []
    if draft is True:
        return ["%s: true seen, a model is needed: write {model: NAME, quant: Q}, or false for none" % entry]
    found = [unknown_key(entry, key, KEYS) for key in draft if key not in KEYS]
    found += [
        f"{entry}.{key}: {shown(draft.get(key))} seen, a text is needed: give the name"
        for key in ("model", "quant")
        if not is_a(draft.get(key), str)
    ]
    for key, least in (("max", 1), ("min", 0)):
        if key in draft and (not is_a(draft[key], int) or not least <= draft[key] <= MOST):
            found.append(
                "%s.%s: %s seen, %d to %d tokens are allowed: %s"
                % (*(entry, key, shown(draft[key]), least, MOST), _number_step(draft[key]))
            )
    if found:
        return found
    if "max" in draft and draft.get("min", 0) > draft["max"]:
        found.append("%s.min: %d seen, at most max (%d) is allowed: lower it" % (entry, draft["min"], draft["max"]))
    if "workers" in service:
        found.append(
            "%s: seen with workers, a service of one node is needed for it, since drafting over RPC is slower than not "
            "drafting and ends heads: drop the workers, or set draft: false" % entry
        )
    for other in ("embeddings", "reranking"):
        if service.get(other):
            found.append(f"{entry}: seen with {other}, for which nothing is generated: set draft: false")
    return found


def draft_build_errors(where: Where, service: Settings, version: str, build: int) -> list[str]:
    """A build whose flags for it nobody looked at."""
    if "draft" not in service or build not in DRAFTS_UNKNOWN:
        return []
    return [
        "%s: seen with build %s, b%d or newer is needed, or at most b%d, whose flags for it are "
        "known: take another release" % (where("draft"), version, DRAFTS[-1][0], DRAFTS_UNKNOWN[0] - 1)
    ]


def _number_step(given: object) -> str:
    return "remove the quotes" if isinstance(given, str) and given.isdigit() else "choose another number"
