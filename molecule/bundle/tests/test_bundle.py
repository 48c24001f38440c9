"""A node without a way to any hub is installed from the bundle, and only by what is intact."""

import json
import pathlib
import shutil
import subprocess

import pytest

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
APPLY = ("--skip-tags", "preflight")
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.fixture(scope="module")
def bundle(lab):
    path = pathlib.Path("/var/tmp/%s-bundle" % lab.name)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def damaged(bundle, tmp_path):
    """Damages one byte of a file in a copy of the bundle -> the copy."""

    def damage(name):
        copy = tmp_path / "bundle"
        shutil.copytree(bundle, copy)
        with open(copy / name, "r+b") as stream:
            stream.seek(8000000)
            byte = stream.read(1)[0]
            stream.seek(8000000)
            stream.write(bytes([byte ^ 1]))
        return copy

    yield damage
    shutil.rmtree(tmp_path)


def site(lab, tags, bundle=None, *options, name=NAME):
    """Runs site.yml for the node where no address leads anywhere -> (exit status, output)."""
    quant = {"urls": ["http://hub.invalid/" + name], "sha256": [SHA256]}
    intent = {
        "llama_models": {"smollm2-135m-instruct": {"quants": {"Q4_1": quant}}},
        "llama_builds": {"default": {"version": "b11434", "source": "http://source.invalid/llama.cpp.tar.gz"}},
        "llama_cpp_cache": "/nowhere",
        # All nodes of a service are needed in a run: this one has one.
        "llama_services": lab.chat(workers=None, rpc_port=None, force_split=None),
    }
    if bundle:
        intent["llama_bundle"] = str(bundle)
    return lab.playbook("site", "--tags", tags, "--limit", "node1", "-e", json.dumps(intent), *options)


def test_checksums_hold(bundle):
    checked = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=bundle, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    for part in (
        "models/%s: OK" % NAME,
        "builds/llama.cpp-b11434-cpu-",
        "source/llama.cpp-b11434.tar.gz: OK",
        "bundle.json: OK",
    ):
        assert part in checked


def test_model_outside_bundle_stops_run(lab, bundle):
    status, output = site(lab, "preflight", bundle, name="other.gguf")
    assert status != 0
    assert "%s has no other.gguf, it has smollm2-135m-instruct Q4_1 (%s): make it again" % (bundle, NAME) in output
    assert lab.changed(output) == 0


def test_directory_that_is_no_bundle_stops_run(lab, tmp_path):
    status, output = site(lab, "preflight", tmp_path)
    assert status != 0
    assert "llama_bundle: %s holds no bundle.json" % tmp_path in output
    assert lab.changed(output) == 0


def test_flipped_byte_of_model_is_refused(lab, damaged):
    status, output = site(lab, "model", damaged("models/" + NAME), *APPLY)
    assert status != 0
    assert "gguf_fetch: bundle: %s arrived with sha256" % NAME in output
    assert lab.node1.check_output("ls -A /opt/models") == ""


def test_flipped_byte_of_build_is_refused(lab, damaged, bundle):
    # A bundle has the builds of all distributions that the cache has; this is the node's.
    (archive,) = (bundle / "builds").glob("*-debian12.tar.gz")
    status, output = site(lab, "build", damaged("builds/" + archive.name), *APPLY)
    assert status != 0
    assert "%s has sha256 " % archive.name in output and "is needed by its bundle.json: copy the bundle again" in output
    assert not lab.node1.file("/opt/llama.cpp").exists


def test_model_and_build_come_from_bundle(lab, bundle):
    # An earlier run was interrupted: what it sent is used, in place.
    lab.node1.check_output("head -c 60000000 /srv/llama-lab/%s > /opt/models/%s.sent", NAME, NAME)
    inode = lab.node1.check_output("stat -c %i /opt/models/" + NAME + ".sent")
    status, output = site(lab, "build,model", bundle)
    assert status == 0, output
    assert lab.node1.check_output("sha256sum /opt/models/%s | cut -d' ' -f1", NAME) == SHA256
    assert lab.node1.check_output("ls -A /opt/models").split() == [NAME, NAME + ".manifest.json"]
    assert lab.node1.check_output("stat -c %i /opt/models/" + NAME) == inode
    assert json.loads(lab.node1.check_output("cat /opt/llama.cpp/current/build.json"))["version"] == "b11434"
    assert lab.node1.run("ls /opt/llama.cpp/.build").rc != 0  # nothing was compiled


def test_second_run_changes_nothing_with_or_without_bundle(lab, bundle):
    for given in (bundle, None):
        status, output = site(lab, "build,model", given)
        assert status == 0, output
        assert lab.changed(output) == 0
