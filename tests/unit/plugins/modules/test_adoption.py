# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module's wiring: each part's steps, check mode, and a refusal as one sentence."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption.gateway import Gateway
from ansible_collections.thefermisea.llama_cluster.plugins.modules import adoption
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import give_away


@pytest.fixture(name="run")
def fixture_run(tmp_path, monkeypatch, run):
    (tmp_path / "site").write_text("server {}\n")
    site = str(tmp_path / "site")
    monkeypatch.setattr(adoption, "find_gateway", lambda _ports: Gateway([site], [site], [], True))
    monkeypatch.setattr(adoption, "find", lambda: ([], []))

    arguments = {"directory": str(tmp_path / "adopted"), "moved": [str(tmp_path / "build")]}
    return lambda **options: run(**arguments, **options)[1]


def test_gateway_is_saved_once(run, tmp_path):
    looked = run(part="gateway", step="look")
    assert (looked["changed"], looked["needed"], looked["keyless"], looked["recorded"]) == (False, True, True, None)
    assert run(part="gateway", step="save", _ansible_check_mode=True)["changed"]
    assert not (tmp_path / "adopted").exists()
    assert run(part="gateway", step="save")["recorded"]["finished"] is False
    assert not run(part="gateway", step="save")["changed"]
    assert run(part="gateway", step="finish")["recorded"]["finished"]


def test_node_without_servers_needs_nothing(run):
    looked = run(step="look")
    assert (looked["needed"], looked["units"], looked["lines"], looked["pids"]) == (False, [], [], [])
    assert not run(step="stop", kind="head")["changed"] and run(step="read")["recorded"] is None


def test_record_of_another_user_is_refused(run, tmp_path):
    (tmp_path / "adopted").mkdir()
    give_away(tmp_path / "adopted")
    for step in ("put_back", "look"):
        message = run(step=step)["msg"]
        assert message.startswith("adoption: %s: it belongs to user id 4711" % (tmp_path / "adopted"))
