# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports that services want, beside those that other processes have."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.ports import port_conflicts

LISTENERS = """\
LISTEN 0 512 10.0.0.31:8000 0.0.0.0:* users:(("llama-server",pid=812,fd=3))
LISTEN 0 128 0.0.0.0:50052 0.0.0.0:* users:(("python3",pid=99,fd=4))
LISTEN 0 128 [::]:22 [::]:* users:(("sshd",pid=1,fd=4))
LISTEN 0 128 127.0.0.1:8001 0.0.0.0:* users:(("nginx",pid=5,fd=4))
"""


def test_foreign_listeners_are_conflicts():
    wanted = [
        ("llama_services.reasoning.port", "10.0.0.31", 8000),
        ("llama_services.reasoning.rpc_port", "10.100.0.31", 50052),
        ("llama_services.second.port", "10.0.0.31", 8001),
    ]
    assert port_conflicts(wanted, LISTENERS, [812]) == [
        "llama_services.reasoning.rpc_port: port 50052 of 10.100.0.31 is in use by python3 (pid 99), a free port is "
        "needed: stop that process or choose another port"
    ]
    assert port_conflicts(wanted, LISTENERS, [])[0] == (
        "llama_services.reasoning.port: port 8000 of 10.0.0.31 is in use by llama-server (pid 812), a free port is "
        "needed: run adopt.yml, which takes over unmanaged servers, or choose another port"
    )


@pytest.mark.parametrize("name", ['x",pid=7', 'x",pid=7),("', '",pid=7,fd=1)', '",pid=7,fd=1),(', '"),("x",pid=7'])
def test_forged_name_is_no_managed_process(name):
    listeners = 'LISTEN 0 128 0.0.0.0:50052 0.0.0.0:* users:(("%s",pid=99,fd=4),("nginx",pid=98,fd=4))\n' % name
    wanted = [("llama_services.chat.rpc_port", "10.100.0.31", 50052)]
    assert len(name) <= 15
    assert len(port_conflicts(wanted, listeners, [7])) == 1
    assert port_conflicts(wanted, listeners, [98]) == []


@pytest.mark.parametrize(
    "names",
    [
        ["x\na b c *:8000 "],
        ["\nLISTEN 0 0 *:8"],
        ["\nLISTEN 0 0 *: "],
        ["\nLISTEN 0", " 0 *:8000 "],
        ["\nLISTEN 0 0", " *:8000 "],
        ["\nLISTEN 0 0 ", " *:8000 x"],
        ["\nLISTEN 0 0 *:", "8000 x"],
        ["\nLISTEN 0 0 *", ":8000 x"],
        ["\rLISTEN 0 0 *:8"],
        ["\u2028a b c *:8000 "],
    ],
)
def test_a_listener_cannot_name_itself_another_listener(names):
    """The process of a user with a free port of his own, and what it calls itself."""
    assert all(len(name) <= 15 for name in names)
    users = ",".join('("%s",pid=%d,fd=4)' % (name, 99 + number) for number, name in enumerate(names))
    listeners = "LISTEN 0 128 0.0.0.0:40000 0.0.0.0:* users:(%s)\n" % users
    wanted = [("llama_services.chat.port", "10.0.0.31", port) for port in (8, 8000)]
    assert port_conflicts(wanted, listeners + LISTENERS, [812]) == []
    (sentence,) = port_conflicts([("llama_services.chat.port", "10.0.0.31", 40000)], listeners, [812])
    assert "(pid 99)" in sentence and sentence.isprintable()
    managed = [99 + len(names) - 1]
    assert port_conflicts([("llama_services.chat.port", "10.0.0.31", 40000)], listeners, managed) == []


@pytest.mark.parametrize(
    "users, holder",
    [
        (
            'users:(("nginx",pid=7,fd=6))',
            "nginx (pid 7), a free port is needed: stop that process or choose another port",
        ),
        ("", "another process, a free port is needed: stop that process or choose another port"),
        ('users:(("llama-server",pid=9,fd=6))', None),
    ],
)
def test_a_port_that_another_process_has(users, holder):
    """The kernel does not name the holder to everybody."""
    line = "LISTEN 0 511 0.0.0.0:8000 0.0.0.0:* " + users
    found = port_conflicts([("llama_services.chat.port", "10.0.0.1", 8000)], line + "\n", {9})
    assert found == (["llama_services.chat.port: port 8000 of 10.0.0.1 is in use by " + holder] if holder else [])
