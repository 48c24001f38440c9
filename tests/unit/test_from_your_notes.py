# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/from-your-notes.md: each command of today is there, and those that need no node are run."""

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.answers import Answer
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.units import unit_name
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._settings import KEYS
from ansible_collections.thefermisea.llama_cluster.tests.unit import inventory_runs
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import once
from ansible_collections.thefermisea.llama_cluster.tests.unit.test_reference_inventories import answer, rendered

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/from-your-notes.md").read_text()
# (in the notes, now, where)
ROWS = [
    tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| in the notes")
]
NOW = [span for _then, now, _where in ROWS for span in re.findall(r"`([^`]+)`", now)]
PLAYBOOK = re.compile(r"(\w+)\.yml((?: --?\w+ \S+)*)\Z")
CALLED = {span: PLAYBOOK.match(span) for span in NOW if PLAYBOOK.match(span)}
# Programs of the collection on its hosts.
COMMANDS = ("llama-model-selector", "llama-cluster-monitor", "llama-service-status", "llama-jobs")
UNITS = ("start", "stop", "restart", "status", "enable", "disable")


def tags_of(tmp_path_factory, playbook):
    def make(folder):
        words = ("-i", str(ROOT / "inventories/beefcake2"), "--list-tags")
        (folder / "tags").write_text(inventory_runs.run(folder, "playbooks/%s.yml" % playbook, *words))

    return (once(tmp_path_factory, "tags-" + playbook, make) / "tags").read_text()


@pytest.mark.parametrize("span", CALLED)
def test_playbooks_tags_and_variables_are_there(tmp_path_factory, span):
    name, words = CALLED[span].groups()
    assert (ROOT / "playbooks" / (name + ".yml")).is_file()
    pairs = words.split()
    text = "".join(path.read_text() for path in (ROOT / "playbooks").glob("*.yml"))
    text += "".join(path.read_text() for path in (ROOT / "roles").rglob("*.yml"))
    for option, value in zip(pairs[::2], pairs[1::2]):
        if option == "--tags":
            assert re.search(r"[\[ ]%s[\],]" % value, tags_of(tmp_path_factory, name))
        else:
            assert option == "-e" and re.search(r"\b%s\b" % value.partition("=")[0], text)


def test_short_names_are_those_of_the_primary_service():
    same = [span for then, now, _where in ROWS if now.startswith("the same") for span in re.findall(r"`([^`]+)`", then)]
    typed = [span for span in NOW + same if re.match(r"(systemctl|journalctl) .*llama-(head|rpc)\b", span)]
    assert len(typed) > 10
    for span in typed:
        found = re.match(r"systemctl (\w+) (\S+)\Z|journalctl -u (\S+) -f\Z", span)
        verb, unit, read = found.groups()
        assert verb is None or verb in UNITS
        assert (unit or read) + ".service" in [unit_name(kind, "", primary=True) for kind in ("head", "rpc")]


def test_programs_are_installed_by_roles():
    installed = "".join(path.read_text() for path in (ROOT / "roles").rglob("tasks/*.yml"))
    named = {one for span in NOW for one in re.findall(r"\bllama-(?:(?:model|cluster|service)-\w+|jobs)", span)}
    assert named == set(COMMANDS)
    assert [one for one in named if "/usr/local/bin/" + one not in installed] == []


def asked(where):
    """{(url, model)} of the rows of an inventory, old and new."""
    for then, now, place in ROWS:
        if place == "`%s`" % where:
            for span in re.findall(r"`([^`]+)`", then if now.startswith("the same") else now):
                for url in re.findall(r"https?://[^\s`|\\]+", span):
                    name = re.search(r"model `(\S+)`", then)
                    yield url, name.group(1) if name else "OR1-Behemoth"


@pytest.mark.parametrize(("where", "least"), [("beefcake2", 3), ("-hybrid", 6)])
def test_urls_are_answered(tmp_path_factory, where, least):
    reported = rendered(tmp_path_factory, "beefcake2" + where.replace("beefcake2", ""))
    urls = sorted(set(asked(where)))
    assert len(urls) >= least
    for url, name in urls:
        found = answer(reported, url, name)
        assert found is not None and not isinstance(found, Answer), url


def test_plans_need_no_node(tmp_path):
    for name in ("beefcake2", "beefcake2-hybrid"):
        words = ("-i", str(ROOT / "inventories" / name), "-e", "model_hub=http://127.0.0.1:9")
        assert "--tensor-split" in inventory_runs.run(tmp_path, "playbooks/plan.yml", *words)


def test_keys_and_variables_are_settings():
    named = {span.partition(":")[0] for span in NOW if re.match(r"[a-z_]+: ", span)}
    assert named and named <= {key.name for key in KEYS}
    settings = "".join(page.read_text() for page in (ROOT / "docs/settings.md", *ROOT.glob("roles/*/README.md")))
    assert [one for one in NOW if re.fullmatch(r"[a-z]+(_[a-z]+){2,}", one) and "`%s`" % one not in settings] == []


def test_what_is_not_there_yet_is_said():
    """And is no row any more when it is there."""
    text = PAGE.partition("## SLURM")[2]
    assert text.count("not yet") == sum(1 for _then, now, _where in ROWS if now.startswith("not yet"))
    assert "evaluate" in {found.group(1) for found in CALLED.values()}


def test_commands_of_slurm_are_run_by_its_scenario():
    """Names of scripts, jobs and directories are the inventory's; the commands themselves need a SLURM."""
    text = (ROOT / "inventories/beefcake2-slurm/group_vars/all/services.yml").read_text()
    inventory = yaml.safe_load(text)
    services, scripts = inventory["llama_services"], inventory["slurm_scripts"]
    queued = {one["job_name"]: name for name, one in services.items()}
    rows = " ".join(then + now for then, now, where in ROWS if where == "`-slurm`")
    assert set(re.findall(r"run-[\w-]+\.slurm", rows)) == set(scripts.values())
    assert set(re.findall(r"--name=(\S+?)`", rows)) == {",".join(sorted(queued)), "llama-14b"}
    assert set(re.findall(r"-p (\w+)`", rows)) == {one["partition"] for one in services.values()}
    assert set(re.findall(r"llama-jobs resume (\w+)", rows)) == {queued["llama-14b"]}
    for folder in ("/cluster/shared/scripts/llama-cpp", "/cluster/shared/ai/logs", "/scratch/ai/logs"):
        assert folder in rows and folder in text
    scenario = (ROOT / "molecule/slurm/tests/test_slurm.py").read_text()
    scenario += (ROOT / "tests/lab/slurm/slurm_lab.py").read_text()
    for command in ("sbatch", "scancel", "squeue", "sacct", *re.findall(r"llama-jobs \w+", rows)):
        assert command in scenario, command
