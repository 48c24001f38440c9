# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter import (
    cards,
    config,
    exposition,
    machine,
    page,
    units,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import nvidia_smi
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import state
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import watchdog

# A process of another user, if this is root.
CHILD = ("setpriv --reuid=12345 --clear-groups sleep 60", "sleep 60")
FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "fixtures"
SHOWN = """Id=llama-head-chat.service
ActiveState=active
SubState=running
NRestarts=2
ExecMainStartTimestampMonotonic=5000000
UnitFileState=enabled
ControlGroup=/none/such
ExecStart={ path=/opt/llama.cpp/releases/b11434-cpu-97356f97/bin/llama-server ; argv[]=/opt/llama.cpp/releases/x ; }

Id=llama-rpc-chat.service
ActiveState=activating
SubState=auto-restart
NRestarts=9
UnitFileState=enabled

Id=llama-watchdog.service
ActiveState=active
SubState=running
UnitFileState=enabled
"""


def samples(families):
    """{(name, labels): value}"""
    return {
        (family.name, *(labels[key] for key in sorted(labels) if key not in ("unit", "service", "role"))): value
        if family.name.startswith(("llama_gpu", "llama_fabric", "llama_disk"))
        else (labels.get("unit") or labels.get("service"), value)
        for family in families
        for _suffix, labels, value in family.samples
    }


def cards_of(*given, card=None, processes=None, reason=None, **more):
    """Cards of a node whose kernel reports that card."""
    others = {"cards": [card] if card else [], "reason": reason, "processes": processes or {}}
    return cards.Cards(*given, others=lambda usage: others, **more)


def by_unit(families, name):
    return {labels["unit"]: value for one in families if one.name == name for _suffix, labels, value in one.samples}


@pytest.fixture(name="node")
def fixture_node(tmp_path, monkeypatch):
    for name in ("llama-head-chat", "llama-rpc-chat", "llama-watchdog", "llama-firewall", "llama-endpoint-chat"):
        (tmp_path / (name + ".service")).write_text("")
    monkeypatch.setattr(units.paths, "UNIT_FILES", str(tmp_path / "llama-*.service"))
    asked = []

    def show(names, _properties):
        asked.append(list(names))
        return SHOWN

    monkeypatch.setattr(units, "systemctl_show", show)
    monkeypatch.setattr(units, "held_since", lambda: None)
    monkeypatch.setattr(
        config, "repairs", lambda unit: {"count": 3 * ("rpc" in unit) + ("firewall" in unit), "at": None, "reason": ""}
    )
    monkeypatch.setattr(config, "watched", list)
    return asked


def test_waiting_head_is_starting(node, monkeypatch):
    waits = SHOWN.replace("active\nSubState=running", "activating\nSubState=start-pre", 1)
    monkeypatch.setattr(units, "systemctl_show", lambda names, _properties: waits)
    found = units.Units(config.Config()).look()
    head = "llama-head-chat.service"
    assert by_unit(found, "llama_unit_starting")[head] == 1 and by_unit(found, "llama_unit_active")[head] == 0


def test_units_are_sampled_by_one_call(node):
    settings = config.Config(planned={"llama-head-chat.service": 7}, models={"chat": {"model": "m", "quant": "q"}})
    found = units.Units(settings).look()
    assert node == [["llama-head-chat.service", "llama-rpc-chat.service", "llama-watchdog.service"]]
    head, worker, dog = node[0]
    assert by_unit(found, "llama_unit_active") == {head: 1, worker: 0, dog: 1}
    assert by_unit(found, "llama_unit_wanted") == {head: 1, worker: 1, dog: 1}
    assert by_unit(found, "llama_unit_starting") == {head: 0, worker: 0, dog: 0}, "a unit that ended does not start"
    assert by_unit(found, "llama_unit_restarts_total")[worker] == 9
    assert by_unit(found, "llama_watchdog_repairs_total") == {head: 0, worker: 3, "llama-firewall.service": 1}
    assert by_unit(found, "llama_memory_planned_bytes") == {head: 7}
    assert by_unit(found, "llama_model_info") == {head: 1}
    builds = [labels["build"] for one in found if one.name == "llama_build_info" for _s, labels, _v in one.samples]
    assert "b11434-cpu-97356f97" in builds
    assert [one.samples for one in found if one.name == "llama_watchdog_alive"] == [[("", {}, 1.0)]]


