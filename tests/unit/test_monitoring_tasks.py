# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of role monitoring for Prometheus and alertmanager, over files of the test and a stub of systemctl."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import COLLECTIONS, run_playbook

UNITS = ["prometheus.service", "prometheus-alertmanager.service"]
# A unit runs where a file of its name is there. What was done to units is in the file calls.
SYSTEMCTL = """\
import os, sys

here = os.environ["STUB_SYSTEMD"]
words = [word for word in sys.argv[1:] if not word.startswith("-")]
asked = [word.partition("=")[2].split(",") for word in sys.argv if word.startswith("--property=")]

def state(unit):
    runs = "active" if os.path.exists(here + "/" + unit) else "inactive"
    known = {"Id": unit, "LoadState": "loaded", "ActiveState": runs, "UnitFileState": "enabled"}
    known["NeedDaemonReload"] = "no"
    return "\\n".join("%s=%s" % one for one in known.items() if not asked or one[0] in asked[0])

if words[0] == "show":
    print("\\n\\n".join(map(state, words[1:])))
elif words[0] == "is-enabled":
    print("enabled")
else:
    with open(here + "/calls", "a") as calls:
        calls.write(" ".join(words) + "\\n")
    path = here + "/" + words[-1]
    if words[0] in ("start", "restart"):
        open(path, "w").close()
    elif words[0] == "stop":
        os.unlink(path)
"""


class Host:
    """A monitoring host in a folder. here: its configuration; systemctl records its calls."""

    def __init__(self, folder):
        self.folder = folder
        self.here = folder / "monitoring"
        self.read = folder / "monitoring-read"
        for path in (folder / "bin", folder / "systemd", self.here / "rules"):
            path.mkdir(parents=True)
        self.command("systemctl", "#!%s\n%s" % (sys.executable, SYSTEMCTL))

    def write(self, *names):
        for name in names:
            path = self.here / name
            path.write_text("written")
            # Younger than all other files, whatever the resolution of the file system's clock.
            newest = max(one.stat().st_mtime for one in self.folder.rglob("*"))
            os.utime(path, (newest + 1, newest + 1))

    def has_read(self):
        """Marks all files as read."""
        newest = max(one.stat().st_mtime for one in self.here.rglob("*"))
        self.read.touch()
        os.utime(self.read, (newest, newest))

    def runs(self, *units):
        for unit in units:
            (self.folder / "systemd" / unit).touch()

    def command(self, name, text):
        """A stub that stands for a command of the host."""
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def play(self, tasks_from, *arguments, fails=False, **variables):
        """-> (output, calls of systemctl)"""
        values = {"__monitoring_here": str(self.here), "__monitoring_read": str(self.read), **variables}
        role = {"name": "thefermisea.llama_cluster.monitoring", "tasks_from": tasks_from}
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False}
        play["tasks"] = [{"ansible.builtin.include_role": role, "vars": values}]
        play["vars"] = {"ansible_python_interpreter": sys.executable}
        (self.folder / "play.yml").write_text(json.dumps([play]))
        environment = {
            "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
            "STUB_SYSTEMD": str(self.folder / "systemd"),
            "PATH": "%s:%s" % (self.folder / "bin", os.environ["PATH"]),
        }
        calls = self.folder / "systemd/calls"
        calls.write_text("")
        status, output = run_playbook(self.folder / "play.yml", *arguments, home=self.folder, **environment)
        assert (status != 0) is fails, output
        return output, calls.read_text().splitlines()


@pytest.fixture(name="host")
def fixture_host(tmp_path):
    return Host(tmp_path)


def run(host, *arguments, drop_ins_changed=False):
    """-> (output, calls of systemctl that start or reload)"""
    output, calls = host.play("run.yml", *arguments, __monitoring_unit_files={"changed": drop_ins_changed})
    return output, [call for call in calls if call.split()[0] in ("start", "restart", "reload")]


def test_unread_configuration_is_reloaded(host):
    host.runs(*UNITS)
    host.write("prometheus.yml", "alertmanager.yml", "rules/services.yml")
    for written, reloaded in (("rules/services.yml", True), ("alertmanager.yml", True), ("monitor.json", False)):
        host.has_read()
        host.write(written)
        output, calls = run(host)
        assert calls == ["reload " + unit for unit in UNITS] * reloaded and ("changed=0" in output) is not reloaded
    host.write("prometheus.yml")
    output, calls = run(host, "--check")
    assert calls == [] and "changed=0" in output


def test_missing_mark_reloads_all(host):
    host.runs(*UNITS)
    host.write("prometheus.yml", "alertmanager.yml")
    assert run(host)[1] == ["reload " + unit for unit in UNITS]
    assert host.read.exists()


def test_started_unit_is_not_reloaded(host):
    host.write("prometheus.yml", "alertmanager.yml")
    host.runs("prometheus.service")
    assert run(host)[1] == ["start prometheus-alertmanager.service", "reload prometheus.service"]
    host.write("prometheus.yml")
    assert run(host, drop_ins_changed=True)[1] == ["restart " + unit for unit in UNITS]


