"""The gateway in front of real llama-servers: what clients see, and that no request is lost."""

import http.client
import json
import socket
import threading
import time

import pytest
import requests

PORT, FAST, REASONING = 8000, 8080, 8081
NODE = "node3"
INVENTORY = ("-i", "molecule/gateway/inventory")
QUESTION = [{"role": "user", "content": "Name a color."}]
KEYS = "/etc/llama-cluster/gateway"
ENGINE = "llama-gateway.service"


@pytest.fixture(scope="module")
def key(lab):
    return lab.node3.file(KEYS + "/curl-header").content_string.split()[-1]


class Gateway:
    """Sends requests as a client."""

    def __init__(self, lab, key):
        self.host, self.headers = lab.ethernet(NODE), {"Authorization": "Bearer " + key}

    def url(self, path, port=PORT):
        return "http://%s:%d%s" % (self.host, port, path)

    def get(self, path, port=PORT, **more):
        return requests.get(self.url(path, port), **dict({"headers": self.headers, "timeout": 30}, **more))

    def chat(self, model="small", port=PORT, path="/v1", tokens=4, headers=(), timeout=120, **body):
        body = dict({"model": model, "messages": QUESTION, "max_tokens": tokens, "temperature": 0}, **body)
        return requests.post(
            self.url(path + "/chat/completions", port),
            headers=dict(self.headers, **dict(headers)),
            json=body,
            timeout=timeout,
            stream=bool(body.get("stream")),
        )

    def raw(self, line, port=PORT):
        """The status of a request whose first line is sent as it is."""
        with socket.create_connection((self.host, port), 10) as connection:
            words = "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\nAuthorization: %s\r\n\r\n{}"
            connection.sendall((words % (line, self.headers["Authorization"])).encode())
            return int(connection.makefile("rb").readline().split()[1])

    def endpoints(self, service):
        return self.get("/status.json").json()["services"][service]["endpoints"]


@pytest.fixture
def gateway(lab, key):
    found = Gateway(lab, key)
    lab.eventually(lambda: ready(found), 60, "all endpoints are ready")
    return found


def ready(gateway):
    try:
        services = gateway.get("/status.json").json()["services"].values()
    # Without an engine there is another answer.
    except (requests.RequestException, ValueError, KeyError):
        return False
    return all(one["state"] == "ready" for service in services for one in service["endpoints"])


class Clients:
    """Clients that send one request after the other, without a stream. failed: errors."""

    def __init__(self, gateway, number, **asked):
        self.over, self.failed, self.answered = threading.Event(), [], 0
        self.gateway, self.asked = gateway, asked
        self.threads = [threading.Thread(target=self.run, daemon=True) for _one in range(number)]

    def run(self):
        while not self.over.is_set():
            try:
                reply = self.gateway.chat(**self.asked)
                if reply.status_code == 200 and reply.json()["choices"]:
                    self.answered += 1
                else:
                    self.failed.append("%d %s" % (reply.status_code, reply.text[:200]))
            except (requests.RequestException, ValueError, KeyError) as error:
                self.failed.append(repr(error))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        time.sleep(1)
        return self

    def __exit__(self, *_exception):
        time.sleep(1)
        self.over.set()
        for thread in self.threads:
            thread.join()


def engine(lab):
    return lab.node3.check_output("systemctl show -P MainPID " + ENGINE)


def test_every_name_is_listed_and_responds(gateway):
    names = [one["id"] for one in gateway.get("/v1/models").json()["data"]]
    assert sorted(names) == ["gemma-3-270m", "single", "small", "small-1", "smollm2", "smollm2-135m-instruct"]
    for name, service in (("smollm2", "chat"), ("small-1", "small"), ("gemma-3-270m", "single"), ("single", "single")):
        reply = gateway.chat(name)
        assert (reply.status_code, reply.headers["X-Llama-Service"]) == (200, service)
    assert gateway.get("/health").json() == {"status": "ok"}


def test_unknown_name_gets_the_nearest_ones(gateway):
    reply = gateway.chat("smal")
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert "small" in error["message"]


