# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import load_log
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.modules import llama_load_info


def test_the_load_is_returned(run, monkeypatch):
    lines = ["load_tensors: offloaded 31/31 layers to GPU", "load_tensors: RPC0[a:1] model buffer size =    33.82 MiB"]
    monkeypatch.setattr(
        load_log, "systemctl_show", lambda names, properties: "Id=%s.service\nInvocationID=4a1d\n" % names[0]
    )
    monkeypatch.setattr(load_log, "read_journal", lambda invocation, _model: lines)
    code, result = run(unit="llama-head-chat")
    assert (code, result["changed"], result["unit"], result["endpoints"]) == (
        0,
        False,
        "llama-head-chat.service",
        {"a:1": 33.82},
    )


def test_an_error_names_the_module(run, monkeypatch):
    def load_info(unit, _model):
        raise Refusal("unit %s does not run on this node: start it" % unit)

    monkeypatch.setattr(llama_load_info, "load_info", load_info)
    code, result = run(unit="llama-head-chat")
    assert (code, result["msg"]) == (1, "llama_load_info: unit llama-head-chat does not run on this node: start it")
