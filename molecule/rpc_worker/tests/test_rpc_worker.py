import json
import signal

UNIT = "llama-rpc-chat.service"
# Preflight is half of such a run; what it checks is scenario preflight's. Runs that must change nothing have it.
RPC = ("site", "--tags", "rpc", "--skip-tags", "preflight")


def main_pid(node):
    return int(node.check_output("systemctl show --property=MainPID --value %s", UNIT))


def test_worker_listens_only_on_the_fabric(lab):
    for name in ("node2", "node3"):
        listeners = [
            line.split()[3] for line in getattr(lab, name).check_output("ss -Hltn sport = :50052").splitlines()
        ]
        assert listeners == ["%s:50052" % lab.fabric(name)]


def test_the_services_of_its_head_reach_it(lab):
    assert lab.connects(lab.node1, lab.fabric("node2"), 50052, "llama")


def test_other_user_on_head_is_refused(lab):
    for user in ("nobody", "root"):
        assert not lab.connects(lab.node1, lab.fabric("node2"), 50052, user), user


def test_container_on_head_is_refused(lab):
    """Forwarded and with the head's own address, as an engine's bridge does it."""
    lab.node1.check_output(
        "ip netns add guest && ip link add guest0 type veth peer name eth0 netns guest && ip address add "
        "192.168.77.1/24 dev guest0 && ip link set guest0 up && ip -n guest address add 192.168.77.2/24 dev eth0 && ip "
        "-n guest link set eth0 up && ip -n guest route add default via 192.168.77.1"
        " && nft 'table ip guest { chain nat { type nat hook postrouting priority 100; ip saddr 192.168.77.2 "
        "masquerade; }; }'"
    )
    connect = "ip netns exec guest timeout 3 bash -c 'exec 3<>/dev/tcp/%s/50052'"
    assert lab.node1.run(connect, lab.fabric("node2")).rc != 0
    lab.node1.check_output("nft delete chain inet llama_cluster forward")
    assert lab.node1.run(connect, lab.fabric("node2")).rc == 0, "nothing else keeps it from it"
    lab.node1.check_output(
        "systemctl reload llama-firewall && nft delete table ip guest && ip link delete guest0 && ip netns delete guest"
    )


def test_another_node_does_not_reach_it(lab):
    assert not lab.connects(lab.node3, lab.fabric("node2"), 50052, "llama")
    assert not lab.connects(lab.node1, lab.ethernet("node2"), 50052, "llama")


def test_other_user_on_its_node_is_refused(lab):
    for user in ("nobody", "llama", "llama-rpc", "root"):
        assert not lab.connects(lab.node2, lab.fabric("node2"), 50052, user), user


def test_worker_runs_as_its_own_user(lab):
    assert lab.node2.check_output("ps -o user:32= -p %s", str(main_pid(lab.node2))) == "llama-rpc"


def test_its_user_reaches_no_other_host(lab):
    assert (
        lab.connects(lab.node2, lab.fabric("node1"), 22222, "root")
        is lab.connects(lab.node2, lab.fabric("node1"), 22222, "llama-rpc")
        is False
    )
    lab.node1.check_output(
        "python3 -m http.server 22222 --bind %s >/dev/null 2>&1 & echo $! > /run/listener.pid; sleep 1",
        lab.fabric("node1"),
    )
    try:
        assert lab.connects(lab.node2, lab.fabric("node1"), 22222, "root")
        assert not lab.connects(lab.node2, lab.fabric("node1"), 22222, "llama-rpc")
    finally:
        lab.node1.check_output("kill $(cat /run/listener.pid); rm /run/listener.pid")


