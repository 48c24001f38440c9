# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import shlex
import subprocess

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.sandbox import unit_sandbox


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
    for accelerator in ("cpu", "cuda"):
        names = [line.split("=")[0] for line in unit_sandbox(accelerator)]
        assert len(names) == len(set(names)) + names.count("SystemCallFilter") - 1 + max(
            0, names.count("ExecStartPre") - 1
        )


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
