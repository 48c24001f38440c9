import json
import threading
import time

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def fetch(lab, urls, dest, **more):
    """Runs the model play with one item -> (exit status, output)."""
    item = {"model": "probe", "quant": "Q4_1", "dest": dest, "urls": ["http://%s/%s" % (lab.ethernet("node2"), url) for url in urls], **more}
    return lab.playbook("site", "--tags", "model", "--skip-tags", "preflight", "--limit", "node1", "-e", json.dumps({"model_items": [item]}))


def published(lab):
    return sorted(lab.node1.check_output("ls -A /opt/models").split())


def test_whole_and_pieces_are_the_same_model(lab):
    for name in ("whole", "pieces"):
        assert lab.node1.check_output("sha256sum /opt/models/%s.gguf | cut -d' ' -f1", name) == SHA256
    assert not [name for name in published(lab) if "partial" in name or "part1" in name]


def test_services_can_read_it(lab):
    lab.node1.check_output("useradd probe && setpriv --reuid=probe --clear-groups head -c 4 /opt/models/whole.gguf")


def test_a_second_run_reads_nothing(lab):
    before = lab.node2.check_output("wc -l < /var/log/nginx/access.log")
    status, output = fetch(lab, ["whole.gguf"], "/opt/models/whole.gguf")
    assert status == 0, output
    assert lab.changed(output) == 0
    assert lab.node2.check_output("wc -l < /var/log/nginx/access.log") == before


def test_what_is_no_whole_model_is_refused_and_leaves_nothing(lab):
    before = published(lab)
    for urls, words in (
        (["truncated.gguf"], "60,000,000"),
        (["pieces.gguf.part1of2"], "piece 2 is missing"),
        (["page.gguf"], "page.gguf"),
        (["absent.gguf"], "404"),
    ):
        status, output = fetch(lab, urls, "/opt/models/probe.gguf")
        assert status != 0, urls
        assert words in output
        assert lab.changed(output) == 0
        assert published(lab) == before, urls


def test_wrong_bytes_never_get_the_name(lab):
    status, output = fetch(lab, ["whole.gguf"], "/opt/models/probe.gguf", sha256=["0" * 64])
    assert status != 0
    assert "sha256" in output
    assert not lab.node1.file("/opt/models/probe.gguf").exists


def test_a_file_that_was_put_there_is_adopted(lab):
    lab.node1.check_output("rm -rf /opt/models/* && cp /srv/llama-lab/SmolLM2-135M-Instruct.Q4_1.gguf /opt/models/probe.gguf")
    inode = lab.node1.check_output("stat -c %i /opt/models/probe.gguf")
    status, output = fetch(lab, ["whole.gguf"], "/opt/models/probe.gguf", sha256=[SHA256])
    assert status == 0, output
    assert lab.node1.check_output("stat -c %i /opt/models/probe.gguf") == inode
    status, output = fetch(lab, ["whole.gguf"], "/opt/models/probe.gguf", sha256=[SHA256])
    assert lab.changed(output) == 0


def test_a_killed_transfer_goes_on_where_it_was(lab):
    lab.node2.check_output("sed -i 's/server_name _;/server_name _; limit_rate 1m;/' /etc/nginx/sites-enabled/default && systemctl reload nginx")
    lab.node1.check_output("rm -rf /opt/models/*")
    first = threading.Thread(target=fetch, args=(lab, ["whole.gguf"], "/opt/models/probe.gguf"))
    first.start()
    lab.eventually(lambda: lab.node1.run("ls /opt/models/*.partial").rc == 0, 60, "the transfer has begun")
    time.sleep(2)
    # The process that has the partial file open; its command line is only "python3".
    lab.node1.check_output("kill -9 $(ls -l /proc/[0-9]*/fd 2>/dev/null | awk '/^.proc/ {split($0, path, \"/\")} /partial/ {print path[3]; exit}')")
    first.join()
    assert not lab.node1.file("/opt/models/probe.gguf").exists
    lab.node2.check_output("sed -i 's/ limit_rate 1m;//' /etc/nginx/sites-enabled/default && systemctl reload nginx && : > /var/log/nginx/access.log")
    status, output = fetch(lab, ["whole.gguf"], "/opt/models/probe.gguf")
    assert status == 0, output
    assert lab.node1.check_output("sha256sum /opt/models/probe.gguf | cut -d' ' -f1") == SHA256
    sent = sum(int(line.split()[9]) for line in lab.node2.check_output("cat /var/log/nginx/access.log").splitlines())
    assert sent < 95_000_000
