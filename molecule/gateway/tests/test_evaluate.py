"""Models evaluated through the gateway by their own names, and judged where rustc is: hostile programs too."""

import json
import os
import shutil
import subprocess
import sys

import pytest

REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
sys.path.insert(0, os.path.join(REPOSITORY, "tests/hostile"))
import hostile  # noqa: E402

SCRIPTS = os.path.join(REPOSITORY, "tests/lab")
# Some that attack what containers do otherwise than units.
IN_CONTAINERS = [
    "endless_output",
    "exits_early",
    "fork_bomb",
    "includes_host",
    "reads_host",
    "reads_tokens",
    "symlinks",
]
TASKS = "molecule/gateway/evaluation"


@pytest.fixture(scope="module")
def image():
    """An image with rustc."""
    return subprocess.check_output([SCRIPTS + "/rust_image.sh"], text=True).split()[-1]


@pytest.fixture(scope="module")
def judge(lab, image):
    """A host with rustc and systemd -> its container."""
    slot = lab.ethernet("node1").split(".")[2]
    networks = ["10.%d.%s.0/24" % (number, slot) for number in (213, 214)]
    subprocess.run(
        [SCRIPTS + "/nodes.sh", lab.name, *networks, f"judge={image}=10.213.{slot}.14=10.214.{slot}.14"], check=True
    )
    yield lab.name + "-judge"
    subprocess.run(["docker", "rm", "--force", "--volumes", lab.name + "-judge"], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def evaluated(lab, judge, tmp_path_factory):
    """evaluated(*arguments): runs evaluate.yml -> its output"""
    # Answers of an earlier run would not be asked for.
    shutil.rmtree(lab.reports / "evaluations", ignore_errors=True)
    inventory = tmp_path_factory.mktemp("judge") / "hosts.json"
    hosts = {"judge": {"ansible_host": judge, "lab_index": 14}}
    inventory.write_text(json.dumps({"all": {"children": {"judges": {"hosts": hosts}}}}))

    def run(*arguments):
        words = ("-e", "models=small", "-e", "task_dir=" + TASKS, "-e", "acceptance_judge_host=judge", *arguments)
        status, output = lab.playbook("evaluate", "-i", "molecule/gateway/inventory", "-i", str(inventory), *words)
        assert status == 0, output
        return output

    return run


def test_model_is_asked_and_judged_once(lab, evaluated):
    tasks = ("-e", "tasks=fix,analyze")
    output = evaluated(*tasks)
    assert "small: 2 answers of about" in output
    assert "asked 2, judged" in output and lab.changed(output) > 0
    (result,) = lab.reports.glob("evaluations/latest-small.json")
    found = json.loads(result.read_text())
    assert {one["task"]: one["compiles"] is None for one in found["answers"]} == {
        "analyze/color": True,
        "fix/double": False,
    }
    # A color was asked for, in any words.
    assert [one["passes"] for one in found["answers"] if one["task"] == "analyze/color"] == [True]
    before = result.read_text()
    again = evaluated(*tasks)
    assert "asked 0, judged 0" in again and lab.changed(again) == 0
    assert json.loads(result.read_text())["figures"] == json.loads(before)["figures"]
    modes = {path.stat().st_mode & 0o077 for path in lab.reports.glob("evaluations/**/*")}
    assert modes == {0}


def test_hostile_programs_do_not_pass_in_units(judge):
    found, before, after = hostile.judged(hostile.Container(judge), hostile.NAMES)
    passes = {name: one["passes"] for name, one in found["verdicts"].items()}
    assert found["way"] == "systemd" and passes == {**dict.fromkeys(hostile.NAMES, False), "reference": True}
    assert before == after


def test_hostile_programs_do_not_pass_in_containers(image):
    found, before, after = hostile.judged(hostile.Here(image), IN_CONTAINERS)
    passes = {name: one["passes"] for name, one in found["verdicts"].items()}
    assert found["way"] == "docker" and passes == {**dict.fromkeys(IN_CONTAINERS, False), "reference": True}
    assert before == after
