"""Clients that may not reach a worker get a reset at once, and do not wait."""

import pytest


@pytest.mark.parametrize(
    ("name", "user"),
    [("node1", "nobody"), ("node3", "root"), ("node2", "nobody")],
    ids=["of its head's node", "on another node", "of its own node"],
)
def test_unauthorized_client_is_reset(lab, name, user):
    connect = "setpriv --reuid=%s --clear-groups timeout 5 bash -c 'exec 3<>/dev/tcp/%s/50052'"
    # 1 is bash's for a connection that is refused, 124 timeout's for one that nothing comes of.
    assert getattr(lab, name).run(connect, user, lab.fabric("node2")).rc == 1
