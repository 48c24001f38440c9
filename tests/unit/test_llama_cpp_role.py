# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of role llama_cpp that need no node: the owner of its directory, libraries, and sources."""

import functools
import grp
import http.server
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.builds import BY_ACCELERATOR
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import done, run_playbook

ROOT = Path(__file__).resolve().parents[2]
ROLE = "thefermisea.llama_cluster.llama_cpp"
TASKS = ROOT / "roles/llama_cpp/tasks"
FILES = "thefermisea.llama_cluster.node_files"


def tasks_of(name):
    return yaml.safe_load((ROOT / "roles/llama_cpp/tasks" / name).read_text())


def run(tmp_path, tasks_from, **variables):
    """Runs one task file of the role on this machine -> as play()"""
    included = {"ansible.builtin.include_role": {"name": ROLE, "tasks_from": tasks_from}, "vars": variables}
    return play(tmp_path, [included])


def play(tmp_path, tasks, **variables):
    """Runs tasks on this machine -> (exit status, output without line folding)."""
    described = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    described["vars"] = dict(variables, ansible_python_interpreter=sys.executable)
    (tmp_path / "play.yml").write_text(yaml.safe_dump([described]))
    settings = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    return run_playbook(tmp_path / "play.yml", "-i", "localhost,", home=tmp_path, **settings)


@pytest.mark.parametrize(
    ("vendor", "accelerator", "shown"), [("nvidia", "cpu", True), ("nvidia", "vulkan", False), ("amd", "cpu", False)]
)
def test_card_of_nvidia_without_driver_is_shown(tmp_path, vendor, accelerator, shown):
    (task,) = [one for one in tasks_of("preflight.yml") if one["name"] == "Show cards of NVIDIA without a driver"]
    facts = {
        "nvidia_smi": {"available": False, "gpus": []},
        "llama_drm": {"cards": [{"vendor": vendor, "slot": "0000:01:00.0"}]},
    }
    known = {"__llama_cpp_asks_cards": True, "llama_cpp_builds": [{"accelerator": accelerator}]}
    status, output = play(tmp_path, [{"ansible.builtin.set_fact": {**facts, "cacheable": True}}, task], **known)
    assert status == 0 and ("auto leaves out 0000:01:00.0 on localhost" in output) == shown


