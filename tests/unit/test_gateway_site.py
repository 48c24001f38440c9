# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access rules of the nginx site. nginx itself reads it in scenario gateway."""

import re
from pathlib import Path

import jinja2
import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway import paths, request
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.paths import COUNT, READ, WORK

ROLE = Path(__file__).resolve().parents[2] / "roles/gateway"


def site(monitors, direct=True):
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROLE / "templates"), trim_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["comment"] = lambda text: "# " + text
    tiers = {"fast": {"port": 8080, "service": "chat", "endpoints": [{"address": "10.0.0.2", "port": 8000}]}}
    tiers["fast"]["direct"] = direct
    fixed = {"ansible_managed": "x", "addresses": ["10.0.0.5"], "port": 8000, "tls": {}, "timeout": 7210}
    return environment.get_template("llama-cluster.conf.j2").render(
        **fixed, tiers=tiers, max_body="32m", monitors=monitors, reads=READ, posts=[*WORK, *COUNT]
    )


def test_only_hosts_of_monitoring_get_metrics():
    own, _tier = site(["10.0.0.7", "10.0.0.8"]).split("# Tier fast.")
    (block,) = re.findall(r"location = /metrics {\n(.*?)\n    }", own, re.DOTALL)
    rules = [line.strip() for line in block.split("\n") if re.match(r"\s*(allow|deny|satisfy)\b", line)]
    assert rules == ["allow 10.0.0.7;", "allow 10.0.0.8;", "deny all;"]
    others = re.findall(r"location ([^{]*) {", own.replace("location = /metrics {", ""))
    assert not [one for one in others if re.search("metrics", one)], "no second way there"


def test_metrics_without_monitoring_are_unknown():
    own, _tier = site([]).split("# Tier fast.")
    assert not [one for one in re.findall(r"location ([^{]*) {", own) if "metrics" in one]


def test_any_origin_may_read_nginx_answers():
    """add_header of a location replaces the headers of its server."""
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
    # Otherwise an error of the second server gets no page.
    assert "recursive_error_pages on;" in servers[1].split("\n    location / {")[1].split("\n    }")[0]
    # Servers send these headers too, and a browser refuses two.
    assert all("proxy_hide_header %s;" % header.split()[1] in found for header in headers)


def test_tailscale_excludes_the_loopback_from_monitors():
    texts = [
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
        for text in texts
        for tailscale in (False, True)
    ]
    assert found == ["['127.0.0.1', '10.0.0.7']", "['10.0.0.7']"]


def blocks(text):
    """{location: lines} of locations that pass requests on."""
    found = re.findall(r"    location ([^{]*) {\n(.*?)\n    }", text, re.DOTALL)
    return {name: [line.strip() for line in block.split("\n")] for name, block in found if "proxy_pass http" in block}


def test_unread_body_without_key_is_refused():
    found = blocks(site(["10.0.0.7"]))
    assert len(found) == 4
    for name, lines in found.items():
        known = lines.index("include /etc/llama-cluster/gateway/nginx-clients.conf;")
        decides = "if ($llama_gateway_known = 0) {" if name.startswith("@") else "if ($llama_gateway_unknown) {"
        assert known < lines.index(decides), name
        assert lines[lines.index(decides) + 1].startswith("return 401 '{"), name
    (pattern,) = re.findall(r'unknown {\n    default 0;\n    "~(.*)" 1;', site([]))
    lengths = ("0  ", "0 0 ", "0 7 ", "0  chunked", "0 0 chunked", "1 7 ", "1  chunked")
    assert {words for words in lengths if re.search(pattern, words)} == {"0 7 ", "0  chunked", "0 0 chunked"}


def test_unread_pictures_reach_no_server():
    """nginx does not see an address in a body."""
    found = site(["10.0.0.7"], direct=False)
    passed = {line for lines in blocks(found).values() for line in lines if line.startswith("proxy_pass http")}
    assert passed == {"proxy_pass http://llama_gateway_engine;"} and "error_page 502 504 =503 @down;" in found
    assert set(re.findall(r"error_page .*(@\w+);", found)) <= set(re.findall(r"location (@\w+) {", found))


def test_queries_reach_no_server():
    direct = [lines for name, lines in blocks(site(["10.0.0.7"])).items() if name.startswith("@direct")]
    (patterns,) = {tuple(line.split()[1] for line in lines if line.endswith("? break;")) for lines in direct}
    assert len(patterns) == 1 and re.sub(patterns[0], r"\1", "/v1/props") == "/v1/props"


def test_half_a_request_ends_soon():
    shown = site([])
    assert len(re.findall(r"^server {", shown, re.MULTILINE)) == 2
    assert shown.count("    client_header_timeout 10s;\n    client_body_timeout 20s;\n") == 2


@pytest.mark.parametrize("required", [True, False])
def test_nginx_knows_the_keys(required):
    template = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    template.filters.update(
        comment=lambda text: "# " + text, flatten=lambda lists: [key for one in lists for key in one]
    )
    source = (ROLE / "templates/nginx-clients.conf.j2").read_text()
    shown = template.from_string(source).render(ansible_managed="x", required=required, clients={"a": ["k1", "k2"]})
    assert ("set $llama_gateway_known %d;" % (not required)) in shown
    assert re.findall(r"if \((.*)\)", shown) == ['$llama_gateway_key = "k1"', '$llama_gateway_key = "k2"'] * required


def test_only_open_paths_without_the_engine():
    patterns = re.findall(r'    "~(\^\((?:GET|POST).*)" 0;', site([]))

    def is_open(method, path):
        return any(re.search(pattern, "%s %s" % (method, path)) for pattern in patterns)

    assert len(patterns) == 2
    for path in (*READ, *WORK, *COUNT):
        for before in ("", "/v1", "/reasoning", "/reasoning/v1"):
            for method in ("GET", "HEAD", "POST", "DELETE"):
                assert is_open(method, before + path) == paths.is_open(method, path), (method, before + path)
            assert is_open("OPTIONS", before + path)
    for path in (
        "/v1/stream",
        "/v1/streams/lookup",
        "/v1/chat/completions/control",
        "/slots",
        "/models/load",
        "/tools",
    ):
        assert not any(is_open(method, path) for method in ("GET", "POST", "DELETE", "OPTIONS", "PUT")), path
    direct = next(lines for name, lines in blocks(site([])).items() if name.startswith("@"))
    assert "proxy_pass_request_headers off;" in direct
    passed = {line.split()[1].lower() for line in direct if line.startswith("proxy_set_header")}
    assert passed <= {*request.PASSED, "host", "connection", "authorization"}


def test_page_names_every_open_path():
    page = (ROLE.parents[1] / "docs/gateway.md").read_text()
    assert [path for path in (*READ, *WORK, *COUNT) if "`%s`" % path not in page] == []
