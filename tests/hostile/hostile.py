"""Programs that attack the host that judges them, judged for real; `python tests/hostile/hostile.py IMAGE` does it on
this machine, in containers of that image."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
NAMES = sorted(path.stem for path in HERE.glob("*.rs"))
FOLDER = "/srv/llama-hostile"
# A server on port 47123 that notes clients, and notes a server on port 47124.
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
server = socket.create_server(("0.0.0.0", 47123))
server.settimeout(0.1)
while os.path.exists("FOLDER/watched"):
    try:
        server.accept()
        seen = "a client came"
    except OSError:
        with socket.socket() as client:
            seen = "" if client.connect_ex(("127.0.0.1", 47124)) else "a server was reached"
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


def judged(shell, judge):
    """Judges all programs -> (what the module returned, how the host looked before, how after).

    shell: runs a script as root on the host that judges -> its output. judge: runs judge.yml with these options.
    """
    with tempfile.TemporaryDirectory() as scratch:
        result = pathlib.Path(scratch, "result.json")
        shell(PLANT)
        try:
            before = shell(LOOK)
            judge("-e", "result=%s" % result)
            after = shell(LOOK)
        finally:
            shell(CLEAN)
        return json.loads(result.read_text()), before, after


def here(image):
    """judged() on this machine."""

    def shell(script):
        return subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, text=True, check=True).stdout

    def judge(*arguments):
        command = ["ansible-playbook", "tests/hostile/judge.yml", "-i", "localhost,", "-c", "local"]
        command += ["-e", "judging=localhost", "-e", "image=%s" % image]
        command += ["-e", "ansible_python_interpreter=%s" % sys.executable, *arguments]
        paths = os.pathsep.join((str(REPOSITORY / ".collections"), os.environ.get("ANSIBLE_COLLECTIONS_PATH", "")))
        subprocess.run(command, cwd=REPOSITORY, env=dict(os.environ, ANSIBLE_COLLECTIONS_PATH=paths), check=True)

    return judged(shell, judge)


if __name__ == "__main__":
    seen, *states = here(sys.argv[1])
    for verdict in seen["verdicts"]:
        print("%(answer)-18s %(passes)s %(reason)s" % verdict)  # noqa: T201
    print(seen["way"], seen["rustc"], "untouched" if states[0] == states[1] else states)  # noqa: T201