@pytest.fixture(name="served")
def fixture_served(tmp_path):
    """A source archive and its address on the loopback."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder / "x.tar.gz", "http://127.0.0.1:%d/x.tar.gz" % server.server_address[1]
        server.shutdown()


def test_changed_source_is_refused(tmp_path, served):
    archive, url = served
    cache = tmp_path / "cache"

    def fetch(name, entry=None):
        return run(
            tmp_path,
            "source_from_url.yml",
            llama_builds={"default": {"version": "b11434", "source": url, **(entry or {})}},
            llama_cpp_cache=str(cache),
            dest=str(tmp_path / name),
        )

    archive.write_text("one")
    status, output = fetch("first")
    assert status == 0, output
    first = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    assert "unpinned: %s has sha256 %s" % (url, first) in output
    assert [path.read_text() for path in cache.iterdir()] == ["%s  %s\n" % (first, url)]
    archive.write_text("two")
    status, output = fetch("second")
    assert status != 0
    assert re.search(
        "%s has sha256 [0-9a-f]{64}, %s, that of its first fetch, is needed: correct the address, or give"
        % (url, first),
        output,
    )
    assert not (tmp_path / "second").exists()
    # A pin comes first.
    pin = "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"
    status, output = fetch("third", {"source_sha256": pin})
    assert status == 0, output
    assert "unpinned" not in output


def test_directory_of_another_user_is_refused(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for prefix, culprit in ((tmp_path / "llama.cpp", tmp_path.name), (link / "llama.cpp", "link")):
        tmp_path.chmod(0o777)
        status, output = run(tmp_path, "owned.yml", __llama_cpp_prefix=str(prefix))
        tmp_path.chmod(0o700)
        assert status != 0
        assert "%s/releases: on localhost " % prefix in output and " is on the way to it, " in output
        assert "a directory that only root can write to is needed" in output
        assert culprit in output
    done(run(tmp_path, "owned.yml", __llama_cpp_prefix="/opt/llama.cpp"))


# The directory of releases was moved to a bigger disk.
NAMEI_OF_A_LINK = """\
#!/bin/sh
echo "f: $2"
echo 'drwxr-xr-x root root /'
echo 'drwxr-xr-x root root opt'
echo 'drwxr-xr-x root root llama.cpp'
echo "lrwxrwxrwx $LINK root releases -> /data/llama.cpp"
echo '  drwxr-xr-x root root /'
echo "  $MODE root root data"
echo "  drwxr-xr-x $TARGET root llama.cpp"
"""


@pytest.mark.parametrize(
    ("exchanged", "culprit"),
    [
        ({}, None),
        ({"LINK": "bob"}, "lrwxrwxrwx bob root releases -> /data/llama.cpp"),
        ({"TARGET": "bob"}, "drwxr-xr-x bob root llama.cpp"),
        ({"MODE": "drwxrwxrwt"}, "drwxrwxrwt root root data"),
    ],
)
def test_link_of_releases_is_root_s_or_refused(tmp_path, monkeypatch, exchanged, culprit):
    (tmp_path / "namei").write_text(NAMEI_OF_A_LINK)
    (tmp_path / "namei").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name, value in dict({"LINK": "root", "TARGET": "root", "MODE": "drwxr-xr-x"}, **exchanged).items():
        monkeypatch.setenv(name, value)
    status, output = run(tmp_path, "owned.yml", __llama_cpp_prefix="/opt/llama.cpp")
    assert (status == 0) == (culprit is None), output
    if culprit:
        assert "localhost %s is on the way to it, a directory that only root can write to is needed" % culprit in output


def test_release_is_no_link_itself(tmp_path):
    disk, prefix, precious = tmp_path / "disk", tmp_path / "llama.cpp", tmp_path / "precious"
    for folder in (disk, prefix, precious):
        folder.mkdir()
    (prefix / "releases").symlink_to(disk)
    made = [task for task in tasks_of("install.yml") if "ansible.builtin.file" in task or FILES in task]
    variables = {"__llama_cpp_prefix": str(prefix), "__llama_cpp_scratch": str(prefix / ".build")}
    as_me(made)
    for name, served in (("b1", True), ("b2", False)):
        if not served:
            (disk / "b2.partial").symlink_to(precious)
        variables["__llama_cpp_release"] = str(prefix / "releases" / name)
        status, output = play(tmp_path, made, **variables)
        assert (status == 0) == served, output
    assert (prefix / "releases").is_symlink() and (disk / "b1.partial").is_dir()
    assert "b2.partial: no directory, one is needed: look at who made it, then remove it" in output


def as_me(tasks):
    """Give their files to the user of the tests."""
    for task in tasks:
        if "ansible.builtin.file" in task:
            task["ansible.builtin.file"].update(owner=os.geteuid(), group=os.getegid())
        for entry in task.get(FILES, {}).get("files", ()):
            entry.update(owner=pwd.getpwuid(os.geteuid()).pw_name, group=grp.getgrgid(os.getegid()).gr_name)


# Stubs: the environment is the only option, and one library is in no default directory.
SYSTEMD_RUN = """\
#!/bin/sh
unset LD_LIBRARY_PATH
while [ "$1" != sh ]; do
    case $1 in --setenv=*) export "${1#--setenv=}" ;; esac
    shift
