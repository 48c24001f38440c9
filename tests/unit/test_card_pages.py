# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages that tests/card/pages.py makes of results, which owners of cards send in."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("card_pages", ROOT / "tests/card/pages.py")
pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pages)
PART = {"ok": True, "seconds": 12.3, "checks": [{"what": "it runs", "ok": True, "seen": "running"}], "figures": {}}
CARD = {
    **{"schema": 1, "date": "2026-11-27", "mode": "card", "card": "NVIDIA H100 80GB HBM3", "driver": "580.159.04"},
    **{"cuda": "13.0", "build": "b11434-cuda-0123abcd", "kernel": "6.18", "parts": dict.fromkeys(pages.PARTS, PART)},
}
HOSTILE = "<!-- end of card results --> [a](http://b) @user #1 www.example.org *x* a|b <img src=x>"
FAILED = dict(
    PART, ok=False, checks=[{"what": "the same answer", "ok": False, "seen": HOSTILE}], figures={"x_y": 61.26}
)


@pytest.fixture
def made(tmp_path):
    """Function from results to (exit status, README.md, benchmarks.md)."""
    (tmp_path / "docs").mkdir()
    (tmp_path / pages.RESULTS).mkdir(parents=True)
    for name in ("README.md", "docs/benchmarks.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())

    def write(*results):
        for number, result in enumerate(results):
            (tmp_path / pages.RESULTS / ("%d.json" % number)).write_text(json.dumps(result))
        status = pages.main([], tmp_path)
        return (status, " ".join((tmp_path / "README.md").read_text().replace("\n> ", " ").split())), (
            tmp_path / "docs/benchmarks.md"
        ).read_text()

    return write


def test_pages_of_the_repository_are_current():
    assert pages.main(["--check"]) == 0, "run: python3 tests/card/pages.py"


def test_complete_result_changes_the_status(made):
    (status, readme), hardware = made(CARD, dict(CARD, mode="cpu", card="none"))
    assert status == 0 and "Deployed and tested on NVIDIA H100 80GB HBM3 (580.159.04" in readme
    assert (
        "| 2026-11-27 | 15 of 15 |" in hardware and "Failed:" not in hardware and "none" not in hardware.lower()[:900]
    )


def test_result_by_vulkan_has_no_cuda(made):
    vulkan = dict(CARD, card="AMD Radeon RX 7900 XTX", driver="25.0.7", cuda="", build="b11434-vulkan-0123abcd")
    (status, readme), hardware = made(vulkan)
    assert status == 0 and "Deployed and tested on AMD Radeon RX 7900 XTX (25.0.7, b11434-vulkan-0123abcd" in readme
    assert "| AMD Radeon RX 7900 XTX | 25.0.7 | - |" in hardware
    assert made(dict(CARD, cuda=""))[0][0] == 1


def test_failed_and_missing_parts_are_named(made):
    parts = {**CARD["parts"], "kills": FAILED, "doctor": dict(PART, checks=[])}
    del parts["plan"]
    (_status, readme), hardware = made(dict(CARD, parts=parts))
    assert "not been deployed on a GPU" in readme and "parts passed: 12 of 15" in readme
    inside = hardware.partition(pages.MARKS["card results"][0])[2].partition(pages.MARKS["card results"][1])[0]
    assert "| `plan` | did not run |" in inside and "| `doctor` | no check passed |" in inside
    assert "| `kills` | x&#95;y | 61.26 |" in inside
    assert "&#60;&#33;-- end of card results --&#62; &#91;a&#93;(http&#58;//b) &#64;user" in inside
    assert not re.search(r"[<>\[\]@*~\\]|www\.|://", inside[inside.index("Failed:") :])


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"card": "[cheap](https://example.org)"},
        {"kernel": "6.18\n"},
        {"parts": {"speed": PART}},
        {"card": None},
    ],
)
def test_malformed_result_is_refused(made, capsys, change):
    assert made(dict(CARD, **change))[0][0] == 1
    assert capsys.readouterr().err.startswith("0.json: ")


def test_pages_know_the_parts_of_the_test():
    tree = ast.parse((ROOT / "tests/card/parts.py").read_text())
    (parts,) = [
        [key.value for key in node.value.keys]
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "PARTS"
    ]
    assert set(parts) == set(pages.PARTS)
    assert all("| `%s` |" % name in (ROOT / "docs/benchmarks.md").read_text() for name in pages.PARTS)
