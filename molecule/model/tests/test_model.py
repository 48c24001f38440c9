import json
import threading
import time

import pytest

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def fetch(lab, urls, dest, *options, nodes="node1", **more):
    """Runs the model play with one item -> (exit status, output)."""
    item = {
        "model": "probe",
        "quant": "Q4_1",
        "dest": dest,
        "urls": ["http://%s/%s" % (lab.ethernet("node2"), url) for url in urls],
        **more,
    }
    return lab.playbook(
        "site",
        "--tags",
        "model",
        "--skip-tags",
        "preflight",
        "--limit",
        nodes,
        "-e",
        json.dumps({"model_items": [item]}),
        *options,
    )


def asked(lab):
    """The hub's log: [(client, bytes sent)]."""
    lines = [line.split() for line in lab.node2.check_output("cat /var/log/nginx/access.log").splitlines()]
    return [(line[0], int(line[9])) for line in lines]


def sharing(lab):
    """Whether node1 shares anything: a listening port, or a server that is about to listen."""
    held = "flock -n /run/llama-share-lock-50099 true || echo held"
    return bool(lab.node1.check_output("ss -Hltn sport = :50099; " + held))


def published(lab):
    return sorted(lab.node1.check_output("ls -A /opt/models").split())


def test_whole_and_pieces_are_same_model(lab):
    for name in ("whole", "pieces"):
        assert lab.node1.check_output("sha256sum /opt/models/%s.gguf | cut -d' ' -f1", name) == SHA256
    assert not [name for name in published(lab) if "partial" in name or "part1" in name]


def test_it_is_fetched_once_and_copied_over_fabric(lab):
    for name in ("whole", "pieces"):
        assert lab.node3.check_output("sha256sum /opt/models/%s.gguf | cut -d' ' -f1", name) == SHA256
        manifests = [
            json.loads(node.check_output("cat /opt/models/%s.gguf.manifest.json", name))
            for node in (lab.node1, lab.node3)
        ]
        assert [manifest["verified"] for manifest in manifests] == ["size and header", "sha256"]
        assert manifests[0]["files"][0]["pieces"] == manifests[1]["files"][0]["pieces"]
    # Once each, besides the headers that check mode read, only by node1.
    size = lab.node1.file("/opt/models/whole.gguf").size
    assert {client for client, _sent in asked(lab)} == {lab.ethernet("node1")}
    assert 2 * size <= sum(sent for _client, sent in asked(lab)) < 2.5 * size
    assert not sharing(lab)


def test_missing_model_is_copied_again(lab):
    lab.node3.check_output("rm /opt/models/whole.gguf")
    before = asked(lab)
    arguments = ["whole.gguf"], "/opt/models/whole.gguf"
    for options, changed, there in ((["--check"], 1, False), ([], 1, True), ([], 0, True)):
        status, output = fetch(lab, *arguments, *options, nodes="node1,node3")
        assert status == 0, output
        assert (lab.changed(output), lab.node3.file("/opt/models/whole.gguf").exists) == (changed, there), output
        assert not sharing(lab)
    status, output = fetch(lab, *arguments, nodes="node3")
    assert (status, lab.changed(output)) == (0, 0), output
    assert asked(lab) == before


@pytest.mark.parametrize("node", ["node1", "node3"])
def test_damaged_model_comes_from_node_that_has_it(lab, node):
    """Even that of node1, which would fetch it from the hub if no node had it."""
    path, before = "/opt/models/whole.gguf", asked(lab)
    getattr(lab, node).check_output("truncate -s 50000000 %s", path)
    status, output = fetch(lab, ["whole.gguf"], path, nodes="node1,node3")
    assert status == 0, output
    assert "in the place of a damaged file" in output
    assert getattr(lab, node).check_output("sha256sum %s | cut -d' ' -f1", path) == SHA256
    assert asked(lab) == before


