# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import errno
import os
import pathlib
import pwd

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import logs

# 2026-11-27 21:00:00 UTC.
BEGIN = 1795813200.0
FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures"
USER = pwd.getpwuid(os.geteuid()).pw_name
SOME = {"lines": [{"at": BEGIN + 2, "unit": "llama-head-a.service", "text": "x", "folded": 0}], "more": False}


def stamped(second, text):
    return "2026-11-27T21:00:%02d.500000Z %s\n" % (second, text)


@pytest.fixture(name="folders")
def fixture_folders(tmp_path):
    local, shared = tmp_path / "local", tmp_path / "shared"
    for number in (4711, 4712):
        (shared / str(number)).mkdir(parents=True)
    local.mkdir()
    (local / "llama-72b-4711.log").write_text(stamped(0, "start 1") + "second line\n" + stamped(9, "ended: preempted"))
    (local / "llama-14b-4712.log").write_text(stamped(1, "of another service"))
    (local / "other-4711.log").write_text(stamped(1, "of another job"))
    (shared / "4711" / "head-vasp-01.log").write_text(
        stamped(1, "0.00.000.001 I routine") * 3 + stamped(3, "0.00.000.002 E no memory") + stamped(4, "model loaded")
    )
    (shared / "4711" / "rpc-vasp-03.log").write_text(stamped(1, "of another node"))
    return local, shared


def shown(folders, most=100, everything=False, since=BEGIN, found=None, user=USER):
    job = {"name": "llama-72b", "log_dir": str(folders[1]), "local_log_dir": str(folders[0]), "user": user}
    return logs.added(SOME if found is None else found, [job], "vasp-01", since, most, everything)


def test_lines_of_jobs_stand_between_others(folders):
    result = shown(folders)
    assert [(line["at"] - BEGIN, line["unit"], line["text"], line["folded"]) for line in result["lines"]] == [
        (0.5, "job 4711", "start 1", 0),
        (0.5, "job 4711", "second line", 0),
        (1.5, "job 4711 head", "", 3),
        (2, "llama-head-a.service", "x", 0),
        (3.5, "job 4711 head", "0.00.000.002 E no memory", 0),
        (4.5, "job 4711 head", "model loaded", 0),
        (9.5, "job 4711", "ended: preempted", 0),
    ]
    assert (result["more"], result["missing"]) == (False, "")


def test_every_line_is_shown_on_request(folders):
    assert sum(line["text"] == "0.00.000.001 I routine" for line in shown(folders, everything=True)["lines"]) == 3


def test_newest_lines_are_kept(folders):
    result = shown(folders, most=2)
    assert [line["text"] for line in result["lines"]] == ["model loaded", "ended: preempted"] and result["more"]


def test_older_lines_and_files_are_left_out(folders):
    os.utime(folders[0] / "llama-72b-4711.log", (0, 0))
    assert [line["at"] - BEGIN for line in shown(folders, since=BEGIN + 3)["lines"]] == [2, 3.5, 4.5]


def test_node_without_logs_shows_none(tmp_path):
    assert shown((tmp_path / "a", tmp_path / "b")) == dict(SOME, missing="")


@pytest.mark.parametrize("kind", ["link", "hard", "fifo"])
def test_only_plain_files_are_read(folders, tmp_path, kind):
    path, secret = folders[0] / "llama-72b-4711.log", tmp_path / "secret"
    secret.write_text(stamped(1, "secret"))
    path.unlink()
    {"link": os.symlink, "hard": os.link, "fifo": lambda _from, to: os.mkfifo(to)}[kind](secret, path)
    assert "secret" not in str(shown(folders)) and "start 1" not in str(shown(folders))


def test_linked_directory_of_a_job_is_skipped(folders, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "head-vasp-01.log").write_text(stamped(1, "secret"))
    os.symlink(tmp_path / "elsewhere", folders[1] / "4713")
    assert "secret" not in str(shown(folders))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
