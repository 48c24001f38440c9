# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page /status loads nothing from other places, and names every configuration."""

import html.parser
import json
import re

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.clients import CLIENTS
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.status_page import PAGE

VOID = {"meta", "link"}


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.links, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "action")]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read():
    reader = Reader()
    reader.feed(PAGE)
    assert reader.open == []
    return reader


def test_page_loads_nothing_from_other_places():
    reader = read()
    assert set(reader.links) == {"data:,", "status.json", "clients"}
    assert "//" not in re.sub(r"</?[a-z]+[^>]*>", "", PAGE)
    assert "default-src 'none'; connect-src 'self'" in PAGE
    assert not re.search(r"innerHTML|document\.write|eval\(|@import|url\(", PAGE)


def test_script_finds_its_elements():
    assert set(re.findall(r'byId\("(\w+)"\)', PAGE)) <= set(read().ids)


def test_page_names_every_configuration():
    assert json.loads(re.search(r"CLIENTS = (\[.*?\]);", PAGE).group(1)) == list(CLIENTS)


def test_every_state_has_its_color():
    for state in ("ready", "loading", "draining", "down", "stopped"):
        assert re.search(r"\.%s\b[^}]*\{ color" % state, PAGE)


def test_page_without_javascript_has_links():
    assert re.search(r'<noscript>.*href="status\.json".*href="clients".*</noscript>', PAGE, re.DOTALL)
