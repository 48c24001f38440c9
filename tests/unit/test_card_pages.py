# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages that tests/card/pages.py makes of results, which owners of cards send in."""

import ast
import copy
import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load():
    spec = importlib.util.spec_from_file_location("card_pages", ROOT / "tests/card/pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages = load()
PART = {
    "ok": True,
    "seconds": 12.3,
    "checks": [{"what": "systemd runs on 3 nodes", "ok": True, "seen": "running"}],
    "figures": {"tokens_per_second": 61.26, "planned, MiB": 4521},
}
CARD = {
    "schema": 1,
    "date": "2026-11-27",
    "mode": "card",
    "card": "NVIDIA H100 80GB HBM3",
    "driver": "580.159.04",
    "cuda": "13.0",
    "build": "b11434-cuda-0123abcd",
    "version": "b11434",
    "kernel": "6.18",
    "nodes": 3,
    "parts": dict.fromkeys(pages.PARTS, PART),
}
CPU = dict(CARD, mode="cpu", card="none", driver="", cuda="", build="b11434-cpu-89abcdef")
NOT_YET = "It has not been deployed on a GPU yet."


def changed(path, value, base=None):
    """The result with another value at this path of keys."""
    result = copy.deepcopy(base or CARD)
    at = result
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return result


def failing(seen="llama-rpc-chat.service | `dead`\nat 10.216.0.12"):
    check = {"what": "the same answer after a kill", "ok": False, "seen": seen}
    return changed(["parts", "kills"], dict(PART, ok=False, checks=[*PART["checks"], check]))


@pytest.fixture
def made(tmp_path):
    """-> function from results to (README.md, hardware.md) as pages.py writes them"""
    (tmp_path / "docs").mkdir()
    (tmp_path / pages.RESULTS).mkdir(parents=True)
    for name in ("README.md", "docs/hardware.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())

    def write(*results):
        for number, result in enumerate(results):
            text = result if isinstance(result, str) else json.dumps(result)
            (tmp_path / pages.RESULTS / ("%d.json" % number)).write_text(text)
        assert pages.main([], tmp_path) == 0
        assert pages.main(["--check"], tmp_path) == 0
        return (tmp_path / "README.md").read_text(), (tmp_path / "docs/hardware.md").read_text()

    write.root = tmp_path
    return write


def one_line(text):
    return " ".join(text.replace("\n> ", " ").split())


def test_pages_of_the_repository_are_current():
    assert pages.main(["--check"]) == 0, "run: python3 tests/card/pages.py"


def test_no_result_keeps_the_sentence(made):
    readme, hardware = made()
    assert NOT_YET in readme and "No result of a [card test](docs/hardware.md) yet." in readme
    assert "\nNo result yet.\n" in hardware


def test_complete_result_changes_the_status(made):
    readme, hardware = made(CARD)
    assert NOT_YET not in readme
    sentence = "Deployed and tested on NVIDIA H100 80GB HBM3 (580.159.04, b11434-cuda-0123abcd, 2026-11-27)."
    assert sentence in one_line(readme)
    assert (
        "| NVIDIA H100 80GB HBM3 | 580.159.04 | 13.0 | 6.18 | b11434-cuda-0123abcd | 2026-11-27 | 15 of 15 |"
        in hardware
    )
    assert "| `benchmark` | tokens&#95;per&#95;second | 61.26 |" in hardware
    assert "Failed:" not in hardware and "No result yet." not in hardware


def test_pages_are_not_too_wide_with_results(made):
    longest = {"card": "N" * 60, "driver": "5" * 30, "build": "b" * 60}
    readme, _hardware = made(*[dict(CARD, date="2026-11-%02d" % day, **longest) for day in range(1, 9)])
    marked = [readme.partition(begin)[2].partition(end)[0] for begin, end in pages.MARKS.values()]
    assert all(marked) and [line for text in marked for line in text.splitlines() if len(line) > pages.WIDTH] == []
    # At the beginning of a line it would end the quotation.
    assert "\n> <!--" not in readme


def test_failed_part_is_named(made):
    readme, hardware = made(failing())
    assert NOT_YET in readme and "parts passed: 14 of 15" in one_line(readme)
    row = "| `kills` | the same answer after a kill | llama-rpc-chat.service &#124; &#96;dead&#96; at 10.216.0.12 |"
    assert row in hardware


def test_part_that_did_not_run_is_named(made):
    parts = {name: part for name, part in CARD["parts"].items() if name != "plan"}
    readme, hardware = made(dict(CARD, parts=parts))
    assert NOT_YET in readme and "| 14 of 15 |" in hardware and "| `plan` | did not run |" in hardware


@pytest.mark.parametrize(
    "checks", [[], [{"what": "the card is empty", "ok": None, "seen": "needs a card"}]], ids=["none", "skipped"]
)
def test_part_without_a_passed_check_failed(made, checks):
    readme, hardware = made(changed(["parts", "teardown"], dict(PART, checks=checks)))
    assert NOT_YET in readme and "| `teardown` | no check passed |" in hardware


def test_result_without_a_card_is_not_shown(made):
    assert made(CPU) == made()


def test_newest_complete_result_is_the_status(made):
    newest = dict(failing(), date="2027-03-01", card="NVIDIA L40S")
    readme, hardware = made(dict(CARD, date="2026-01-02", card="NVIDIA A100"), newest, CARD)
    assert "Deployed and tested on NVIDIA H100" in one_line(readme)
    assert re.findall(r"^\| NVIDIA (\w+)[^|]*\| 580", hardware, re.MULTILINE) == ["L40S", "H100", "A100"]


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ("{", "not JSON"),
        ("[" * 100000, "not JSON"),
        ("[]", "the file: [] seen, an object is needed"),
        (dict(CARD, schema=2), "schema: 2 seen, 1 is needed: use run.py of this checkout"),
        (dict(CARD, schema=True), "schema: True seen"),
        (dict(CARD, mode="gpu"), "mode: 'gpu' seen, card or cpu is needed"),
        (dict(CARD, date="27.11.2026"), "date: '27.11.2026' seen"),
        (dict(CARD, date="2026-02-30"), "a day of the calendar is needed"),
        (dict(CARD, nodes=0), "nodes: 0 seen"),
        (dict(CARD, card="[cheap](https://example.org)"), "card: "),
        (dict(CARD, card="N" * 61), "card: "),
        (dict(CARD, card=None), "card: None seen"),
        (dict(CARD, build="b11434|x"), "build: "),
        (dict(CARD, kernel="6.18\n"), "kernel: "),
        (dict(CARD, parts={}), "parts: {} seen"),
        (dict(CARD, parts={"speed": PART}), "parts: 'speed' seen, one of boot, "),
        (changed(["parts", "boot"], "ok"), "parts.boot: 'ok' seen, an object is needed"),
        (changed(["parts", "boot", "ok"], 1), "parts.boot.ok: 1 seen"),
        (changed(["parts", "boot", "seconds"], -1), "parts.boot.seconds: -1 seen"),
        (changed(["parts", "boot", "seconds"], float("nan")), "parts.boot.seconds: None seen"),
        (changed(["parts", "boot", "checks"], {}), "parts.boot.checks: {} seen"),
        (changed(["parts", "boot", "checks"], PART["checks"] * 201), "parts.boot.checks: "),
        (
            changed(["parts", "boot", "checks", 0, "what"], "a\x1b[31mb"),
            "parts.boot.checks[0].what: 'a\\x1b[31mb' seen",
        ),
        (changed(["parts", "boot", "checks", 0, "seen"], 7), "parts.boot.checks[0].seen: 7 seen"),
        (changed(["parts", "boot", "figures", "x"], [1]), "parts.boot.figures.x: [1] seen"),
        (changed(["parts", "boot", "figures", "x"], 10**400), "parts.boot.figures.x: 1000"),
        (changed(["parts", "boot", "figures", "x"], float("inf")), "parts.boot.figures.x: None seen"),
        (
            changed(["parts", "boot", "checks", 0, "seen"], "GPU-01234567-89ab-cdef-0123-456789abcdef"),
            "looks like the UUID of a card",
        ),
        (changed(["parts", "boot", "ok"], "yes", CPU), "parts.boot.ok: 'yes' seen"),
    ],
)
def test_malformed_result_is_refused_in_one_sentence(made, capsys, result, sentence):
    before = made(CARD)
    text = result if isinstance(result, str) else json.dumps(result)
    (made.root / pages.RESULTS / "sent-in.json").write_text(text)
    capsys.readouterr()
    assert pages.main([], made.root) == 1
    said = capsys.readouterr().err
    assert said.startswith("sent-in.json: ") and sentence in said and said.count("\n") == 1 and len(said) < 400
    assert before == tuple((made.root / name).read_text() for name in ("README.md", "docs/hardware.md"))


