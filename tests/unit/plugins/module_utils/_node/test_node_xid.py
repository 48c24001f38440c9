# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import threading

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import kernel_log, xid

# The records of /dev/kmsg, a line with the device it is about included.
LOG = """\
6,811,4000000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024
3,812,5000000,-;NVRM: Xid (PCI:0000:3b:00): 13, pid=4711, name=rpc-server, Graphics Exception: ESR 0x51de48=0x1000e
 SUBSYSTEM=pci
 DEVICE=+pci:0000:3b:00.0
3,813,6000000,c;NVRM: Xid (PCI:0000:3b:00): 13, pid=4712, name=rpc-server, Graphics Exception: ESR 0x51de48=0x1000f
3,814,7500000,-,caller=T42;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
3,815,8000000,-;NVRM: Xid (PCI:000A:CA:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No
3,816,8100000,-;NVRM: Xid (0000:5e:00): 31
6,817,9000000,-;someone wrote NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.
"""


def test_one_entry_for_each_card_and_number():
    assert xid.xids_in(kernel_log.parse(LOG, 10.0)) == [
        {
            "pci_slot": "0000:3b:00",
            "xid": 13,
            "count": 2,
            "seconds_ago": 4,
            "message": "pid=4712, name=rpc-server, Graphics Exception: ESR 0x51de48=0x1000f",
        },
        {"pci_slot": "0000:3b:00", "xid": 79, "count": 1, "seconds_ago": 2, "message": "GPU has fallen off the bus."},
        {
            "pci_slot": "000a:ca:00",
            "xid": 94,
            "count": 1,
            "seconds_ago": 2,
            "message": "pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
        },
        {"pci_slot": "0000:5e:00", "xid": 31, "count": 1, "seconds_ago": 1, "message": None},
    ]


def test_fallen_card_without_xid_counts_as_79():
    """NVIDIA/NVSentinel #155, leptonai/gpud #1209."""
    text = (
        r"3,9,1843308145,-;NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: 10de:26b5) installed in this system "
        r"has\x0aNVRM: fallen off the bus and is not responding to commands."
    )
    (found,) = xid.xids_in(kernel_log.parse(text, 1850.0))
    assert (found["pci_slot"], found["xid"], found["message"]) == ("0000:b3:00", 79, "fallen off the bus")


def test_log_is_read_without_waiting(tmp_path):
    """A named pipe with a writer, like the device: what is there, and then nothing for now."""
    pipe = tmp_path / "kmsg"
    os.mkfifo(str(pipe))
    keep_open = os.open(str(pipe), os.O_RDWR)
    os.write(keep_open, LOG.encode())
    found = []
    reader = threading.Thread(target=lambda: found.append(xid.read_xids(str(pipe))), daemon=True)
    reader.start()
    reader.join(10)
    os.close(keep_open)
    xids, reason = found[0]
    assert ([entry["xid"] for entry in xids], reason) == ([13, 79, 94, 31], None)


def test_records_that_were_overwritten_meanwhile_are_passed_over(tmp_path, monkeypatch):
    answers = [LOG.splitlines(True)[1].encode(), BrokenPipeError(), LOG.splitlines(True)[5].encode(), BlockingIOError()]

    def read(descriptor, length):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    (tmp_path / "kmsg").write_text("")
    monkeypatch.setattr(os, "read", read)
    assert [entry["xid"] for entry in xid.read_xids(str(tmp_path / "kmsg"))[0]] == [13, 79]


@pytest.mark.parametrize(
    ("problem", "needed"),
    [
        (
            PermissionError(1, "Operation not permitted"),
            "/dev/kmsg is not readable for user id %d: run with become" % os.geteuid(),
        ),
        (
            FileNotFoundError(2, "No such file or directory"),
            "/dev/kmsg cannot be read (No such file or directory): a container has none, see the log of its host",
        ),
    ],
)
def test_unreadable_log_has_a_reason(monkeypatch, problem, needed):
    def refuse(path, flags):
        raise problem

    monkeypatch.setattr(os, "open", refuse)
    assert xid.read_xids() == (None, needed)
