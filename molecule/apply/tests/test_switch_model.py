"""switch_model.yml with real quants made by llama-quantize: under requests, without room, and with a model that does
not load."""

import json
import re
import threading
import time

import pytest
import requests

OLD = "/opt/models/SmolLM2-135M-Instruct.Q4_1.gguf"
NEW = "/opt/models/SmolLM2-135M-Instruct.Q8_0.gguf"
UNIT = "/etc/systemd/system/llama-head-chat.service"
PLAN = "/etc/llama-cluster/plan-chat.json"


def source(name):
    return {"urls": ["file:///var/tmp/%s" % name]}


MODELS = {
    "smollm2-135m-instruct": {
        "aliases": ["smollm2"],
        "quants": {
            "Q4_1": {
                "urls": ["file:///srv/llama-lab/SmolLM2-135M-Instruct.Q4_1.gguf"],
                "sha256": ["b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"],
            },
            "Q8_0": source("SmolLM2-135M-Instruct.Q8_0.gguf"),
            "Q4_X": source("SmolLM2-135M-Instruct.Q4_X.gguf"),
        },
    }
}


def switch(lab, quant, *arguments):
    given = dict(lab.SHORT, llama_models=MODELS)
    return lab.playbook("switch_model", "-e", "service=chat quant=%s" % quant, "-e", json.dumps(given), *arguments)


def ask(lab, timeout=30):
    """-> whether one real token came back."""
    try:
        reply = requests.post(
            "http://%s:8000/v1/chat/completions" % lab.ethernet("node1"),
            json={"max_tokens": 1, "messages": [{"role": "user", "content": "Name a color."}]},
            timeout=timeout,
        )
        return reply.status_code == 200 and reply.json()["usage"]["completion_tokens"] == 1
    except (requests.RequestException, KeyError):
        return False


def serves(lab, path):
    """Whether the running head reports this model as loaded."""
    return requests.get("http://%s:8000/props" % lab.ethernet("node1"), timeout=10).json()["model_path"] == path


def answers_with(lab, path):
    """As serves(), of a head that may be about to restart."""
    try:
        return ask(lab) and serves(lab, path)
    except requests.RequestException:
        return False


def disk(lab, size):
    lab.node1.check_output("mount -o remount,size=%dm /opt/models" % size)


class Requests(threading.Thread):
    """One request after the other until it is stopped: [(time of sending, whether it was answered)]"""

    def __init__(self, lab):
        super().__init__(daemon=True)
        self.lab, self.over, self.seen = lab, threading.Event(), []

    def run(self):
        while not self.over.is_set():
            sent = time.monotonic()
            self.seen.append((sent, ask(self.lab)))
            time.sleep(0.05)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_exception):
        self.over.set()
        self.join()


@pytest.fixture(scope="module", autouse=True)
def quants(lab):
    """Q8_0 made from the lab's Q4_1, and a model of an architecture that llama.cpp does not know, whole by its
    header."""
    lab.node1.check_output(
        "/opt/llama.cpp/current/bin/llama-quantize --allow-requantize %s /var/tmp/SmolLM2-135M-Instruct.Q8_0.gguf Q8_0 "
        "2" % OLD
    )
    lab.node1.check_output(
        'python3 -c \'import sys; data = open(sys.argv[1], "rb").read();'
        ' place = data.index(b"general.architecture") + 32; assert data[place:place + 5] == b"llama";'
        ' open(sys.argv[2], "wb").write(data[:place] + b"llamb" + data[place + 5:])\' %s '
        "/var/tmp/SmolLM2-135M-Instruct.Q4_X.gguf" % OLD
    )


def test_an_unknown_quant_names_those_that_are_there(lab):
    status, output = switch(lab, "Q6_K")
    assert status != 0
    assert "switch_model: quant Q6_K seen, one of Q4_1, Q8_0, Q4_X of smollm2-135m-instruct is needed" in output
    assert lab.changed(output) == 0
    status, output = lab.playbook("switch_model", "-e", "service=reasoning quant=Q8_0")
    assert status != 0
    assert "switch_model: service reasoning seen, one of chat is needed" in output


def test_without_room_for_both_the_choices_are_named(lab):
    status, output = switch(lab, "Q8_0")
    assert status != 0
    assert (
        "SmolLM2-135M-Instruct.Q8_0.gguf needs" in output
        and "add -e retire=first" in output
        and "or -e park=node2" in output
    )
    assert lab.changed(output) == 0
    assert serves(lab, OLD) and ask(lab)
    disk(lab, 800)


def test_check_mode_changes_nothing(lab):
    status, output = switch(lab, "Q8_0", "--check", "--diff")
    assert status == 0, output
    assert lab.changed(output) > 0
    assert "Q8_0.gguf" in output
    assert serves(lab, OLD) and not lab.node1.file(NEW).exists


def test_failed_model_keeps_the_old_one_serving(lab):
    before = lab.node1.file(UNIT).content_string
    plan = lab.node1.file(PLAN).content_string
    status, output = switch(lab, "Q4_X")
    assert status != 0
    assert "llama_services.chat: the new model does not serve (" in output
    assert "has ended 3 times and never served" in output
    assert "the old one serves again" in output
    assert lab.node1.file(UNIT).content_string == before
    assert lab.node1.file(PLAN).content_string == plan
    assert serves(lab, OLD) and ask(lab)
    lab.node1.check_output("rm /opt/models/*.Q4_X.gguf*")


