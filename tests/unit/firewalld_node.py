# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""This machine as a node with firewalld: an Ethernet in the default zone and a fabric in a zone of its own, commands
that answer for both."""

import json
import os
import sys

from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import COLLECTIONS, run_playbook

IP = """\
import sys

asked = sys.argv[-1]
# As ip does, which looks up no name.
assert asked[:1].isdigit(), asked
fabric = asked.startswith("10.1.")
if "route" in sys.argv:
    print("%s dev %s src 10.%d.0.31 uid 0 \\\\    cache" % (asked, "ib0" if fabric else "eth0", fabric))
elif asked in ("10.0.0.31", "10.1.0.31"):
    print("2: %s    inet %s/24 brd 10.0.0.255 scope global x" % ("ib0" if fabric else "eth0", asked))
"""
GETENT = """\
import sys

print({"head.test": "10.0.0.31"}.get(sys.argv[-1], sys.argv[-1]), "STREAM", sys.argv[-1])
"""
FIREWALL = """\
import json, os, sys

state = json.load(open(os.environ["FIREWALLD"]))
# As firewall-cmd takes them: --option=value or --option value.
words = " ".join(sys.argv[1:]).replace("rich-rule rule", "rich-rule=rule").partition("rich-rule=")
options = dict(word.partition("=")[::2] for word in (words[0] + words[1]).split())
if words[2]:
    options[list(options)[-1]] = words[2]
if not state["runs"]:
    sys.exit(252)
rules = state["permanent" if "--permanent" in options else "running"]
zone = options.get("--zone", "public")
status = 0
if state["dies_at"] and state["dies_at"] in " ".join(sys.argv):
    sys.exit(1)
if "--list-all-zones" in options:
    print("\\n\\n".join("%s\\n  rich rules: \\n\\t%s" % (name, "\\n\\t".join(rules[name])) for name in rules))
elif "--get-default-zone" in options:
    print("public")
elif "--get-zone-of-interface" in options:
    status = 0 if options["--get-zone-of-interface"] == "ib0" else 2
    print("internal" if status == 0 else "no zone")
elif "--add-rich-rule" in options:
    rules[zone].append(options["--add-rich-rule"])
elif "--remove-rich-rule" in options:
    rules[zone].remove(options["--remove-rich-rule"])
json.dump(state, open(os.environ["FIREWALLD"], "w"))
sys.exit(status)
"""


class FirewalldNode:
    """folder: the test's; rules(): {zone: rules}."""

    def __init__(self, folder):
        self.folder = folder
        self.state = folder / "firewalld.json"
        # Stub commands.
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name, text in (("getent", GETENT), ("ip", IP), ("firewall-cmd", FIREWALL)):
            (self.bin / name).write_text("#!%s\n%s" % (sys.executable, text))
            (self.bin / name).chmod(0o755)
        zones = {"public": [], "internal": []}
        self.state.write_text(json.dumps({"running": zones, "permanent": zones, "runs": True, "dies_at": ""}))

    def rules(self, which="running"):
        return {zone: rules for zone, rules in json.loads(self.state.read_text())[which].items() if rules}

    def rules_of_others(self, zone, *rules, places=("running", "permanent")):
        state = json.loads(self.state.read_text())
        for which in places:
            state[which][zone].extend(rules)
        self.state.write_text(json.dumps(state))

    def set(self, **changed):
        """runs: whether firewalld runs; dies_at: what is in the arguments of a call that fails."""
        self.state.write_text(json.dumps(dict(json.loads(self.state.read_text()), **changed)))

    def tell(self, **options):
        """Runs the module that tells firewalld, as roles node_setup and model do -> (exit status, output)."""
        return self._run({"thefermisea.llama_cluster.firewalld_rules": options})

    def play(self, role, tasks_from, **variables):
        """Runs a task file of a role here -> (exit status, output)."""
        return self._run(
            {
                "ansible.builtin.include_role": {"name": "thefermisea.llama_cluster." + role, "tasks_from": tasks_from},
                "vars": variables,
            }
        )

    def _run(self, task):
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task]}
        play["vars"] = {"ansible_python_interpreter": sys.executable}
        path = self.folder / "play.yml"
        path.write_text(json.dumps([play]))
        environment = {
            "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
            "FIREWALLD": str(self.state),
            "PATH": "%s:%s" % (self.bin, os.environ["PATH"]),
        }
        hosts = self.folder / "hosts.json"
        local = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "llama_fabric_address": "127.0.0.1",
        }
        hosts.write_text(
            json.dumps({"llama_nodes": {"hosts": {"localhost": local}}, "elsewhere": {"hosts": {"giver": local}}})
        )
        # -v: a temporary rule is no change, it is only in the result.
        return run_playbook(path, "-v", "-i", str(hosts), home=self.folder, **environment)