def test_start_survives_clock_changes(node, monkeypatch):
    looker = units.Units(config.Config())
    head = "llama-head-chat.service"
    clock = [1000.0, 50.0]
    monkeypatch.setattr(units.time, "time", lambda: clock[0])
    monkeypatch.setattr(units.time, "clock_gettime", lambda _clock: clock[1])
    assert by_unit(looker.look(), "llama_unit_started_seconds") == {head: 955}
    clock[0] += 3600
    assert by_unit(looker.look(), "llama_unit_started_seconds") == {head: 955}
    monkeypatch.setattr(units, "systemctl_show", lambda _names, _properties: SHOWN.replace("=5000000", "=9000000"))
    assert by_unit(looker.look(), "llama_unit_started_seconds") == {head: 4559}


def test_held_or_stopped_unit_is_not_wanted(node, monkeypatch):
    found = units.Units(config.Config(stopped=["llama-head-chat.service"])).look()
    assert by_unit(found, "llama_unit_wanted")["llama-head-chat.service"] == 0
    monkeypatch.setattr(units, "held_since", lambda: "today")
    found = units.Units(config.Config()).look()
    assert set(by_unit(found, "llama_unit_wanted").values()) == {0}


@pytest.mark.parametrize("state, wanted", [("waiting", 0), ("running", 0), ("elapsed", 1)])
def test_measured_unit_is_not_wanted(node, monkeypatch, tmp_path, state, wanted):
    """The timer of a variant, and what a run that died has left."""
    timer = "llama-tune-end-chat.timer"
    (tmp_path / timer).write_text("")
    monkeypatch.setattr(units.paths, "RUN_UNITS", str(tmp_path))
    shown = "%s\nId=%s\nActiveState=active\nSubState=%s\n" % (SHOWN, timer, state)
    monkeypatch.setattr(units, "systemctl_show", lambda names, _properties: shown if timer in names else "")
    found = by_unit(units.Units(config.Config()).look(), "llama_unit_wanted")
    assert list(found.values()) == [wanted, wanted, 1]


def test_links_are_counted(monkeypatch, node):
    listener = socket.create_server(("127.0.0.1", 0))
    address, port = listener.getsockname()
    near = socket.create_connection((address, port))
    far = listener.accept()[0]
    far.sendall(b"x" * 1000)
    assert len(near.recv(1000)) == 1000
    endpoint = "%s:%d" % (address, port)
    monkeypatch.setattr(
        config,
        "watched",
        lambda: [config.Watched("chat", "head", "u", {"rpc_endpoints": [endpoint, "127.0.0.1:1"]})],
    )
    sampler = units.Units(config.Config())
    sampler.look()  # finds them; their counters come from then on
    found = {
        (one.name, labels.get("worker")): value
        for one in sampler.look()
        for _suffix, labels, value in one.samples
        if "rpc" in one.name
    }
    assert found["llama_rpc_link_up", endpoint] == 1 and found["llama_rpc_link_up", "127.0.0.1:1"] == 0
    assert found["llama_rpc_link_received_bytes_total", endpoint] == 1000
    assert found["llama_rpc_link_sent_bytes_total", endpoint] < 100
    for end in (near, far, listener):
        end.close()
    gone = [one for one in sampler.look() if one.name == "llama_rpc_link_up"][0].samples
    assert [value for _suffix, _labels, value in gone] == [0, 0]


def test_cards_and_their_processes_are_sampled(monkeypatch):
    facts = nvidia_smi.parse((FIXTURES / "nvidia_smi_535_v100s.xml").read_text())
    facts.update(xids=[{"xid": 79, "count": 2, "gpu": None, "pci_slot": "0000:3b:00"}], xids_reason=None)
    pids = [one["pid"] for one in facts["gpus"][0]["processes"]]
    assert pids
    groups = {pids[0]: "0::/system.slice/llama-rpc-chat.service\n"}
    found = samples(cards_of(lambda: facts, lambda pid: groups.get(pid, "0::/user.slice\n")).look())
    gpu = facts["gpus"][0]
    assert found["llama_gpu_memory_used_bytes", "0"] == gpu["memory_used_mib"] << 20
    assert found["llama_gpu_utilization_ratio", "0"] == gpu["utilization"] / 100
    assert found["llama_gpu_foreign_processes", "0"] == len(pids) - 1
    assert found["llama_gpu_xid_total", "0000:3b:00", "79"] == 2
    looker = cards_of(lambda: facts, lambda pid: groups.get(pid, "0::/user.slice\n"), lambda pid: pid == pids[-1])
    assert samples(looker.look())["llama_gpu_foreign_processes", "0"] == len(set(pids)) - 1 - (pids[-1] != pids[0])


