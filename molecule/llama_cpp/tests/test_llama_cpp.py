import io
import json
import os
import pathlib
import re
import shlex
import tarfile

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _settings
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import args

NODES = ("node1", "node2", "node3")
BUILD = ("site", "--tags", "build", "--skip-tags", "preflight")
CACHE = pathlib.Path(
    os.environ.get("LLAMA_CLUSTER_CACHE")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "llama-cluster")
)


def build(lab, entry=None, **variables):
    """Has the scenario's own small build with these variables -> (exit status, output). entry: of llama_builds, in the
    place of the lab's."""
    given = dict({"llama_cpp_targets": ["ggml-rpc-server"]}, **variables)
    if entry:
        given["llama_builds"] = {"default": dict({"version": "b11434"}, **entry)}
    return lab.playbook(*BUILD, "-e", json.dumps(given))


def links(node):
    return node.check_output("cd /opt/llama.cpp && readlink current previous || true").split()


def test_every_node_has_the_identical_build(lab):
    sums = {
        name: getattr(lab, name).check_output("cd /opt/llama.cpp/current && sha256sum build.json bin/*")
        for name in NODES
    }
    assert sums["node1"] == sums["node2"] == sums["node3"]
    assert "bin/ggml-rpc-server" in sums["node1"]


def test_the_manifest_tells_the_truth(lab):
    manifest = json.loads(lab.node2.check_output("cat /opt/llama.cpp/current/build.json"))
    assert manifest["version"] == "b11434"
    assert manifest["cmake_options"]["GGML_RPC"] == "ON"
    seen = dict(
        reversed(line.split())
        for line in lab.node2.check_output("cd /opt/llama.cpp/current && sha256sum bin/*").splitlines()
    )
    assert manifest["files"] == seen


def test_it_runs_where_it_was_not_compiled(lab):
    lab.node3.check_output(
        "systemd-run --unit=probe /opt/llama.cpp/current/bin/ggml-rpc-server --host 127.0.0.1 --port 50999"
    )
    lab.eventually(lambda: lab.connects(lab.node3, "127.0.0.1", 50999), 10, "the RPC server listens")
    lab.node3.check_output("systemctl stop probe")


def test_the_path_operators_know_leads_to_the_build(lab):
    for name in ("ggml-rpc-server", "rpc-server"):
        assert lab.node1.file("/opt/llama.cpp/build/bin/" + name).exists, name


def test_only_one_node_compiled_and_left_nothing_behind(lab):
    for name in NODES:
        node = getattr(lab, name)
        assert (
            node.run(
                "ls -d /opt/llama.cpp/.build /var/cache/llama-cluster-build /var/cache/private/llama-cluster-build"
            ).stdout
            == ""
        )


def test_files_of_a_user_have_no_effect(lab):
    assert lab.node1.run("ls /etc/trapped /etc/not-a-log").stdout == ""
    assert lab.node1.check_output("find /var/tmp/llama-cluster-build -type f -exec basename {} ';'") == "CMakeLists.txt"


def test_missing_source_is_refused_before_any_change(lab):
    status, output = lab.playbook(
        "site",
        "--tags",
        "build",
        "-e",
        json.dumps({"llama_builds": {"default": {"version": "b11435", "source": "/nowhere/llama.cpp.tar.gz"}}}),
        "-e",
        "llama_cpp_cache=/nowhere",
    )
    assert status != 0
    assert (
        "llama_builds.default.source: /nowhere/llama.cpp.tar.gz is no file on the controller, the source archive of "
        "llama.cpp b11435 is needed" in output
    )
    assert lab.changed(output) == 0


def test_a_damaged_build_is_refused(lab):
    program = "/opt/llama.cpp/current/bin/ggml-rpc-server"
    lab.node2.check_output("cp %s /var/tmp/kept && printf x >> %s", program, program)
    status, output = build(lab)
    lab.node2.check_output("cp /var/tmp/kept %s", program)
    assert status != 0
    assert "bin/ggml-rpc-server, bin/rpc-server differ from build.json, an intact build is needed" in output


def flip(archive, copy):
    """One bit of the compressed archive."""
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    copy.write_bytes(content)


def swap(archive, copy):
    """A sound archive whose program is another one."""
    with tarfile.open(archive) as old, tarfile.open(copy, "w:gz") as new:
        for member in old:
            content = bytearray(old.extractfile(member).read() if member.isfile() else b"")
            if member.name.endswith("ggml-rpc-server"):
                content[1000] ^= 1
            new.addfile(member, io.BytesIO(content))


