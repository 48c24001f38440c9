# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A gateway takes only the ports of a site that adopt.yml moves away."""

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.gateway import gateway_refusals

HERE = {"ports": [8000, 8080], "tiers": {"fast": {"port": 8080}}}
ADOPTED = "/etc/nginx/sites-enabled/ai-inference"
MAIN = "# configuration file /etc/nginx/nginx.conf:\nhttp {\n}\n"
LOADED = MAIN + "# configuration file %s:\nserver {\n    listen 8080;\n}\n"
NGINX = 'LISTEN 0 511 0.0.0.0:8080 0.0.0.0:* users:(("nginx",pid=12,fd=6),("nginx",pid=11,fd=6))\n'
OTHER = 'LISTEN 0 511 0.0.0.0:8080 0.0.0.0:* users:(("python3",pid=13,fd=6))\n'


def refusals(configuration, listeners, leaving=()):
    gateway = {
        "here": HERE, "configuration": configuration, "status": 0, "addresses": ["0.0.0.0"],
        "leaving": list(leaving), "missing": [], "readable": [], "changes": [], "auth": "required",
        "tailscale": False, "handed_on": [],
    }  # fmt: skip
    machine = {"addresses": []}
    return gateway_refusals("gw", gateway, {"listeners": listeners, "managed_processes": {}, "machine": machine})


def test_ports_of_a_leaving_site_are_free():
    (refused,) = refusals(LOADED % ADOPTED, NGINX)
    assert refused.startswith("gateway_tiers.fast: port 8080 of gw is that of a site in %s, a free port" % ADOPTED)
    assert refusals(LOADED % ADOPTED, NGINX, [ADOPTED]) == []
    assert len(refusals(LOADED % "/etc/nginx/conf.d/other.conf", NGINX, [ADOPTED])) == 1


def test_loaded_port_of_removed_file_is_free():
    assert refusals(MAIN, NGINX) == []
    (refused,) = refusals(MAIN, OTHER)
    assert refused.startswith("gateway_tiers.fast: port 8080")