def test_planted_logs_are_not_read(folders, monkeypatch):
    monkeypatch.setattr(logs, "MOST_LOGS", 2)
    monkeypatch.setattr(logs, "MOST_JOBS", 2)
    own = str(shown(folders))
    for number in range(9_999_999_990, 10_000_000_000):
        path = folders[0] / f"llama-72b-{number}.log"
        path.write_text(stamped(1, "planted"))
        os.chown(path, 4711, 4711)
        theirs, inside = folders[1] / str(number), folders[1] / "4712" / "rpc-vasp-01.log"
        theirs.mkdir()
        (theirs / "head-vasp-01.log").write_text(stamped(1, "planted"))
        os.chown(theirs, 4711, 4711)
    inside.write_text(stamped(1, "planted"))
    os.chown(inside, 4711, 4711)
    assert str(shown(folders)) == own and "start 1" in own and "no memory" in own
    for path, why in ((inside, "none logged"), (theirs / "head-vasp-01.log", "another user may write it")):
        assert why in logs.load_of(str(path), USER)["reason"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_root_reads_as_the_user(folders):
    # Only root may enter a directory of the tests.
    assert shown(folders, user="nobody") == dict(SOME, missing="")
    assert "slurm_user: no-such is not known on this host" in shown(folders, user="no-such")["missing"]
    assert "slurm_user: no-such" in logs.load_of(str(folders[1] / "4711" / "head-vasp-01.log"), "no-such")["reason"]


def test_long_logs_are_bounded(folders, monkeypatch):
    monkeypatch.setattr(logs, "MOST_BYTES", 20_000)
    for number in range(20):
        path = folders[0] / f"llama-72b-{5000 + number}.log"
        path.write_text("".join(stamped(2, "0.00.000.001 I routine") + stamped(2, "line %d" % at) for at in range(200)))
    texts = logs._local(str(folders[0]), ["llama-72b"], 0)
    assert [unit for unit, _text in texts] == ["job 5019"] + ["job 5018"] * (len(texts) - 1)
    assert sum(len(text) for _unit, text in texts) == 20_000
    result = shown(folders, most=10)
    assert sum(not line["folded"] for line in result["lines"]) == 10 and result["more"]


def test_hanging_share_is_named(folders, monkeypatch):
    monkeypatch.setattr(logs, "DEADLINE", 0.3)
    monkeypatch.setattr(logs, "_shared", lambda *_given: __import__("time").sleep(60))
    result = shown(folders)
    assert "start 1" in str(result) and result["missing"] == f"{folders[1]}: no answer for 0 s"


def test_layers_are_read_from_the_log(tmp_path):
    text = (FIXTURES / "load_b11434.log").read_text()
    log = tmp_path / "head-vasp-01.log"
    log.write_text("".join(stamped(1, line) for line in text.split("\n")) * 2)
    found, plain = logs.load_of(str(log), USER), logs.parse(text.split("\n"))
    assert found["devices"] == plain["devices"] and found["layers_total"] == plain["layers_total"]
    assert (found["reason"], found["unit"]) == (None, str(log))


def test_log_without_layers_has_a_reason(tmp_path):
    assert logs.load_of(str(tmp_path / "none"), USER)["reason"].startswith(
        f"{tmp_path}/none has no buffer sizes (none log"
    )
    assert "No such file" in logs.load_of(str(tmp_path / "a" / "b"), USER)["reason"]


@pytest.fixture(name="ended")
def fixture_ended(tmp_path):
    """The logs of four jobs."""
    for number in range(7, 11):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "head-n1.log").touch()
    return tmp_path


@pytest.mark.skipif(os.geteuid() != 0, reason="root makes the directory of another user")
def test_directory_of_others_displaces_none(ended):
    (ended / "99").mkdir()
    os.chown(ended / "99", 12345, -1)
    logs.remove_old(str(ended), 2, [7])
    assert sorted(os.listdir(ended)) == ["10", "7", "9", "99"]


def test_read_only_logs_are_named(ended, monkeypatch):
    def refuse(name, dir_fd):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)

    monkeypatch.setattr(logs.os, "unlink", refuse)
    with pytest.raises(OSError, match="7: Read-only file system"):
        logs.remove_old(str(ended), 2, [])
    logs.remove_old(str(ended), 4, [])


def test_only_the_last_own_logs_stay(tmp_path):
    names = ["llama-72b-%d.log" % number for number in (8, 9, 10, 11)]
    others = ["llama-72b-x.log", "llama-14b-1.log", "my-llama-72b-1.log", "llama-72b-1.log.gz", "notes"]
    for name in (*names, *others):
        (tmp_path / name).touch()
    os.symlink("notes", tmp_path / "llama-72b-7.log")
    logs.remove_older(str(tmp_path / "llama-72b-11.log"), 11, 2)
    assert sorted(os.listdir(tmp_path)) == sorted([*names[2:], *others, "llama-72b-7.log"])
    for own in ("elsewhere.log", "11.log", "llama-72b-12.log"):
        logs.remove_older(str(tmp_path / own), 11, 0)
    logs.remove_older("", 11, 0)
    assert len(os.listdir(tmp_path)) == 2 + len(others) + 1
