# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._registry import files, reader
from ansible_collections.thefermisea.llama_cluster.tests.unit.registry_files import HOSTS, NAME, RECORD

SECOND = 10**9
SCANDIR = os.scandir


class Share:
    """A directory, and the reader's registry of it on a clock of the test's."""

    def __init__(self, folder, device=None):
        self.folder = str(folder)
        self.sentences = []
        self.now = 5000.0
        self.server = 1_000_000.0  # the file server's clock
        self.registry = reader.Registry(HOSTS, self.sentences.append, device)

    def write(self, name=NAME, text=None, **changed):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as stream:
            stream.write(files.encode(dict(RECORD, **changed)) if text is None else text)
        os.chmod(path, 0o644)
        os.utime(path, ns=(0, int(self.server * SECOND)))
        return path

    def look(self, seconds=1.0, uids=()):
        self.now += seconds
        self.server += seconds
        return self.registry.looked(reader.look(self.folder, [os.getuid(), *uids], self.registry.names), self.now)

    def looks(self, count):
        for _look in range(count):
            assert self.look()

    @property
    def ports(self):
        return [endpoint["port"] for endpoint in self.registry.endpoints()]


class Backwards:
    """os.scandir() with the endpoint of a real job last."""

    def __init__(self, folder):
        with SCANDIR(folder) as entries:
            self._entries = iter(sorted(entries, key=lambda entry: entry.name == NAME))

    def __enter__(self):
        return self._entries

    def __exit__(self, *_error):
        return None


@pytest.fixture(name="share")
def fixture_share(tmp_path):
    return Share(tmp_path)


def test_endpoint_counts_while_its_file_exists(share):
    share.look()
    path = share.write()
    share.look()
    assert share.ports == [8081]
    os.unlink(path)
    share.look()
    assert share.ports == [] and share.sentences == []


def test_change_within_one_clock_tick_is_seen(share):
    share.write(state="loading")
    share.look()
    share.server -= 1
    share.write(state="ready")
    share.look()
    assert share.registry.endpoints()[0]["state"] == "ready"


def test_file_without_heartbeat_ends_after_three(share):
    share.write()
    share.looks(31)
    assert share.ports == [8081]
    share.looks(5)
    assert share.ports == []
    assert share.sentences == [
        "4711-72b.json: no new one for 30 s, one each 10 s is needed: start what writes it again, or remove it"
    ]
    share.write()
    share.look()
    assert share.ports == [8081]


def test_clocks_of_server_and_reader_may_differ(share):
    for _beat in range(20):
        share.write()
        share.looks(10)
        assert share.ports == [8081]
        share.server -= 10_000  # set back, over and over


def test_first_look_compares_with_the_newest_file(share):
    share.write("1-old.json", job_id=1, port=9001)
    share.server += 31
    share.write()
    share.look()
    assert share.ports == [8081]


def test_hanging_share_stops_the_ages(share):
    share.write()
    share.looks(3)
    share.now += 3600
    share.look()
    assert share.ports == [8081]
    share.looks(25)
    assert share.ports == [8081]


def test_unmounted_share_changes_nothing(share):
    share.write()
    share.look()
    seen = {"device": -1, "folder": "", "files": {}}
    assert share.registry.looked(seen, share.now + 1) is False
    assert share.ports == [8081]
    again = Share(share.folder, device=share.registry.device)
    assert again.registry.looked(seen, again.now) is False, "and for the next run of the program"
    assert reader.device_of(reader.as_json([], 42).decode()) == 42
    assert reader.device_of("") is None


def test_half_written_file_keeps_its_last_content(share):
    share.write()
    share.look()
    share.write(text=files.encode(RECORD)[:40])
    share.looks(5)
    assert share.ports == [8081]
    assert share.sentences == [
        "4711-72b.json: no JSON object seen, one is needed: restart what writes the file, or remove it"
    ]
    share.looks(30)
    assert share.ports == [], "its time to live has ended"


