# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import shlex
import subprocess

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.sandbox import shader_cache, unit_sandbox


def test_cuda_keeps_its_devices_and_its_code():
    cpu, cuda = unit_sandbox("cpu"), unit_sandbox("cuda")
    assert "PrivateDevices=yes" in cpu and "MemoryDenyWriteExecute=yes" in cpu
    assert not {
        line
        for line in cuda
        if line.startswith(("PrivateDevices", "MemoryDenyWriteExecute", "ProcSubset", "PrivateUsers", "ProtectClock"))
    }
    assert "DeviceAllow=char-nvidia* rw" in cuda


def test_numactl_may_bind():
    lines = unit_sandbox("cpu", numa=True)
    # systemd adds to and takes from the list in the order of the lines.
    assert lines.index("SystemCallFilter=~@privileged @resources") < lines.index(
        "SystemCallFilter=sched_setaffinity set_mempolicy"
    )


def test_vulkan_keeps_its_devices_and_its_code():
    lines = unit_sandbox("vulkan", groups=["render", "video"], shaders="/var/cache/llama-cluster/shaders/rpc")
    assert not [
        line
        for line in lines
        if line.startswith(("PrivateDevices", "MemoryDenyWriteExecute", "ProcSubset", "PrivateUsers"))
    ]
    assert {
        "DevicePolicy=closed",
        "DeviceAllow=char-drm rw",
        "SupplementaryGroups=render video",
        "CacheDirectory=llama-cluster/shaders/rpc",
        "CacheDirectoryMode=0700",
    } <= set(lines)
    # systemd refuses a list without a group that exists.
    assert not [line for line in unit_sandbox("vulkan") if line.startswith("SupplementaryGroups")]
    both = unit_sandbox("vulkan", rdma=True)
    assert {"DeviceAllow=char-drm rw", "DeviceAllow=char-infiniband_verbs rw"} <= set(both)
    assert both.count("DevicePolicy=closed") == 1


def test_rdma_sees_its_cards_and_no_others():
    lines = unit_sandbox("cpu", rdma=True)
    assert (
        "PrivateDevices=yes" not in lines
        and "DevicePolicy=closed" in lines
        and "DeviceAllow=char-infiniband_verbs rw" in lines
    )
    both = unit_sandbox("cuda", rdma=True)
    assert {"DeviceAllow=char-nvidia* rw", "DeviceAllow=char-infiniband_verbs rw"} <= set(both) and both.count(
        "DevicePolicy=closed"
    ) == 1


def test_only_additive_directives_repeat():
    for accelerator in ("cpu", "cuda", "vulkan"):
        names = [line.split("=")[0] for line in unit_sandbox(accelerator, groups=["render"], shaders="/var/cache/a")]
        repeated = {name for name in names if names.count(name) > 1}
        assert repeated <= {"SystemCallFilter", "ExecStartPre", "DeviceAllow"}


def test_card_without_module_is_logged(tmp_path):
    line = next(line for line in unit_sandbox("cuda") if "/dev/nvidia-uvm" in line)

    def start(*devices):
        for name in devices:
            (tmp_path / name).touch()
        command = shlex.split(line.partition("=")[2].replace("/dev/", "%s/" % tmp_path))
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stderr.replace("%s/" % tmp_path, "/dev/")

    assert start() == (0, "")
    assert start("nvidiactl") == (
        1,
        "/dev/nvidia-uvm: missing, CUDA needs it: install the package nvidia-modprobe, which makes it\n",
    )
    assert start("nvidia-uvm") == (0, "")


@pytest.mark.parametrize(
    ("cards", "visible", "starts"),
    [
        ({"dri/renderD128": "null"}, None, True),
        ({"dri/renderD128": "tty", "dri/renderD129": "null"}, None, True),
        # NVIDIA's driver may come without a render node.
        ({"nvidiactl": "null"}, None, True),
        ({"dri/renderD128": "tty"}, None, False),
        ({"dri/renderD128": "tty"}, "0", False),
        # A display without a render node, and a driver that is not loaded.
        ({"dri/card0": "null"}, None, False),
        ({}, None, False),
        # A device that is no hardware.
        ({}, "0", True),
    ],
)
def test_no_start_without_an_open_card(tmp_path, cards, visible, starts):
    """tty stands for a card that cannot be opened: without a terminal it does not open."""
    for name, device in cards.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(f"/dev/{device}")
    (line,) = [line for line in unit_sandbox("vulkan", visible=visible) if line.startswith("ExecStartPre=")]
    shell, flag, command = shlex.split(line.partition("=")[2].replace("$$", "$"))
    command = command.replace("/dev/dri", f"{tmp_path}/dri").replace("/dev/nvidiactl", f"{tmp_path}/nvidiactl")
    done = subprocess.run(
        [shell, flag, command], stderr=subprocess.PIPE, text=True, check=False, start_new_session=True
    )
    said = "no render node seen that this unit may open" in done.stderr
    assert (done.returncode, said) == ((0, False) if starts else (1, True)), done.stderr


def test_unit_without_a_device_opens_none():
    assert not [line for line in unit_sandbox("vulkan", visible="") if line.startswith("ExecStartPre")]


def test_cache_of_shaders_is_bounded():
    found = shader_cache("/var/cache/a")
    assert found["MESA_SHADER_CACHE_DIR"] == found["__GL_SHADER_DISK_CACHE_PATH"] == "/var/cache/a"
    assert found["MESA_SHADER_CACHE_MAX_SIZE"] == "256M"
    assert int(found["__GL_SHADER_DISK_CACHE_SIZE"]) == 256 * 1024 * 1024