@pytest.mark.parametrize("name", ["slurmstepd", "slurm) S 1 (x"])
def test_process_of_a_job_is_below_a_step(tmp_path, name):
    own = os.geteuid()
    os.chown(tmp_path, own or 12345, -1)
    (tmp_path / name).symlink_to("/bin/sh")
    # The user of a job may call its own process so.
    above = subprocess.Popen(
        [tmp_path / name, "-c", "%s & echo $!; wait" % CHILD[bool(own)]], stdout=subprocess.PIPE, text=True
    )
    child = int(above.stdout.readline())
    try:
        deadline = time.monotonic() + 10
        while os.stat("/proc/%d" % child).st_uid != (own or 12345) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert cards.of_job(child, str(tmp_path), root=own) == (name == cards.STEP)
        assert not cards.of_job(child, str(tmp_path), root=own + 1)
        assert not cards.of_job(child, str(tmp_path), step="another", root=own)
        assert not cards.of_job(1, str(tmp_path)) and not cards.of_job(child, "/nowhere", root=own)
        # A directory of root's is of no user of jobs.
        assert not cards.of_job(1, "/")
    finally:
        for pid in (child, above.pid):
            os.kill(pid, signal.SIGKILL)
        above.wait()
        above.stdout.close()


def test_hung_driver_differs_from_no_card(monkeypatch):
    none = {"available": False, "reason": "nvidia-smi cannot be run (No such file)", "gpus": []}
    assert cards_of(lambda: none).look() == []
    hung = dict(none, reason="nvidia-smi gave no answer in 10 s: the driver hangs, see dmesg for NVRM or Xid")
    found = cards_of(lambda: hung).look()
    assert [one.samples for one in found] == [[("", {}, 1.0)], []]


NO_NVIDIA = {"available": False, "reason": "nvidia-smi cannot be run (No such file)", "gpus": []}
RADEON = {
    "slot": "0000:03:00.0",
    "vendor": "amd",
    "device_id": "0x744c",
    "driver": "amdgpu",
    "numa_node": None,
    "name": "Navi 31 [Radeon RX 7900 XTX]",
    "render": "/dev/dri/renderD128",
    "unified": False,
    "vram_total_mib": 24560,
    "vram_used_mib": 18430,
    "gtt_total_mib": 32050,
    "gtt_used_mib": 50,
    "busy_percent": 97,
    "temperature_c": 54,
    "power_w": 303,
    "idle_ms": None,
    "energy_uj": None,
    "at": 1.0,
}


def test_other_vendors_card_is_sampled_by_slot():
    groups = {10: "0::/system.slice/llama-rpc-chat.service\n", 11: "0::/user.slice\n", 12: "0::/user.slice\n", 13: ""}
    held = {RADEON["slot"]: {10: 17000.0, 11: 900.0, 12: 120.0, 13: 800.0}}
    hangs = [{"slot": RADEON["slot"], "driver": "amdgpu", "kind": "hang", "count": 2}]
    found = samples(
        cards_of(lambda: NO_NVIDIA, groups.get, card=RADEON, processes=held, resets=lambda _cards: (hangs, None)).look()
    )
    slot = RADEON["slot"]
    assert found["llama_gpu_memory_used_bytes", slot] == 18430 << 20
    assert found["llama_gpu_memory_total_bytes", slot] == 24560 << 20
    assert (found["llama_gpu_utilization_ratio", slot], found["llama_gpu_power_watts", slot]) == (0.97, 303)
    # A desktop's program and one that has ended do not count.
    assert found["llama_gpu_foreign_processes", slot] == 1
    assert found["llama_gpu_foreign_memory_bytes", slot] == 900 << 20
    assert found["llama_gpu_resets_total", slot, "hang"] == 2
    assert found["llama_gpu_info", "amdgpu", slot, RADEON["name"], ""] == 1


def test_intel_card_is_busy_between_samples():
    first = {**RADEON, "driver": "xe", "vram_used_mib": None, "busy_percent": None, "idle_ms": 1000}
    seen = [first, {**first, "at": first["at"] + 10, "idle_ms": 5000}]
    held = {RADEON["slot"]: {10: 4096.0, 11: 1024.0}}
    looker = cards.Cards(
        lambda: NO_NVIDIA,
        others=lambda usage: {"cards": [seen.pop(0)], "reason": None, "processes": held},
        resets=lambda _cards: (None, "a container has none"),
    )
    found = samples(looker.look())
    assert found["llama_gpu_memory_used_bytes", RADEON["slot"]] == 5120 << 20
    assert ("llama_gpu_utilization_ratio", RADEON["slot"]) not in found
    assert samples(looker.look())["llama_gpu_utilization_ratio", RADEON["slot"]] == 0.6


