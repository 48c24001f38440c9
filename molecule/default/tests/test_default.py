"""What a newcomer asks of a deployed cluster: that it serves, and that a second run has nothing to do."""


def test_a_deployed_cluster_is_proved_over_all_of_its_nodes(lab):
    status, output = lab.playbook("verify", "--skip-tags", "report")
    assert status == 0, output


def test_a_second_run_changes_nothing(lab):
    status, output = lab.playbook("site")
    assert (status, lab.changed(output)) == (0, 0), output
