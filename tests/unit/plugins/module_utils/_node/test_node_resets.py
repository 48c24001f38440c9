# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import drm, kernel_log, resets

# Lines as they are in public reports, by driver and kernel.
LINES = {
    "amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=75610, emitted seq=75612": ("amdgpu", "hang"),
    "amdgpu 0000:03:00.0: ring comp_1.0.0 timeout, but soft recovered": ("amdgpu", "hang"),
    "amdgpu 0000:03:00.0: [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.0.0 timeout": ("amdgpu", "hang"),
    "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!": ("amdgpu", "reset"),
    "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!. Source:  1": ("amdgpu", "reset"),
    "amdgpu 0000:03:00.0: amdgpu: Starting comp_1.0.0 ring reset": ("amdgpu", "reset"),
    "amdgpu 0000:03:00.0: amdgpu: GPU reset(1) failed": ("amdgpu", "failed"),
    "amdgpu 0000:03:00.0: amdgpu: device lost from bus!": ("amdgpu", "failed"),
    "xe 0000:03:00.0: [drm] GT0: Engine reset: engine_class=ccs, logical_mask: 0x1, guc_id=23": ("xe", "reset"),
    "xe 0000:03:00.0: [drm] Tile0: GT0: Timedout job: seqno=106926, guc_id=6 in llama-bench [260404]": ("xe", "hang"),
    "xe 0000:03:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:03:00.0 as wedged.": ("xe", "failed"),
    "i915 0000:03:00.0: [drm] GPU HANG: ecode 12:1:859ffffb, in slack [19356]": ("i915", "hang"),
    "i915 0000:03:00.0: [drm] GT0: Resetting chip for stopped heartbeat on rcs0": ("i915", "reset"),
    "i915 0000:03:00.0: [drm] Resetting rcs0 for preemption time out": ("i915", "reset"),
    "i915 0000:03:00.0: [drm] *ERROR* GT0: Failed to reset chip": ("i915", "failed"),
}
OTHERS = (
    "amdgpu 0000:03:00.0: amdgpu: GPU reset(1) succeeded!",
    "amdgpu 0000:03:00.0: amdgpu: MODE2 reset",
    "xe 0000:03:00.0: [drm] Xe device coredump has been created",
    "i915 0000:00:02.0: [drm] slack[19356] context reset due to GPU hang",
    "systemd[1]: amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
    "nvme 0000:03:00.0: ring x timeout",
)


def log(*lines):
    return "".join("3,%d,%d,-;%s\n SUBSYSTEM=pci\n" % (at, 1000000 * at, line) for at, line in enumerate(lines, 1))


@pytest.mark.parametrize("line", LINES)
def test_line_is_of_its_card_and_kind(line):
    (found,) = resets.found_in(kernel_log.parse(log(line), 10.0))
    assert (found["driver"], found["kind"]) == LINES[line] and found["slot"] == "0000:03:00.0"
    assert line.endswith(found["message"])


def test_other_lines_are_left_out():
    assert resets.found_in(kernel_log.parse(log(*OTHERS), 10.0)) == []


def test_records_of_user_space_are_left_out():
    text = log(*LINES).replace("3,", "12,")
    assert "12,1,1000000," in text and kernel_log.parse(text, 10.0) == []


def test_repeated_hangs_are_counted():
    lines = [line for line in LINES if "amdgpu: ring gfx" in line] * 3
    (found,) = resets.found_in(kernel_log.parse(log(*lines), 10.0))
    assert (found["count"], found["seconds_ago"]) == (3, 7)


@pytest.mark.parametrize("slots, slot", [(["0000:05:00.0"], "0000:05:00.0"), (["0000:05:00.0", "0000:06:00.0"], None)])
def test_line_without_card_is_of_the_only_one(tmp_path, slots, slot):
    text = "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.0.0 timeout, signaled seq=3, emitted seq=4"
    (tmp_path / "kmsg").write_text(log(text))
    found, reason = drm.hangs([{"driver": "amdgpu", "slot": one} for one in slots], str(tmp_path / "kmsg"))
    assert [one["slot"] for one in found] == [slot] and reason is None
