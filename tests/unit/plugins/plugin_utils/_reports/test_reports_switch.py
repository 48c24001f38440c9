# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refused arguments of switch_model.yml."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.switch import switch_refused

SERVICES = {
    "chat": {"model": "m", "quant": "F16", "primary": True},
    "fast": {"models": {"m": "F16"}},
    "off": {"model": "m", "quant": "F16", "state": "stopped"},
    "embed": {"model": "m", "quant": "F16"},
}
UNITS = {node: ["llama-head-embed.service"] for node in ("node1", "node2")}
UNITS["node1"] = [*UNITS["node1"], "llama-head.service"]
MODELS = {"m": {"quants": {"F16": {}, "Q8_0": {}}}}


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({}, "no service given, one of chat, fast, off, embed is needed: add -e service=NAME"),
        ({"service": "chta"}, "service chta seen, one of chat, fast, off, embed is needed, did you mean chat?"),
        ({"service": "fast"}, "service fast seen, which is a router"),
        ({"service": "off"}, "llama_services.off.state stopped seen"),
        ({"service": "chat"}, "no quant given, one of F16, Q8_0 of m is needed: add -e quant=QUANT"),
        ({"service": "chat", "quant": "Q8"}, "quant Q8 seen, one of F16, Q8_0 of m is needed, did you mean Q8_0?"),
        ({"service": "chat", "quant": "Q8_0", "retire": "now"}, "retire now seen"),
        ({"service": "chat", "quant": "Q8_0", "trial": "12"}, "trial 12 seen, a whole number"),
        ({"service": "chat", "quant": "F16", "trial": "12h"}, "quant F16 seen, as llama_services.chat.quant has it"),
        ({"service": "chat", "quant": "Q8_0", "trial": "12h", "retire": "after"}, "trial 12h seen with retire"),
        ({"service": "chat", "quant": "Q8_0", "trial": "12h", "park": "node2"}, "trial 12h seen with park"),
        ({"service": "embed", "quant": "Q8_0", "park": "node2"}, "park node2 seen, and embed has replicas on node1,"),
        ({"service": "chat", "quant": "Q8_0", "park": "node2", "retire": "first"}, ""),
        ({"service": "chat", "quant": "Q8_0", "trial": "90m"}, ""),
    ],
)
def test_first_reason_against_a_switch(given, refused):
    found = switch_refused(SERVICES, MODELS, given, UNITS)
    assert found.startswith("switch_model: " + refused) if refused else found == ""
