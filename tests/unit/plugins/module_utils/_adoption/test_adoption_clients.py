# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients of a head, from the kernel's tables."""

import socket

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption.servers import address, clients_of

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LINE = "   0: %s %s %s 00000000:00000000 00:00000000 00000000     0        0 1\n"


def test_established_connections_of_others_are_named(tmp_path):
    (tmp_path / "net").mkdir()
    head, client, second = "1500000A", "0900000A", "0A00000A"  # 10.0.0.21, .9, .10
    mapped = "0000000000000000FFFF0000"
    (tmp_path / "net/tcp").write_text(
        HEAD
        + LINE % ("00000000:1F91", "00000000:0000", "0A")
        + LINE % (head + ":1F91", client + ":A001", "01")
        + LINE % (head + ":1F91", client + ":A002", "01")
        + LINE % (head + ":1F91", second + ":A003", "06")  # over
        + LINE % (head + ":1F90", second + ":A004", "01")  # another port
        + LINE % (head + ":A005", client + ":1F91", "01")  # of this node, outwards
        + LINE % ("0100007F:1F91", "0100007F:A006", "01")
    )
    (tmp_path / "net/tcp6").write_text(HEAD + LINE % (mapped + head + ":1F91", mapped + second + ":A007", "01"))
    assert clients_of([8081], str(tmp_path)) == [
        {"port": 8081, "address": "10.0.0.10"},
        {"port": 8081, "address": "10.0.0.9"},
    ]
    assert clients_of([8081], str(tmp_path / "nowhere")) == []


def test_an_address_of_version_6():
    assert address("B80D0120000000000000000001000000") == "2001:db8::1"


def test_real_table_of_the_kernel_is_read():
    """A real connection: both ends are this machine's, at two addresses."""
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        client.bind(("127.0.0.2", 0))
        client.connect(server.getsockname())
        port = server.getsockname()[1]
        assert clients_of([port]) == [{"port": port, "address": "127.0.0.2"}]
