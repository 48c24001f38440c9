"""A unit's program receives values with special characters of systemd unchanged."""

import base64
import json
import pathlib
import subprocess

import pytest
from rendered import FILTERS, NODE

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
VALUES = [
    "a b",
    "",
    "%n",
    "100%",
    "$HOME",
    "${HOME}",
    "$$",
    'say "x"',
    "it's",
    "back\\slash",
    "a\\nb",
    ";",
    "tab\there",
    "line\nExecStartPre=/bin/x",
    "Grüße",
]
# It stays and keeps its arguments and its environment where they can be seen.
PROGRAM = "#!/bin/sh\nsleep 600\ntrue\n"
# The rules, the back-off and the keys of a deployed node are others' matter.
DROP_IN = "[Service]\nExecStartPre=\nExecStopPost=\nBindReadOnlyPaths=\nUser=daemon\nGroup=daemon\n"
ITEM = {
    "service": "hostile", "primary": False, "args": VALUES, "address": "127.0.0.1", "port": 8000, "memory_max": "",
    "cache": False, "rpc_endpoints": [], "api_key_file": "", "head_address": "127.0.0.1", "url": "http://127.0.0.1:8000",
    "model_path": "/nowhere",
}  # fmt: skip
PROCESS = {
    "template": "", "environment": {"V%02d" % number: value for number, value in enumerate(VALUES)},
    "numa_node": "",
}  # fmt: skip
ROLE = {
    "release": "/srv/hostile",
    "head_server_user": "daemon",
    "rpc_worker_user": "daemon",
}  # fmt: skip


def template(kind, source, target):
    """A task of a role, without the role and its sandbox."""
    item = dict(ITEM, unit=target.rpartition("/")[2])
    (unit,) = (entry for entry in FILTERS["unit_files"]([item], kind, NODE, PROCESS, False) if "template" in entry)
    command = unit["vars"]["command"].replace(unit["vars"]["release"], ROLE["release"])
    variables = dict(unit["vars"], sandbox=[], **ROLE, command=command)
    words = [
        "ansible",
        "node1",
        "-i",
        "inventories/lab",
        "-m",
        "ansible.builtin.template",
        "-a",
        "src=%s dest=%s" % (source, target),
    ]
    subprocess.run([*words, "-e", json.dumps(variables)], cwd=REPOSITORY, check=True, stdout=subprocess.PIPE)


@pytest.mark.parametrize(
    "kind, role, program", [("head", "head_server", "llama-server"), ("rpc", "rpc_worker", "ggml-rpc-server")]
)
def test_a_program_gets_the_values_that_were_given(lab, kind, role, program):
    unit = "llama-%s-hostile.service" % kind
    for path, text in (
        ("/srv/hostile/bin/" + program, PROGRAM),
        ("/run/systemd/system/%s.d/test.conf" % unit, DROP_IN),
    ):
        encoded = base64.b64encode(text.encode()).decode()
        lab.node1.check_output(
            "mkdir -p $(dirname %s) && echo %s | base64 -d >%s && chmod 755 %s" % (path, encoded, path, path)
        )
    template(kind, "roles/%s/templates/llama-%s.service.j2" % (role, kind), "/run/systemd/system/" + unit)
    try:
        lab.node1.check_output("systemctl daemon-reload && systemctl start %s", unit)
        look = "od -An -v -tx1 /proc/$(systemctl show -p MainPID --value %s)/%s | tr -d ' \\n'"
        lab.eventually(
            lambda: (
                program in lab.node1.check_output("cat /proc/$(systemctl show -p MainPID --value %s)/cmdline", unit)
            ),
            10,
            "the program runs",
        )
        arguments, environment = (
            bytes.fromhex(lab.node1.check_output(look, unit, name)).decode().split("\0")[:-1]
            for name in ("cmdline", "environ")
        )
        assert arguments[2:] == VALUES
        assert sorted(one for one in environment if one.startswith("V")) == [
            "V%02d=%s" % (number, value) for number, value in enumerate(VALUES)
        ]
    finally:
        lab.node1.run(
            "systemctl stop %s; rm -rf /srv/hostile /run/systemd/system/%s /run/systemd/system/%s.d; systemctl "
            "daemon-reload",
            unit,
            unit,
            unit,
        )
