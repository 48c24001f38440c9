"""What stands between clients and fake llama-servers: nothing, HAProxy, our engine behind nginx.

Everything listens on the loopback of the container that inside.sh makes.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
COLLECTION = HERE.parents[2]
RENDERED = pathlib.Path("/rendered")
WORK = pathlib.Path("/tmp/bench")
ENGINE = COLLECTION / "plugins/module_utils/programs/gateway.py"
READY = 20


def wait_for(port, path="/health", statuses=(200,), seconds=READY):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status = look(port, path)[0]
        if status in statuses:
            return
        time.sleep(0.05)
    sys.exit("gateway bench: %s on port %d did not answer with %s in %d s" % (path, port, statuses, seconds))


def look(port, path):
    try:
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, path), timeout=5) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read()
    except OSError:
        return None, b""


class Fakes:
    """Fake llama-servers by port, one process each."""

    def __init__(self, pace=0.02):
        self.pace, self.running = pace, {}

    def start(self, port, model, **options):
        command = [sys.executable, str(HERE / "fake_llama_server.py"), "--port", str(port), "--model", model]
        for name, value in dict({"pace": self.pace}, **options).items():
            command += ["--" + name, str(value)]
        self.running[port] = subprocess.Popen(command)
        wait_for(port, "/fake")

    def counts(self, port):
        return json.loads(look(port, "/fake")[1])

    def kill(self, port):
        process = self.running.pop(port)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self):
        for port in list(self.running):
            self.kill(port)


def service(model, ports, slots=256, queue=64, aliases=(), **more):
    """An entry of `services` in gateway.json."""
    endpoints = [{"node": "node%d" % port, "address": "127.0.0.1", "port": port, "slots": slots} for port in ports]
    about = {"name": model, "aliases": list(aliases), "quant": "Q4_K_M", "build": "b11434", "slot_ctx_size": 4096}
    about.update(max_tokens=None, embeddings=False)
    entry = {"kind": "server", "tier": None, "models": [about], "endpoints": endpoints, "state": "started"}
    entry.update(fallback=None, timeout=7200.0, queue=queue)
    entry.update(more)
    return entry


class Candidate:
    name = ""
    port = 0

    def __init__(self, services):
        self.services, self.processes, self.folder = services, [], WORK / type(self).__name__
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def run(self, *command, **options):
        log = (self.folder / "log").open("ab")
        process = subprocess.Popen(command, stdout=log, stderr=log, **options)
        self.processes.append(process)
        return process

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def stop(self):
        for process in reversed(self.processes):
            for pid in tree(process.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
        self.processes = []

    def memory(self):
        """-> (PSS, RSS) of all of its processes, in MB."""
        found = {"Pss": 0, "Rss": 0}
        for process in self.processes:
            for pid in tree(process.pid):
                with contextlib.suppress(OSError):
                    for line in pathlib.Path("/proc/%d/smaps_rollup" % pid).read_text().splitlines():
                        key = line.split(":")[0]
                        if key in found:
                            found[key] += int(line.split()[1])
        return found["Pss"] / 1024, found["Rss"] / 1024


def tree(pid):
    found = [pid]
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/%d/task" % pid):
            for child in pathlib.Path("/proc/%d/task/%s/children" % (pid, task)).read_text().split():
                found += tree(int(child))
    return found


class Direct(Candidate):
    name = "direct"

    def __init__(self, services):
        super().__init__(services)
        self.port = next(iter(services.values()))["endpoints"][0]["port"]

    def start(self):
        pass


class Nginx(Candidate):
    """nginx of the distribution with the site of role gateway; what answers behind it listens on `socket`."""

    def start_nginx(self):
        self.socket = self.folder / "gateway.sock"
        for name in ("nginx-clients.conf", "nginx-services.conf"):
            shutil.copy(RENDERED / name, self.folder)
        site = (RENDERED / "site.conf").read_text()
        for old, new in (
            ("@PORT@", str(self.port)),
            ("@TIER_PORT@", str(self.port + 1)),
            ("/run/llama-gateway/gateway.sock", str(self.socket)),
            ("/etc/llama-cluster/gateway/", "%s/" % self.folder),
        ):
            site = site.replace(old, new)
        (self.folder / "site.conf").write_text(site)
        # As Debian's nginx.conf: workers, connections, and where sites come from.
        (self.folder / "nginx.conf").write_text(
            "user www-data;\nworker_processes auto;\npid %(here)s/pid;\nerror_log %(here)s/error.log;\n"
            "events { worker_connections 768; }\n"
            "http { sendfile on; tcp_nopush on; types_hash_max_size 2048; access_log off;\n"
            "client_body_temp_path %(here)s/body; proxy_temp_path %(here)s/proxy; include %(here)s/site.conf; }\n"
            % {"here": self.folder}
        )
        self.nginx = self.run("nginx", "-c", str(self.folder / "nginx.conf"), "-g", "daemon off;")


class Haproxy(Candidate):
    """HAProxy as its users write it: routing by the JSON body, queues, redispatch, checks, the runtime API."""

    name = "HAProxy, 128 KB buffers"
    port = 24200
    # What it reads of a body to route it by.
    buffer = 128 * 1024

    def configuration(self):
        names, lines = [], []
        for service_name, entry in self.services.items():
            for model in entry["models"]:
                names += ["%s %s" % (name, service_name) for name in (model["name"], *model["aliases"])]
        (self.folder / "models.map").write_text("\n".join(names) + "\n")
        told = {"here": self.folder, "buffer": self.buffer, "port": self.port}
        lines.append((HERE / "haproxy.cfg").read_text() % told)
        for service_name, entry in self.services.items():
            lines.append((HERE / "haproxy_backend.cfg").read_text() % {"name": service_name, "queue": entry["queue"]})
            for endpoint in entry["endpoints"]:
                values = (endpoint["node"], endpoint["address"], endpoint["port"], endpoint["slots"])
                lines.append("    server %s %s:%d maxconn %d\n" % values)
        return "".join(lines)

    def start(self):
        (self.folder / "haproxy.cfg").write_text(self.configuration())
        self.haproxy = self.run("haproxy", "-db", "-f", str(self.folder / "haproxy.cfg"))
        wait_for(self.port)
        time.sleep(1)  # its first checks


class HaproxyLarge(Haproxy):
    """A body of 1 MB and its head fit into one of its buffers."""

    name = "HAProxy, 1.25 MB buffers"
    port = 24100
    buffer = 1280 * 1024


class EngineBehindNginx(Nginx):
    name = "nginx + engine"
    port = 24300

    def start(self):
        self.configure()
        self.start_nginx()
        # In the place of systemd: holds the socket and starts the engine again when it ends.
        self.holder = self.run(sys.executable, str(HERE / "fake_socket_unit.py"), str(self.socket), str(self.folder))
        wait_for(self.port)

    def configure(self):
        answer = {"version": 1, "services": self.services, "unserved": {}, "unknown_model": "404", "auth": "log_only"}
        answer["routes"] = {"default": None, "tasks": {}}
        answer.update(registry=None, base_urls=["http://127.0.0.1:%d" % self.port], tiers={})
        tiers = {entry["tier"] for entry in self.services.values() if entry["tier"]}
        answer["tiers"] = {tier: {"port": self.port + 1} for tier in tiers}
        for path in (pathlib.Path("/etc/llama-cluster/gateway"), pathlib.Path("/var/lib/llama-gateway")):
            path.mkdir(parents=True, exist_ok=True)
        pathlib.Path("/var/lib/llama-cluster").mkdir(parents=True, exist_ok=True)
        replace("/etc/llama-cluster/gateway/gateway.json", answer)
        replace("/etc/llama-cluster/gateway/keys.json", {"clients": {}, "services": {}})

    def engine_pids(self):
        return [pid for pid in tree(self.holder.pid) if pid != self.holder.pid]

    def reload(self):
        os.kill(int((self.folder / "engine.pid").read_text()), signal.SIGHUP)

    def restart(self, how=signal.SIGTERM):
        os.kill(int((self.folder / "engine.pid").read_text()), how)

    def remove_engine(self):
        """As when systemd has given up: no engine and no socket."""
        for pid in tree(self.holder.pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.socket.unlink()

    def add_endpoint(self, service_name, endpoint):
        self.services[service_name]["endpoints"].append(endpoint)
        self.configure()
        self.reload()

    def drain(self, service_name, node, draining):
        entry = {"service": service_name, "node": node, "since": time.time(), "reason": "change"}
        replace("/var/lib/llama-cluster/draining.json", {"endpoints": [entry] if draining else []})


def replace(path, content):
    path = pathlib.Path(path)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content))
    new.rename(path)