def test_uninstall_stops_managed_units(host):
    """The drop-in of alertmanager lacks the mark."""
    marked, foreign = (host.folder / "units" / (unit + ".d") / "llama-cluster.conf" for unit in UNITS)
    for path, text in (
        (marked, "[Unit]\nConditionPathExists=/etc/llama-cluster/monitoring/prometheus.yml\n"),
        (foreign, ""),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    host.runs(*UNITS)
    host.write("prometheus.yml", "alertmanager.yml", "rules/services.yml")
    host.has_read()
    values = {
        "__monitoring_drop_ins": [str(marked), str(foreign)],
        "__monitoring_seen": {"units": [{"name": unit} for unit in UNITS]},
    }
    output, calls = host.play("uninstall.yml", "--check", **values)
    assert "changed=0" not in output and calls == [] and marked.exists()
    output, calls = host.play("uninstall.yml", **values)
    assert sorted(calls) == ["daemon-reload", "disable prometheus.service", "stop prometheus.service"]
    left = {str(path.relative_to(host.folder)) for path in host.folder.rglob("*") if path.parent != host.folder / "bin"}
    assert {path for path in left if path.startswith(("monitoring", "units/"))} == {
        *("monitoring", "monitoring/rules", "monitoring/rules/services.yml"),
        *("units/%s.d" % UNITS[1], "units/%s.d/llama-cluster.conf" % UNITS[1]),
    }
    output, calls = host.play("uninstall.yml", **values)
    assert "changed=0" in output and calls == []


def test_failed_query_ends_the_run(host):
    """A missing package has another status."""
    host.command("dpkg-query", "#!/bin/sh\necho 'dpkg-query: error: the database is locked' >&2\nexit 2\n")
    drop_ins = [str(host.folder / "units" / (unit + ".d") / "llama-cluster.conf") for unit in UNITS]
    output, _calls = host.play("install.yml", "--check", fails=True, __monitoring_drop_ins=drop_ins)
    assert "the database is locked" in output and "Install the packages" not in output


def test_amtool_error_hides_secrets(host):
    host.command(
        "amtool", "#!/bin/sh\ncat $2\necho 'line 3: field source_matchers not found in type config.plain'\nexit 1\n"
    )
    secret = {"path": str(host.here / "alertmanager.yml"), "hidden": True, "validate": ["amtool", "check-config", "%s"]}
    config = {"secrets": [dict(secret, content="https://chat.test/hooks/secret\n")], "files": []}
    output, _calls = host.play("secrets.yml", "-vvv", fails=True, __monitoring_config=config)
    assert "amtool refuses it (URL line 3: field source_matchers not found in type config.plain): correct" in output
    assert "chat.test" not in output


def test_changed_service_updates_sampler(host):
    service = {"model": "m", "quant": "Q8_0", "head": "localhost", "port": 8000}
    inventory = {
        "all": {
            "vars": {
                "llama_services": {"chat": service, "embed": dict(service, quant="F16", port=8001)},
                "llama_models": {
                    "m": {"quants": {one: {"file": one, "urls": ["file:///m"]} for one in ("Q8_0", "F16")}}
                },
            }
        },
        "llama_nodes": {"hosts": {"localhost": None}},
    }
    (host.folder / "hosts.json").write_text(json.dumps(inventory))
    before = {"http": None, "textfile": "/kept", "planned": {}, "stopped": [], "version": "kept"}
    models = {"chat": {"model": "m", "quant": "F16"}, "embed": {"model": "m", "quant": "F16"}}
    path = host.folder / "sampler.json"
    play = ("node_services.yml", "-i", str(host.folder / "hosts.json"), "--check", "--diff")
    given = {"__monitoring_sampler_file": str(path), "monitoring_services": ["chat"]}
    # A node without a sampler.
    assert "changed=0" in host.play(*play, **given)[0]
    path.write_text(json.dumps(dict(before, models=models), indent=4, sort_keys=True) + "\n")
    output, _calls = host.play(*play, **given)
    assert re.findall(r'[-+] "\S+: \S+', output) == ['- "quant": "F16"', '+ "quant": "Q8_0"']


def test_package_tasks_wait_for_another_installation():
    """Ansible issue 51663: on a first boot the distribution holds the lock for minutes."""
    roles = Path(__file__).resolve().parents[2] / "roles"
    tasks = [task for path in roles.glob("*/tasks/*.yml") for task in yaml.safe_load(path.read_text()) or []]
    apt = [task["ansible.builtin.apt"] for task in tasks if "ansible.builtin.apt" in task]
    assert len(apt) == 2 and all(task["lock_timeout"] >= 600 for task in apt)
    texts = [task.get("thefermisea.llama_cluster.show_lines", {}).get("lines", "") for task in tasks]
    assert sum("it waits while another installation runs there" in str(lines) for lines in texts) == 2
