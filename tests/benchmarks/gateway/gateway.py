"""Our engine behind nginx with the role's site, and fake llama-servers; all on the loopback of a container."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
RENDERED, WORK = pathlib.Path("/rendered"), pathlib.Path("/tmp/bench")
PORT = 24300
# As Debian's nginx.conf: workers, connections, and where sites come from.
NGINX = """user www-data; worker_processes auto; pid /tmp/bench/pid; error_log /tmp/bench/error.log;
events { worker_connections 768; }
http { sendfile on; tcp_nopush on; access_log off; types_hash_max_size 2048;
client_body_temp_path /tmp/bench/body; proxy_temp_path /tmp/bench/proxy; include /tmp/bench/site.conf; }
"""


def replace(path, content):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content))
    new.rename(path)


def wait_for(port, seconds=20):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return
        time.sleep(0.05)
    sys.exit(f"gateway benchmark: port {port} did not answer in {seconds} s")


def service(model, ports, **more):
    """An entry of `services` in gateway.json."""
    endpoints = [{"node": f"node{port}", "address": "127.0.0.1", "port": port, "slots": 512} for port in ports]
    return {"models": [{"name": model}], "endpoints": endpoints, **more}


class Fakes:
    """Fake llama-servers by port, one process each."""

    def __init__(self):
        self.running = {}

    def start(self, port, model, wait=True, **options):
        command = [sys.executable, str(HERE / "fake_llama_server.py"), "--port", str(port), "--model", model]
        for name, value in options.items():
            command += ["--" + name, str(value)]
        self.running[port] = subprocess.Popen(command)
        if wait:
            wait_for(port)

    def kill(self, port):
        process = self.running.pop(port)
        process.kill()
        process.wait()


def tree(pid):
    found = [pid]
    with contextlib.suppress(OSError):
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += tree(int(child))
    return found


class Gateway:
    def __init__(self, services):
        self.configure(services)
        for path in RENDERED.iterdir():
            (WORK / path.name).write_text(path.read_text().replace("@PORT@", str(PORT)))
        (WORK / "nginx.conf").write_text(NGINX)
        nginx = subprocess.Popen(["nginx", "-c", str(WORK / "nginx.conf"), "-g", "daemon off;"])
        # In the place of systemd: holds the socket and starts the engine again when it ends.
        command = [sys.executable, str(HERE / "fake_socket_unit.py"), str(WORK / "gateway.sock"), str(WORK)]
        self.holder = subprocess.Popen(command, stdout=(WORK / "log").open("wb"))
        self.processes = [nginx, self.holder]
        wait_for(PORT)

    def configure(self, services):
        WORK.mkdir(exist_ok=True)
        top = {"version": 1, "services": services, "auth": "log_only"}
        replace("/etc/llama-cluster/gateway/gateway.json", top)
        replace("/etc/llama-cluster/gateway/keys.json", {"clients": {}, "services": {}})

    def pids(self):
        return tree(self.holder.pid)[1:]

    def signal(self, number):
        os.kill(int((WORK / "engine.pid").read_text()), number)

    def memory(self):
        """PSS of all of its processes, in MB."""
        kilobytes = 0
        for pid in [pid for process in self.processes for pid in tree(process.pid)]:
            with contextlib.suppress(OSError):
                lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return kilobytes / 1024

    def stop(self):
        for pid in [pid for process in self.processes for pid in tree(process.pid)]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


class Peak(threading.Thread):
    """The most memory of a gateway while something ran."""

    def __init__(self, gateway):
        super().__init__(daemon=True)
        self.gateway, self.most, self.over = gateway, 0.0, threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()

    def run(self):
        # The first look before the first wait: eight bodies of 1 MB are through in less than 0.2 s.
        while True:
            self.most = max(self.most, self.gateway.memory())
            if self.over.wait(0.02):
                return
