NODES = ("node1", "node2", "node3")


def test_accounts_cannot_log_in(lab):
    for name in NODES:
        for account in ("llama", "llama-rpc"):
            user = getattr(lab, name).user(account)
            assert (user.shell, user.home, user.group) == ("/usr/sbin/nologin", "/nonexistent", account)
            assert 0 < user.uid < 1000


def test_the_accounts_write_nothing(lab):
    for account in ("llama", "llama-rpc"):
        for path in (
            "/var/lib/llama-cluster",
            "/opt/models",
            "/etc/llama-cluster",
            "/etc/llama-cluster/keys",
            "/opt/llama-cluster/bin",
        ):
            done = lab.node1.run("setpriv --reuid=%s --regid=%s --clear-groups touch %s/probe", account, account, path)
            assert done.rc != 0, (account, path)


def test_worker_cannot_read_keys_of_heads(lab):
    look = "setpriv --reuid=%s --regid=%s --clear-groups ls /etc/llama-cluster/keys"
    assert lab.node1.run(look, "llama", "llama").rc == 0
    assert lab.node1.run(look, "llama-rpc", "llama-rpc").rc != 0


def test_unmanaged_accounts_are_refused_or_kept(lab):
    """An account of a person, one whose group has a member, and a managed name that another tool made, which stays."""
    made = "useradd --system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin"
    lab.node3.check_output(
        "useradd --no-create-home --shell /bin/bash --uid 4711 person && %s shared && %s theirs && usermod -aG shared "
        "person" % (made, made)
    )
    planted = lab.node3.check_output("cat /etc/passwd /etc/group")
    for account, seen in (("person", "id 4711, home /home/person and shell /bin/bash"), ("shared", "members person")):
        status, output = lab.playbook(
            "site",
            "--limit",
            "node3",
            "--tags",
            "node",
            "--skip-tags",
            "preflight",
            "-e",
            "node_setup_user=%s" % account,
        )
        assert status != 0 and "node_setup_user: " in output and seen in output, output
    assert lab.node3.check_output("cat /etc/passwd /etc/group") == planted
    status, output = lab.playbook("teardown", "--limit", "node3", "-e", "node_setup_user=theirs")
    assert status == 0, output
    assert [lab.node3.user(name).exists for name in ("theirs", "llama", "llama-rpc")] == [True, True, False]
    lab.node3.check_output("userdel person && userdel shared && userdel theirs")


def test_what_services_need_at_run_time_is_installed(lab):
    for command in ("nft --version", "ss --version", "ldconfig -p | grep libgomp.so.1"):
        assert lab.node2.run(command).rc == 0, command


def test_a_missing_package_is_installed_again(lab):
    """On a node that has lost the rest too, see above."""
    lab.node3.check_output("dpkg --force-all --purge libgomp1")
    status, output = lab.playbook("site", "--limit", "node3", "--tags", "node", "--skip-tags", "preflight")
    assert status == 0, output
    assert lab.node3.run("ldconfig -p | grep libgomp.so.1").rc == 0
    assert lab.node3.user("llama-rpc").exists
