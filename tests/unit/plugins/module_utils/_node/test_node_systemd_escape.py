# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import re
import shutil
import subprocess
from pathlib import Path

import jinja2
import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama.args import parse_args
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import units
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.systemd_escape import (
    systemd_escape,
    systemd_words,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.files import unit_files

ROOT = Path(__file__).resolve().parents[5]
HOSTILE = [
    "a b",
    " ",
    "",
    "%n",
    "100%",
    "%%",
    "$HOME",
    "${HOME}",
    "$$",
    'say "x"',
    "it's",
    "back\\slash",
    "\\",
    "a\\nb",
    ";",
    "tab\there",
    "line\nExecStartPre=/bin/x",
    "#",
    "-",
    "Grüße",
    "\x1b[0m",
]
VARIABLE = [value for value in HOSTILE if "\x1b" not in value]


def words_of(line, command):
    """A line as systemd.syntax(7) and systemd.service(5) say that it is read: quotes and escapes, then specifiers, then
    variables."""
    found = []
    for quoted in re.findall(r'"(?:[^"\\]|\\.)*"|[^\s"]+', line):
        word = (
            re.sub(r"\\(x[0-9a-f]{2}|.)", lambda match: unescaped(match.group(1)), quoted[1:-1])
            if quoted.startswith('"')
            else quoted
        )
        assert not re.search(r"(?<!%)%(?:%%)*(?!%)", word), word
        assert not command or not re.search(r"(?<!\$)\$(?:\$\$)*(?!\$)", word), word
        found.append(word.replace("%%", "%").replace("$$" if command else "$", "$"))
    return found


def unescaped(code):
    return {"n": "\n", "t": "\t"}.get(code) or (chr(int(code[1:], 16)) if code[0] == "x" else code)


@pytest.mark.parametrize("command", [True, False])
def test_systemd_reads_what_was_given(command):
    line = " ".join(systemd_escape(value, command) for value in HOSTILE)
    assert "\n" not in line and words_of(line, command) == HOSTILE


def test_command_is_read_back_unchanged():
    line = " ".join(systemd_escape(value, True) for value in [*HOSTILE, "\x7f", "plain"])
    assert systemd_words(line) == [*HOSTILE, "\x7f", "plain"]
    assert systemd_words("") == []


@pytest.mark.parametrize(
    "line",
    [
        "/bin/a  b",
        "/bin/a 'b c'",
        '/bin/a "$HOME"',
        '/bin/a "%n"',
        "/bin/a $$",
        '/bin/a "b',
        '/bin/a "b"c',
        "/bin/a b\\",
    ],
)
def test_a_command_of_another_hand_is_not_guessed(line):
    assert systemd_words(line) is None


def test_a_plain_value_stays_readable():
    assert [systemd_escape(value, True) for value in ("/opt/models/m-Q8_0.gguf", "8000", 8000)] == [
        "/opt/models/m-Q8_0.gguf",
        "8000",
        "8000",
    ]


def test_nul_is_refused():
    with pytest.raises(Refusal, match="NUL"):
        systemd_escape("a\0b")


def rendered(role, kind, args, environment):
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(ROOT / "roles" / role / "templates")),
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters.update({"comment": "# {}".format, "basename": lambda path: path.split("/")[-1]})
    item = {
        "service": "chat",
        "unit": "llama-%s.service" % kind,
        "args": args,
        "address": "10.0.0.1",
        "port": 8000,
        "memory_max": "64G",
        "cache": True,
        "rpc_endpoints": ["10.1.0.2:50052"],
        "head_address": "10.1.0.1",
        "api_key_file": "/etc/llama-cluster/keys/chat",
        "model_path": "/opt/models/m.gguf",
        "url": "http://10.0.0.1:8000",
    }
    process = {
        "environment": environment,
        "numa_node": "",
    }
    node = {"units": [], "templates": [], "watched": [], "files": {}}
    node["build"] = {"of": {"": {"current_build": "b1", "build_sha256": "0" * 64}}}
    given = dict(unit_files([item], kind, node, process, True)[0]["vars"], ansible_managed="managed")
    for name in ("head_server", "rpc_worker"):
        given[name + "_user"] = "root"
    return templates.get_template("llama-%s.service.j2" % kind).render(**given)


@pytest.mark.parametrize("role, kind", [("head_server", "head"), ("rpc_worker", "rpc")])
def test_units_of_hostile_values(role, kind, tmp_path):
    args = [word for value in HOSTILE for word in ("--alias", value)]
    environment = {"V%02d" % number: value for number, value in enumerate(VARIABLE)}
    text = rendered(role, kind, args, environment)
    command = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    assert words_of(command, True)[-len(args) :] == args
    lines = [line[len("Environment=") :] for line in text.splitlines() if line.startswith("Environment=")]
    assert ["V%02d=%s" % (number, value) for number, value in enumerate(VARIABLE)] == [
        word for line in lines for word in words_of(line, False) if word.startswith("V")
    ]
    assert "\nExecStartPre=/bin/x" not in text
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze on this machine")
    # The programs of a node are not here: every absolute one becomes one that is.
    path = tmp_path / ("llama-%s.service" % kind)
    path.write_text(re.sub(r"^(Exec\w+=[-+]*)/\S+", r"\1/bin/true", text, flags=re.MULTILINE))
    verify = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        check=False,
    )
    assert (verify.returncode, [line for line in verify.stdout.splitlines() if "llama-" in line]) == (0, [])


@pytest.mark.parametrize("role, kind", [("head_server", "head"), ("rpc_worker", "rpc")])
def test_units_tell_the_arguments_that_they_were_given(role, kind, tmp_path):
    """As rollback.yml and answer.yml judge by them, whatever systemd makes of it."""
    kwargs = '{"note": "no -c 9 ; --port 1", "x": "%n $HOME"}'
    args = ["--host", "10.0.0.1", "--port", "8000", "-c", "4096", "-np", "1", "--chat-template-kwargs", kwargs]
    name = "llama-%s-chat.service" % kind
    (tmp_path / name).write_text(rendered(role, kind, args, {}))
    shown = {"Id": name, "ExecStart": "{ path=/bin/x ; argv[]=/bin/x %s ; ignore_errors=no }" % " ".join(args)}
    found = units.describe(shown, str(tmp_path), digests=str(tmp_path))
    assert found.managed and list(found.arguments[-len(args) :]) == args
    assert kind == "rpc" or found.url == "http://10.0.0.1:8000"
    assert parse_args(found.arguments) == parse_args(args) and parse_args(args).slot_ctx == 4096
    # An unmanaged or edited unit has the words that systemd shows.
    for text in ("[Service]\nExecStart=/bin/x\n", (tmp_path / name).read_text() + "\nExecStart=/bin/y\n"):
        (tmp_path / name).write_text(text)
        found = units.describe(shown, str(tmp_path), digests=str(tmp_path))
        assert found.arguments == ["/bin/x", *" ".join(args).partition(" ; ")[0].split()]
