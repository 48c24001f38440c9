# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of firewalld by the tasks of roles: each in the zone of the interface that packets arrive on."""

import hashlib
import socket
import threading

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.firewalld_node import FirewalldNode

RULE = 'rule family="ipv4" source address="%s" port port="%d" protocol="tcp" accept'

ANSWER = b"HTTP/1.1 302 \x1b[31mRed\r\nAnsible-Facts: x\r\nLocation: %s/elsewhere\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(name="node")
def fixture_node(tmp_path):
    return FirewalldNode(tmp_path)


def share(node, *peers):
    """As fan_out.yml and copy_old.yml do it."""
    status, output = node.tell(
        peers=["%s:50099" % one for one in peers], record=str(node.folder / "shared"), timeout="6h"
    )
    assert status == 0, output
    assert "changed=0" in output
    assert node.rules("permanent") == {}


def test_model_is_shared_in_zone_of_fabric(node):
    share(node, "10.1.0.32", "10.0.0.33")
    assert node.rules() == {"internal": [RULE % ("10.1.0.32", 50099)], "public": [RULE % ("10.0.0.33", 50099)]}
    share(node)
    assert node.rules() == {}


def test_sharing_leaves_the_same_rule_of_an_operator(node):
    theirs = {"internal": [RULE % ("10.1.0.32", 50099)]}
    node.rules_of_others("internal", *theirs["internal"], places=["running"])
    share(node, "10.1.0.32")
    share(node)
    assert node.rules() == theirs