def test_a_task_chooses_the_model(gateway):
    assert gateway.chat("x", path="/task/fix/v1").headers["X-Llama-Service"] == "small"
    reply = gateway.chat("small", headers={"X-Task": "analyze"})
    assert reply.headers["X-Llama-Service"] == "chat"
    assert "X-Llama-Task" not in reply.headers
    reply = gateway.chat("small", headers={"X-Task": "dance"})
    assert (reply.headers["X-Llama-Service"], reply.headers["X-Llama-Task"]) == ("chat", "default; unknown task dance")


def test_selector_on_head_and_gateway(lab):
    path = "/opt/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    for node in (lab.node1, lab.node3):
        chosen = node.check_output("setpriv --reuid=nobody --clear-groups llama-model-selector analyze")
        assert chosen == "smollm2-135m-instruct http://%s:8000/v1" % lab.ethernet(NODE)
        old = node.check_output("/usr/local/bin/llama-model-selector.sh analyze")
        assert old.splitlines() == ["Using model: smollm2-135m-instruct", "Model path: " + path]


def test_tier_ignores_the_model_name(gateway):
    asked = ((FAST, "/v1", "small"), (FAST, "/reasoning/v1", "chat"), (REASONING, "/v1", "chat"))
    for port, path, service in (*asked, (REASONING, "/reasoning/v1", "chat")):
        reply = gateway.chat("probe", port=port, path=path)
        assert (reply.status_code, reply.headers["X-Llama-Service"]) == (200, service), (port, path)
    for path in ("/health", "/v1/models", "/metrics", "/reasoning/health"):
        assert gateway.get(path, FAST).status_code in (200, 501), path


CLOSED = (
    *("GET /slots", "GET /slots/0", "GET /%73lots", "GET //slots", "GET /./slots", "GET /v1/../slots"),
    *("GET /v1/%2e%2e/slots", "GET /v1/..%2fslots", "POST /slots/0?action=erase", "GET /reasoning/slots"),
    *("GET /reasoning/..%2fslots", "POST /props", "POST /lora-adapters", "POST /models/load", "POST /v1/models/unload"),
    *("POST /models%2fload", "GET http://x/slots", "GET /v1/slots", "GET /%76%31%2Fslots", "POST /v1/props"),
    *("GET /v1/stream?conv_id=x", "DELETE /v1/stream?conv_id=x", "POST /v1/streams/lookup"),
    *("POST /v1/chat/completions/control", "POST /v1/chat/completions;x", "GET /nothing"),
)


@pytest.mark.parametrize("port", [PORT, FAST, REASONING])
def test_closed_paths_in_every_spelling(gateway, port):
    statuses = {line: gateway.raw(line, port) for line in CLOSED}
    assert [line for line, status in statuses.items() if status not in (400, 403, 404)] == [], statuses
    if port != PORT:
        assert statuses["GET /slots"] == statuses["GET /%73lots"] == statuses["POST /props"] == 403


def test_requests_without_a_key_are_refused(gateway):
    for headers in ({}, {"Authorization": "Bearer not-needed"}, {"x-api-key": "sk-no-auth-required"}):
        for port in (PORT, FAST):
            reply = requests.get(gateway.url("/v1/models", port), headers=headers, timeout=10)
            assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
    own = {"x-api-key": gateway.headers["Authorization"].split()[1]}
    assert gateway.get("/v1/models", headers=own).status_code == 200
    assert gateway.get("/health", headers={}).status_code == 200


@pytest.mark.parametrize("port", [PORT, FAST, REASONING])
@pytest.mark.parametrize("framing", ["Content-Length: 31000000", "Transfer-Encoding: chunked"])
def test_a_body_without_a_key_is_not_read(lab, gateway, port, framing):
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n" % framing
    with socket.create_connection((gateway.host, port), 10) as connection:
        connection.sendall(head.encode() + b"80000\r\n" + b"x" * (1 << 19))
        assert connection.makefile("rb").readline().split()[1] == b"401"
        assert lab.node3.check_output("find /var/lib/nginx -type f") == ""


def test_server_paths_are_routed_by_model(gateway):
    # llama-server has only the first path.
    for path, status in (("/tokenize", 200), ("/v1/tokenize", 404)):
        reply = requests.post(
            gateway.url(path), headers=gateway.headers, json={"model": "small", "content": "a"}, timeout=30
        )
        assert (reply.status_code, reply.headers["X-Llama-Service"]) == (status, "small")
        assert status != 200 or reply.json()["tokens"]


