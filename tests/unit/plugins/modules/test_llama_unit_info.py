# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.modules import llama_unit_info


def test_defaults_read_all_managed_units(run, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(llama_unit_info, "unit_info", lambda patterns: asked.extend(patterns) or [])
    code, result = run(prefix=str(tmp_path))
    assert asked == [
        "llama-rpc-*.service",
        "llama-head-*.service",
        "llama-router-*.service",
        "llama-rpc.service",
        "llama-head.service",
    ]
    assert code == 0
    assert (result["changed"], result["units"], result["current_build"], result["build_intact"]) == (
        False,
        [],
        None,
        None,
    )


def test_error_is_one_sentence(run, monkeypatch, tmp_path):
    def unit_info(patterns):
        raise Refusal("systemctl show answered 'no': is systemd running on this node?")

    monkeypatch.setattr(llama_unit_info, "unit_info", unit_info)
    code, result = run(prefix=str(tmp_path))
    assert (code, result["msg"]) == (
        1,
        "llama_unit_info: systemctl show answered 'no': is systemd running on this node?",
    )
