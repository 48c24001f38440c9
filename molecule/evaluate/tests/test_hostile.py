"""Programs that attack the host that judges them, in units of a node and in containers of this machine."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/hostile"))
import hostile  # noqa: E402

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


@pytest.fixture(scope="module", name="image")
def fixture_image():
    return subprocess.check_output([ROOT / "tests/lab/rust_image.sh"], text=True).strip()


@pytest.fixture(scope="module", name="in_units")
def fixture_in_units(lab):
    return hostile.judged(hostile.Container(lab.name + "-judge"), hostile.NAMES)


@pytest.fixture(scope="module", name="in_containers")
def fixture_in_containers(image):
    return hostile.judged(hostile.Here(image), IN_CONTAINERS)


@pytest.mark.parametrize("name", hostile.NAMES)
def test_hostile_program_does_not_pass_in_a_unit(in_units, name):
    seen, _before, _after = in_units
    assert seen["way"] == "systemd" and seen["verdicts"][name]["passes"] is False
    assert seen["verdicts"][name]["reason"]


@pytest.mark.parametrize("name", IN_CONTAINERS)
def test_hostile_program_does_not_pass_in_a_container(in_containers, name):
    seen, _before, _after = in_containers
    assert seen["way"] == "docker" and seen["verdicts"][name]["passes"] is False


@pytest.mark.parametrize("way", ["in_units", "in_containers"])
def test_host_is_as_before_and_judges_on(request, way):
    seen, before, after = request.getfixturevalue(way)
    assert before == after
    assert (seen["verdicts"]["reference"]["passes"], seen["verdicts"]["reference"]["tests"]) == (True, [3, 3])
    assert seen["verdicts"]["reference"]["clippy_warnings"] == 0