def test_metrics_are_hidden_without_monitoring(lab, gateway):
    for path in ("/metrics", "//metrics", "/v1/../metrics", "/v1/%2e%2e/metrics", "/task/x/metrics", "/v1/metrics"):
        assert gateway.raw("GET " + path) in (400, 404), path
    # At the port of a tier it is the server's page, with a key.
    found = gateway.get("/metrics", FAST)
    assert "llamacpp:" in found.text and "llama_gateway" not in found.text
    assert gateway.get("/metrics", FAST, headers={}).status_code == 401
    # Behind nginx the page is there.
    page = lab.node3.check_output("curl -s --unix-socket /run/llama-gateway/gateway.sock http://x/metrics")
    assert 'llama_gateway_endpoint_state{node="' in page


def readable(reply):
    """Whether a page of any origin may read it: exactly one header."""
    return reply.headers.get("Access-Control-Allow-Origin") == "*"


def test_any_origin_may_read_every_answer(gateway):
    large = requests.post(
        gateway.url("/v1/chat/completions"), data=b"x" * (33 << 20), headers=gateway.headers, timeout=30
    )
    asked = [(413, large), (404, gateway.get("/nowhere")), (200, gateway.get("/v1/models")), (200, gateway.chat())]
    for port in (PORT, FAST, REASONING):
        asked += [(401, gateway.get("/v1/models", port, headers={})), (403, gateway.get("/v1/slots", port))]
        asked += [(200, gateway.get("/health", port)), (200, gateway.get("/v1/models", port))]
    asked.append(
        (204, requests.options(gateway.url("/v1/chat/completions"), headers={"Origin": "http://ui"}, timeout=10))
    )
    assert [(reply.status_code, readable(reply)) for _status, reply in asked] == [(one, True) for one, _reply in asked]


def test_browser_at_the_root_finds_the_page(gateway):
    reply = gateway.get("/", headers={"Accept": "text/html"})
    assert (reply.status_code, reply.url) == (200, gateway.url("/status"))
    assert gateway.get("/", headers={}).status_code == 404


def test_stream_is_not_buffered(gateway):
    came, tokens = [], 64
    for line in gateway.chat("small", stream=True, tokens=tokens, ignore_eos=True).iter_lines():
        if line.startswith(b"data: "):
            came.append((time.monotonic(), line))
    assert came[-1][1] == b"data: [DONE]"
    # A buffered stream would come at once.
    moments = len({round(moment, 2) for moment, _line in came})
    assert len(came) >= tokens and moments > tokens / 4, moments


def test_only_root_and_engine_read_keys(lab, key):
    modes = {"keys.json": 0o640, "gateway.json": 0o640, "curl-header": 0o600}
    for name, mode in dict(modes, **{"nginx-clients.conf": 0o600, "nginx-services.conf": 0o600}).items():
        file = lab.node3.file("%s/%s" % (KEYS, name))
        assert (file.user, file.mode) == ("root", mode), name
    readable = lab.node3.run(
        "grep -rlF %s /etc/systemd /etc/nginx /run/systemd /var/log /var/lib/llama-cluster /tmp; "
        "journalctl --no-pager | grep -cF %s; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' ' ' | "
        "grep -oF %s | sort -u",
        key,
        key,
        key,
    )
    # The search has the key on its own command line.
    assert readable.stdout.split() in (["0"], ["0", key]), readable.stdout


def test_without_the_engine_tiers_answer_within_a_second(lab, gateway):
    lab.node3.check_output("systemctl stop llama-gateway.socket " + ENGINE)
    try:
        for port, path in ((FAST, ""), (FAST, "/reasoning"), (REASONING, "")):
            began = time.monotonic()
            assert gateway.get(path + "/health", port).status_code == 200
            assert time.monotonic() - began < 1
            assert gateway.chat("probe", port=port, path=path + "/v1").status_code == 200
            refused = requests.get(gateway.url(path + "/v1/models", port), timeout=10)
            assert (refused.status_code, readable(refused)) == (401, True)
            assert readable(gateway.get(path + "/v1/models", port))
            assert requests.options(gateway.url(path + "/v1/models", port), timeout=10).status_code < 300
            statuses = {line: gateway.raw(line, port) for line in CLOSED}
            assert [line for line, status in statuses.items() if status not in (400, 403, 404)] == [], statuses
        reply = gateway.chat()
        assert (reply.status_code, reply.json()["error"]["code"], readable(reply)) == (503, "no_engine", True)
    finally:
        lab.node3.check_output("systemctl start llama-gateway.socket " + ENGINE)


