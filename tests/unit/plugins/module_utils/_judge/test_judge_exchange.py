# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Input and output of a program that is not trusted."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._judge.exchange import MOST_ERRORS, exchange

LONG = 60


def shell(script, given=b"", most=1000, seconds=LONG):
    return exchange(["sh", "-c", script], given, most, seconds)


def test_output_and_status_are_returned():
    ended = shell("cat; echo no >&2; exit 3", b"given\n")
    assert ended == (3, b"given\n", False, False, "no\n")


def test_large_input_and_output_pass_each_other():
    given = b"x" * (4 << 20)
    assert shell("cat", given, most=len(given)).output == given


def test_too_much_output_ends_the_program():
    ended = shell("exec cat /dev/zero", most=100_000)
    assert (ended.long, ended.late, ended.status) == (True, False, None) and len(ended.output) == 100_000


def test_deadline_ends_the_program():
    ended = shell("echo begun; exec sleep 600", seconds=1)
    assert (ended.long, ended.late, ended.status, ended.output) == (False, True, None, b"begun\n")


def test_unread_input_is_no_error():
    assert shell("exit 0", b"x" * (4 << 20)).status == 0


def test_errors_are_bounded():
    ended = shell("head -c 1000000 /dev/zero | tr '\\0' e >&2; exit 0")
    assert (ended.status, ended.errors) == (0, "e" * MOST_ERRORS)


def test_missing_program_is_an_error():
    with pytest.raises(FileNotFoundError):
        exchange(["/no/such/program"], b"", 10, LONG)
