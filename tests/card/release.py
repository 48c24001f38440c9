# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""release.py FILE: prints the release that the collection gives the build of this file: build.yml with a card of
compute capability 9.0, vulkan.yml and cpu.yml without one. Run it from the checkout with Ansible's own Python."""

import sys
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / ".collections"))

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.builds import build_on  # noqa: E402


def release(variables, cards):
    """-> the name of the build, from the variables of site.yml and nvidia-smi's list of the node's cards"""
    facts = {"ansible_facts": {"nvidia_smi": {"gpus": cards}}, **variables}
    groups = {"llama_nodes": ["node"]}
    return build_on("default", "node", variables["llama_builds"], {"node": facts}, groups).release


if __name__ == "__main__":
    path = Path(sys.argv[1])
    cards = [{"compute_cap": "9.0"}] if path.name == "build.yml" else []
    print(release(yaml.safe_load(path.read_text()), cards))