def test_unified_memory_counts_main_memory():
    own = {**RADEON, "unified": True, "vram_total_mib": 512, "vram_used_mib": 100}
    found = samples(cards_of(lambda: NO_NVIDIA, card=own, resets=lambda _cards: ([], None)).look())
    assert found["llama_gpu_memory_total_bytes", own["slot"]] == (512 + 32050) << 20
    assert found["llama_gpu_memory_used_bytes", own["slot"]] == 150 << 20


@pytest.mark.parametrize("different", [{"driver": "ast", "render": None}, {"driver": "i915", "unified": True}])
def test_display_of_a_server_is_no_card(different):
    assert cards_of(lambda: NO_NVIDIA, card={**RADEON, **different}).look() == []


def test_hung_graphics_driver_is_reported():
    found = cards_of(lambda: NO_NVIDIA, reason="sysfs gave no answer in 10 s: a graphics driver hangs").look()
    assert [one.samples for one in found] == [[("", {}, 1.0)], []]


def test_silent_cards_keep_only_their_time(monkeypatch):
    facts = nvidia_smi.parse((FIXTURES / "nvidia_smi_535_v100s.xml").read_text())
    facts.update(xids=[], xids_reason=None)
    answers = [facts, {"available": False, "reason": "x gave no answer: the driver hangs", "gpus": []}]
    looker = cards_of(lambda: answers[0])
    assert len(looker.look()) > 2
    answers.pop(0)
    clock = time.time()
    found = looker.look()
    assert [one.name for one in found] == ["llama_sampler_cards_hung", "llama_sampler_cards_timestamp_seconds"]
    assert found[1].samples[0][2] <= clock + 1


@pytest.mark.parametrize(
    ("group", "unit"),
    [
        ("0::/system.slice/llama-rpc-chat.service\n", "llama-rpc-chat.service"),
        ("0::/docker/0af3/system.slice/llama-router-all.service/x\n", "llama-router-all.service"),
        ("9:memory:/system.slice/llama-head-chat.service\n1:name=systemd:/\n", "llama-head-chat.service"),
        ("0::/user.slice/llama-rpc-chat\n", ""),
        ("0::/system.slice/x-llama-rpc-chat.service\n", ""),
        ("0::/system.slice/llama-watchdog.service\n", ""),
        # Users name the groups below their sessions and containers.
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/llama-head-chat.service\n", ""),
        ("0::/user.slice/user-1000.slice/session-3.scope/llama-head-chat.service\n", ""),
        ("0::/system.slice/docker-0af3.scope/system.slice/llama-head-chat.service\n", ""),
        ("", ""),
    ],
)
def test_unit_of_control_group(group, unit):
    assert cards.unit_of(group) == unit


def test_fabric_counters_are_sampled(tmp_path, monkeypatch):
    statistics = tmp_path / "class/net/ib0/statistics"
    statistics.mkdir(parents=True)
    for name, value in (("rx_bytes", 11), ("tx_bytes", 22), ("rx_errors", 3), ("tx_errors", 0), ("rx_dropped", 1)):
        (statistics / name).write_text("%d\n" % value)
    (tmp_path / "class/net/ib0/operstate").write_text("up\n")
    (tmp_path / "class/net/ib0/speed").write_text("100000\n")
    monkeypatch.setattr(machine.fabric, "interface_of", lambda address: "ib0" if address == "10.1.0.1" else None)
    found = samples(machine.Machine(config.Config(fabric_address="10.1.0.1"), str(tmp_path)).fabric())
    assert found == {
        ("llama_fabric_up", "ib0"): 1,
        ("llama_fabric_speed_bits", "ib0"): 1e11,
        ("llama_fabric_received_bytes_total", "ib0"): 11,
        ("llama_fabric_sent_bytes_total", "ib0"): 22,
        ("llama_fabric_errors_total", "ib0"): 4,
    }
    gone = samples(machine.Machine(config.Config(fabric_address="10.1.0.9"), str(tmp_path)).fabric())
    assert gone == {("llama_fabric_up", "none"): 0}
    assert machine.Machine(config.Config(), str(tmp_path)).fabric() == []