def test_unit_is_confined(lab):
    assert lab.exposure(lab.node2, UNIT) == 1.0
    status = dict(
        line.split(":", 1)
        for line in lab.node2.check_output("cat /proc/%s/status", str(main_pid(lab.node2))).splitlines()
    )
    assert (status["CapEff"].strip(), status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("0" * 16, "1", "2")
    assert int(status["SigIgn"], 16) & 1 << signal.SIGPIPE - 1


def test_worker_is_back_after_kill_9(lab):
    before = main_pid(lab.node2)
    lab.node2.check_output("kill -9 %s", str(before))
    lab.eventually(lambda: main_pid(lab.node2) not in (0, before), 10, "a new worker process")
    lab.eventually(lambda: lab.connects(lab.node1, lab.fabric("node2"), 50052, "llama"), 10, "the worker listens again")


def test_worker_starts_at_boot(lab):
    assert lab.node2.check_output("systemctl is-enabled %s", UNIT) == "enabled"


def test_worker_returns_with_its_node(lab):
    lab.node3.check_output("systemctl stop %s llama-firewall && systemctl start multi-user.target", UNIT)
    lab.eventually(lambda: lab.connects(lab.node1, lab.fabric("node3"), 50052, "llama"), 10, "the worker listens")
    assert not lab.connects(lab.node2, lab.fabric("node3"), 50052, "llama")


def test_flushed_rules_return_without_a_restart(lab):
    """With a listener of another process on the worker's port: the worker's own unit refuses other users without rules
    too."""
    before = main_pid(lab.node2)
    address = lab.ethernet("node2")
    lab.node2.check_output("systemd-run --unit=other python3 -m http.server 50052 --bind %s", address)
    # The watchdog would load them at once.
    lab.node2.check_output("systemctl stop llama-watchdog && nft flush ruleset")
    lab.eventually(lambda: lab.connects(lab.node3, address, 50052, "llama"), 10, "without rules everybody gets through")
    assert not lab.connects(lab.node3, lab.fabric("node2"), 50052, "llama")
    status, output = lab.playbook(*RPC)
    assert status == 0, output
    assert not lab.connects(lab.node3, address, 50052, "llama")
    assert main_pid(lab.node2) == before
    lab.node2.check_output("systemctl stop other && systemctl start llama-watchdog")


def test_rules_are_back_after_nftables(lab):
    before = main_pid(lab.node2)
    for command in ("start", "reload", "restart", "stop"):
        lab.node2.check_output("systemctl %s nftables", command)
        lab.eventually(
            lambda: lab.node2.run("nft list table inet llama_cluster").rc == 0,
            10,
            "the rules are there after: " + command,
        )
        assert lab.connects(lab.node1, lab.fabric("node2"), 50052, "llama"), command
        assert not lab.connects(lab.node3, lab.fabric("node2"), 50052, "llama"), command
    assert main_pid(lab.node2) == before


def test_no_worker_without_rules(lab):
    lab.node3.check_output("mv /etc/llama-cluster/firewall.nft /etc/llama-cluster/away && nft flush ruleset")
    lab.node3.run("systemctl restart llama-firewall")
    lab.node3.run("systemctl restart %s", UNIT)
    assert lab.node3.check_output("ss -Hltn sport = :50052") == ""
    lab.node3.check_output(
        "mv /etc/llama-cluster/away /etc/llama-cluster/firewall.nft && systemctl restart llama-firewall"
    )
    lab.eventually(
        lambda: lab.connects(lab.node1, lab.fabric("node3"), 50052, "llama"), 10, "the worker comes back with its rules"
    )


def test_a_changed_argument_restarts_only_that_worker(lab):
    before = {name: main_pid(getattr(lab, name)) for name in ("node2", "node3")}
    status, output = lab.playbook(
        *RPC, "--limit", "node1,node2", "-e", '{"rpc_worker_environment": {"LAB_PROBE": "yes"}}'
    )
    assert status == 0, output
    assert main_pid(lab.node2) != before["node2"]
    assert main_pid(lab.node3) == before["node3"]


def test_worker_works_beside_firewalld(lab):
    """With the fabric in the default zone on one node, and in a zone of its own on another."""
    for node in (lab.node2, lab.node3):
        node.check_output("systemctl start firewalld")
        lab.eventually(lambda node=node: node.run("firewall-cmd --state").rc == 0, 20, "firewalld runs")
    interface = lab.node2.check_output("ip -oneline -4 address show to %s", lab.fabric("node2")).split()[1]
    for option in ("", "--permanent"):
        lab.node2.check_output("firewall-cmd %s --zone=internal --change-interface=%s" % (option, interface))
    assert not lab.connects(lab.node1, lab.fabric("node2"), 50052, "llama")
    status, output = lab.playbook(*RPC)
    assert status == 0, output
    for command in ("true", "firewall-cmd --reload", "systemctl restart firewalld"):
        lab.node2.check_output(command)
        lab.eventually(
            lambda: lab.connects(lab.node1, lab.fabric("node2"), 50052, "llama"),
            10,
            "the head reaches it after: " + command,
        )
        assert not lab.connects(lab.node3, lab.fabric("node2"), 50052, "llama"), command
    status, output = lab.playbook("site", "--tags", "rpc")
    assert lab.changed(output) == 0
    lab.node2.check_output("systemctl stop firewalld")


def test_a_worker_that_is_no_longer_wanted_leaves(lab):
    """firewalld still runs there, see above."""
    rules = "firewall-cmd --list-rich-rules && firewall-cmd --permanent --list-rich-rules"
    assert lab.node3.check_output(rules).count("50052") == 2
    status, output = lab.playbook(*RPC, "-e", json.dumps({"llama_services": lab.chat(workers="node2")}))
    assert status == 0, output
    assert lab.node3.check_output("ss -Hltn sport = :50052") == ""
    for name in (UNIT, "llama-firewall.service", "nftables.service.d"):
        assert not lab.node3.file("/etc/systemd/system/" + name).exists, name
    assert not lab.node3.file("/etc/llama-cluster/firewall.nft").exists
    assert lab.node3.run("nft list table inet llama_cluster").rc != 0
    assert "50052" not in lab.node3.check_output(rules)
    lab.node3.check_output("systemctl stop firewalld")
    status, output = lab.playbook(*RPC)
    assert status == 0, output
    lab.eventually(lambda: lab.connects(lab.node1, lab.fabric("node3"), 50052, "llama"), 10, "the worker is back")
