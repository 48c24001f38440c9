"""The end of monitoring, after all other tests of it: files come in the order of their names."""

INVENTORY = ("-i", "molecule/monitoring/inventory")


def test_removed_again(lab):
    # Files of a service that left the inventory.
    lab.node3.check_output("touch /etc/llama-cluster/monitoring/targets/service-gone.json")
    status, output = lab.playbook("teardown", *INVENTORY)
    assert status == 0, output
    for node in (lab.node1, lab.node2, lab.node3):
        assert not node.file("/etc/systemd/system/llama-sampler.service").exists
        assert not node.file("/etc/llama-cluster").exists
        assert not node.file("/etc/systemd/journald.conf.d/90-llama-cluster.conf").exists
        assert not node.file("/usr/local/bin/llama-cluster-monitor").exists
        assert not node.file("/usr/local/bin/llama-service-status").exists
        assert not node.service("llama-sampler").is_running
    for unit in ("prometheus", "prometheus-alertmanager"):
        assert not lab.node3.service(unit).is_running and not lab.node3.service(unit).is_enabled
    assert not lab.node3.file("/etc/systemd/system/prometheus.service.d").exists