def test_fabric_interface_is_looked_up_again(tmp_path, monkeypatch):
    clock, names = [100.0], ["ib0", "ib1", None]
    monkeypatch.setattr(machine.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(machine.fabric, "interface_of", lambda _address: names.pop(0))
    looker = machine.Machine(config.Config(fabric_address="10.1.0.1"), str(tmp_path))
    shown = []
    for later in (0, 1, machine.AGAIN, machine.AGAIN):
        clock[0] += later
        shown.append(looker.fabric()[0].samples[0][1]["interface"])
    assert shown == ["ib0", "ib0", "ib1", "none"]


# As nft lists it.
RULES = """\
table inet llama_cluster {
\tchain input {
\t\ttype filter hook input priority -10; policy accept;
\t\tip saddr 10.1.0.1 tcp dport 50052 accept comment "0a1b"
\t\ttcp dport 50052 reject with tcp reset
\t}

\tchain output {
\t\ttype filter hook output priority -10; policy accept;
\t\tip daddr 10.1.0.3 tcp dport 50053 tcp flags & (syn | ack) == syn reject with tcp reset
\t}

\tchain forward {
\t\ttype filter hook forward priority -10; policy accept;
\t\tip daddr 10.1.0.3 tcp dport 50053 reject with tcp reset
\t}
}
"""


@pytest.mark.parametrize(
    ("text", "port", "fenced"),
    [
        (RULES, 50052, 1),
        # Rules for output admit every client.
        (RULES, 50053, 0),
        (RULES, 5005, 0),
        (RULES.replace("50052 reject", "50052 accept"), 50052, 0),
        (RULES.replace("\ttcp dport 50052 reject", "\tip saddr 10.1.0.9 tcp dport 50052 reject"), 50052, 0),
        ("", 50052, 0),
    ],
)
def test_rules_close_worker_port(text, port, fenced):
    assert machine.fenced(text, port) == fenced


def test_worker_fence_is_sampled(monkeypatch):
    worker = config.Watched("chat", "rpc", "llama-rpc-chat.service", {"address": "10.1.0.2", "port": 50052})
    monkeypatch.setattr(config, "watched", lambda: [worker])
    monkeypatch.setattr(machine, "said", lambda _command: (0, RULES))
    monkeypatch.setattr(machine, "clock_synchronized", lambda: None)
    found = {one.name: one.samples for one in machine.Machine(config.Config()).slow()}
    assert found["llama_rpc_fenced"] == [("", {"service": "chat"}, 1.0)]
    assert found["llama_clock_synchronized"] == []


def test_disk_space_is_sampled(tmp_path):
    free, size = machine.disk(str(tmp_path))
    assert size.samples[0][1] == {"path": str(tmp_path)} and 0 < free.samples[0][2] < size.samples[0][2]
    with pytest.raises(OSError):
        machine.disk("/no/such")


def test_watchdog_repairs_are_counted(tmp_path, monkeypatch):
    files = str(tmp_path / "repairs" / "*.json")
    monkeypatch.setattr(config.paths, "REPAIRS_FILES", files)
    unit = "llama-rpc-chat.service"
    assert config.repairs(unit) == {"count": 0, "at": None, "reason": ""}
    for reason in ("it hangs", "it is silent"):
        watchdog.note_repair(unit, reason, files)
    found = config.repairs(unit)
    assert (found["count"], found["reason"]) == (2, "it is silent") and abs(found["at"] - time.time()) < 60
    (tmp_path / "repairs/llama-rpc-chat.json").write_text('{"count": "x", "at": "y", "reason": 3}')
    assert config.repairs(unit) == {"count": 0, "at": None, "reason": "3"}


def test_uncounted_repair_is_logged(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    watchdog.note_repair("llama-rpc-chat.service", "it hangs", str(tmp_path / "file" / "*.json"))
    assert capsys.readouterr().out.startswith("llama-rpc-chat.service: its repair is not counted: ")


def test_configuration_is_checked(tmp_path):
    path = tmp_path / "sampler.json"
    content = {"version": "1", "http": {"address": "a", "port": 9, "allowed": ["b"]}, "disks": ["/"], "planned": {}}
    path.write_text(json.dumps(content))
    assert config.load(str(path)) == config.Config(version="1", http=config.Http("a", 9, ["b"]), disks=["/"])
    for text in ("[", "[]", '{"unknown": 1}'):
        path.write_text(text)
        with pytest.raises(Refusal, match="run site.yml with --tags monitoring"):
            config.load(str(path))
    path.write_text("{}")
    os.chmod(str(path), 0o666)
    with pytest.raises(Refusal, match="others may write it"):
        config.load(str(path))


def test_watchdog_files_are_read(tmp_path):
    (tmp_path / "rpc-a-b.json").write_text('{"kind": "rpc", "unit": "u", "address": "x"}')
    (tmp_path / "head-c.json").write_text('{"kind": "head", "unit": "h"}')
    (tmp_path / "head-d.json").write_text("{")
    (tmp_path / "head-e.json").write_text('{"kind": "other", "unit": "h"}')
    found = config.watched(str(tmp_path))
    assert [(one.service, one.kind, one.unit) for one in found] == [("c", "head", "h"), ("a-b", "rpc", "u")]


@pytest.fixture(name="served")
def fixture_served():
    found = page.serve(("127.0.0.1", 0), ["127.0.0.1"], lambda: b"llama_x 1\n")
    yield "http://127.0.0.1:%d" % found.server_address[1], found
    found.shutdown()
    found.server_close()


def test_page_is_served(served):
    url, _page = served
    with urllib.request.urlopen(url + "/metrics") as answer:
        assert answer.read() == b"llama_x 1\n"
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url + "/")


def test_requests_at_a_time_are_limited(served):
    url, found = served
    with contextlib.ExitStack() as stack:
        for _one in range(page.MOST):
            stack.enter_context(socket.create_connection(found.server_address))
        with pytest.raises(OSError):
            urllib.request.urlopen(url + "/metrics")


def test_other_clients_are_closed(served):
    url, found = served
    found._allowed = frozenset(["10.1.2.3"])
    with pytest.raises(OSError):
        urllib.request.urlopen(url + "/metrics", timeout=5)


SERVES = state.Known(wanted=True, job_id=4711, state=state.RUNNING, serves=True)
HELD = state.Known(wanted=True, held={"by": "alice", "at": 1.0}, failures=2)
SERVICE = {
    **{"wanted": True, "name": "llama-14b", "script": "/s/run.slurm", "digest": "0123456789abcdef", "grace": 30},
    **{"log_dir": "/l", "suffix": "14b", "record": {}, "nodes": ["vasp-02"]},
}


@pytest.fixture(name="sampled")
def fixture_sampled(tmp_path, monkeypatch):
    """The samples beside a keeper that has left this, some seconds ago."""
    monkeypatch.setattr(units.paths, "KEEPER_CONFIG", str(tmp_path / "jobs.json"))
    monkeypatch.setattr(units.paths, "KEEPER", str(tmp_path))

    def sampled(known, ago=0.0):
        configured = dict.fromkeys(("chat", "code", "stopped"), SERVICE)
        config = {"user": "ai", "directory": "/d", "partitions_yield": [], "registry_dir": "", "services": configured}
        (tmp_path / "jobs.json").write_text(json.dumps(config))
        state.write(str(tmp_path), state.public(known, time.time() - ago, None), False)
        page = exposition.render(units.jobs())
        return sorted(line for line in page.splitlines() if not line.startswith("#"))

    return sampled


def test_jobs_are_sampled(sampled):
    assert sampled({"chat": SERVES, "code": HELD, "stopped": state.Known()}) == [
        'llama_job_failures{service="chat"} 0',
        'llama_job_failures{service="code"} 2',
        'llama_job_serves{service="chat"} 1',
        'llama_job_serves{service="code"} 0',
        'llama_job_state{service="chat",state="running"} 1',
        'llama_job_state{service="code",state="held"} 1',
        "llama_keeper_alive 1",
    ]


def test_keeper_that_is_down_has_no_jobs(sampled):
    assert sampled({"chat": SERVES}, ago=2 * state.OLD) == ["llama_keeper_alive 0"]
    # A clock may have been set back.
    assert sampled({"chat": SERVES}, ago=-2 * state.OLD) == ["llama_keeper_alive 0"]


def test_forged_state_makes_no_series(sampled):
    """The user of the jobs may write it."""
    forged = SERVES._replace(state="another", failures=True)
    assert sampled({"chat": forged, **{"made-up-%d" % number: SERVES for number in range(100)}}) == [
        'llama_job_failures{service="chat"} 1',
        'llama_job_serves{service="chat"} 1',
        'llama_job_state{service="chat",state="none"} 1',
        "llama_keeper_alive 1",
    ]


@pytest.mark.usefixtures("sampled")
def test_host_without_jobs_has_no_samples():
    assert units.jobs() == []
