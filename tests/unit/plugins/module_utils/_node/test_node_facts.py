# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of a node with stub programs in PATH."""

import json
import os
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import command, facts
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

SYSTEMCTL = """\
import sys

patterns = sys.argv[sys.argv.index("--") + 1:]
if "llama-rpc-*.service" in patterns:
    print("Id=llama-rpc-chat.service\\nMainPID=812\\n\\nId=llama-rpc-old.service\\nMainPID=0\\n")
"""


@pytest.fixture(name="program")
def fixture_program(tmp_path, monkeypatch):
    """program(NAME, TEXT): a Python program of that name. Nothing else is found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(command, "BINARIES", "")

    def make(name, text):
        (folder / name).write_text("#!%s\n%s" % (sys.executable, text))
        (folder / name).chmod(0o755)

    return make


def test_only_wanted_subsets_are_collected(monkeypatch):
    monkeypatch.setattr(facts, "said", pytest.fail)
    assert facts.collect({"units": False, "packages": None, "again": False}) == {}


def test_accounts_are_asked_for_by_name_and_id(program):
    program("getent", "import sys\nprint(':'.join(['x'] + sys.argv[1:]))\nsys.exit(2)\n")
    asked = {"names": ["llama", "llama-rpc"], "ids": ["0", "971"]}
    assert facts.collect({"accounts": asked}) == {
        "accounts": {
            "passwd": [["x", "passwd", "llama", "llama-rpc", "971"]],
            "group": [["x", "group", "llama", "llama-rpc"]],
        }
    }


def test_directories_that_others_may_write(tmp_path):
    folders = {}
    for name, mode in (("right", 0o755), ("group", 0o775), ("all", 0o757), ("sticky", 0o1777)):
        folders[name] = tmp_path / name
        folders[name].mkdir()
        folders[name].chmod(mode)
    (tmp_path / "link").symlink_to("all")
    paths = [str(path) for path in folders.values()] + [str(tmp_path / "link"), str(tmp_path / "none")]
    found = [os.path.basename(path) for path in facts.writable(paths)["writable"]]
    assert found == (
        ["group", "all", "sticky", "link"] if os.geteuid() == 0 else ["right", "group", "all", "sticky", "link"]
    )


@pytest.mark.parametrize(
    "text,installed",
    [
        ("print('installed\\ninstalled')", True),
        ("print('installed\\nconfig-files')", False),
        ("print('not-installed')", False),
        ("raise SystemExit(1)", False),
    ],
)
def test_packages(program, text, installed):
    program("query", text)
    assert facts.packages(["query"]) == {"packages_installed": installed}
    assert facts.packages(["no-such-query"]) == {"packages_installed": False}


def test_contexts_are_read_where_selinux_is_enabled(program):
    assert facts.selinux(True) == {"selinux": {"enabled": False, "contexts": []}}
    program("selinuxenabled", "")
    program("semanage", "print('/opt/x(/.*)?    all files    system_u:object_r:bin_t:s0\\n')")
    assert facts.selinux(True) == {"selinux": {"enabled": True, "contexts": ["/opt/x(/.*)?"]}}


def test_line_end_in_a_full_name(program):
    program("getent", "print('bob:x:1:1:b\\x0bllama:x:0:0\\u2028y:/:/bin/sh')")
    (entry,) = facts.accounts({"names": ["bob"], "ids": []})["accounts"]["passwd"]
    assert (entry[0], len(entry)) == ("bob", 10)


def test_memory_of_grace_hopper_is_not_main_memory(tmp_path):
    """numa_status as nv-procfs.c writes it; a card whose memory is offline has none in the kernel."""
    for name, node, state in (("0009:01:00.0", 1, "online"), ("0019:01:00.0", 2, "offline")):
        (tmp_path / name).mkdir()
        text = "Node:      %d\nStatus:    %s\nAddress:   400000000000\nSize:      1800000000\n" % (node, state)
        (tmp_path / name / "numa_status").write_text(text)
        memory = "Node %d MemTotal:       %d kB\nNode %d MemFree: 1 kB\n" % (node, 98304 * 1024, node)
        (tmp_path / ("node%d" % node)).write_text(memory)
    (tmp_path / "0029:01:00.0").mkdir()
    asked = str(tmp_path / "*/numa_status"), str(tmp_path / "node%s")
    assert facts.card_kib(*asked) == 98304 * 1024
    (tmp_path / "node1").unlink()
    assert facts.card_kib(*asked) == 0


def test_the_machine(program):
    program(
        "ip",
        "print('1: lo    inet 127.0.0.1/8 scope host lo\\n2: eth0    inet 10.0.0.2/24 brd x\\n3: ib0    inet "
        "10.1.0.2/24 brd x')",
    )
    program("lscpu", "print('# the header\\n0\\n1')")
    machine = facts.machine({"numa": False})["machine"]
    assert machine["addresses"] == ["10.0.0.2", "10.1.0.2"] and machine["numa_nodes"] == []
    assert machine["memory_mib"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1048576
    assert machine["cores"] == len(os.sched_getaffinity(0))
    assert facts.machine({"numa": True})["machine"]["numa_nodes"] == ["0", "1"]


def test_siblings_are_one_core(tmp_path):
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        (tmp_path / ("cpu%d" % cpu) / "topology").mkdir(parents=True)
        (tmp_path / ("cpu%d" % cpu) / "topology/thread_siblings_list").write_text(siblings + "\n")
    assert facts.physical_cores(range(4), str(tmp_path)) == 2
    assert facts.physical_cores([0, 1], str(tmp_path)) == 2
    assert facts.physical_cores(range(6), str(tmp_path)) == 4, "those that do not tell"
    machine = facts.machine({"numa": False})["machine"]
    assert 1 <= machine["physical_cores"] <= machine["cores"]


def test_listeners_and_managed_processes(program, monkeypatch):
    program("ss", "print('LISTEN')")
    monkeypatch.setattr(facts, "managed_processes", lambda: {"812": "llama-rpc-chat.service"})
    assert facts.listeners(True) == {"listeners": "LISTEN\n", "managed_processes": {"812": "llama-rpc-chat.service"}}


def test_programs_that_every_node_has_must_answer(program):
    """No answer is not the answer that nothing is there."""
    with pytest.raises(Refusal, match=r"^ss ended with status 127, an answer is needed: run `ss -Hltnp` on the node$"):
        facts.listeners(True)
    program("getent", "raise SystemExit(3)")
    with pytest.raises(Refusal, match="^getent ended with status 3"):
        facts.accounts({"names": ["llama"], "ids": []})


def test_plans_are_those_of_the_services(tmp_path, monkeypatch):
    monkeypatch.setattr(facts.paths, "PLANS", str(tmp_path / "plan-*.json"))
    (tmp_path / "plan-chat.json").write_text("[1]")
    (tmp_path / "plan-link.json").symlink_to("plan-chat.json")
    assert facts.plans(["chat", "none", "link"]) == {
        "plans": {"chat": {"item": "chat", "content": "WzFd"}, "none": {"item": "none"}, "link": {"item": "link"}}
    }
    monkeypatch.setattr(facts.paths, "PROMPTS", str(tmp_path / "prompt-*.json"))
    (tmp_path / "prompt-chat.json").write_text("{}")
    assert facts.plans(["chat"])["plans"]["chat"] == {"item": "chat", "content": "WzFd", "prompt": "e30="}


def test_a_build_with_its_links(tmp_path):
    prefix = {"prefix": str(tmp_path), "releases": ["b1", ""]}
    absent = dict.fromkeys(
        ("current_build", "build_sha256", "build_identity", "build_kind", "build_intact", "build_broken")
    )
    assert facts.build(prefix)["build"] == {
        "of": {"b1": absent, "": absent},
        "links": {},
        "taken": [],
        "releases": [],
        "kept": [],
    }
    for release in ("b1", "b2"):
        (tmp_path / "releases" / release).mkdir(parents=True)
    (tmp_path / "releases/b1/build.json").write_text(json.dumps({"files": {}}))
    (tmp_path / "current").symlink_to("releases/b2")
    (tmp_path / "previous").symlink_to("releases/gone")
    (tmp_path / "build").mkdir()
    found = facts.build(prefix)["build"]
    assert (found["of"]["b1"]["current_build"], found["of"]["b1"]["build_intact"]) == ("b1", True)
    assert found["of"][""]["current_build"] == "b2"
    assert found["links"] == {"current": "releases/b2", "previous": "releases/gone"}
    assert (found["taken"], found["releases"]) == (["build"], ["b1", "b2"])


def test_firewalls_and_recorded_rules(program, tmp_path, monkeypatch):
    record, other = tmp_path / "rpc-rules", tmp_path / "lent"
    record.write_text("# Rules\nrunning public rule family=x\npermanent public rule family=x\nsomething else\n")
    other.write_text("running public rule lent\n")
    monkeypatch.setattr(facts, "RECORDS", (str(record), str(tmp_path / "none")))
    rules = ["running public rule family=x", "permanent public rule family=x"]
    assert facts.firewalls(True) == {
        "ruleset": "",
        "firewalld": False,
        "records": {str(record): rules, str(tmp_path / "none"): []},
    }
    program("nft", "print('table inet x {')")
    program("firewall-cmd", "")
    found = facts.collect({"firewalls": True, "records": [str(other)]})
    assert (found["ruleset"], found["firewalld"]) == ("table inet x {\n", True)
    assert found["records"][str(other)] == ["running public rule lent"] and found["records"][str(record)] == rules


def test_interfaces_by_name_and_routes(program):
    program("getent", "import sys\nprint(('10.0.0.1 STREAM x\\n10.0.0.9 STREAM x') if sys.argv[2] == 'n1' else '')")
    program(
        "ip",
        "import sys\nif 'route' in sys.argv: print(sys.argv[-1] + ' dev ib0 src 10.1.0.1 uid 0')\n"
        "else: print('2: eth0    inet %s/24 scope global eth0' % sys.argv[-1])",
    )
    assert facts.interfaces(["n1", "n9"]) == {
        "interfaces": {"n1": "2: eth0    inet 10.0.0.1/24 scope global eth0", "n9": ""}
    }
    assert facts.routes(["10.1.0.2"]) == {"10.1.0.2": "ib0"}


def test_watched_files_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr(facts.paths, "WATCHED_FILES", str(tmp_path / "watchdog/*.json"))
    folder = tmp_path / "watchdog"
    folder.mkdir()
    (folder / "rpc-chat.json").write_text('{"unit": "llama-rpc-chat.service"}')
    (folder / "head-chat.json").write_text('{"unit": "somebody.service"}')
    (folder / "other.json").write_text('{"unit": "llama-rpc-chat.service"}')
    (folder / "router-fast.json").write_text('{"unit": "llama-router-fast.service"}')
    assert facts.watched(True) == {"watched": [str(folder / "router-fast.json"), str(folder / "rpc-chat.json")]}


def test_templates_are_files_of_their_own(tmp_path, program, monkeypatch):
    """A link is somebody else's, and so is a directory."""
    monkeypatch.setattr(facts.paths, "TEMPLATES", str(tmp_path / "template-*.jinja"))
    program("systemctl", "")
    for name in ("template-chat.jinja", "template-fast.big.jinja", "other.jinja"):
        (tmp_path / name).write_text("{{ messages }}")
    (tmp_path / "template-link.jinja").symlink_to(tmp_path / "other.jinja")
    (tmp_path / "template-folder.jinja").mkdir()
    found = facts.units(True)["templates"]
    assert found == [str(tmp_path / ("template-%s.jinja" % name)) for name in ("chat", "fast.big")]