def test_damaged_original_is_not_copied(lab):
    path = "/opt/models/pieces.gguf"
    lab.node3.check_output("rm -f %s", path)
    # A byte changes behind the back of size and time.
    damage = (
        "touch -r %s /tmp/time && printf x | dd of=%s bs=1 seek=70000000 conv=notrunc status=none && touch -r "
        "/tmp/time %s"
    )
    lab.node1.check_output(damage, path, path, path)
    status, output = fetch(lab, ["pieces.gguf.part1of2", "pieces.gguf.part2of2"], path, nodes="node1,node3")
    assert status != 0
    assert "gguf_fetch: pieces.gguf, piece 2: sha256 is " in output
    assert not lab.node3.file(path).exists
    assert not sharing(lab)


def test_services_can_read_it(lab):
    lab.node1.check_output("useradd probe && setpriv --reuid=probe --clear-groups head -c 4 /opt/models/whole.gguf")


def test_second_run_reads_nothing(lab):
    before = asked(lab)
    status, output = fetch(lab, ["whole.gguf"], "/opt/models/whole.gguf")
    assert status == 0, output
    assert lab.changed(output) == 0
    assert asked(lab) == before


def test_incomplete_model_is_refused(lab):
    before = published(lab)
    for urls, words in (
        (["truncated.gguf"], "60,000,000"),
        (["pieces.gguf.part1of2"], "[1, 2] needed"),
        (["page.gguf"], "page.gguf"),
        (["absent.gguf"], "404"),
    ):
        status, output = fetch(lab, urls, "/opt/models/probe.gguf")
        assert status != 0, urls
        assert words in output
        assert lab.changed(output) == 0
        assert published(lab) == before, urls


def test_wrong_bytes_never_get_name(lab):
    status, output = fetch(lab, ["whole.gguf"], "/opt/models/probe.gguf", sha256=["0" * 64])
    assert status != 0
    assert "sha256" in output
    assert not lab.node1.file("/opt/models/probe.gguf").exists


def test_file_that_was_put_there_is_adopted(lab):
    lab.node1.check_output(
        "rm -rf /opt/models/* && cp /srv/llama-lab/SmolLM2-135M-Instruct.Q4_1.gguf /opt/models/probe.gguf"
    )
    inode = lab.node1.check_output("stat -c %i /opt/models/probe.gguf")
    status, output = fetch(lab, ["whole.gguf"], "/opt/models/probe.gguf", sha256=[SHA256])
    assert status == 0, output
    assert lab.node1.check_output("stat -c %i /opt/models/probe.gguf") == inode
    status, output = fetch(lab, ["whole.gguf"], "/opt/models/probe.gguf", sha256=[SHA256])
    assert lab.changed(output) == 0


def test_killed_transfer_goes_on_where_it_was(lab):
    lab.node2.check_output(
        "sed -i 's/server_name _;/server_name _; limit_rate 1m;/' /etc/nginx/sites-enabled/default && systemctl reload "
        "nginx"
    )
    lab.node1.check_output("rm -rf /opt/models/*")
    first = threading.Thread(target=fetch, args=(lab, ["whole.gguf"], "/opt/models/probe.gguf"))
    first.start()
    lab.eventually(lambda: lab.node1.run("ls /opt/models/*.partial").rc == 0, 60, "the transfer has begun")
    time.sleep(2)
    # The process that has the partial file open; its command line is only "python3".
    lab.node1.check_output(
        'kill -9 $(ls -l /proc/[0-9]*/fd 2>/dev/null | awk \'/^.proc/ {split($0, path, "/")} /partial/ {print '
        "path[3]; exit}')"
    )
    first.join()
    assert not lab.node1.file("/opt/models/probe.gguf").exists
    lab.node2.check_output(
        "sed -i 's/ limit_rate 1m;//' /etc/nginx/sites-enabled/default && systemctl reload nginx && : > "
        "/var/log/nginx/access.log"
    )
    status, output = fetch(lab, ["whole.gguf"], "/opt/models/probe.gguf")
    assert status == 0, output
    assert lab.node1.check_output("sha256sum /opt/models/probe.gguf | cut -d' ' -f1") == SHA256
    assert sum(sent for _client, sent in asked(lab)) < 95_000_000
