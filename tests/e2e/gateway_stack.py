# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway for gateway_clients.py: a deployed one, or its own on the loopback, of llama-servers with a small
model on this machine, and in a container the engine and nginx with the template of role gateway, at their real paths.

Run by clients.sh, which says where llama-server, the model and the image are: LLAMA_BIN, LLAMA_MODEL, LLAMA_LAB_IMAGE.
"""

import ast
import contextlib
import json
import os
import runpy
import signal
import subprocess
import time
import types
import urllib.request
from pathlib import Path

import jinja2

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "roles/gateway/templates"
PATHS = runpy.run_path(str(ROOT / "plugins/module_utils/_gateway/paths.py"))
FIRST_PORT = 23000
# ChatML with tools: what the small model brings along has none.
TOOLS = ROOT / "molecule/acceptance/tests/test_conversation.py"
KEY = "key-of-the-tests"
SERVICE_KEY = "key-of-the-services"
# As systemd has it for the unit of the gateway: the socket is there before the engine, and whenever it is not.
LAUNCHER = """
import os, socket, subprocess, sys, time
os.makedirs("/run/llama-gateway")
listening = socket.socket(socket.AF_UNIX)
listening.bind("/run/llama-gateway/gateway.sock")
os.chmod("/run/llama-gateway/gateway.sock", 0o666)
listening.listen(512)
os.unlink("/etc/nginx/sites-enabled/default")
subprocess.check_call(["nginx"])
os.dup2(listening.fileno(), 3)
os.set_inheritable(3, True)
environment = dict(os.environ, PYTHONPATH="/opt/lib", LISTEN_FDS="1")
while True:
    # LISTEN_PID is that of the engine itself.
    line = 'LISTEN_PID=$$ exec python3 -S -B -m llama_cluster.programs.gateway'
    subprocess.call(["sh", "-c", line], env=environment, pass_fds=[3])
    time.sleep(0.1)