def test_killed_engine_loses_no_request(lab, gateway):
    with Clients(gateway, 4) as clients, Clients(gateway, 2, port=FAST) as tier:
        for _round in range(3):
            pid = engine(lab)
            lab.node3.check_output("systemctl kill --kill-who=all --signal=KILL " + ENGINE)
            began = time.monotonic()
            assert gateway.get("/health", FAST).status_code == 200
            assert time.monotonic() - began < 1
            lab.eventually(lambda pid=pid: engine(lab) not in ("0", pid), 10, "another engine runs")
            time.sleep(1.5)
    assert (clients.failed, tier.failed) == ([], []) and clients.answered > 0


def test_tiers_serve_without_a_startable_engine(lab, gateway):
    """llama-gateway-again starts the engine every five seconds; no request waits for it meanwhile."""
    lab.node3.check_output("cp -p %s/gateway.json /root/ && echo '{' > %s/gateway.json", KEYS, KEYS)
    try:
        lab.node3.run("systemctl restart " + ENGINE)
        until, longest = time.monotonic() + 12, 0
        while time.monotonic() < until:
            began = time.monotonic()
            assert gateway.get("/health", FAST).status_code == 200
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.05)
        assert longest < 1
        assert gateway.chat("probe", port=FAST).status_code == 200
        assert gateway.chat().json()["error"]["code"] == "no_engine"
    finally:
        lab.node3.check_output("cp -p /root/gateway.json %s/", KEYS)
    lab.eventually(lambda: gateway.chat().status_code == 200, 20, "the engine is back")


def test_engine_returns_after_the_start_limit(lab, gateway):
    gives_up = (
        "for _ in $(seq 60); do [ $(systemctl show -P ActiveState llama-gateway.socket) != failed ] || exit 0; "
        "systemctl kill --kill-who=all --signal=KILL %s; sleep 0.15; done; exit 1" % ENGINE
    )
    lab.node3.check_output(gives_up)
    assert gateway.chat("probe", port=FAST).status_code == 200
    assert gateway.chat().json()["error"]["code"] == "no_engine"
    lab.eventually(lambda: gateway.chat().status_code == 200, 20, "the engine is back")


def test_restarts_and_reloads_lose_no_request(lab, gateway):
    with Clients(gateway, 20) as clients:
        for action in ("restart " + ENGINE, "reload " + ENGINE, "reload nginx", "restart " + ENGINE, "reload nginx"):
            lab.node3.check_output("systemctl " + action)
            time.sleep(1)
    assert clients.failed == [] and clients.answered > 0


def test_killed_replica_loses_no_request(lab, gateway):
    with Clients(gateway, 8) as clients:
        lab.node1.check_output("systemctl kill --signal=KILL llama-head-small.service")
        time.sleep(3)
    assert clients.failed == [] and clients.answered > 0


def test_killed_workers_lose_no_request(lab, gateway):
    """chat has no replica and no fallback: requests wait for its return."""
    with Clients(gateway, 8, model="smollm2", tokens=16) as clients:
        for node in ("node2", "node3", "node2"):
            getattr(lab, node).check_output("systemctl kill --signal=KILL llama-rpc-chat.service")
            time.sleep(13)
    assert clients.failed == [] and clients.answered > 20


def test_fallback_answers_for_a_stopped_service(lab, gateway):
    lab.node2.check_output("systemctl stop llama-head-single.service")
    try:
        reply = gateway.chat("single")
        assert (reply.status_code, reply.headers["X-Llama-Service"]) == (200, "small")
        assert (reply.headers["X-Llama-Fallback"], reply.json()["model"]) == ("single", "small")
    finally:
        lab.node2.check_output("systemctl start llama-head-single.service")


