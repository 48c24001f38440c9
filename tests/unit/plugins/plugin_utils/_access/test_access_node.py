# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals of a node: its system, accounts, addresses, ports and names."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.node import (
    monitoring_refusals,
    node_refusals,
)
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.ports import port_conflicts

ACCOUNTS = [
    {"option": "node_setup_user", "name": "llama", "id_option": "node_setup_uid", "id": 0},
    {"option": "node_setup_rpc_user", "name": "llama-rpc", "id_option": "node_setup_rpc_uid", "id": "0"},
]
ENTRY = ["llama", "x", "971", "971", "", "/nonexistent", "/usr/sbin/nologin"]
GROUP = ["llama", "x", "971", ""]
HEAD = {"service": "chat", "unit": "llama-head.service", "address": "10.0.0.1", "port": 8000}
WORKER = {"service": "chat", "unit": "llama-rpc.service", "address": "10.1.0.1", "port": 50052}
SYSTEM = {"service_mgr": "systemd", "os_family": "Debian", "distribution": "Debian", "python_version": "3.9.2"}


@pytest.mark.parametrize(
    "facts,found",
    [
        ({}, None),
        ({"service_mgr": "openrc"}, "n1: openrc is process 1, systemd is needed: services are systemd units"),
        (
            {"python_version": "3.8.10"},
            "n1: Python 3.8.10 seen, 3.9 or newer is needed: set ansible_python_interpreter to one, such as "
            "/usr/bin/python3.11, and run bootstrap.yml",
        ),
        (
            {"os_family": "Suse", "distribution": "SLES"},
            "n1: SLES seen, a distribution of the Debian or Red Hat family is needed",
        ),
    ],
)
def test_the_system(facts, found):
    assert node_refusals(dict(SYSTEM, **facts), "n1") == ([found] if found else [])


def test_unreachable_node_gives_one_sentence():
    (sentence,) = node_refusals({}, "n1", contact={"variables": {}, "login": {"unreachable": True, "msg": "gone"}})
    assert sentence.startswith("n1: no answer from n1 over ssh (gone)")
    assert node_refusals({}, "n1", contact={"variables": {}, "login": {"rc": 0}, "root": {"rc": 0}}) == []


def of_accounts(*entries, groups=(), writable=(), accounts=None):
    node = {"accounts": {"passwd": list(entries), "group": list(groups)}, "writable": list(writable)}
    return node_refusals({"llama_node": node}, "n1", accounts=accounts or ACCOUNTS)


def test_managed_and_missing_accounts_are_accepted():
    assert (
        of_accounts()
        == of_accounts(ENTRY, groups=[GROUP])
        == of_accounts(ENTRY, groups=[["llama", "x", "971", "llama"]])
        == []
    )


@pytest.mark.parametrize("field,value", [(2, "0"), (2, "1000"), (5, "/home/llama"), (6, "/bin/bash")])
def test_unmanaged_account_is_refused(field, value):
    entry = [value if number == field else text for number, text in enumerate(ENTRY)]
    assert of_accounts(entry) == [
        "node_setup_user: account llama of n1 was there before, with id %s, home %s and shell %s, one with an id below "
        "1000, home /nonexistent and shell /usr/sbin/nologin is needed: name an account that is "
        "free" % (entry[2], entry[5], entry[6])
    ]


@pytest.mark.parametrize("group,members", [(["llama", "x", "971", "ops"], "ops"), (["llama", "x", "972", ""], "none")])
def test_group_with_other_members_is_refused(group, members):
    assert of_accounts(ENTRY, groups=[group]) == [
        "node_setup_user: group llama of n1 was there before, with members %s, a group of only the account llama is "
        "needed: name an account that is free, its group too" % members
    ]
    assert len(of_accounts(groups=[group])) == 1


@pytest.mark.parametrize(("number", "wrong"), [("0", 1), ("1", 0), ("999", 0), ("1000", 1)])
def test_ids_of_the_systems_accounts_end_below_1000(number, wrong):
    assert len(of_accounts([*ENTRY[:2], number, *ENTRY[3:]])) == wrong


def test_writable_directory_and_shared_account_are_refused():
    same = [ACCOUNTS[0], dict(ACCOUNTS[1], name="llama")]
    assert of_accounts(writable=["/opt", "/var"], accounts=same) == [
        "/opt, /var of n1: others than root may write there, a directory that only root can write to is needed there: "
        "look at who changed it, then chown root and chmod go-w",
        "node_setup_rpc_user: llama seen, another account than node_setup_user is needed: a worker that is taken over "
        "would read what belongs to a head",
    ]


def id_of(option, seen, words, step="choose another one"):
    return "%s: %d seen, %s is needed, the same on every node: %s" % (option, seen, words, step)


