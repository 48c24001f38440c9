"""The split proof of services that are wrong and serve all the same."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests/benchmarks/wire"))
from sabotages import SABOTAGES, apply  # noqa: E402


def run(lab):
    return lambda node, command: getattr(lab, node).check_output("bash -c %s", command)


def addresses(lab):
    return {"ethernet": lab.ethernet("node3"), "fabric": lab.fabric("node3")}


def sabotaged(lab, *names):
    """-> output of verify.yml"""
    parts = [SABOTAGES[name] for name in names]
    apply([step for one in parts for step in one.change], run(lab), addresses(lab))
    try:
        status, output = lab.playbook("verify", "--skip-tags", "preflight,report", "-e", "verify_conversation=plain")
    finally:
        apply([step for one in parts for step in one.undo], run(lab), addresses(lab))
    assert status != 0, output
    return output


# Sabotages that are found together are made together.
@pytest.mark.parametrize("names", [("worker over Ethernet",), ("worker idle",), ("wrong build", "RPC open to all")])
def test_a_sabotage_is_refused(lab, names):
    output = sabotaged(lab, *names)
    for name in names:
        assert SABOTAGES[name].said % addresses(lab) in output


def test_undone_sabotage_is_accepted(lab):
    status, output = lab.playbook("verify", "--skip-tags", "report")
    assert status == 0, output
    assert lab.changed(output) == 0
    seen = json.loads((lab.reports / "wire/latest-chat.json").read_text())
    holds = {check["name"]: check["holds"] for check in seen["checks"]}
    assert holds.pop("work") is None
    assert len(holds) == 5 and set(holds.values()) == {True}
