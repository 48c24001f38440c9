"""Files and processes that a program sees in the place of a head or a worker, with every line of its unit except the
program."""

import json
import re

import pytest

UNITS = {"llama-head-chat.service": "node1", "llama-rpc-chat.service": "node2"}
# Open to everybody by their modes: only the sandbox is left to keep anybody out.
PLACES = tuple(
    top + "/canary" for top in ("/etc", "/usr", "/opt", "/srv", "/var/lib", "/var/lib/llama-cluster", "/home", "/root")
)
PLANT = """
chmod o+x /root
for place in %s; do install -d -m 0777 $place && echo secret >$place/secret && chmod 0666 $place/secret; done
echo secret >/tmp/canary && echo secret >/var/tmp/canary && chmod 0666 /tmp/canary /var/tmp/canary
systemd-run --quiet --unit=canary-neighbour --uid=65534 sleep 600
""" % " ".join(PLACES)
CLEAN = """
chmod o-x /root; rm -rf %s /tmp/canary /var/tmp/canary /run/systemd/system/canary.service
systemctl stop canary-neighbour; systemctl daemon-reload
""" % " ".join(PLACES)
# -> {written: places it could write to, read: places it could read, processes: users whose processes it sees,
# temporary: what others left in /tmp}
PROGRAM = r"""
import json, os, sys
found = {"written": [], "read": [], "processes": [], "temporary": []}
for place in sys.argv[1:]:
    for name, flags in (("written", os.O_WRONLY), ("read", os.O_RDONLY)):
        try:
            os.close(os.open(place + "/secret", flags))
            found[name].append(place)
        except OSError:
            pass
for pid in filter(str.isdigit, os.listdir("/proc")):
    found["processes"].append(os.stat("/proc/" + pid).st_uid)
for folder in ("/tmp", "/var/tmp"):
    found["temporary"] += [name for name in os.listdir(folder) if "canary" in name]
    with open(folder + "/own", "w"):
        pass
found["processes"] = sorted(set(found["processes"]) - {os.getuid()})
print("found " + json.dumps(found))
"""


def canary(node, unit):
    """Runs PROGRAM as that unit would -> what it found."""
    text = node.check_output("cat /etc/systemd/system/%s", unit)
    text = re.sub(
        r"^(ExecStart|ExecStartPre|ExecStopPost|Restart|RestartSec|Type|NotifyAccess|Alias|WantedBy)=.*\n",
        "",
        text,
        flags=re.MULTILINE,
    )
    program = 'ExecStart=/usr/bin/python3 -c "%s" %s' % (
        PROGRAM.strip().replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"),
        " ".join(PLACES),
    )
    text = text.replace("[Service]\n", "[Service]\nType=oneshot\n%s\n" % program, 1)
    node.check_output(
        "printf '%%s' %s >/run/systemd/system/canary.service && systemctl daemon-reload && systemctl start canary", text
    )
    said = node.check_output("journalctl -u canary -o cat --no-pager -n 20")
    return json.loads(re.findall(r"^found (.*)$", said, re.MULTILINE)[-1])


@pytest.mark.parametrize("unit", UNITS)
def test_program_of_a_unit_is_confined(lab, unit):
    node = getattr(lab, UNITS[unit])
    node.check_output(PLANT)
    try:
        found = canary(node, unit)
        assert not node.run("ls /tmp/own /var/tmp/own").stdout, "its /tmp is its own"
    finally:
        node.check_output(CLEAN)
    assert found["written"] == [], "it has nothing to write"
    assert [place for place in found["read"] if place.startswith(("/home", "/root"))] == [], "homes are hidden"
    assert "/etc/canary" in found["read"], "the canary itself works"
    assert found["processes"] == [], "it sees only its own processes"
    assert found["temporary"] == [], "/tmp is its own"


def test_watchdog_is_confined(lab):
    assert lab.exposure(lab.node1, "llama-watchdog.service") == 2.2
    limits = lab.node1.check_output("systemctl show --property=WatchdogUSec --property=MemoryMax llama-watchdog")
    assert set(limits.splitlines()) == {"WatchdogUSec=1min", "MemoryMax=268435456"}
