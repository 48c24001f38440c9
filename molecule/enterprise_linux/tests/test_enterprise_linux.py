"""Differences of Enterprise Linux 8, on a node that only claims to be one."""


def calls(node):
    return node.check_output("cat /var/tmp/stub_calls").splitlines()


def test_packages_come_by_dnf_once(lab):
    installs = [call for call in calls(lab.node1) if call.startswith("dnf")]
    assert installs == [
        "dnf -y install nftables iproute libgomp ca-certificates policycoreutils-python-utils",
        "dnf -y install cmake make gcc-toolset-12",
    ]
    assert [call for call in calls(lab.node2) if call.startswith("dnf")] == installs[:1]


def test_the_compiler_is_the_toolsets(lab):
    assert lab.node1.check_output("journalctl --quiet --output cat --identifier stub_toolset") == "sourced"


def test_build_names_its_distribution(lab):
    assert '"distribution": "Rocky 8"' in lab.node2.check_output("cat /opt/llama.cpp/current/build.json")


def test_programs_and_models_are_labelled(lab):
    seen = calls(lab.node1)
    assert r"semanage fcontext --add --type bin_t /opt/llama\.cpp/releases/[^/]+/bin(/.*)?" in seen
    assert "semanage fcontext --add --type usr_t /opt/models(/.*)?" in seen
    # The head listens as an unconfined service: its port needs no label, and 8000 has one of the policy.
    assert not [call for call in seen if call.startswith("semanage port")]
    assert "semanage fcontext --add --type bin_t /opt/llama-cluster/bin(/.*)?" in seen
    assert {"restorecon -R -v /opt/llama.cpp", "restorecon -R -v /opt/llama-cluster/bin"} <= set(seen)
    assert len([call for call in seen if "--add" in call]) == 3


def test_the_worker_runs(lab):
    lab.eventually(lambda: lab.connects(lab.node1, lab.fabric("node2"), 50052, "llama"), 10, "the worker listens")
    assert not lab.connects(lab.node3, lab.fabric("node2"), 50052, "llama")


def test_clients_reach_the_head_through_firewalld(lab):
    """With other programs in the head's place, which this build lacks, and at an unassigned port."""
    for option in ("", "--permanent"):
        rules = lab.node1.check_output("firewall-cmd %s --list-rich-rules" % option).splitlines()
        assert [rule for rule in rules if 'port="8000"' in rule] == rules and len(rules) == 1
    address = lab.ethernet("node1")
    for port in (8000, 8001):
        lab.node1.check_output(
            "systemd-run --unit=listener-%d python3 -m http.server %d --bind %s" % (port, port, address)
        )
        lab.eventually(lambda port=port: lab.connects(lab.node1, address, port, "root"), 10, "it listens")
    assert lab.connects(lab.node2, address, 8000, "root")
    assert not lab.connects(lab.node2, address, 8001, "root")
    lab.node1.check_output("systemctl stop listener-8000 listener-8001")