@pytest.mark.parametrize(
    ("heads", "workers", "passwd", "found"),
    [
        (1, "999", [], []),
        (971, 0, [ENTRY], []),
        (1000, 0, [], [id_of("node_setup_uid", 1000, "an id from 1 to 999")]),
        (0, "-1", [], [id_of("node_setup_rpc_uid", -1, "an id from 1 to 999")]),
        (
            *(970, "970", []),
            [
                id_of("node_setup_uid", 970, "node_setup_rpc_uid has it too, an id of its own"),
                id_of("node_setup_rpc_uid", 970, "node_setup_uid has it too, an id of its own"),
            ],
        ),
        (
            *(970, 0, [["_apt", "x", "970"], ["x", "x", "97"], ["ntp", "x", "970"]]),
            [id_of("node_setup_uid", 970, "on n1 it is the id of _apt and ntp, an id that is free")],
        ),
        (
            *(970, 0, [ENTRY]),
            [
                id_of(
                    *("node_setup_uid", 970, "on n1 llama has 971, an id that this account has"),
                    "write 971, or run teardown.yml first",
                )
            ],
        ),
    ],
)
def test_configured_ids(heads, workers, passwd, found):
    """On several nodes: tests/unit/playbooks/test_accounts.py."""
    accounts = [dict(account, id=asked) for account, asked in zip(ACCOUNTS, (heads, workers))]
    assert of_accounts(*passwd, accounts=accounts) == found


def of_services(
    listeners="",
    units=(),
    managed=(),
    ending=(),
    leaving=(),
    address="10.1.0.1",
    heads=(HEAD,),
    workers=(WORKER,),
    changes=("rpc", "head", "router"),
    real="/opt/models",
):
    node = {
        "machine": {"addresses": ["10.0.0.1", "10.1.0.1"]},
        "units": list(units),
        "managed_processes": dict(managed),
        "real": {"/opt/models": real},
        "listeners": listeners,
    }
    asked = {
        "address": address,
        "heads": list(heads),
        "workers": list(workers),
        "ending": list(ending),
        "leaving": list(leaving),
        "changes": list(changes),
        "places": {"llama_models_dir": "/opt/models"},
    }
    return node_refusals({"llama_node": node}, "n1", services=asked)


def unit(name, pid=None, installed=True, managed=True):
    return {"name": name, "main_pid": pid, "installed": installed, "managed": managed}


def test_the_address_on_the_fabric():
    assert of_services() == of_services(address="") == []
    assert of_services(address="10.1.0.9") == [
        "n1: llama_fabric_address 10.1.0.9 is on none of its interfaces, one of 10.0.0.1, 10.1.0.1 is needed: correct "
        "hosts.yml or bring the interface up"
    ]


@pytest.mark.parametrize("real", ["/home/models", "/root", "/tmp/m"])
def test_directory_hidden_from_units_is_refused(real):
    assert of_services(real="/data/home/models") == []
    (sentence,) = of_services(real=real)
    assert sentence.startswith("llama_models_dir: /opt/models leads to %s on n1, which units cannot see," % real)


def test_ports_are_free_or_managed():
    listeners = (
        'LISTEN 0 128 10.1.0.1:50052 0.0.0.0:* users:(("nginx",pid=7,fd=5))\nLISTEN 0 128 0.0.0.0:8000 '
        '0.0.0.0:* users:(("nc",pid=8,fd=5))\n'
    )
    found = of_services(listeners)
    assert [one.partition(" is in use by ")[0] for one in found] == [
        "llama_services.chat.rpc_port: port 50052 of 10.1.0.1",
        "llama_services.chat.port: port 8000 of 10.0.0.1",
    ]
    # Managed processes, and one that adopt.yml will have stopped.
    managed = {"7": "llama-rpc-chat.service", "8": "llama-router-small.service"}
    assert of_services(listeners, managed=managed) == []
    assert of_services(listeners, managed={"7": managed["7"]}, ending=[8]) == []
    # A stopped service takes none.
    assert of_services(listeners, heads=[dict(HEAD, state="stopped")], workers=[dict(WORKER, state="stopped")]) == []
    assert len(of_services(listeners, heads=[dict(HEAD, state="started")])) == 2


def test_port_of_the_gateway_names_its_unit():
    listeners = 'LISTEN 0 511 0.0.0.0:8000 0.0.0.0:* users:(("nginx",pid=7,fd=5))\n'
    found = of_services(listeners, managed={"7": "nginx.service"})
    assert found == [
        "llama_services.chat.port: port 8000 of 10.0.0.1 belongs to our nginx.service, which this run does not move "
        "before it needs the port, a free one is needed: run site.yml --tags gateway first, or choose another port"
    ]
    # A run of the gateway is accepted.
    assert of_services(listeners, managed={"7": "nginx.service"}, changes=[]) == []


@pytest.mark.parametrize(
    ("name", "managed", "leaving", "taken"),
    [
        ("llama-rpc.service", False, [], True),
        ("llama-rpc.service", True, [], False),
        ("llama-rpc-chat.service", False, [], False),
        ("llama-rpc.service", False, ["llama-rpc.service"], False),
    ],
    ids=["unmanaged", "managed", "not needed", "taken over"],
)
def test_unmanaged_short_name_is_for_adopt(name, managed, leaving, taken):
    """Stopped, it holds no port."""
    found = of_services(
        units=[unit("llama-rpc.service", managed=managed)], leaving=leaving, heads=(), workers=[dict(WORKER, unit=name)]
    )
    assert (
        found
        == [
            "/etc/systemd/system/llama-rpc.service: an unmanaged unit on n1, a free name is "
            "needed: run adopt.yml, which takes it over and keeps it"
        ]
        * taken
    )
    assert of_services(units=[unit("llama-head.service", installed=False, managed=False)]) == []