def plant(archive, copy):
    """A setuid program that the manifest does not list."""
    with tarfile.open(archive) as old, tarfile.open(copy, "w:gz") as new:
        for member in old:
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
        program = tarfile.TarInfo("./bin/root")
        program.mode = 0o4755
        new.addfile(program)


DAMAGES = (
    (flip, "is damaged (gzip:"),
    (swap, "bin/ggml-rpc-server, bin/rpc-server in it differ from its build.json"),
    (plant, "bin/root in it differ from its build.json, are missing or not listed there"),
)


@pytest.mark.parametrize(("damage", "sentence"), DAMAGES)
def test_damaged_archive_is_not_installed(lab, tmp_path, damage, sentence):
    (archive,) = (CACHE / "scenario-builds" / lab.name).glob("*.tar.gz")
    damage(archive, tmp_path / archive.name)
    lab.node3.check_output("mv /opt/llama.cpp /opt/llama.cpp.kept")
    status, output = build(lab, llama_cpp_cache=str(tmp_path))
    published = lab.node3.check_output("ls /opt/llama.cpp/releases 2>/dev/null || true").split()
    lab.node3.check_output("rm -rf /opt/llama.cpp && mv /opt/llama.cpp.kept /opt/llama.cpp")
    assert status != 0
    assert str(tmp_path / archive.name) in output
    assert sentence in output
    assert "delete the file, and the next run compiles it again" in output
    assert [name for name in published if not name.endswith(".partial")] == []


HOSTILE = """\
execute_process(COMMAND sh -c "id -u; grep -c : /proc/net/dev; touch /etc/trapped; cp /bin/sh root; chmod 4755 root;
  ls -l root; ps -o user= -p 1; exit 0")
message(FATAL_ERROR "that was all")
"""