def test_broken_files_leave_the_others_valid(share):
    share.write()
    share.write("7-x.json", text=b"\xff\x00")
    share.write("8-x.json", job_id=8, host="evil.example", port=1)
    os.mkfifo(os.path.join(share.folder, "9-x.json"))
    os.symlink(os.path.join(share.folder, NAME), os.path.join(share.folder, "10-x.json"))
    os.mkdir(os.path.join(share.folder, "11-x.json"))
    share.write("12-x.json", text=b" " * (files.MOST_BYTES + 1))
    share.looks(3)
    assert share.ports == [8081]
    assert len(share.sentences) == 6
    assert any(text.startswith("10-x.json: a link seen, a readable file is needed") for text in share.sentences)


def test_file_writable_by_others_is_refused(share):
    path = share.write()
    os.chmod(path, 0o664)
    share.look()
    assert share.ports == []
    assert share.sentences[-1].startswith("4711-72b.json: mode 0664 seen, one that only its owner may write is needed")
    os.chmod(path, 0o644)
    os.link(path, os.path.join(share.folder, "kept-aside"))
    share.look()
    assert share.ports == []
    assert share.sentences[-1].startswith("4711-72b.json: no file with one name seen")


def test_directory_writable_by_others_is_reported_once(share):
    share.write()
    os.chmod(share.folder, 0o775)
    share.looks(3)
    assert share.ports == [8081], "each file is judged by itself"
    assert share.sentences == [
        "%s: mode 0775 seen, one that only its owner may write is needed: chmod go-w" % share.folder
    ]
    # With the sticky bit other users can only add files, which do not count.
    for mode in (0o1777, 0o755):
        os.chmod(share.folder, mode)
        share.look()
    assert len(share.sentences) == 1
    os.chmod(share.folder, 0o757)
    share.look()
    assert share.sentences[1:] == [share.sentences[0].replace("0775", "0757")]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a directory away")
def test_directory_of_another_user_is_reported(share):
    os.chown(share.folder, 4321, 4321)
    share.look()
    (sentence,) = share.sentences
    assert sentence.startswith("%s: user id 4321 seen as its owner, 0 or one of gateway_registry_uids" % share.folder)
    share.sentences.clear()
    share.look(uids=[4321])
    os.chown(share.folder, 0, 0)
    share.look()
    assert share.sentences == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a file away")
def test_listed_users_files_count(share):
    os.chown(share.write(), 4321, 4321)
    share.look()
    assert share.ports == []
    assert share.sentences[-1].startswith(
        "4711-72b.json: user id 4321 seen as its owner, 0 or one of gateway_registry_uids"
    )
    share.look(uids=[4321])
    assert share.ports == [8081]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a file away")
def test_files_of_other_users_stay_closed(share, monkeypatch):
    share.write()
    os.chown(share.write("7-x.json", job_id=7), 4321, 4321)
    opened, real = [], os.open
    monkeypatch.setattr(os, "open", lambda path, *rest, **more: opened.append(path) or real(path, *rest, **more))
    reader.look(share.folder, [])
    assert opened == [share.folder, NAME]


def test_very_many_files_hide_no_endpoint(share, monkeypatch):
    share.write()
    share.look()
    monkeypatch.setattr(reader, "MOST_NAMES", 20)
    for number in range(1, 40):
        share.write("%d-a.json" % number, text=b"")
    monkeypatch.setattr(os, "scandir", Backwards)
    share.looks(3)
    assert share.ports == [8081]
    too_many = "%s: more than 20 files seen, that is the limit: find who made them, remove them" % share.folder
    assert share.sentences.count(too_many) == 1
    assert len(reader.look(share.folder, [os.getuid()])["files"]) == 20


def test_newer_file_of_one_address_counts(share):
    share.write("1-72b.json", job_id=1)
    share.server += 1
    share.write("2-72b.json", job_id=2)
    share.server += 1
    share.look()
    assert [endpoint["job_id"] for endpoint in share.registry.endpoints()] == [2]


def test_word_of_the_keeper_hides_no_server(share):
    share.write()
    share.server += 1
    share.write("0-72b.json", job_id=0, state="waiting", why="gpu_vasp wants vasp-02 at 14:00", retry_after=60)
    share.server += 1
    share.look()
    seen = [(one["state"], one["why"], one["retry_after"]) for one in share.registry.endpoints()]
    assert seen == [("ready", None, None), ("waiting", "gpu_vasp wants vasp-02 at 14:00", 60)]