def test_a_switch_under_requests(lab, capsys):
    with Requests(lab) as requested:
        lab.eventually(lambda: len(requested.seen) > 3, 20, "requests are answered")
        status, output = switch(lab, "Q8_0")
        after = len(requested.seen)
        lab.eventually(lambda: len(requested.seen) > after + 3, 20, "requests are answered")
    assert status == 0, output
    failed = [sent for sent, answered in requested.seen if not answered]
    seconds = failed[-1] - failed[0] if failed else 0.0
    with capsys.disabled():
        print(
            "\n%d requests, %d failed, from first to last failure %.1f s" % (len(requested.seen), len(failed), seconds)
        )
    # Fetching and proving the new model costs no request; the load does.
    first = requested.seen.index((failed[0], False)) if failed else 0
    assert all(not answered for _sent, answered in requested.seen[first : first + len(failed)])
    assert all(answered for _sent, answered in requested.seen[-3:])
    assert serves(lab, NEW)
    assert lab.node1.file(OLD).exists
    assert "chat: SmolLM2-135M-Instruct.Q8_0.gguf serves, %s stays on node1" % OLD in output
    assert (
        "the inventory says Q4_1: set the quant of llama_services.chat to Q8_0 there, or the next site.yml switches "
        "back" in output
    )


def test_a_second_run_changes_nothing(lab):
    status, output = switch(lab, "Q8_0")
    assert status == 0, output
    assert lab.changed(output) == 0


def left_of_trials(lab):
    folders = "/etc/systemd/system /var/lib/llama-cluster /var/lib/systemd/timers"
    return lab.node1.check_output("find %s -name '*trial*'" % folders)


def test_trial_that_is_not_kept_ends(lab):
    status, output = switch(lab, "Q4_1")
    assert status == 0, output
    unit = lab.node1.file(UNIT).content_string
    worker = lab.node2.check_output("systemctl show --property=MainPID llama-rpc-chat")
    status, output = switch(lab, "Q8_0", "-e", "trial=10s")
    assert status == 0, output
    assert "chat: SmolLM2-135M-Instruct.Q8_0.gguf serves on trial until " in output
    lab.eventually(lambda: lab.node1.file(UNIT).content_string == unit, 60, "the old unit is back")
    lab.eventually(lambda: answers_with(lab, OLD), 120, "the old model answers")
    # Its worker went on.
    assert lab.node2.check_output("systemctl show --property=MainPID llama-rpc-chat") == worker
    said = lab.node1.check_output("journalctl --no-pager -t llama-trial")
    assert "chat: the trial of Q8_0 was not kept until " in said and ": Q4_1 is back" in said
    assert left_of_trials(lab) == "/var/lib/llama-cluster/trial-chat.json"
    status, output = lab.playbook("status")
    assert "chat: the trial of Q8_0 on node1 was not kept, reverted to Q4_1 at " in output


def test_a_trial_that_is_kept_stays(lab):
    status, output = switch(lab, "Q8_0", "-e", "trial=12h")
    assert status == 0, output
    timer = lab.node1.check_output("systemctl show --property=ActiveState,UnitFileState llama-trial-chat.timer")
    assert sorted(timer.split()) == ["ActiveState=active", "UnitFileState=enabled"]
    status, output = lab.playbook("site")
    assert status != 0 and lab.changed(output) == 0
    assert "llama_services.chat: on trial with Q8_0 on node1 until " in output
    status, output = lab.playbook("verify", "-e", json.dumps({"llama_models": MODELS}))
    assert status == 0, output
    assert lab.changed(output) == 0
    assert "chat: on trial with Q8_0 until " in output and "judged by that, the inventory says Q4_1" in output
    assert re.search(r"chat +node1, .* http://%s:8000/v1 +answers" % re.escape(lab.ethernet("node1")), output), output
    kept = json.loads((lab.reports / "verify/latest.json").read_text())
    assert kept["figures"]["chat"]["quant"] == lab.report("chat")["quant"] == "Q8_0"
    status, output = lab.playbook("switch_model", "-e", "service=chat keep=true")
    assert status == 0, output
    assert "chat: Q8_0 is kept, its trial is over" in output
    assert serves(lab, NEW) and left_of_trials(lab) == ""


def test_the_old_model_goes_when_asked(lab):
    status, output = switch(lab, "Q4_1", "-e", "retire=after")
    assert status == 0, output
    assert serves(lab, OLD)
    assert lab.node1.check_output("ls /opt/models").split() == [
        OLD.rpartition("/")[2],
        OLD.rpartition("/")[2] + ".manifest.json",
    ]


def test_old_model_goes_first_without_room(lab):
    disk(lab, 260)
    status, output = switch(lab, "Q8_0", "-e", "retire=first")
    assert status == 0, output
    assert serves(lab, NEW) and ask(lab)
    assert not lab.node1.file(OLD).exists


def test_parked_model_returns_after_failed_switch(lab):
    status, output = switch(lab, "Q4_X", "-e", "park=node2")
    assert status != 0
    assert "has ended 3 times and never served" in output
    assert "SmolLM2-135M-Instruct.Q8_0.gguf is back from node2" in output
    lab.eventually(lambda: ask(lab), 60, "the old model answers")
    assert serves(lab, NEW)
    assert lab.node1.check_output("sha256sum < " + NEW) == lab.node2.check_output("sha256sum < " + NEW)
    assert lab.node1.check_output("ss -Hltn sport = :50099") == ""


def test_old_model_is_parked_without_room(lab):
    status, output = switch(lab, "Q4_1", "-e", "park=node2")
    assert status == 0, output
    assert serves(lab, OLD) and ask(lab)
    assert not lab.node1.file(NEW).exists and lab.node2.file(NEW).exists
    assert "%s stays on node2" % NEW in output
