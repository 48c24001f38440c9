"""Monitoring of a real cluster: targets, rules and notifications."""

import json
import re
import time

import pytest

INVENTORY = ("-i", "molecule/monitoring/inventory")
HERE = "/etc/llama-cluster/monitoring"
# Alertmanager's webhook: keeps what it is sent, a line each.
RECEIVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        open("/run/alerts.jsonl", "ab").write(body + b"\\n")
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", 9999), Handler).serve_forever()
"""
# Three scrapes.
NOTICED = 15


@pytest.fixture(scope="module")
def prometheus(lab):
    def ask(path, **parameters):
        words = " ".join("--data-urlencode '%s=%s'" % one for one in parameters.items())
        shown = lab.node3.check_output("curl -sS -G %s http://127.0.0.1:9090/api/v1/%s" % (words, path))
        return json.loads(shown)

    return ask


def value(answer):
    return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]


def firing(prometheus):
    return {one["labels"]["alertname"] for one in prometheus("alerts")["data"]["alerts"] if one["state"] == "firing"}


def test_everything_is_scraped_and_nothing_is_wrong(lab, prometheus):
    targets = prometheus("targets", state="active")["data"]["activeTargets"]
    assert {one["labels"]["job"] for one in targets} == {"llama_sampler", "llama_gateway", "llama_server/chat"}
    assert [one["scrapeUrl"] for one in targets if one["health"] != "up"] == []
    groups = prometheus("rules")["data"]["groups"]
    assert [rule["name"] for group in groups for rule in group["rules"] if rule["health"] == "err"] == []
    assert firing(prometheus) == set()


def test_samples_say_what_runs(lab, prometheus):
    assert value(prometheus("query", query='llama_endpoint_ready{service="chat"}'))[0][1] == 1
    links = value(prometheus("query", query="llama_rpc_link_up"))
    assert sorted(one["worker"] for one, up in links if up) == ["%s:50052" % lab.fabric(n) for n in ("node2", "node3")]
    planned = {one["unit"]: size for one, size in value(prometheus("query", query="llama_memory_planned_bytes"))}
    assert planned["llama-rpc-chat.service"] > 100 << 20
    assert {one["node"] for one, fenced in value(prometheus("query", query="llama_rpc_fenced")) if fenced} == {
        "node2",
        "node3",
    }


def test_panels_of_dashboards_show_data(lab, prometheus):
    names = lab.node3.check_output("ls %s/dashboards" % HERE).split()
    assert names == ["cluster.json", "gateway.json"]
    empty, asked = [], 0
    for name in names:
        board = json.loads(lab.node3.file("%s/dashboards/%s" % (HERE, name)).content_string)
        panels = [one for row in board["panels"] for one in [row, *row.get("panels", [])]]
        for panel in panels:
            for target in panel.get("targets", []):
                expr = re.sub(r"\$\{?(service|node)(:\w+)?\}?", ".*", target["expr"]).replace('=".*"', '=~".*"')
                expr = expr.replace("$__rate_interval", "1m").replace("$__range", "5m").replace("$__interval", "15s")
                answer = prometheus("query", query=expr.replace("'", '"'))
                assert answer["status"] == "success", (panel["title"], expr)
                asked += 1
                if not answer["data"]["result"]:
                    empty.append(panel["title"])
    print("%d queries, without data: %s" % (asked, ", ".join(sorted(set(empty)))))
    assert asked > 20
    # Nothing here has a card, a router or a certificate, and nothing was asked yet.
    assert len(set(empty)) < asked / 2


def test_only_monitoring_host_reads_samples(lab):
    page = "curl -sS -o /dev/null -w '%%{http_code}' --max-time 5 http://%s:9754/metrics" % lab.ethernet("node1")
    assert lab.node3.check_output(page) == "200"
    assert lab.node2.run(page).rc != 0
    gateway = "curl -sS -o /dev/null -w '%%{http_code}' --max-time 5 http://%s:8000/metrics" % lab.ethernet("node3")
    assert lab.node3.check_output(gateway) == "200"
    assert lab.node2.check_output(gateway) == "404"


def test_secrets_are_for_root_and_prometheus(lab):
    assert lab.node3.file(HERE + "/keys/chat").content_string == "key-of-the-lab\n"
    for path in (HERE + "/keys/chat", HERE + "/alertmanager.yml"):
        assert lab.node3.check_output("stat -c '%%U %%G %%a' %s" % path) == "root prometheus 640"
    config = lab.node3.file(HERE + "/prometheus.yml").content_string
    assert HERE + "/keys/chat" in config and "key-of-the-lab" not in config
    # The status of alertmanager 0.25 has the URLs of webhooks, and its clients may silence every alert.
    assert lab.node3.check_output("stat -c '%%U %%G %%a' %s/alertmanager-password" % HERE) == "root prometheus 640"
    ask = "curl -sS -o /dev/null -w '%%{http_code}' %s http://127.0.0.1:9093/api/v2/%s"
    assert [lab.node3.check_output(ask % ("", path)) for path in ("status", "silences")] == ["401", "401"]
    known = "--user llama:$(cat %s/alertmanager-password)" % HERE
    assert lab.node3.check_output(ask % (known, "status")) == "200"
    listeners = lab.node3.check_output("ss -Hltn 'sport = :9090 or sport = :9093 or sport = :9094'")
    assert sorted(line.split()[3] for line in listeners.splitlines()) == ["127.0.0.1:9090", "127.0.0.1:9093"]


def test_repair_is_notified(lab, prometheus):
    lab.node3.check_output("systemd-run --unit=receiver python3 -c '%s'" % RECEIVER)
    lab.node2.check_output("systemctl kill --signal=KILL llama-rpc-chat.service")
    began = time.monotonic()
    lab.eventually(lambda: "LlamaUnitRepaired" in firing(prometheus), 60, "a notice")
    took = time.monotonic() - began
    print("LlamaUnitRepaired fires %.1f s after kill -9 of a worker" % took)
    assert took <= NOTICED
    lab.eventually(lambda: "LlamaUnitRepaired" in lab.node3.run("cat /run/alerts.jsonl").stdout, 60, "the receiver")
    print("the receiver is notified %.1f s after it" % (time.monotonic() - began))
    lines = lab.node3.file("/run/alerts.jsonl").content_string.splitlines()
    # Alertmanager ends its JSON with a line feed too.
    alerts = [alert for line in lines if line for alert in json.loads(line)["alerts"]]
    assert all(one["annotations"]["runbook_url"] for one in alerts)
    assert {one["labels"]["severity"] for one in alerts} == {"notice"}


def test_the_journal_lasts_and_is_one_story(lab):
    """After what the test before has broken."""
    for node in (lab.node1, lab.node2, lab.node3):
        assert "Storage=persistent" in node.file("/etc/systemd/journald.conf.d/90-llama-cluster.conf").content_string
        assert node.check_output("ls /var/log/journal")
    status, output = lab.playbook("logs", *INVENTORY, "-e", "since=5m")
    assert status == 0, output
    assert "llama-rpc-chat.service: Main process exited, code=killed, status=9/KILL" in output
    assert "serves (loaded in " in output and "key-of-the-lab" not in output


def test_commands_are_for_everybody(lab):
    unprivileged = "setpriv --reuid=65534 --regid=65534 --clear-groups "
    assert lab.node3.check_output(unprivileged + "llama-service-status") == "chat: ready on node1"
    assert lab.node1.check_output(unprivileged + "llama-service-status chat") == "chat: ready on this node"
    shown = lab.node3.check_output(unprivileged + "llama-cluster-monitor --once --width 80").splitlines()
    assert "  3 nodes" in shown[0] and max(map(len, shown)) <= 80
    assert [line.split()[1] for line in shown if re.match(r"node[123]  ", line)][:3] == ["answers"] * 3


def test_a_dead_worker_shows_within_five_seconds(lab):
    lab.eventually(lambda: lab.node3.run("llama-service-status").rc == 0, 60, "a service that is ready")
    lab.node2.check_output("systemctl kill --signal=KILL llama-rpc-chat.service")
    began = time.monotonic()
    lab.eventually(lambda: lab.node3.run("llama-service-status").rc in (1, 2), 30, "a worker that is missed")
    took = time.monotonic() - began
    print("llama-service-status knows it %.1f s after kill -9 of a worker" % took)
    assert took <= 5
    lab.eventually(lambda: lab.node3.run("llama-service-status").rc == 0, 60, "a service that is ready again")
