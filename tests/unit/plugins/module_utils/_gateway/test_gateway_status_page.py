# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page /status loads nothing from other places, and names every configuration."""

import json
import re

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.clients import CLIENTS
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.status_page import PAGE


def test_page_loads_nothing_from_other_places():
    links = set(re.findall(r"""\b(?:src|href|action)=["']?([^"' >]*)""", PAGE))
    assert links == {"data:,", "status.json", "clients"}
    assert "//" not in re.sub(r"</?[a-z]+[^>]*>", "", PAGE)
    assert "default-src 'none'; connect-src 'self'" in PAGE
    assert not re.search(r"innerHTML|document\.write|eval\(|@import|url\(", PAGE)


def test_script_finds_its_elements():
    assert set(re.findall(r'byId\("(\w+)"\)', PAGE)) <= set(re.findall(r'\bid="(\w+)"', PAGE))


def test_page_names_every_configuration():
    assert json.loads(re.search(r"CLIENTS = (\[.*?\]);", PAGE).group(1)) == list(CLIENTS)


def test_every_state_has_its_color():
    for state in ("ready", "loading", "draining", "waiting", "down", "stopped"):
        assert re.search(r"\.%s\b[^}]*\{ color" % state, PAGE)


def test_page_without_javascript_has_links():
    assert re.search(r'<noscript>.*href="status\.json".*href="clients".*</noscript>', PAGE, re.DOTALL)
