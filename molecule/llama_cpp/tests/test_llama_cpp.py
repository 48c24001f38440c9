import json

NODES = ("node1", "node2", "node3")


def test_every_node_has_the_identical_build(lab):
    sums = {name: getattr(lab, name).check_output("cd /opt/llama.cpp/current && sha256sum build.json bin/*") for name in NODES}
    assert sums["node1"] == sums["node2"] == sums["node3"]
    assert "bin/ggml-rpc-server" in sums["node1"]


def test_the_manifest_tells_the_truth(lab):
    manifest = json.loads(lab.node2.check_output("cat /opt/llama.cpp/current/build.json"))
    assert manifest["version"] == "b11434"
    assert manifest["cmake_options"]["GGML_RPC"] == "ON"
    seen = dict(reversed(line.split()) for line in lab.node2.check_output("cd /opt/llama.cpp/current && sha256sum bin/*").splitlines())
    assert manifest["files"] == seen


def test_it_runs_where_it_was_not_compiled(lab):
    lab.node3.check_output("systemd-run --unit=probe /opt/llama.cpp/current/bin/ggml-rpc-server --host 127.0.0.1 --port 50999")
    lab.eventually(lambda: lab.connects(lab.node3, "127.0.0.1", 50999), 10, "the RPC server listens")
    lab.node3.check_output("systemctl stop probe")


def test_the_path_operators_know_leads_to_the_build(lab):
    assert lab.node1.file("/opt/llama.cpp/build/bin/ggml-rpc-server").exists


def test_only_one_node_compiled_and_left_nothing_behind(lab):
    for name in NODES:
        assert getattr(lab, name).check_output("ls -A /var/tmp/llama-cluster-build 2>/dev/null || true") == ""


def test_a_missing_source_is_one_sentence_and_changes_nothing(lab):
    status, output = lab.playbook("site", "--tags", "build", "-e", "llama_cpp_source=/nowhere/llama.cpp.tar.gz llama_cpp_version=b1 llama_cpp_cache=/nowhere")
    assert status != 0
    assert "llama_cpp_source: /nowhere/llama.cpp.tar.gz is no file on the controller, the source archive of llama.cpp b1 is needed" in output
    assert lab.changed(output) == 0


def test_a_damaged_build_is_refused(lab):
    program = "/opt/llama.cpp/current/bin/ggml-rpc-server"
    lab.node2.check_output("cp %s /var/tmp/kept && printf x >> %s", program, program)
    status, output = lab.playbook("site", "--tags", "build", "--skip-tags", "preflight", "-e", '{"llama_cpp_targets": ["ggml-rpc-server"]}')
    lab.node2.check_output("cp /var/tmp/kept %s", program)
    assert status != 0
    assert "bin/ggml-rpc-server differ from build.json, an intact build is needed" in output
