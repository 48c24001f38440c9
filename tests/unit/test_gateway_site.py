# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may see the gateway's metrics, as nginx is told; nginx itself reads the site in scenario gateway."""

import re
from pathlib import Path

import jinja2
import yaml

ROLE = Path(__file__).resolve().parents[2] / "roles/gateway"


def site(monitors):
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROLE / "templates"), trim_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["comment"] = lambda text: "# " + text
    tiers = {"fast": {"port": 8080, "service": "chat", "endpoints": [{"address": "10.0.0.2", "port": 8000}]}}
    told = {"ansible_managed": "x", "engine": True, "addresses": ["10.0.0.5"], "port": 8000, "tls": {}, "timeout": 7210}
    return environment.get_template("llama-cluster.conf.j2").render(
        **told, tiers=tiers, max_body="32m", monitors=monitors
    )


def test_the_metrics_are_for_the_hosts_of_monitoring_alone():
    own, _tier = site(["10.0.0.7", "10.0.0.8"]).split("# Tier fast.")
    (block,) = re.findall(r"location = /metrics {\n(.*?)\n    }", own, re.DOTALL)
    rules = [line.strip() for line in block.split("\n") if re.match(r"\s*(allow|deny|satisfy)\b", line)]
    assert rules == ["allow 10.0.0.7;", "allow 10.0.0.8;", "deny all;"]
    others = re.findall(r"location ([^{]*) {", own.replace("location = /metrics {", ""))
    assert not [one for one in others if re.search("metrics", one)], "no second way there"


def test_without_such_a_host_the_path_is_unknown():
    assert "metrics" not in site([])


def test_every_answer_of_nginx_may_be_read_by_a_page_of_any_origin():
    """add_header of a location replaces those of its server."""
    found = site([])
    headers = ["add_header Access-Control-Allow-Origin * always;", "add_header Access-Control-Expose-Headers * always;"]
    servers = found.split("\nserver {")[1:]
    assert len(servers) == 2
    for block in servers:
        own, *locations = block.split("\n    location ")
        assert all(own.count(header) == 1 for header in headers)
        for location in locations:
            if "add_header" in location:
                assert all(location.count(header) == 1 for header in headers), location
    # What comes from behind has them too, and a browser refuses two.
    assert all("proxy_hide_header %s;" % header.split()[1] in found for header in headers)


def test_behind_tailscale_this_machine_is_everybody():
    told = [
        task["thefermisea.llama_cluster.node_files"]["vars"]["monitors"]
        for task in yaml.safe_load((ROLE / "tasks/nginx.yml").read_text())
        if "monitors" in (task.get("thefermisea.llama_cluster.node_files") or {}).get("vars", {})
    ]
    environment = jinja2.Environment()
    environment.filters.update(
        {
            "thefermisea.llama_cluster.monitoring_addresses": lambda _host, _groups, _hostvars: [
                "127.0.0.1",
                "10.0.0.7",
            ],
            "difference": lambda first, second: [one for one in first if one not in second],
        }
    )
    facts = {"inventory_hostname": "ctl", "groups": {}, "hostvars": {}}
    found = [
        environment.from_string(text).render(gateway_tailscale=tailscale, **facts)
        for text in told
        for tailscale in (False, True)
    ]
    assert found == ["['127.0.0.1', '10.0.0.7']", "['10.0.0.7']"]