done
exec "$@"
"""
LDD = """\
#!/bin/sh
case :$LD_LIBRARY_PATH: in *:/site/cuda/lib64:*) found=/site/cuda/lib64/libcublas.so.12 ;; *) found='not found' ;; esac
echo "	libcublas.so.12 => $found"
"""


@pytest.mark.parametrize("environment", ["rpc_worker_environment", "head_server_environment", None])
def test_libraries_of_the_units_path(tmp_path, monkeypatch, environment):
    for name, text in (("systemd-run", SYSTEMD_RUN), ("ldd", LDD)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path, os.environ["PATH"]))
    variables = {"root": str(tmp_path), "llama_builds": {"default": {"accelerator": "cuda"}}}
    if environment:
        variables[environment] = {"LD_LIBRARY_PATH": "/site/my libraries:/site/cuda/lib64"}
    status, output = run(tmp_path, "libraries.yml", **variables)
    assert (status == 0) == (environment is not None), output
    refused = (
        r"localhost: libcublas.so.12 => not found, the libraries of \S+-cuda-\S+ are needed on every node: "
        r"install the driver and the libraries of CUDA"
    )
    assert bool(re.search(refused, output)) == (environment is None)


LISTED = {"cuda_architectures": ["121"]}
NEEDED = "275 or newer is needed to compile llama.cpp: run the nodes on Debian 13, Ubuntu 24.04 or newer"


@pytest.mark.parametrize(
    ("system", "header", "candidate", "refusal"),
    [
        ("Debian 12", None, "1.3.239.0-1", "version 239 of Vulkan's headers on localhost, Debian 12, " + NEEDED),
        ("Debian 12", 309, "1.3.239.0-1", None),
        ("Debian 12", None, "(none)", "version unknown of Vulkan's headers on localhost, Debian 12, " + NEEDED),
        ("Ubuntu 22", None, "1.3.204.1-2", "version 204 of Vulkan's headers on localhost, Ubuntu 22, " + NEEDED),
        ("Ubuntu 24", None, "1.3.275.0-1build1", None),
        ("Debian 13", None, "1.4.309.0-1", None),
        ("Debian 13", None, "(none)", None),
        ("Debian 13", 274, "1.4.309.0-1", "version 274 of Vulkan's headers on localhost, Debian 13, " + NEEDED),
        ("Rocky 9", None, None, "localhost: no vulkan/vulkan_core.h"),
    ],
)
def test_old_headers_of_vulkan_are_refused(tmp_path, monkeypatch, system, header, candidate, refusal):
    (tmp_path / "include/vulkan").mkdir(parents=True)
    if header:
        (tmp_path / "include/vulkan/vulkan_core.h").write_text("#define VK_HEADER_VERSION %d\n" % header)
    output = "libvulkan-dev:\n  Installed: (none)\n  Candidate: %s\n" % candidate if candidate else ""
    (tmp_path / "apt-cache").write_text("#!/bin/sh\nprintf '%s'\n" % output)
    (tmp_path / "apt-cache").chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path, os.environ["PATH"]))
    name, version = system.split()
    family = "RedHat" if name == "Rocky" else "Debian"
    facts = {"distribution": name, "distribution_major_version": version, "os_family": family, "cacheable": True}
    options = {"Vulkan_INCLUDE_DIR": str(tmp_path / "include")}
    tasks = [
        {"ansible.builtin.set_fact": facts},
        {"ansible.builtin.include_role": {"name": ROLE, "tasks_from": "toolchain_vulkan.yml"}},
    ]
    builds = {"default": {"accelerator": "vulkan", "cmake_options": options}}
    status, output = play(tmp_path, tasks, llama_builds=builds)
    assert (status == 0) == (refusal is None), output
    assert refusal is None or refusal in output


def test_node_that_compiles_serves_its_own_nodes(tmp_path):
    """spark compiles for itself, new, the first node, for both others."""
    radeon = [{"name": "Radeon 8060S", "memory_mib": 131072}]
    hosts = {"old": {}, "new": {"llama_devices": radeon}, "spark": {"llama_cpp_build_host": "spark"}}
    hosts["spark"]["llama_devices"] = [{"name": "NVIDIA GB10", "memory_mib": 131072}]
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"llama_nodes": {"hosts": hosts}}))
    role = {"ansible.builtin.include_role": {"name": ROLE, "tasks_from": "owned.yml", "public": True}}
    orders = "{{ inventory_hostname }}={{ __llama_cpp_orders | map(attribute='accelerator') | join('+') }}."
    described = {"hosts": "llama_nodes", "connection": "local", "gather_facts": False}
    described["tasks"] = [role, {"ansible.builtin.debug": {"msg": orders}}]
    described["vars"] = {"ansible_python_interpreter": sys.executable, "llama_builds": {"default": LISTED}}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([described]))
    arguments = (tmp_path / "play.yml", "-i", str(tmp_path / "hosts.yml"))
    output = done(run_playbook(*arguments, home=tmp_path, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg")))
    assert sorted(re.findall(r"(old|new|spark)=(\S*?)[.]", output)) == [
        ("new", "vulkan+cpu"),
        ("old", ""),
        ("spark", "cuda"),
    ]


def test_build_of_cards_links_no_local_library():
    assert BY_ACCELERATOR["cpu"] == {}
    assert BY_ACCELERATOR["vulkan"]["LLAMA_OPENSSL"] == "OFF"
    assert BY_ACCELERATOR["cuda"]["GGML_CUDA_NCCL"] == BY_ACCELERATOR["cuda"]["LLAMA_OPENSSL"] == "OFF"


@pytest.fixture(name="repository")
def fixture_repository(tmp_path, monkeypatch):
    """A repository, served by git itself, with two commits; git runs without systemd's confinement."""
    work = tmp_path / "work"
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path, os.environ["PATH"]))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    (tmp_path / "gitconfig").write_text("[user]\n\tname = x\n\temail = x@example.org\n")
    (tmp_path / "systemd-run").write_text(
        '#!/bin/sh\nwhile [ "$1" != sh ]; do shift; done\ncd %s/scratch && exec "$@"\n' % tmp_path
    )
    (tmp_path / "systemd-run").chmod(0o755)
    (tmp_path / "scratch").mkdir()
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    commits = []
    for text in ("one", "two"):
        (work / "CMakeLists.txt").write_text(text)
        subprocess.run("git add . && git commit -qm %s" % text, shell=True, cwd=str(work), check=True)
        found = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=str(work), text=True)
        commits.append(found.strip())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = ["git", "daemon", "--listen=127.0.0.1", "--port=%d" % port, "--base-path=%s" % tmp_path, "--export-all"]
    with subprocess.Popen([*served, "--reuseaddr"], stderr=subprocess.DEVNULL, start_new_session=True) as daemon:
        for _try in range(100):
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield "git://127.0.0.1:%d/work" % port, commits
        os.killpg(daemon.pid, signal.SIGTERM)