def test_large_file_is_refused(made, capsys):
    (made.root / pages.RESULTS / "large.json").write_text(" " * (pages.MAX_BYTES + 1))
    assert pages.main([], made.root) == 1
    assert "at most 1048576 are read" in capsys.readouterr().err


def test_link_is_refused(made, capsys):
    (made.root / pages.RESULTS / "link.json").symlink_to("/dev/zero")
    assert pages.main([], made.root) == 1
    assert capsys.readouterr().err == "link.json: no plain file: send only what run.py wrote: nothing was written\n"


def test_texts_are_shown_and_not_rendered(made):
    hostile = "<!-- end of card results --> [a](http://b) @user #1 www.example.org *x* ~~y~~ a|b <img src=x>"
    result = changed(["parts", "boot", "figures"], {hostile: hostile}, failing(seen=hostile * 5 + "\u202e"))
    _readme, hardware = made(result)
    inside = hardware.partition(pages.MARKS["card results"][0])[2].partition(pages.MARKS["card results"][1])[0]
    table = inside[inside.index("Failed:") :]
    assert "&#60;&#33;-- end of card results --&#62; &#91;a&#93;(http&#58;//b) &#64;user &#35;1 www&#46;" in table
    assert not re.search(r"[<>\[\]@*~\\]|www\.|://", table)
    assert {len(re.findall(r"\|", row)) for row in table.splitlines() if row.startswith("|")} == {5}


def test_stale_page_fails_the_check(made, capsys):
    made()
    (made.root / pages.RESULTS / "new.json").write_text(json.dumps(CARD))
    before = (made.root / "README.md").read_text()
    assert pages.main(["--check"], made.root) == 1
    assert "README.md does not match tests/card/results: run python3 tests/card/pages.py" in capsys.readouterr().err
    assert (made.root / "README.md").read_text() == before


def test_page_without_marks_is_refused(made, capsys):
    (made.root / "README.md").write_text("nothing")
    assert pages.main([], made.root) == 1
    assert "cannot find one pair of <!-- card results" in capsys.readouterr().err


def test_pages_know_the_parts_of_the_test():
    tree = ast.parse((ROOT / "tests/card/parts.py").read_text())
    (parts,) = [
        {key.value for key in node.value.keys}
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "PARTS"
    ]
    assert parts == set(pages.PARTS)
    assert all("| `%s` |" % name in (ROOT / "docs/hardware.md").read_text() for name in pages.PARTS)
