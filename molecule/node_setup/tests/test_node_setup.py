NODES = ("node1", "node2", "node3")


def test_services_have_a_user_who_cannot_log_in(lab):
    for name in NODES:
        user = getattr(lab, name).user("llama")
        assert user.exists
        assert user.shell == "/usr/sbin/nologin"
        assert user.uid < 1000


def test_the_user_writes_its_state_and_nothing_it_executes(lab):
    for path, writable in (("/var/lib/llama-cluster", True), ("/opt/models", False), ("/etc/llama-cluster", False), ("/opt/llama-cluster/bin", False)):
        done = lab.node1.run("setpriv --reuid=llama --regid=llama --clear-groups touch %s/probe && rm %s/probe", path, path)
        assert (done.rc == 0) == writable, (path, done.stderr)


def test_other_users_do_not_read_its_state(lab):
    assert lab.node1.run("setpriv --reuid=nobody --regid=nogroup --clear-groups ls /var/lib/llama-cluster").rc != 0


def test_what_services_need_at_run_time_is_installed(lab):
    for command in ("nft --version", "ss --version", "ldconfig -p | grep libgomp.so.1"):
        assert lab.node2.run(command).rc == 0, command


def test_a_missing_package_is_installed_again(lab):
    lab.node3.check_output("dpkg --force-all --purge libgomp1")
    status, output = lab.playbook("site", "--limit", "node3", "--tags", "node", "--skip-tags", "preflight")
    assert status == 0, output
    assert lab.node3.run("ldconfig -p | grep libgomp.so.1").rc == 0
