"""A manual gateway, with nginx and a timer that run, is taken over and restored; no request fails meanwhile."""

import json
import threading
import time

import requests

FILES = (
    "cd / && find etc/nginx usr/local/bin etc/systemd/system \\( -type l -printf 'link %p %l\\n' -o -type f "
    "-printf 'file %p %U:%G %m %Ts ' -exec sha256sum {} \\; \\) | grep -v upstream-fast | sort"
)
PLAYBOOK = "../molecule/adoption/gateway"
WRITTEN = "/etc/nginx/ai-inference/upstream-fast.conf"


class Client(threading.Thread):
    """Requests the models until it is stopped, and keeps each answer."""

    def __init__(self, lab):
        super().__init__(daemon=True)
        self.url, self.over, self.seen = "http://%s:8080/v1/models" % lab.ethernet("node3"), threading.Event(), []

    def ask(self):
        try:
            reply = requests.get(self.url, timeout=10)
            return (
                reply.status_code,
                "managed" if reply.text == "managed" else "manual" if "data" in reply.text else reply.text,
            )
        except requests.RequestException as error:
            return 0, str(error)

    def run(self):
        while not self.over.wait(0.05):
            self.seen.append(self.ask())

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_exception):
        self.over.set()
        self.join()


def moment(lab):
    return float(lab.node3.check_output("cat /run/updater-ran"))


def test_gateway_is_taken_over_and_restored(lab):
    before = lab.node3.check_output(FILES)
    assert "sites-enabled/ai-inference" in before and Client(lab).ask() == (200, "manual")
    with Client(lab) as client:
        status, output = lab.playbook(PLAYBOOK, "-e", "gateway_auth=log_only")
        assert status == 0, output
        lab.eventually(lambda: client.seen[-1] == (200, "managed"), 10, "the managed site answers")
    assert set(client.seen) == {(200, "manual"), (200, "managed")}
    assert "/etc/nginx/sites-enabled/ai-inference: a site of nginx, the managed one takes its place" in output
    ran = moment(lab)
    for path in ("/etc/nginx/sites-enabled/ai-inference", "/usr/local/bin/ai-inference-upstream.sh", WRITTEN):
        assert not lab.node3.file(path).exists
    assert lab.node3.run("systemctl is-active ai-inference-upstream.timer").stdout.strip() == "inactive"
    record = json.loads(lab.node3.check_output("cat /var/lib/llama-cluster/adopted-gateway/record.json"))
    assert record["finished"] and record["sites"] == ["/etc/nginx/sites-enabled/ai-inference"]
    status, output = lab.playbook(PLAYBOOK, "-e", "gateway_auth=log_only")
    assert status == 0, output
    assert lab.changed(output) == 0
    time.sleep(1.5)
    assert moment(lab) == ran

    with Client(lab) as client:
        status, output = lab.playbook(PLAYBOOK, "-e", "undo=true")
        assert status == 0, output
        lab.eventually(lambda: client.seen[-1] == (200, "manual"), 10, "the old site answers")
    assert set(client.seen) == {(200, "manual"), (200, "managed")}
    assert lab.node3.check_output(FILES) == before
    lab.eventually(lambda: moment(lab) > ran, 10, "the updater runs again")
    assert not lab.node3.file("/var/lib/llama-cluster/adopted-gateway").exists


def test_keyless_site_requires_gateway_auth(lab):
    status, output = lab.playbook(PLAYBOOK)
    assert status != 0
    sentence = (
        "gateway_auth: not set, and /etc/nginx/sites-enabled/ai-inference on node3 asks for no key: set log_only to "
        "serve the clients of today and have the log name them, or required if they have keys"
    )
    assert sentence in output, output
    assert lab.changed(output) == 0
    assert Client(lab).ask() == (200, "manual")