def test_a_hostile_source_is_confined(lab, tmp_path):
    with tarfile.open(tmp_path / "source.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("llama.cpp-b11434/CMakeLists.txt")
        info.size = len(HOSTILE)
        archive.addfile(info, io.BytesIO(HOSTILE.encode()))
    status, output = build(
        lab,
        {"source": str(tmp_path / "source.tar.gz"), "cmake_options": {"ANOTHER": "build"}},
        llama_cpp_cache=str(tmp_path),
    )
    log = lab.node1.check_output("cat /opt/llama.cpp/.build/build.log")
    lab.node1.check_output(
        "rm -r /opt/llama.cpp/.build /var/cache/private/llama-cluster-build /var/cache/llama-cluster-build"
    )
    assert status != 0
    assert (
        "compiling llama.cpp b11434: failed with status 1, the whole log is /opt/llama.cpp/.build/build.log on node1; "
        "it ends with:" in output
    )
    assert "that was all" in output
    uid, interfaces = re.search(r"^(\d+)\n(\d+)$", log, re.MULTILINE).groups()
    assert int(uid) > 60000
    assert interfaces == "1"  # the loopback
    assert "-rws" not in log
    assert lab.node1.run("ls /etc/trapped").stdout == ""


def test_a_source_with_another_sha256_is_refused(lab):
    entry = {"source": str(CACHE / "files/llama.cpp-b11434.tar.gz"), "source_sha256": "0" * 64}
    status, output = build(lab, entry, llama_cpp_cache="/nowhere")
    assert status != 0
    assert re.search(
        "llama_builds.default.source: [^ ]*/llama.cpp-b11434.tar.gz has sha256 [0-9a-f]{64}, 0{64} is needed: fetch "
        "the archive again",
        output,
    )


def test_source_with_another_sha256_is_refused(lab):
    lab.node1.check_output("mkdir -p /var/tmp/served && echo other > /var/tmp/served/x.tar.gz")
    lab.node1.check_output("systemd-run --unit=served python3 -m http.server 8099 --directory /var/tmp/served")
    lab.eventually(lambda: lab.connects(lab.node1, "127.0.0.1", 8099), 10, "the web server listens")
    status, output = build(
        lab,
        {"source": "http://127.0.0.1:8099/x.tar.gz", "source_sha256": "0" * 64},
        llama_cpp_cache="/nowhere",
    )
    lab.node1.check_output("systemctl stop served; rm -rf /var/tmp/served")
    assert status != 0
    assert re.search(
        "llama_builds.default.source: http://127.0.0.1:8099/x.tar.gz has sha256 [0-9a-f]{64}, 0{64} is needed: correct",
        output,
    )


def test_what_is_said_of_cuda_toolkits(lab):
    status, output = lab.playbook("../molecule/llama_cpp/toolchain")
    assert status == 0, output
    for sentence in (
        "llama_builds.default.cuda_home: /var/tmp/stub_toolkit of node1 has no bin/nvcc that runs, and its PATH has "
        "none, a CUDA toolkit is needed",
        "llama_builds.default.cuda_architectures: 70-real seen with CUDA 13.0 of node1, CUDA 12.9 or older is needed "
        "for it",
        "llama_builds.default.cuda_architectures: 120 seen with CUDA 11.8 of node1, CUDA 12.8 or newer is needed "
        "for it",
        "node1: g++ 12 seen, g++ 11 or older is needed by CUDA 11.8",
        "taken: 12.2 for 70",
        "taken: 13.0 for 75",
    ):
        assert sentence in output
    assert (output.count("msg: 'refused:"), output.count("taken:")) == (4, 2)


class TestWholeBuild:
    """The build of all programs, from the lab's cache, made current last: what these tests see of it, the ones above
    must not."""

    @pytest.fixture(scope="class", autouse=True)
    def before(self, lab):
        before = [links(getattr(lab, name)) for name in NODES]
        status, output = lab.playbook(*BUILD)
        assert status == 0, output
        return before

    def test_what_was_current_is_previous(self, lab, before):
        for name, (current, *_none) in zip(NODES, before):
            now, previous = links(getattr(lab, name))
            assert (now != current, previous) == (True, current)

    def test_older_releases_go(self, lab):
        lab.node1.check_output("cp -a /opt/llama.cpp/current/ /opt/llama.cpp/releases/older")
        lab.node1.check_output(
            """sed -i 's/"build": "[^"]*"/"build": "older"/' /opt/llama.cpp/releases/older/build.json"""
        )
        status, output = lab.playbook(*BUILD, "--check")
        assert (status, lab.changed(output)) == (0, 1)
        status, output = lab.playbook(*BUILD)
        assert (status, lab.changed(output)) == (0, 1)
        assert sorted(lab.node1.check_output("ls /opt/llama.cpp/releases").split()) == sorted(
            path.split("/")[1] for path in links(lab.node1)
        )

    @pytest.mark.parametrize("program", ["llama-server", "ggml-rpc-server"])
    def test_help_is_the_fixture(self, lab, program):
        fixture = pathlib.Path(__file__).resolve().parents[3] / ("tests/unit/fixtures/help/b11434-%s.txt" % program)
        seen = lab.node1.run("PATH=/opt/llama.cpp/current/bin:$PATH %s --help 2>&1" % program).stdout
        # The workers' default of --threads is the machine's.
        assert re.sub(r"default: \d+\)", "", seen).split() == re.sub(r"default: \d+\)", "", fixture.read_text()).split()

    def test_every_command_line_is_taken(self, lab):
        """llama-server gets as far as the model, which is not there, with every setting that can be rendered."""
        instance = {
            "model_path": "/nowhere/m.gguf",
            "aliases": ["m", "n"],
            "address": "127.0.0.1",
            "port": 8998,
            "rpc_endpoints": ["127.0.0.1:50998"],
        }
        instance.update(tensor_split=[2, 1], api_key_file="/dev/null")
        samples = {
            int: [1],
            float: [1.5],
            bool: [True, False],
            list: [["qwen3.context_length=int:131072", "a.b=bool:true"]],
            dict: [{"enable_thinking": False, "depth": "two words"}],
        }
        settings = [
            {key.name: value} for key in _settings.KEYS if key.flag for value in key.choices or samples[key.type]
        ]
        settings += [{"chat_template": "chatml"}, {"chat_template": "llama3", "jinja": False}]
        lines = [args.head_args(instance, setting, "b11434") for setting in settings] + [["--mlock"]]
        worker = args.rpc_args({"address": "127.0.0.1", "port": 50998, "threads": 1})
        lab.node1.check_output(
            "systemd-run --unit=parse /opt/llama.cpp/current/bin/ggml-rpc-server " + " ".join(worker)
        )
        lab.eventually(lambda: lab.connects(lab.node1, "127.0.0.1", 50998), 10, "the RPC server listens")
        script = "\n".join(
            "/opt/llama.cpp/current/bin/llama-server %s 2>&1 | tail -1" % shlex.join(line) for line in lines
        )
        lines_of_help = lab.node1.check_output(script).splitlines()
        lab.node1.check_output("systemctl stop parse")
        assert len(lines_of_help) == len(lines) > 20
        assert [line for line in lines_of_help[:-1] if "exiting due to model loading error" not in line] == []
        assert "invalid argument: --mlock" in lines_of_help[-1]
