# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A storm over the gateway's endpoints: random events, and how long the engine believes what is no longer so.

    python tests/benchmarks/gateway/storm.py [--events 1000] [--seed N] [--pause 0.4]

Endpoints are processes on the loopback that answer as llama-server does: four of service fixed stand in gateway.json,
four of service shared are known by the registry alone, with its real writer and reader. Events: an endpoint starts, is
killed with -9, drains or drains no more; the shared directory goes away and comes back; a registry file is
half-written. Clients ask all the time. The engine's word is its /status.json, ten times a second.

What is measured: how long a dead endpoint was still ready for the engine, or was sent a request (the engine's access
log tells those that were tried twice; a draining endpoint counts what reaches it itself); how long a live one was not
ready. The share adds its own time to endpoints that only it can tell of.
"""

import argparse
import collections
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
FIRST_PORT = 25100
DEAD, MISSING = 2.0, 3.0
# Seconds that the share takes on top: a write that failed is tried again after 2, a look is made each second.
CACHE = 4.0
CLIENTS = 12
SAMPLE = 0.1
NAMES = {"fixed": 4, "shared": 4}


class Answers(http.server.BaseHTTPRequestHandler):
    """What a llama-server of two slots says."""

    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self):
        told = {
            "/health": {"status": "ok"},
            "/slots": [{"id": number, "n_ctx": 4096, "is_processing": False} for number in range(2)],
            "/props": {"total_slots": 2, "default_generation_settings": {"n_ctx": 4096}, "model_alias": "m"},
            "/v1/models": {"object": "list", "data": [{"id": "m", "object": "model"}]},
        }.get(self.path, {})
        self._say(told)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with open(self.server.note, "a") as stream:
            stream.write("%r\n" % time.time())
        time.sleep(random.uniform(0.02, 0.3))
        self._say({"object": "chat.completion", "model": "m", "choices": [{"message": {"content": "yes"}}]})

    def _say(self, told):
        data = json.dumps(told).encode("ascii")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments):
        pass


def serve(port, note):
    http.server.ThreadingHTTPServer.request_queue_size = 128
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Answers)
    server.note = note
    server.serve_forever()


class Endpoint:
    """One of the processes, and since when it is as it is."""

    def __init__(self, storm, service, number):
        self.storm, self.service = storm, service
        self.node = "%s%d" % (service, number)
        self.port = FIRST_PORT + number + (50 if service == "shared" else 0)
        self.note = str(storm.folder / (self.node + ".posts"))
        self.process = None
        self.writer = None
        self.draining = False
        self.changed = time.time()
        self.moved = 0.0  # when it began to be as it is
        self.moves = 0  # odd while it is on its way from one state to the other
        self.good = 0.0  # when the engine had it as it is
        self.since_share = time.time()  # when the share could tell of it at the earliest

    @property
    def alive(self):
        return self.process is not None

    @contextlib.contextmanager
    def moving(self):
        self.moves += 1
        self.moved = time.time()
        yield
        self.changed = time.time()
        self.moves += 1

    def start(self):
        with self.moving():
            self._start()

    def _start(self):
        process = subprocess.Popen([sys.executable, __file__, "--serve", str(self.port), self.note])
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                break
            time.sleep(0.01)
        if self.service == "shared" and self.writer is None:
            self.writer = self.storm.program("registry_writer", self.storm.writer_config(self))
        self.since_share = time.time()
        self.process = process

    def kill(self):
        with self.moving():
            self.process.kill()
            self.process.wait()
            self.process = None

    def drain(self, on):
        with self.moving():
            self.draining = on
            self.storm.write_draining()

    def posts(self):
        with contextlib.suppress(FileNotFoundError), open(self.note) as stream:
            return [float(line) for line in stream.read().split("\n") if line.strip()]
        return []


class Storm:
    def __init__(self, arguments):
        self.random = random.Random(arguments.seed)
        self.events, self.pause = arguments.events, arguments.pause
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="llama-storm-"))
        self.share = self.folder / "share"
        self.share.mkdir()
        self.code = self.folder / "code"
        self.code.mkdir()
        (self.code / "llama_cluster").symlink_to(ROOT / "plugins/module_utils")
        self.endpoints = [Endpoint(self, service, number) for service in NAMES for number in range(NAMES[service])]
        self.share_gone = False
        self.share_back = 0.0
        self.counts = collections.Counter()
        self.answers = collections.Counter()
        self.worst = collections.defaultdict(float)
        self.cases = []
        self.refused = []  # although an endpoint was there
        self.ended = threading.Event()
        self.deaths = collections.defaultdict(list)  # service: [(node, from, until)]
        self.drains = []  # (endpoint, from, until)
        self.logs = []

    # What the programs run with.

    def program(self, name, *arguments, **options):
        environment = dict(os.environ, PYTHONPATH=str(self.code), PYTHONDONTWRITEBYTECODE="1")
        log = open(self.folder / (name + ".log"), "a")  # noqa: SIM115
        self.logs.append(log)
        command = [sys.executable, "-m", "llama_cluster.programs." + name, *map(str, arguments)]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, **options)

    def writer_config(self, endpoint):
        record = {"service": "shared", "model": "m", "models": ["shared-model"], "tier": None, "port": endpoint.port}
        record.update(node=endpoint.node, host=endpoint.node, head_node=endpoint.node, slots=2, slot_ctx_size=4096)
        record.update(build="b11434", quant="Q8_0", llama_workers=[], endpoint="http://127.0.0.1:%d/v1" % endpoint.port)
        told = {"directory": str(self.share), "suffix": endpoint.node, "record": record}
        told["url"] = "http://127.0.0.1:%d" % endpoint.port
        path = self.folder / (endpoint.node + ".json")
        path.write_text(json.dumps(told))
        return path

    def write_draining(self):
        told = [
            {"service": one.service, "node": one.node, "since": time.time(), "reason": "maintenance"}
            for one in self.endpoints
            if one.draining
        ]
        partial = self.folder / ".draining"
        partial.write_text(json.dumps({"endpoints": told}))
        partial.rename(self.folder / "draining.json")

    def gateway_config(self):
        services = {}
        for service in NAMES:
            own = [one for one in self.endpoints if one.service == service == "fixed"]
            services[service] = {
                "kind": "server",
                "tier": None,
                "models": [
                    {
                        "name": service + "-model",
                        "aliases": [],
                        "quant": "Q8_0",
                        "build": "b11434",
                        "slot_ctx_size": 4096,
                        "max_tokens": None,
                        "embeddings": False,
                    }
                ],
                "endpoints": [{"node": one.node, "address": "127.0.0.1", "port": one.port, "slots": 2} for one in own],
                "state": "started",
                "fallback": None,
                "timeout": 60.0,
                "queue": 64,
            }
        return {
            "version": 1,
            "services": services,
            "unserved": {},
            "routes": {"default": None, "tasks": {}},
            "unknown_model": "404",
            "auth": "log_only",
            "registry": {"hosts": {one.node: "127.0.0.1" for one in self.endpoints if one.service == "shared"}},
            "base_urls": ["http://127.0.0.1:8000"],
            "tiers": {},
        }

    def start(self):
        self.socket = str(self.folder / "gateway.sock")
        (self.folder / "gateway.json").write_text(json.dumps(self.gateway_config()))
        (self.folder / "keys.json").write_text(json.dumps({"clients": {}, "services": {}}))
        self.write_draining()
        hosts = self.gateway_config()["registry"]["hosts"]
        told = {"directory": str(self.share), "hosts": hosts, "uids": [os.getuid()]}
        (self.folder / "reader.json").write_text(json.dumps(told))
        self.reader = self.program("registry_reader", self.folder / "reader.json", self.folder / "registry.json")
        self.engine = self.program("gateway", *engine_arguments(self))
        for one in self.endpoints:
            one.start()
        self.until(lambda: all(state == "ready" for state in self.states().values()), 30, "all endpoints ready")

    @staticmethod
    def until(done, seconds, words):
        until = time.monotonic() + seconds
        while not done():
            if time.monotonic() > until:
                sys.exit("not within %d s: %s" % (seconds, words))
            time.sleep(0.1)

    # What the engine says.

    def ask(self, method, path, body=None, timeout=60):
        connection = http.client.HTTPConnection("localhost", timeout=timeout)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(timeout)
        connection.sock.connect(self.socket)
        with contextlib.closing(connection):
            connection.request(method, path, body, {"Content-Type": "application/json", "Connection": "close"})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def states(self):
        """{node: state} as the engine has it; what it does not know is absent."""
        known = {one.node: "absent" for one in self.endpoints}
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            for service in json.loads(self.ask("GET", "/status.json", timeout=5)[1])["services"].values():
                known.update({one["node"]: one["state"] for one in service["endpoints"]})
        return known

    # Those who look on.

    def client(self, number):
        own = random.Random(number)
        while not self.ended.is_set():
            service = own.choice(list(NAMES))
            body = json.dumps({"model": service + "-model", "messages": [{"role": "user", "content": "hi"}]})
            try:
                status = self.ask("POST", "/v1/chat/completions", body)[0]
            except (OSError, http.client.HTTPException) as error:
                status = type(error).__name__
            self.answers[service, status] += 1
            if status != 200 and self.live(service, time.time()):
                self.refused.append((service, status, round(time.time() - self.began, 1)))
            if status != 200:
                time.sleep(0.1)

    def live(self, service, now):
        """Whether an endpoint of it has been there for as long as the engine has time to know."""
        allowed = MISSING + (CACHE if service == "shared" else 0)
        return any(
            one.alive and not one.draining and not one.moves % 2 and max(one.changed, self.share_back) < now - allowed
            for one in self.endpoints
            if one.service == service and not (service == "shared" and self.share_gone)
        )

    def sampler(self):
        while not self.ended.wait(SAMPLE):
            before = time.time()
            truth = [(one, one.moves, one.alive, one.draining, one.changed, one.since_share) for one in self.endpoints]
            seen = self.states()
            after = time.time()
            if after - before > 1:
                self.worst["slow status"] = max(self.worst["slow status"], after - before)
            for one, moves, alive, draining, changed, since_share in truth:
                if moves % 2 or one.moves != moves:
                    continue  # it has changed while the engine was asked
                state = seen[one.node]
                if (not alive or draining) and state == "ready":
                    self._note("dead" if not alive else "draining", one, state, before - changed)
                if not alive or draining:
                    continue
                if state == "ready":
                    one.good = after
                elif one.service == "fixed":
                    self._note("missing", one, state, before - max(changed, one.good))
                elif not self.share_gone:
                    late = before - max(changed, since_share, self.share_back, one.good)
                    self._note("missing from the share", one, state, late)

    def _note(self, kind, endpoint, state, seconds):
        if seconds > self.worst[kind]:
            self.worst[kind] = seconds
            self.cases.append((kind, endpoint.node, state, round(seconds, 2), round(time.time() - self.began, 1)))

    # What happens.

    def event(self):
        one = self.random.choice(self.endpoints)
        draw = self.random.random()
        if draw < 0.04 and not self.share_gone:
            self.counts["share gone"] += 1
            self.share.rename(self.folder / "away")
            self.share_gone = True
        elif self.share_gone and draw < 0.3:
            self.counts["share back"] += 1
            (self.folder / "away").rename(self.share)
            self.share_back = time.time()
            self.share_gone = False
        elif draw < 0.1 and not self.share_gone:
            self.counts["half-written file"] += 1
            names = [name for name in os.listdir(self.share) if not name.startswith(".")] + ["99-junk.json"]
            path = self.share / self.random.choice(names)
            whole = path.read_bytes() if path.exists() else b'{"version": 1, "job_id": 99, "service": "shared"'
            path.write_bytes(whole[: self.random.randrange(max(1, len(whole)))])
        elif not one.alive:
            self.counts["start"] += 1
            one.start()
        elif one.draining:
            self.counts["undrain"] += 1
            self.drains.append((one, one.changed, time.time()))
            one.drain(False)
        elif draw < 0.35:
            self.counts["drain"] += 1
            one.drain(True)
        else:
            self.counts["kill -9"] += 1
            one.kill()

    def run(self):
        self.start()
        self.began = time.time()
        threads = [threading.Thread(target=self.client, args=(number,), daemon=True) for number in range(CLIENTS)]
        threads += [threading.Thread(target=self.sampler, daemon=True)]
        for thread in threads:
            thread.start()
        lives = {one.node: one.alive for one in self.endpoints}
        for number in range(self.events):
            self.event()
            for one in self.endpoints:
                if lives[one.node] and not one.alive:
                    self.deaths[one.service].append([one.node, one.moved, float("inf")])
                elif not lives[one.node] and one.alive:
                    last = [death for death in self.deaths[one.service] if death[0] == one.node][-1]
                    last[2] = one.changed
                lives[one.node] = one.alive
            time.sleep(self.random.expovariate(1 / self.pause))
            if number % 100 == 99:
                print("%d events, %d requests" % (number + 1, sum(self.answers.values())), file=sys.stderr, flush=True)
        time.sleep(MISSING + 1)
        self.ended.set()
        for thread in threads:
            thread.join()

    def end(self):
        for process in [one.process for one in self.endpoints] + [one.writer for one in self.endpoints]:
            if process:
                process.send_signal(signal.SIGTERM)
        for process in (self.engine, self.reader):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
        for one in self.endpoints:
            for process in (one.process, one.writer):
                if process:
                    process.wait()
        for log in self.logs:
            log.close()

    # The judgement.

    def late_tries(self):
        """Longest time after a death at which a request was tried more than once: of the endpoints of its service that
        were dead when it came, the one that died last has been tried."""
        worst, tried = 0.0, 0
        for line in (self.folder / "gateway.log").read_text().splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if not isinstance(told, dict) or not isinstance(told.get("tries"), int) or told["tries"] < 2:
                continue
            tried += 1
            came, gone = moment(told)
            ages = [
                came - since for _node, since, until in self.deaths[told["service"]] if since <= gone and until >= came
            ]
            if ages:
                worst = max(worst, min(max(age, 0.0) for age in ages))
        return tried, worst

    def late_posts(self):
        """Longest time after the beginning of a drain at which a request still came."""
        worst = 0.0
        posts = {one.node: one.posts() for one in self.endpoints}
        for one, since, until in self.drains:
            worst = max([worst] + [when - since for when in posts[one.node] if since < when < until])
        return worst

    def report(self):
        tried, late = self.late_tries()
        rows = [
            ("a dead endpoint was ready for the engine", self.worst["dead"], DEAD),
            ("a request was tried on a dead endpoint", late, DEAD),
            ("a draining endpoint was ready for the engine", self.worst["draining"], DEAD),
            ("a request came to a draining endpoint", self.late_posts(), DEAD),
            ("a live endpoint was not ready", self.worst["missing"], MISSING),
            ("a live endpoint of the share was not ready", self.worst["missing from the share"], MISSING + CACHE),
        ]
        print("Events: %s" % ", ".join("%d %s" % (count, name) for name, count in sorted(self.counts.items())))
        answers = sorted(self.answers.items(), key=str)
        print("Answers: %s" % ", ".join("%d x %s of %s" % (count, *reversed(key)) for key, count in answers))
        print("Requests tried more than once: %d" % tried)
        print("Requests refused although an endpoint was there: %d" % len(self.refused))
        print("\n| longest time that | seconds | allowed |\n|---|---|---|")
        for words, seen, allowed in rows:
            print("| %s | %.2f | %.0f |" % (words, seen, allowed))
        over = [words for words, seen, allowed in rows if seen > allowed]
        over += ["refused"] if self.refused else []
        for case in self.refused[:10]:
            print("refused: %s, %s, at %.1f s" % case, file=sys.stderr)
        for case in self.cases[-12:]:
            print("case: %s: %s was %s, %.2f s, at %.1f s" % case, file=sys.stderr)
        return over


def moment(told):
    """(when it came, when it was answered) of a line of the access log, in seconds of the clock."""
    came = float(told["time"])
    return came, came + float(told["seconds"])


def engine_arguments(storm):
    """Where the engine finds what a gateway's host has elsewhere."""
    names = {"draining": "draining.json", "registry": "registry.json", "state": "state.json"}
    places = [word for option, name in names.items() for word in ("--" + option, storm.folder / name)]
    return ["--config", storm.folder, "--socket", storm.socket, *places]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--pause", type=float, default=0.4)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--serve", nargs=2)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(int(arguments.serve[0]), arguments.serve[1])
    print("%d events, seed %d" % (arguments.events, arguments.seed), flush=True)
    storm = Storm(arguments)
    try:
        storm.run()
    finally:
        storm.end()
    over = storm.report()
    if arguments.keep:
        print(storm.folder)
    else:
        shutil.rmtree(str(storm.folder))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