def test_broken_stream_never_looks_complete(lab, gateway):
    body = json.dumps({"model": "small", "messages": QUESTION, "max_tokens": 1500, "stream": True, "ignore_eos": True})
    command = "timeout 60 curl -sSN -H @%s/curl-header -d %s http://127.0.0.1:8000/v1/chat/completions"
    found = []
    client = threading.Thread(target=lambda: found.append(lab.node3.run(command, KEYS, body)))
    client.start()
    lab.eventually(lambda: busy(gateway, "small"), 10, "a request runs")
    time.sleep(1)
    (node,) = busy(gateway, "small")
    getattr(lab, node).check_output("systemctl kill --signal=KILL llama-head-small.service")
    client.join()
    assert found[0].rc != 0 and "data: " in found[0].stdout and "[DONE]" not in found[0].stdout


def busy(gateway, service):
    return [one["node"] for one in gateway.endpoints(service) if one["in_flight"]]


def processing(lab, node):
    """The number of running requests of the llama-server of `small`. Only the gateway's host may connect."""
    slots = lab.node3.check_output("curl -sSf http://%s:8001/slots", lab.ethernet(node))
    return sum(1 for slot in json.loads(slots) if slot["is_processing"])


@pytest.mark.parametrize("stream", [True, False])
def test_client_that_leaves_frees_its_slot(lab, gateway, stream):
    connection = http.client.HTTPConnection(gateway.host, PORT)
    body = {"model": "small", "messages": QUESTION, "max_tokens": 1500, "stream": stream, "ignore_eos": True}
    # With that header llama-server continues, and gives the answer to other clients.
    headers = dict(gateway.headers, **{"X-Conversation-Id": "one"})
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    lab.eventually(lambda: busy(gateway, "small"), 10, "a request runs")
    (node,) = busy(gateway, "small")
    lab.eventually(lambda: processing(lab, node) == 1, 5, "its server works")
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    time.sleep(1)
    assert busy(gateway, "small") == []
    # Without a stream llama-server checks for the client after each second without any other answer, /slots included.
    for pause in () if stream else (2.5, 2.5, 2.5):
        if not processing(lab, node):
            break
        time.sleep(pause)
    assert processing(lab, node) == 0


def test_new_certificate_and_key_without_restart(lab, key):
    make = (
        "mkdir -p /etc/ssl/own && cd /etc/ssl/own && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=%s "
        "-keyout new.key -out new.pem 2>/dev/null && mv new.key own.key && mv new.pem own.pem"
    )
    lab.node3.check_output(make % "first")
    tls = {"gateway_tls": {"certificate": "/etc/ssl/own/own.pem", "key": "/etc/ssl/own/own.key"}}
    changes, before = dict(tls, gateway_keys={"generated": [key, "another-one"]}), engine(lab)
    status, output = lab.playbook("site", *INVENTORY, "--tags", "gateway", "-e", json.dumps(changes))
    assert status == 0, output
    models = "curl -sk -o /dev/null -w '%%{http_code}' -H 'Authorization: Bearer %s' https://127.0.0.1/v1/models"
    assert [lab.node3.check_output(models, one) for one in (key, "another-one", "no")] == ["200", "200", "401"]
    assert engine(lab) == before
    master = lab.node3.check_output("systemctl show -P MainPID nginx")
    subject = "echo | openssl s_client -connect 127.0.0.1:443 2>/dev/null | openssl x509 -noout -subject"
    assert lab.node3.check_output(subject).endswith("first")
    lab.node3.check_output(make % "second")
    lab.eventually(lambda: lab.node3.check_output(subject).endswith("second"), 15, "the new certificate is shown")
    assert lab.node3.check_output("systemctl show -P MainPID nginx") == master
    assert lab.node3.file(KEYS + "/curl-header").content_string.split()[-1] == key


def test_teardown_leaves_nothing(lab):
    status, output = lab.playbook("teardown", *INVENTORY)
    assert status == 0, output
    left = lab.node3.check_output(
        "ls -d /etc/llama-cluster /opt/llama-cluster /var/lib/llama-cluster /run/llama-gateway "
        "/etc/nginx/conf.d/llama-cluster.conf /etc/systemd/system/llama-* /usr/local/bin/llama-* 2>/dev/null; "
        "getent passwd llama-gateway; systemctl list-units --all --plain --no-legend 'llama-*'; "
        "pgrep -fa '[l]lama_cluster'; ss -Hltn '( sport = :8000 or sport = :8080 or sport = :8081 )'; "
        "systemctl is-enabled nginx | grep enabled; true"
    )
    assert left == ""
