"""A deployed cluster serves, and a second run has nothing to do."""


def test_deployed_cluster_is_verified(lab):
    status, output = lab.playbook("verify", "--skip-tags", "report")
    assert status == 0, output


def test_second_run_changes_nothing(lab):
    status, output = lab.playbook("site")
    assert (status, lab.changed(output)) == (0, 0), output
