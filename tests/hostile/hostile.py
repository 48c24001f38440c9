"""Programs that attack the host that judges them, judged for real; `python tests/hostile/hostile.py IMAGE` does it on
this machine, in containers of that image."""

import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
NAMES = sorted(path.stem for path in HERE.glob("*.rs"))
FOLDER = "/srv/llama-hostile"
# A server on port 7123 that notes clients, and notes a server on port 7124.
PLANT = """
set -e
mkdir -p FOLDER
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
sleep 1
pgrep -f FOLDER/[w]atch.py
""".replace("FOLDER", FOLDER)
CLEAN = f"rm -f {FOLDER}/watched; sleep 1; rm -rf {FOLDER}"
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

    inventory = ("-i", "localhost,", "-c", "local", "-e", "ansible_python_interpreter=%s" % sys.executable)

    def __init__(self, image):
        self.options = {"judging": "localhost", "image": image}

    @staticmethod
    def shell(script):
        root = ["sudo"] if os.geteuid() else []
        return subprocess.run([*root, "sh", "-c", script], stdout=subprocess.PIPE, text=True, check=True).stdout


class Container:
    """A lab's node, which judges in units of its systemd."""

    def __init__(self, name):
        self.name = name
        self.inventory = ("-i", name + ",", "-c", "community.docker.docker")
        self.options = {"judging": name}

    def shell(self, script):
        command = ["docker", "exec", self.name, "sh", "-c", script]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def judged(host, names):
    """Judges programs of this directory -> (the module's result, with verdicts by name, how the host was before and how
    it is after)."""
    paths = os.pathsep.join((str(REPOSITORY / ".collections"), sysconfig.get_path("purelib")))
    environment = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=paths, ANSIBLE_CONFIG=str(REPOSITORY / "ansible.cfg"))
    program = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
    with tempfile.TemporaryDirectory() as scratch:
        result = pathlib.Path(scratch, "result.json")
        options = json.dumps({**host.options, "names": names, "result": str(result)})
        host.shell(PLANT)
        try:
            before = host.shell(LOOK)
            subprocess.run([program, HERE / "judge.yml", *host.inventory, "-e", options], env=environment, check=True)
            after = host.shell(LOOK)
        finally:
            host.shell(CLEAN)
        seen = json.loads(result.read_text())
    return {**seen, "verdicts": {one["answer"]: one for one in seen["verdicts"]}}, before, after


if __name__ == "__main__":
    found, *states = judged(Here(sys.argv[1]), NAMES)
    for name, verdict in found["verdicts"].items():
        print("%-18s %s %s" % (name, "PASSES" if verdict["passes"] else "-", verdict["reason"]))
    print(found["way"], found["rustc"], "untouched" if states[0] == states[1] else states)