def test_groups_that_may_open_cards(tmp_path, monkeypatch):
    """Devices of root's group, those closed to their group, and files are left out, and a group without a name."""
    devices = {
        "renderD128": (0o20660, 105),
        "renderD129": (0o20660, 44),
        "renderD130": (0o20660, 0),
        "renderD131": (0o20600, 106),
        "renderD132": (0o100660, 107),
        "renderD133": (0o20660, 108),
    }
    for name in devices:
        (tmp_path / name).touch()
    names = {105: "render", 44: "video", 106: "closed", 107: "file"}
    seen = {
        str(tmp_path / name): os.stat_result((mode, 0, 0, 1, 0, gid, 0, 0, 0, 0))
        for name, (mode, gid) in devices.items()
    }
    monkeypatch.setattr(facts.os, "stat", lambda path, **more: seen[path])
    monkeypatch.setattr(facts.grp, "getgrgid", lambda gid: type("Group", (), {"gr_name": names[gid]}))
    assert facts.card_groups(str(tmp_path / "renderD*")) == ["render", "video"]


def test_files_have_a_size_and_a_time(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_text("four")
    os.utime(path, (1, 2.5))
    assert facts.files([str(path), "/nonexistent"]) == {"files": {str(path): [4, 2], "/nonexistent": None}}


def test_programs_say_output_and_status():
    """Without input: a program that asks for some ends."""
    assert command.said(["sh", "-c", "echo a; echo b >&2; exit 3"]) == (3, "a\n")
    assert command.said(["sh", "-c", "cat; echo b >&2"], errors=True) == (0, "b\n")
    assert command.said(["/nonexistent"]) == (127, "")