def test_rule_lasts_while_a_model_is_copied(node):
    """Also where the copy fails, as here, where it is no model."""
    model = node.folder / "old.gguf"
    model.write_text("weights")
    piece = {"size": 7, "sha256": hashlib.sha256(b"weights").hexdigest()}
    record = {"recorded": [{"name": "old.gguf", "size": 7, "pieces": [piece]}]}
    variables = {"model_old": str(model), "__model_old_record": record, "giver": "giver", "taker": "localhost"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        variables["model_share_port"] = free.getsockname()[1]
    status, output = node.play("model", "copy_old.yml", __model_share_rules=str(node.folder / "shared"), **variables)
    assert status != 0 and "a GGUF file starts with" in output
    call = "ok: [localhost -> giver] => calls: - firewall-cmd --zone=public --timeout=6h --add-rich-rule="
    assert call in output
    assert output.index(call) < output.index("TASK [thefermisea.llama_cluster.model : Share the model]")
    assert output.index("TASK [thefermisea.llama_cluster.model : Stop sharing]") < output.index("--remove-rich-rule=")
    assert node.rules() == {}


def test_rule_lasts_while_a_link_is_measured(node):
    """There is no iperf3 here that systemd could start."""
    (node.bin / "iperf3").write_text("#!/bin/sh\nexit 1\n")
    (node.bin / "iperf3").chmod(0o755)
    (node.bin / "systemd-run").write_text("#!/bin/sh\necho Access denied\nexit 1\n")
    (node.bin / "systemd-run").chmod(0o755)
    status, output = node.play(
        "acceptance", "link_pair.yml", __acceptance_link_worker="giver", __acceptance_link_rules=str(node.folder / "in")
    )
    assert status == 0, output
    call = "--timeout=140s --add-rich-rule=" + RULE % ("127.0.0.1", 50098)
    assert call in output.replace('\\"', '"')
    assert "iperf3 does not listen at 127.0.0.1 port 50098" in output and "(Access denied)" in output
    assert output.index("--add-rich-rule") < output.index("Access denied") < output.index("--remove-rich-rule")
    assert node.rules() == {} and not (node.folder / "in").exists()


def at(url):
    return {"url": url, "endpoint": url + "/v1"}


def client_record(node):
    return node.folder / "client-rules"


def play_clients(node, *networks, port=8000, address="10.0.0.31"):
    heads = [{"service": "chat", "port": port, "address": address}] if port else []
    variables = {
        "head_server_instances": heads,
        "head_server_clients": networks,
        "__head_server_client_rules": str(client_record(node)),
    }
    return node.play("head_server", "clients.yml", **variables)


def clients(node, *networks, **more):
    status, output = play_clients(node, *networks, **more)
    assert status == 0, output
    return "changed=0" not in output


def test_rules_follow_the_clients(node):
    node.rules_of_others("public", RULE % ("10.0.0.0/24", 22))
    theirs = [RULE % ("10.0.0.0/24", 22)]
    for networks, more, changed, wanted in (
        ([], {}, True, {"public": theirs + [RULE % ("10.0.0.0/24", 8000)]}),
        ([], {}, False, {"public": theirs + [RULE % ("10.0.0.0/24", 8000)]}),
        (
            ["192.0.2.0/24", "198.51.100.0/24"],
            {"address": "10.1.0.31"},
            True,
            {"public": theirs, "internal": [RULE % ("192.0.2.0/24", 8000), RULE % ("198.51.100.0/24", 8000)]},
        ),
        ([], {"port": None}, True, {"public": theirs}),
    ):
        assert clients(node, *networks, **more) is changed
        assert node.rules() == node.rules("permanent") == wanted
        assert client_record(node).exists() == (wanted != {"public": theirs})


def test_same_rule_of_an_operator_stays(node):
    """In the head's own zone and in another one, from the first run to the last."""
    theirs = {"public": [RULE % ("10.0.0.0/24", 8000)], "internal": [RULE % ("10.0.0.0/24", 8000)]}
    for zone, rules in theirs.items():
        node.rules_of_others(zone, *rules)
    assert not clients(node)
    assert node.rules() == node.rules("permanent") == theirs
    assert not clients(node, port=None)
    assert node.rules() == node.rules("permanent") == theirs


def test_next_run_removes_rules_of_dead_run(node):
    node.set(dies_at="192.0.2.0/24")
    status, output = play_clients(node, "10.0.0.0/24", "192.0.2.0/24")
    assert status != 0, output
    assert node.rules("permanent") == {"public": [RULE % ("10.0.0.0/24", 8000)]}
    node.set(dies_at="")
    assert clients(node, port=None)
    assert node.rules() == node.rules("permanent") == {}


def test_stopped_firewalld_keeps_the_record(node):
    clients(node)
    node.set(runs=False)
    status, output = play_clients(node, port=None)
    assert status == 0, output
    assert "rules that earlier runs added to the configuration of firewalld stay" in " ".join(output.split())
    assert client_record(node).exists()
    node.set(runs=True)
    clients(node, port=None)
    assert node.rules("permanent") == {} and not client_record(node).exists()


def test_head_rule_is_in_zone_of_fabric(node):
    node.rules_of_others("public", RULE % ("10.1.0.32", 50052))
    theirs = {"public": [RULE % ("10.1.0.32", 50052)]}
    for incoming in (["10.1.0.32:50052"], []):
        status, output = node.tell(peers=incoming, record=str(node.folder / "rpc-rules"))
        assert status == 0, output
        assert (
            node.rules() == node.rules("permanent") == (dict(theirs, internal=theirs["public"]) if incoming else theirs)
        )


def test_single_node_reports_the_missing_check(node):
    """One node, which is the controller too."""
    head = {"service": "chat", "port": 8000, "address": "10.0.0.31", **at("http://10.0.0.31:8000")}
    status, output = node.play("acceptance", "outside.yml", __acceptance_head=head, acceptance_clients=[])
    assert status == 0, output
    assert "chat: not asked from another machine, the controller is no client of its port (10.0.0.0/24)" in output


def test_controller_contacts_head_by_name(node):
    closed = socket.create_server(("127.0.0.1", 0))
    url = "http://127.0.0.1:%d" % closed.getsockname()[1]
    closed.close()
    head = {"service": "chat", "port": 8000, "address": "head.test", **at(url)}
    status, output = node.play(
        "acceptance", "outside.yml", __acceptance_head=head, acceptance_clients=[], __acceptance_direct=True
    )
    assert status != 0
    assert (
        "llama_services.chat.port: the controller (10.0.0.31) gets no answer from %s (Connection refused), which "
        "answers on " % (url + "/v1") in output
    )


def test_answer_of_head_is_not_trusted(node, monkeypatch):
    """Neither a password of ~/.netrc nor the question goes anywhere else, and no header and no reason reaches
    Ansible."""
    (node.folder / ".netrc").write_text("machine 127.0.0.1 login ops password secret\n")
    (node.folder / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(node.folder))
    server = socket.create_server(("127.0.0.1", 0))
    url = "http://127.0.0.1:%d" % server.getsockname()[1]
    asked = []

    def answer():
        while True:
            try:
                connection = server.accept()[0]
            except OSError:
                return
            asked.append(connection.recv(65536).decode())
            connection.sendall(ANSWER % url.encode())
            connection.close()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    head = {"service": "chat", "port": 8000, "address": "head.test", **at(url)}
    status, output = node.play(
        "acceptance", "outside.yml", __acceptance_head=head, acceptance_clients=[], __acceptance_direct=True
    )
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(10)
    assert status != 0
    assert (
        "(10.0.0.31) gets no answer from %s/v1 (/health answers 302 (an empty answer), 200 is needed), which" % url
        in output
    )
    assert len(asked) == 1 and "authorization" not in asked[0].lower()
    assert "\x1b" not in output and "Red" not in output
