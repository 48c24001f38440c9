"""Deployments of the lab that are wrong and serve all the same: how each is made, how it is undone, and the sentence
that verify.yml has for it.

Each command runs as root in a shell on a node. What is exchanged is kept beside it under the ending .sound.
"""

import typing

HEAD, WORKER, OTHER = "node1", "node3", "node2"
UNITS = {HEAD: "llama-head-chat.service", WORKER: "llama-rpc-chat.service", OTHER: "llama-rpc-chat.service"}
FOLDER = "/etc/systemd/system"
# The watchdog would put the rules back within seconds.
OPEN = "systemctl stop llama-watchdog && nft flush table inet llama_cluster"
CLOSE = "systemctl restart llama-firewall && systemctl start llama-watchdog"


class Sabotage(typing.NamedTuple):
    """change, undo: [(node, command)], done while nothing runs. said: a part of the sentence, with %(ethernet)s and
    %(fabric)s of WORKER."""

    change: list
    undo: list
    said: str


def edit(node, script):
    """A unit with another command line. What is kept of it is what it was before all changes."""
    path = "%s/%s" % (FOLDER, UNITS[node])
    return node, "cp -an %s %s.sound && sed -i '%s' %s && systemctl daemon-reload" % (path, path, script, path)


def put_back(node):
    path = "%s/%s" % (FOLDER, UNITS[node])
    return node, "if [ -e %s.sound ]; then mv %s.sound %s; fi && systemctl daemon-reload" % (path, path, path)


# A copy of the release whose server has one byte more, as its build.json says.
COPY = """set -e
release=$(sed -n "s|.* \\(/opt/llama.cpp/releases/[^/]*\\)/bin/ggml-rpc-server .*|\\1|p" {path} | head -n 1)
cp -a "$release" /opt/llama.cpp/releases/b11434-other
cd /opt/llama.cpp/releases/b11434-other
printf x >>bin/ggml-rpc-server
sum=$(sha256sum bin/ggml-rpc-server | cut -d " " -f 1)
sed -i "s|\\(\\"bin/ggml-rpc-server\\": \\"\\)[0-9a-f]*|\\1$sum|" build.json
cp -an {path} {path}.sound
sed -i "s|$release|/opt/llama.cpp/releases/b11434-other|g" {path}
systemctl daemon-reload
""".format(path="%s/%s" % (FOLDER, UNITS[WORKER]))

SABOTAGES = {
    "worker over Ethernet": Sabotage(
        [
            edit(HEAD, "s/%(fabric)s:50052/%(ethernet)s:50052/g"),
            edit(WORKER, "s/--host %(fabric)s/--host %(ethernet)s/; /^IPAddress/d"),
            (WORKER, OPEN),
        ],
        [put_back(HEAD), put_back(WORKER), (WORKER, CLOSE)],
        "it is connected to %(ethernet)s:50052 instead",
    ),
    "worker idle": Sabotage(
        [edit(HEAD, "s/--tensor-split [0-9,]*/--tensor-split 31,0/")],
        [put_back(HEAD)],
        "it answers, but not over %(fabric)s:50052: compare tensor_split with --rpc",
    ),
    "wrong build": Sabotage(
        [(WORKER, COPY)],
        [put_back(WORKER), (WORKER, "rm -rf /opt/llama.cpp/releases/b11434-other")],
        "node3 runs b11434-other, release b11434",
    ),
    # Two fences are down: the firewall of the node, and that of systemd around the unit.
    "RPC open to all": Sabotage(
        [edit(WORKER, "/^IPAddress/d"), (WORKER, OPEN)],
        [put_back(WORKER), (WORKER, CLOSE)],
        "node2 gets a connection to the RPC port %(fabric)s:50052, only the head may have one",
    ),
}


def apply(steps, run, addresses):
    """Stops the service, runs the commands, and starts it again. run(node, command): as root, raising where it fails.
    addresses: {ethernet, fabric} of WORKER."""
    run(HEAD, "systemctl stop " + UNITS[HEAD])
    for node in (OTHER, WORKER):
        run(node, "systemctl stop " + UNITS[node])
    for node, command in steps:
        run(node, command.replace("%(fabric)s", addresses["fabric"]).replace("%(ethernet)s", addresses["ethernet"]))
    for node in (OTHER, WORKER):
        run(node, "systemctl start " + UNITS[node])
    run(HEAD, "systemctl start --no-block " + UNITS[HEAD])