def test_only_the_wanted_commit_is_fetched(tmp_path, repository):
    address, (first, _second) = repository

    def fetch(commit):
        builds = {"default": {"repository": address, "commit": commit}}
        return run(tmp_path, "source_from_git.yml", llama_builds=builds, dest=str(tmp_path / "source.tar.gz"))

    status, output = fetch(first)
    assert status == 0, output
    with tarfile.open(tmp_path / "source.tar.gz") as archive:
        assert archive.extractfile("source/CMakeLists.txt").read() == b"one"
    assert list((tmp_path / "scratch").iterdir()) == []
    status, output = fetch("0" * 40)
    assert status != 0
    assert "llama_builds.default: %s gave no commit %s (" % (address, "0" * 40) in output
    assert "that commit is needed: correct repository or commit" in output


def test_commit_of_a_fork_in_a_bundle(tmp_path, repository):
    address, (first, _second) = repository
    (tmp_path / "bundle/source").mkdir(parents=True)
    done(
        run(
            tmp_path,
            "bundle_one.yml",
            llama_builds={"default": {"repository": address, "commit": first}},
            llama_cpp_bundle_folder=str(tmp_path / "bundle"),
            llama_cpp_gathered={"builds": [], "source": []},
        )
    )
    (source,) = (tmp_path / "bundle/source").iterdir()
    with tarfile.open(source) as archive:
        assert archive.extractfile("source/CMakeLists.txt").read() == b"one"


@pytest.mark.parametrize(("program", "link"), [("ggml-rpc-server", "rpc-server"), ("rpc-server", "ggml-rpc-server")])
def test_the_rpc_server_has_both_of_its_names(tmp_path, program, link):
    last = (ROOT / "roles/llama_cpp/templates/build.sh.j2").read_text().splitlines()[-1]
    (tmp_path / "tree/bin").mkdir(parents=True)
    (tmp_path / "tree/bin" / program).touch()
    subprocess.run(["sh", "-ec", last], cwd=str(tmp_path), check=True)
    assert os.readlink(tmp_path / "tree/bin" / link) == program
