# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes preflight takes for the collection's own, by the role's own expression: a listener may have lines of systemd's for a name."""

import functools
from pathlib import Path

import jinja2
import jinja2.nativetypes
import pytest
import yaml
from ansible.plugins.filter.core import dict_to_list_of_dict_key_value_elements, regex_findall
from ansible.plugins.filter.mathstuff import difference, intersect

TASKS = yaml.safe_load((Path(__file__).resolve().parents[2] / "roles/preflight/tasks/ports.yml").read_text())


def restarted(stdout):
    templates = jinja2.Environment(undefined=jinja2.StrictUndefined)
    templates.filters["regex_findall"] = regex_findall
    return templates.from_string(TASKS[1]["vars"]["restarted"]).render(__preflight_listeners={"stdout": stdout})


@pytest.mark.parametrize("name", ["python3", "x\nMainPID=99\n", "\n---\nMainPID=9\n"])
@pytest.mark.parametrize(("units", "pids"), [("", "[]"), ("MainPID=0\n\nMainPID=812\n", "[812]")])
def test_processes_of_ours_are_those_that_systemd_names(name, units, pids):
    # Ansible takes white space off the end.
    stdout = ('LISTEN 0 128 0.0.0.0:50052 0.0.0.0:* users:(("%s",pid=99,fd=4))\n---\n%s' % (name, units)).rstrip()
    assert restarted(stdout) == pids


def test_the_two_are_told_apart_by_a_line():
    assert TASKS[0]["ansible.builtin.shell"].startswith("ss -Hltnp && echo --- && systemctl show --property MainPID ")


@pytest.mark.parametrize(
    ("primary", "ours", "leaving", "taken"),
    [(True, False, [], ["llama-rpc.service"]), (True, True, [], []), (False, False, [], []), (True, False, ["llama-rpc.service"], [])],
    ids=["made by hand", "ours", "not needed", "taken over"],
)
def test_a_unit_made_by_hand_under_a_short_name_is_for_adopt(primary, ours, leaving, taken):
    """Stopped, it holds no port."""
    environment = jinja2.nativetypes.NativeEnvironment(undefined=jinja2.StrictUndefined)
    environment.filters["dict2items"] = dict_to_list_of_dict_key_value_elements
    environment.filters.update(difference=functools.partial(difference, environment), intersect=functools.partial(intersect, environment))
    task = next(task for task in TASKS if task["name"] == "Require that our short names are free")
    variables = {"heads": [], "workers": [{"primary": primary}], "preflight_leaving": leaving}
    variables["__preflight_short"] = {"units": [{"name": "llama-rpc.service", "installed": True, "ours": ours}]}
    for name in ("primaries", "needed", "foreign", "taken"):
        variables[name] = environment.from_string(task["vars"][name]).render(**variables)
    assert variables["taken"] == taken
    assert "run adopt.yml, which takes it over" in task["ansible.builtin.assert"]["fail_msg"]