"""


def deployed(environment):
    """A gateway that serves somebody: nothing is broken there."""
    tiers = {tier: environment.get("LLAMA_" + tier.upper()) for tier in ("fast", "reasoning")}
    url = environment["LLAMA_GATEWAY"].rstrip("/")
    status = read(url + "/status.json")
    chat = environment["LLAMA_CHAT"]
    services = status["services"]
    default = status["routes"].get("default")
    names = {alias: m["name"] for one in services.values() for m in one["models"] for alias in m["aliases"]}
    return types.SimpleNamespace(
        own=False, url=url, key=environment.get("LLAMA_API_KEY", "none"), chat=chat,
        alias=environment.get("LLAMA_ALIAS") or chat, embeddings=environment.get("LLAMA_EMBEDDINGS"),
        tiers={tier: there.rstrip("/") for tier, there in tiers.items() if there},
        auth=environment.get("LLAMA_AUTH", "required"), default=names.get(default, default),
        task=next(iter(status["routes"].get("tasks") or {}), None),
        reasoning_service=next((name for name, one in services.items() if one["tier"] == "reasoning"), None),
    )  # fmt: skip


def template_with_tools():
    """The one by which scenario acceptance talks with the same model."""
    for node in ast.parse(TOOLS.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "TOOLS":
            return ast.literal_eval(node.value)
    raise SystemExit("%s: no TOOLS" % TOOLS)


def read(url, seconds=5):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=seconds) as answer:
        return json.load(answer)


def model(name, aliases=(), context=None, embeddings=False):
    return {
        "name": name, "aliases": list(aliases), "quant": "Q4_1", "build": "b11434", "slot_ctx_size": context,
        "embeddings": embeddings,
    }  # fmt: skip


class Own:
    """A gateway of five services, one of which is never there."""

    own = True
    key, auth = KEY, "required"
    chat, alias, embeddings = "or1-behemoth", "OR1-Behemoth", "embedder"
    # One slot and a queue of one; a service that a test kills; a model without a service.
    narrow, brittle, lost = "strand", "brittle", "lost"
    narrow_service, brittle_service, reasoning_service = "fast", "breaks", "chat"
    default, task = "or1-behemoth", "fix"
    # service: (tier, model, slots, words of llama-server)
    servers = {
        "chat": ("reasoning", model(chat, [alias, "or1-behemoth-q4_k_m"], 2048), 2, ()),
        "fast": ("fast", model(narrow, ["Strand-Rust-Coder"], 2048), 1, ()),
        "embed": (None, model(embeddings, (), 512, True), 1, ("--embeddings", "--pooling", "mean")),
        "breaks": (None, model(brittle, (), 2048), 1, ()),
        "gone": (None, model(lost, (), 2048), 1, None),
    }

    def __init__(self, folder):
        self.folder = folder
        self.running = {}
        self.url = "http://127.0.0.1:%d" % FIRST_PORT
        self.ports = {service: FIRST_PORT + 10 + number for number, service in enumerate(self.servers)}
        self.tiers = {"fast": "http://127.0.0.1:%d" % (FIRST_PORT + 1)}
        self.tiers["reasoning"] = "http://127.0.0.1:%d" % (FIRST_PORT + 2)
        self.container = "llama-clients-%d" % os.getpid()

    def status(self):
        return read(self.url + "/status.json")

    def config(self):
        services = {
            service: {
                "kind": "server", "tier": tier, "models": [served], "state": "started", "fallback": None,
                "timeout": 300.0, "queue": 1 if service == self.narrow_service else 64,
                "endpoints": [
                    {"node": "node1", "address": "127.0.0.1", "port": self.ports[service], "slots": slots}
                ],
            }
            for service, (tier, served, slots, _words) in self.servers.items()
        }  # fmt: skip
        return {
            "version": 1, "services": services, "unserved": {},
            "routes": {"default": self.alias, "tasks": {self.task: self.narrow}},
            "unknown_model": "404", "auth": self.auth, "registry": None, "base_urls": [self.url],
            "tiers": {tier: {"port": int(url.rpartition(":")[2])} for tier, url in self.tiers.items()},
        }  # fmt: skip

    def start(self, service):
        _tier, served, slots, words = self.servers[service]
        command = [
            os.environ["LLAMA_BIN"] + "/llama-server", "--model", os.environ["LLAMA_MODEL"], "--host", "127.0.0.1",
            "--port", self.ports[service], "--alias", served["name"], "--parallel", slots, "--threads", 1,
            "--ctx-size", served["slot_ctx_size"] * slots, "--api-key", SERVICE_KEY, "--jinja", "--no-webui",
            "--chat-template-file", self.folder / "tools.jinja", *words,
        ]  # fmt: skip
        log = open(self.folder / (service + ".log"), "ab")  # noqa: SIM115 - the server's until it ends
        self.running[service] = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)

    def kill(self, service):
        self.running[service].kill()
        self.running[service].wait()

    def write(self):
        """Everything that role gateway would have written."""
        config = self.config()
        services = dict.fromkeys(self.servers, SERVICE_KEY)
        (self.folder / "gateway.json").write_text(json.dumps(config))
        (self.folder / "keys.json").write_text(json.dumps({"clients": {"tests": KEY}, "services": services}))
        tiers = {
            one["tier"]: dict(config["tiers"][one["tier"]], service=name, endpoints=one["endpoints"])
            for name, one in config["services"].items() if one["tier"]
        }  # fmt: skip
        shown = {
            "ansible_managed": "", "tiers": tiers, "addresses": ["127.0.0.1"], "port": FIRST_PORT,
            "tls": {}, "max_body": "32m", "monitors": ["127.0.0.1"],
            "timeout": 7210, "keys": services, "required": True,
            "reads": PATHS["READ"], "posts": [*PATHS["WORK"], *PATHS["COUNT"]],
            "clients": {"tests": KEY},
        }  # fmt: skip
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(str(TEMPLATES)), trim_blocks=True, undefined=jinja2.StrictUndefined
        )
        environment.filters["comment"] = lambda text: "# " + text
        for name in ("llama-cluster.conf", "nginx-services.conf", "nginx-clients.conf"):
            (self.folder / name).write_text(environment.get_template(name + ".j2").render(shown))
        (self.folder / "launcher.py").write_text(LAUNCHER)
        (self.folder / "tools.jinja").write_text(template_with_tools())

    def serve(self):
        inside = "/etc/llama-cluster/gateway/"
        names = ("gateway.json", "keys.json", "nginx-services.conf", "nginx-clients.conf")
        mounted = {inside + name: name for name in names}
        mounted.update({"/etc/nginx/conf.d/llama-cluster.conf": "llama-cluster.conf", "/launcher.py": "launcher.py"})
        volumes = ["--volume=%s:%s:ro" % (self.folder / name, place) for place, name in mounted.items()]
        volumes.append("--volume=%s:/opt/lib/llama_cluster:ro" % (ROOT / "plugins/module_utils"))
        subprocess.check_call(
            ["docker", "run", "--detach", "--rm", "--init", "--network=host", "--name", self.container, *volumes,
             os.environ["LLAMA_LAB_IMAGE"], "python3", "/launcher.py"], stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def wait(self, seconds=120):
        until = time.monotonic() + seconds
        wanted = set(self.servers) - {"gone"}
        while time.monotonic() < until:
            with contextlib.suppress(OSError, ValueError):
                states = {name: one["state"] for name, one in self.status()["services"].items()}
                # The servers themselves: a state may be a second old.
                for name in wanted:
                    read("http://127.0.0.1:%d/health" % self.ports[name])
                if all(states[name] == "ready" for name in wanted):
                    return
            time.sleep(0.3)
        logs = subprocess.run(["docker", "logs", self.container], capture_output=True, text=True, check=False)
        raise SystemExit("the gateway is not ready:\n%s%s" % (logs.stdout[-3000:], logs.stderr[-3000:]))

    def stop(self):
        logs = subprocess.run(["docker", "logs", self.container], capture_output=True, text=True, check=False)
        (self.folder / "engine.log").write_text(logs.stdout + logs.stderr)
        subprocess.call(["docker", "rm", "-f", self.container], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for server in self.running.values():
            server.send_signal(signal.SIGKILL)
            server.wait()


@contextlib.contextmanager
def started(folder):
    own = Own(folder)
    own.write()
    try:
        for service, (_tier, _model, _slots, words) in own.servers.items():
            if words is not None:
                own.start(service)
        own.serve()
        own.wait()
        yield own
    finally:
        own.stop()
