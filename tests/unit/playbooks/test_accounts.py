# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ids of the accounts, by role node_setup's own look at a node whose accounts are the test's."""

import json
import os
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import COLLECTIONS, run_playbook

GETENT = """\
import sys

accounts = {
    "llama": "llama:x:971:971::/nonexistent:/usr/sbin/nologin",
    "munge": "munge:x:980:980::/nonexistent:/usr/sbin/nologin",
}
asked = sys.argv[2:] if sys.argv[1] == "passwd" else []
found = [line for line in accounts.values() if line.split(":")[0] in asked or line.split(":")[2] in asked]
print("\\n".join(found))
sys.exit(2)
"""


def preflight(folder, **variables):
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("getent", GETENT), ("find", "")):
        (programs / name).write_text("#!%s\n%s" % (sys.executable, text))
        (programs / name).chmod(0o755)
    task = {
        "ansible.builtin.include_role": {
            "name": "thefermisea.llama_cluster.node_setup",
            "tasks_from": "account_preflight.yml",
        }
    }
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task]}
    play["vars"] = dict(variables, ansible_python_interpreter=sys.executable)
    (folder / "play.yml").write_text(json.dumps([play]))
    environment = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS, "PATH": "%s:%s" % (programs, os.environ["PATH"])}
    return run_playbook(folder / "play.yml", "-i", "localhost,", home=folder, **environment)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"node_setup_uid": 971, "node_setup_rpc_uid": 972}, None),
        (
            {"node_setup_uid": 970},
            "node_setup_uid: 970 seen, on localhost llama has 971, an id that this account has is needed, the same on "
            "every node: write 971, or run teardown",
        ),
        (
            {"node_setup_rpc_uid": 980},
            "node_setup_rpc_uid: 980 seen, on localhost it is the id of munge, an id that is free is needed, the same "
            "on every",
        ),
        (
            {"node_setup_rpc_uid": 1001},
            "node_setup_rpc_uid: 1001 seen, an id from 1 to 999 is needed, the same on every node: choose another one",
        ),
        (
            {"node_setup_uid": 971, "node_setup_rpc_uid": 971},
            "node_setup_rpc_uid: 971 seen, node_setup_uid has it too, an id of its own is needed, the same on every "
            "node: choose another one",
        ),
    ],
    ids=["right", "another id", "another account", "no system id", "twice the same"],
)
def test_an_id_is_the_accounts_or_free(tmp_path, variables, said):
    status, output = preflight(tmp_path, **variables)
    assert (status == 0) == (said is None), output
    assert said is None or said in output
