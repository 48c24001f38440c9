"""Units of a Vulkan build under their sandbox: compiled shaders, and a card that does not open."""

import pytest

REFUSED = "/dev/dri: no render node seen that this unit may open"


@pytest.mark.parametrize(
    ("name", "unit", "account"), [("node1", "llama-head-chat", "llama"), ("node2", "llama-rpc-chat", "llama-rpc")]
)
def test_compiled_shaders_are_private_and_bounded(lab, name, unit, account):
    node, path = getattr(lab, name), "/var/cache/llama-cluster/shaders/" + unit
    assert node.check_output("stat --format='%%U %%a' %s", path) == account + " 700"
    assert 0 < int(node.check_output("du --summarize --bytes %s", path).split()[0]) < 256 << 20
    # An archive of an earlier run is there before the unit is.
    process = node.check_output("systemctl show --property=MainPID --value %s", unit)
    assert " %s/mesa_shader_cache_db/index\n" % path in node.check_output("cat /proc/%s/maps", process)


def test_unit_starts_only_with_an_open_card(lab):
    """A display without a render node."""
    unit = "llama-rpc-chat"
    since = lab.node2.check_output("date +%s")
    said = "journalctl --unit=%s --output=cat --since=@%s"
    lab.node2.check_output("mkdir /dev/dri")
    try:
        lab.node2.check_output("systemctl restart --no-block %s", unit)
        lab.eventually(lambda: REFUSED in lab.node2.check_output(said, unit, since), 60, "the unit refuses")
        assert lab.node2.check_output("systemctl show --property=MainPID --value %s", unit) == "0"
    finally:
        lab.node2.check_output("rmdir /dev/dri")
    lab.eventually(lambda: lab.node2.run("systemctl is-active %s", unit).rc == 0, 60, "the unit runs again")