WORKS = dict(unit("llama-rpc.service"), kind="rpc", endpoint="10.1.0.1:50052")
SHORT, LONG = dict(unit("llama-head.service"), kind="head"), dict(unit("llama-head-chat.service"), kind="head")
OLD = dict(WORKS, name="llama-rpc-chat.service")


@pytest.mark.parametrize(
    ("units", "changes", "missed", "tags"),
    [
        ([SHORT, WORKS], ["head"], None, None),
        ([], [], None, None),
        ([], ["rpc"], None, None),
        ([], ["router"], None, None),
        ([], ["rpc", "head"], None, None),
        ([], ["head"], "llama-rpc.service on n1 changes", "rpc,head"),
        ([SHORT, OLD], ["head"], "llama-rpc-chat.service, llama-rpc.service on n1 change", "rpc,head"),
        ([SHORT, dict(WORKS, endpoint="10.1.0.1:50053")], ["head"], "llama-rpc.service on n1 changes", "rpc,head"),
        ([LONG, WORKS], ["rpc"], "llama-head-chat.service on n1 changes", "rpc,head"),
        ([LONG, OLD], ["router"], "llama-head-chat.service, llama-rpc-chat.service on n1 change", "rpc,head,router"),
        ([dict(LONG, managed=False), WORKS], ["rpc"], None, None),
    ],
)
def test_run_of_half_a_change_is_refused(units, changes, missed, tags):
    sentence = "cannot change only units of kind %s because %s too: run with --tags %s"
    assert of_services(units=units, changes=changes) == ([sentence % (changes[0], missed, tags)] if missed else [])


def test_head_waits_for_no_stopped_worker():
    assert of_services(workers=[dict(WORKER, state="stopped")], changes=["head"]) == []


EXTERNAL = "set monitoring_prometheus to external, which writes configuration and rules for it"
SOCKET = 'LISTEN 0 4096 %s:%d 0.0.0.0:* users:(("%s",pid=%d,fd=6))\n'


def refusals(listeners="", processes=(), **changes):
    asked = {
        "prometheus": "install",
        "os_family": "Debian",
        "running": [],
        "pids": [],
        "managed": False,
        "ports": {"monitoring_port": 9090, "monitoring_alertmanager_port": "9093"},
        "listen": "127.0.0.1",
        "changes": ["head"],
    }
    node = {"listeners": listeners, "managed_processes": dict(processes)}
    return monitoring_refusals("ctl", dict(asked, **changes), node)


def test_new_and_managed_hosts_are_accepted():
    assert refusals() == []
    managed = SOCKET % ("127.0.0.1", 9090, "prometheus", 7)
    assert refusals(managed, managed=True, running=["prometheus.service"], pids=[7]) == []


def test_unmanaged_prometheus_is_refused():
    assert refusals(SOCKET % ("*", 9090, "prometheus", 7), running=["prometheus.service"], pids=[7]) == [
        "monitoring_prometheus: install seen, and prometheus.service of somebody else runs on ctl, none may: "
        + EXTERNAL
    ]


def test_packages_are_those_of_debian():
    assert refusals(os_family="RedHat") == [
        "monitoring_prometheus: install seen on ctl of family RedHat, Debian or Ubuntu is needed, whose packages it "
        "takes: " + EXTERNAL
    ]


@pytest.mark.parametrize("managed", [False, True])
def test_holder_of_a_monitoring_port_is_named(managed):
    listeners = SOCKET % ("0.0.0.0", 9090, "cockpit-tls", 9) + SOCKET % ("127.0.0.1", 9093, "x", 11)
    assert refusals(listeners, managed=managed, running=["prometheus.service"] * managed, pids=[7] * managed) == [
        "monitoring_port: port 9090 of 127.0.0.1 is in use by cockpit-tls (pid 9), a free port is needed: stop that "
        "process or choose another port",
        "monitoring_alertmanager_port: port 9093 of 127.0.0.1 is in use by x (pid 11), a free port is needed: stop "
        "that process or choose another port",
    ]
    assert refusals(SOCKET % ("10.0.0.5", 9090, "cockpit-tls", 9)) == []


def test_external_prometheus_needs_no_port():
    listeners = SOCKET % ("0.0.0.0", 9090, "prometheus", 7)
    assert refusals(listeners, prometheus="external", os_family="RedHat", running=["prometheus.service"]) == []


def test_monitoring_port_of_a_moved_service_is_free():
    listeners, managed = SOCKET % ("127.0.0.1", 9090, "llama-server", 9), {"9": "llama-head-chat.service"}
    assert refusals(listeners, managed) == []
    (sentence,) = refusals(listeners, managed, changes=[])
    assert "belongs to our llama-head-chat.service" in sentence and "adopt.yml" not in sentence


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
