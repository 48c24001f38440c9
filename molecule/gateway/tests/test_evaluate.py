"""Models evaluated through the gateway by their own names, and judged where rustc is: hostile programs too."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

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
# The routes before.
ROUTED = {"analyze": "smollm2", "fix": "small"}


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
def run(lab, judge, tmp_path_factory):
    """run(playbook, *arguments) -> its output, over copies of the inventories whose routes.yml a run may write"""
    # Answers of an earlier run would not be asked for.
    shutil.rmtree(lab.reports / "evaluations", ignore_errors=True)
    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "tests").symlink_to(os.path.join(REPOSITORY, "tests"))
    copied = shutil.copytree(os.path.join(REPOSITORY, "inventories/lab"), folder / "inventories/lab")
    services = shutil.copytree(os.path.join(REPOSITORY, "molecule/gateway/inventory"), folder / "inventories/services")
    # Node1 is of the first one.
    (services / "group_vars/all/routes.yml").rename(copied / "group_vars/all/routes.yml")
    hosts = {"judge": {"ansible_host": judge, "lab_index": 14}}
    (folder / "judge.json").write_text(json.dumps({"all": {"children": {"judges": {"hosts": hosts}}}}))
    inventories = ("-i", str(services), "-i", str(folder / "judge.json"))

    def run(playbook, *arguments):
        status, output = lab.playbook(playbook, *inventories, *arguments, inventory=str(copied))
        assert status == 0, output
        return output

    run.routes = copied / "group_vars/all/routes.yml"
    return run


@pytest.fixture(scope="module")
def evaluated(run):
    """evaluated(): asks two models all tasks, and writes the routes -> the output"""
    words = ("models=small,gemma-3-270m", "task_dir=" + TASKS, "acceptance_judge_host=judge", "write=true")
    return lambda: run("evaluate", *(word for one in words for word in ("-e", one)))


def test_models_are_asked_and_judged_once(lab, evaluated, run):
    output = evaluated()
    assert "small: 18 answers of about" in output and "gemma-3-270m: 18 answers of about" in output
    assert "asked 36, judged" in output and lab.changed(output) > 0
    results = {name: lab.reports / f"evaluations/latest-{name}.json" for name in ("small", "gemma-3-270m")}
    found = {name: json.loads(path.read_text()) for name, path in results.items()}
    tasks = {one["task"]: one for one in found["small"]["answers"]}
    assert tasks["fix/double"]["compiles"] is False and tasks["analyze/color"]["compiles"] is None
    # A color was asked for, in any words.
    assert tasks["analyze/color"]["passes"] is True
    passed = {name: {row["kind"]: row["passed"] for row in one["figures"]} for name, one in found.items()}
    assert_routes(output, passed, run.routes)
    # The preflight of this run accepts what was written, and so does a plan.
    again = evaluated()
    assert "asked 0, judged 0" in again and lab.changed(again) == 0 and "llama_routes before" not in again
    assert {name: json.loads(path.read_text())["figures"] for name, path in results.items()} == {
        name: one["figures"] for name, one in found.items()
    }
    run("plan", "-e", "devices=3x8GB")
    modes = {path.stat().st_mode & 0o077 for path in lab.reports.glob("evaluations/**/*")}
    assert modes == {0}


def assert_routes(output, passed, path):
    """Routes of real answers of two small models: only one of them begins with the language that it is asked for."""
    small, gemma = (passed[name] for name in ("small", "gemma-3-270m"))
    assert gemma["language"] - small["language"] >= 6
    assert "language: route to gemma-3-270m, which passes" in output
    # Neither knows French.
    assert max(small["french"], gemma["french"]) <= 3
    assert "french: not decided, keep smollm2: the intervals of" in output
    added = {"language": "gemma-3-270m"}
    assert yaml.safe_load(path.read_text()) == {"llama_routes": {"default": "smollm2", "tasks": {**ROUTED, **added}}}
    # The difference, with which an output ends that has single spaces.
    shown = output.partition("@@ ")[2].split(" kept as ")[0]
    assert re.findall(r"[+-] (\S+: \S+)", shown) == [f"{kind}: {model}" for kind, model in added.items()]


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
