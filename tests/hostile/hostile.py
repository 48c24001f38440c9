"""Programs that attack the host that judges them, judged for real; `python tests/hostile/hostile.py IMAGE` does it on
this machine, in containers of that image."""

import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
NAMES = sorted(path.stem for path in HERE.glob("*.rs"))
FOLDER, CODE = "/srv/llama-hostile", "/srv/llama-judging"
# A server on port 7123 that notes clients, and notes a server on port 7124.
PLANT = """
set -e
mkdir -p FOLDER CODE
touch FOLDER/watched FOLDER/seen
echo untouched >FOLDER/canary
echo '{}' | tee FOLDER/open.json >FOLDER/secret.json
chmod 666 FOLDER/canary
chmod 600 FOLDER/secret.json
cat >FOLDER/watch.py <<'END'
import os, socket
server = socket.create_server(("0.0.0.0", 7123))
server.settimeout(0.1)
while os.path.exists("FOLDER/watched"):
    try:
        server.accept()
        seen = "a client came"
    except OSError:
        with socket.socket() as client:
            seen = "" if client.connect_ex(("127.0.0.1", 7124)) else "a server was reached"
    if seen:
        with open("FOLDER/seen", "a") as file:
            print(seen, file=file)
END
setsid python3 FOLDER/watch.py >/dev/null 2>&1 </dev/null &
# Port 7123.
timeout 20 sh -c 'until grep -q :1BD3 /proc/net/tcp; do sleep 0.1; done'
pgrep -f FOLDER/[w]atch.py
""".replace("FOLDER", FOLDER).replace("CODE", CODE)
CLEAN = f"""
rm -f {FOLDER}/watched
timeout 20 sh -c 'while pgrep -f {FOLDER}/[w]atch.py; do sleep 0.1; done'
rm -rf {FOLDER} {CODE}
"""
# Attacks would change this: the canary, the network, root's files, the programs of systems, files left behind.
LOOK = """
cat FOLDER/canary FOLDER/seen
ls FOLDER
sha256sum /etc/passwd /etc/shadow /proc/sys/kernel/core_pattern
ls /dev/shm /tmp /var/tmp /run | grep -c llama-judge || :
pgrep -cx judged || :
pgrep -fc '[s]leep 471' || :
{ systemctl list-units --all --no-legend 'llama-judge-*'; docker ps --all --quiet --filter name=llama-judge-; } \\
    2>/dev/null || :
""".replace("FOLDER", FOLDER)


class Here:
    """This machine, which judges in containers of an image."""

    def __init__(self, image):
        self.image = image

    @staticmethod
    def shell(script):
        root = ["sudo"] if os.geteuid() else []
        return subprocess.run([*root, "sh", "-c", script], stdout=subprocess.PIPE, text=True, check=True).stdout

    @staticmethod
    def judge(given):
        program = [sys.executable, HERE / "judge.py"]
        return subprocess.run(program, input=given, stdout=subprocess.PIPE, text=True, check=True).stdout


class Container:
    """A lab's node, which judges in units of its systemd."""

    image = ""

    def __init__(self, name):
        self.name = name

    def shell(self, script):
        return self._run(["sh", "-c", script]).stdout

    def judge(self, given):
        words = ["tar", "-c", "--exclude=__pycache__", "plugins/module_utils", "tests/hostile/judge.py"]
        packed = subprocess.run(words, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["docker", "exec", "-i", self.name, "tar", "-x", "-C", CODE], input=packed, check=True)
        return self._run(["python3", "-B", f"{CODE}/tests/hostile/judge.py"], input=given).stdout

    def _run(self, words, **more):
        command = ["docker", "exec", "-i", self.name, *words]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **more)


def judged(host, names):
    """Judges programs of this directory -> (the result of judge.py, verdicts by name, how the host was before and is
    after)."""
    task = {"name": "hostile/double", "judge": "rust", "tests": (HERE / "task/tests.rs").read_text()}
    answers = [
        {"answer": os.path.basename(name), "task": task["name"], "source": (HERE / (name + ".rs")).read_text()}
        for name in [*names, "task/reference"]
    ]
    tasks = [{**task, "refused": None, "dir": None}]
    given = {"image": host.image, "tasks": tasks, "answers": answers}
    host.shell(PLANT)
    try:
        before = host.shell(LOOK)
        seen = json.loads(host.judge(json.dumps(given)))
        after = host.shell(LOOK)
    finally:
        host.shell(CLEAN)
    return {**seen, "verdicts": {one["answer"]: one for one in seen["verdicts"]}}, before, after


if __name__ == "__main__":
    found, *states = judged(Here(sys.argv[1]), NAMES)
    for name, verdict in found["verdicts"].items():
        print("%-18s %s %s" % (name, "PASSES" if verdict["passes"] else "-", verdict["reason"]))
    print(found["way"], found["rustc"], "untouched" if states[0] == states[1] else states)
