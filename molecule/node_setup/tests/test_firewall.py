"""The rules as packets meet them: a head, a worker and a third node in network namespaces of one node, with every way
of opening a connection."""

import base64
import json

import pytest
import rendered

HEAD, WORKER, PORT = rendered.HEAD, rendered.WORKER, rendered.PORT
THIRD, ELSE, JOBS, FREE = "10.9.1.2", 9999, 9998, 9997
LISTEN = """
import socket, sys, threading
def serve(stream):
    while True:
        connection = stream.accept()[0]
        echo = lambda: [connection.send(data) for data in iter(lambda: connection.recv(64), b"")]
        threading.Thread(target=echo, daemon=True).start()
for port in sys.argv[1:]:
    stream = socket.socket(socket.AF_INET6)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    stream.bind(("::", int(port)))
    stream.listen(16)
    threading.Thread(target=serve, args=(stream,)).start()
"""
# Every way that a process without privileges has -> {way: whether an answer, or at least a packet, went through}.
TRY = """
import json, socket, sys
def opens(family, kind, protocol, address, port, local=None):
    try:
        with socket.socket(family, kind, protocol) as stream:
            stream.settimeout(2)
            if local:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                stream.bind(local)
            stream.connect((address, port))
            stream.send(b"probe")
            return kind == socket.SOCK_DGRAM or stream.recv(64) == b"probe"
    except OSError:
        return False
address, address6, port, local = sys.argv[1], sys.argv[2], int(sys.argv[3]), ("", int(sys.argv[4]))
inet, inet6, tcp, udp = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
print(json.dumps({
    "tcp": opens(inet, tcp, 0, address, port),
    "mapped": opens(inet6, tcp, 0, "::ffff:" + address, port),
    "tcp6": opens(inet6, tcp, 0, address6, port),
    "mptcp": opens(inet, tcp, 262, address, port),
    "from": opens(inet, tcp, 0, address, port, local),
    "udp": opens(inet, udp, 0, address, 53),
    "udp6": opens(inet6, udp, 0, address6, 53),
    "loopback": opens(inet, tcp, 0, "127.0.0.1", port),
}))
"""
# A SYN that comes in from the third node, and that the kernel sends on as a copy of its own: one without a socket, as
# AF_SMC opens its connections.
OWNERLESS = "table ip copies { chain pre { type filter hook prerouting priority -300; tcp dport %d dup to %s; }; }" % (
    PORT,
    WORKER,
)
COUNT = """
table inet count {
    counter syn { }
    chain pre { type filter hook prerouting priority -300; tcp dport %d tcp flags & (syn|ack) == syn counter name syn; }
}
"""


class Nodes:
    def __init__(self, node):
        self._node = node

    def run(self, command):
        return self._node.run("bash -c 'echo %s | base64 -d | bash -e'" % base64.b64encode(command.encode()).decode())

    def do(self, command):
        done = self.run(command)
        assert done.rc == 0, (command, done.stderr)
        return done.stdout

    def rules(self, name, text):
        """Loads rules into a node's kernel instead of those that it has."""
        self.do("ip netns exec %s nft -f - <<'END'\nflush ruleset\n%s\nEND" % (name, text))

    def ways(self, name, user, address, address6, port, source=PORT):
        """Connections that a user of a node can open."""
        arguments = "%s %s %d %d" % (address, address6, port, source)
        return json.loads(
            self.do(
                "ip netns exec %s setpriv --reuid=%s --clear-groups python3 /run/try.py %s" % (name, user, arguments)
            )
        )

    def opened(self):
        """How many openings of connections have reached the worker since the last look."""
        listed = json.loads(self.do("ip netns exec fw-worker nft --json reset counter inet count syn"))
        return next(entry["counter"]["packets"] for entry in listed["nftables"] if "counter" in entry)


@pytest.fixture(scope="module", name="nodes")
def fixture_nodes(lab):
    nodes = Nodes(lab.node1)
    nodes.do("cat > /run/listen.py <<'END'\n%s\nEND\ncat > /run/try.py <<'END'\n%s\nEND" % (LISTEN, TRY))
    links = (
        ("fw-head", "10.9.0.1/24", "fd09::1/64", "fw-worker", "10.9.0.2/24", "fd09::2/64"),
        ("fw-head", "10.9.1.1/24", "fd0a::1/64", "fw-third", "10.9.1.2/24", "fd0a::2/64"),
    )
    commands = [
        "ip netns add %s && ip -n %s link set lo up" % (name, name) for name in ("fw-head", "fw-worker", "fw-third")
    ]
    for number, (one, address, address6, other, peer, peer6) in enumerate(links):
        commands.append("ip link add fw%da type veth peer name fw%db" % (number, number))
        for name, end, ends in ((one, "fw%da" % number, (address, address6)), (other, "fw%db" % number, (peer, peer6))):
            commands.append(
                "ip link set %s netns %s && ip -n %s address add %s dev %s" % (end, name, name, ends[0], end)
            )
            commands.append(
                "ip -n %s address add %s dev %s nodad && ip -n %s link set %s up" % (name, ends[1], end, name, end)
            )
    commands += [
        "ip -n fw-head address add 10.9.0.9/24 dev fw0a",
        "ip -n fw-third route add default via 10.9.1.1",
        "ip -n fw-worker route add default via 10.9.0.1",
    ]
    commands.append(
        "(ip netns exec fw-worker setpriv --reuid=llama-rpc --clear-groups python3 /run/listen.py %d >/dev/null 2>&1 & "
        "echo $! > /run/listen.pids)" % PORT
    )
    commands.append(
        "(ip netns exec fw-worker setpriv --reuid=4711 --clear-groups python3 /run/listen.py %d >/dev/null 2>&1 & "
        "echo $! >> /run/listen.pids)" % JOBS
    )
    commands.append(
        "(ip netns exec fw-worker python3 /run/listen.py %d >/dev/null 2>&1 & echo $! >> /run/listen.pids)" % ELSE
    )
    commands.append(
        "(ip netns exec fw-head python3 /run/listen.py %d >/dev/null 2>&1 & echo $! >> /run/listen.pids)" % ELSE
    )
    commands.append(
        "for name in fw-worker fw-head; do for i in $(seq 50); do ip netns exec $name ss -Hltn | grep -q :%d && break; "
        "sleep 0.1; done; done" % ELSE
    )
    try:
        nodes.do("\n".join(commands))
        yield nodes
    finally:
        nodes.run(
            "kill $(cat /run/listen.pids); for name in fw-head fw-worker fw-third; do ip netns delete $name; done"
        )
        nodes.run("rm -f /run/listen.py /run/try.py /run/listen.pids")


OPEN = {
    "tcp": True,
    "mapped": True,
    "tcp6": True,
    "mptcp": True,
    "from": True,
    "udp": True,
    "udp6": True,
    "loopback": True,
}
TO_WORKER = ("tcp", "mapped", "mptcp", "from")


def to_worker(nodes, user):
    """Whether a user of the head's node reaches the worker: the ways that lead there, without those beside it (IPv6,
    UDP, loopback)."""
    ways = nodes.ways("fw-head", user, WORKER, "fd09::2", PORT, 0)
    return {ways[way] for way in TO_WORKER}


def test_out_of_a_head_only_its_account_leaves(nodes):
    nodes.rules("fw-worker", "")
    nodes.rules("fw-head", "")
    assert to_worker(nodes, "nobody") == {True}, "nothing else keeps it from it"
    nodes.rules("fw-head", rendered.rules(outgoing=["%s:%d" % (WORKER, PORT)]))
    assert to_worker(nodes, "llama") == {True}
    for user in ("nobody", "root", "llama-rpc"):
        assert to_worker(nodes, user) == {False}, user


def test_an_opening_without_an_owner_is_nobodys(nodes):
    """Rules about owners do not match it at all: it passes if only other users are refused."""
    probe = "ip netns exec fw-third timeout 1 bash -c 'exec 3<>/dev/tcp/%s/%d' || true" % (WORKER, PORT)
    nodes.rules("fw-worker", COUNT % PORT)
    nodes.rules("fw-head", OWNERLESS)
    nodes.do(probe)
    assert nodes.opened() > 0, "the copies go out where there are no rules"
    nodes.rules("fw-head", rendered.rules(outgoing=["%s:%d" % (WORKER, PORT)]) + OWNERLESS)
    nodes.do(probe)
    assert nodes.opened() == 0


def test_the_end_of_a_head_reaches_its_worker(nodes):
    """Packets of the kernel for an ended process have no owner."""
    nodes.rules("fw-worker", rendered.rules(incoming=["%s:%d" % (HEAD, PORT)]))
    nodes.rules("fw-head", rendered.rules(outgoing=["%s:%d" % (WORKER, PORT)]))
    connect = "exec 3<>/dev/tcp/%s/%d; echo probe >&3; kill -9 $$" % (WORKER, PORT)
    nodes.do("ip netns exec fw-head setpriv --reuid=llama --clear-groups bash -c '%s' || true; sleep 0.5" % connect)
    assert nodes.do("ip netns exec fw-worker ss -Htn state established sport = :%d" % PORT) == ""


def test_into_a_worker_only_its_head_comes(nodes):
    nodes.rules("fw-head", "")
    nodes.rules("fw-worker", rendered.rules(incoming=["%s:%d" % (HEAD, PORT)]))
    ways = nodes.ways("fw-head", "nobody", WORKER, "fd09::2", PORT, 0)
    assert {way: ways[way] for way in ("tcp", "mapped", "mptcp", "tcp6")} == {
        "tcp": True,
        "mapped": True,
        "mptcp": True,
        "tcp6": False,
    }
    other = (
        'ip netns exec fw-head timeout 2 python3 -c \'import socket; socket.create_connection(("%s", %d), 1, '
        '("10.9.0.9", 0))\''
    )
    assert nodes.run(other % (WORKER, PORT)).rc != 0, "another address of the head's node"
    assert nodes.run(other % (WORKER, ELSE)).rc == 0, "which is reached at other ports"
    for user in ("nobody", "root", "llama", "llama-rpc"):
        assert not nodes.ways("fw-worker", user, WORKER, "fd09::2", PORT, 0)["tcp"], user


def test_only_job_user_reaches_workers_of_jobs(nodes):
    """No account of systemd's services runs them."""
    nodes.rules("fw-worker", rendered.rules(jobs_incoming=["%s:%d" % (HEAD, JOBS)]))
    nodes.rules("fw-head", "")
    assert nodes.ways("fw-head", "nobody", WORKER, "fd09::2", JOBS, 0)["tcp"], "the head's node decides about its users"
    nodes.rules("fw-head", rendered.rules(jobs_outgoing=["%s:%d" % (WORKER, JOBS)]))
    for user, reaches in (("4711", True), ("nobody", False), ("root", False), ("llama", False), ("llama-rpc", False)):
        ways = nodes.ways("fw-head", user, WORKER, "fd09::2", JOBS, 0)
        assert {ways[way] for way in TO_WORKER} == {reaches}, user
        assert not nodes.ways("fw-worker", user, WORKER, "fd09::2", JOBS, 0)["tcp"], user + " of the worker's node"
    third = "ip netns exec fw-third timeout 2 bash -c 'exec 3<>/dev/tcp/%s/%d'" % (WORKER, JOBS)
    assert nodes.run(third).rc != 0


@pytest.mark.parametrize(("kind", "user"), [("", "llama"), ("jobs_", "4711")])
def test_no_other_user_answers_a_head(nodes, kind, user):
    """ELSE as the port of a worker: while it is down, another user of its node listens there."""

    def load(port):
        nodes.rules("fw-worker", rendered.rules(**{kind + "incoming": ["%s:%d" % (HEAD, port)]}))

    nodes.rules("fw-head", rendered.rules(**{kind + "outgoing": ["%s:%d" % (WORKER, ELSE)]}))
    nodes.rules("fw-worker", "")
    ways = nodes.ways("fw-head", user, WORKER, "fd09::2", ELSE, 0)
    assert {ways[way] for way in TO_WORKER} == {True}, "nothing else keeps it from it"
    load(ELSE)
    ways = nodes.ways("fw-head", user, WORKER, "fd09::2", ELSE, 0)
    assert {ways[way] for way in TO_WORKER} == {False}
    # Two ends may open one connection at once, without a listener.
    for port, opens in ((FREE, False), (ELSE, True)):
        load(port)
        assert nodes.ways("fw-worker", "nobody", HEAD, "fd09::1", ELSE, FREE)["from"] == opens


def test_a_worker_answers_its_head(nodes):
    for kind, user, port in (("", "llama", PORT), ("jobs_", "4711", JOBS)):
        nodes.rules("fw-head", rendered.rules(**{kind + "outgoing": ["%s:%d" % (WORKER, port)]}))
        nodes.rules("fw-worker", rendered.rules(**{kind + "incoming": ["%s:%d" % (HEAD, port)]}))
        ways = nodes.ways("fw-head", user, WORKER, "fd09::2", port, 0)
        assert {ways[way] for way in TO_WORKER} == {True}, kind


def test_compromised_worker_reaches_no_host(nodes):
    nodes.rules("fw-head", "")
    nodes.rules("fw-worker", "")
    assert nodes.ways("fw-worker", "llama-rpc", HEAD, "fd09::1", ELSE, 0) == OPEN, "nothing else keeps it from it"
    nodes.rules("fw-worker", rendered.rules(incoming=["%s:%d" % (HEAD, PORT)]))
    for source in (0, PORT):
        ways = nodes.ways("fw-worker", "llama-rpc", HEAD, "fd09::1", ELSE, source)
        assert ways == dict.fromkeys(OPEN, False), source
    assert nodes.ways("fw-worker", "nobody", HEAD, "fd09::1", ELSE, 0) == OPEN, "others of its node go where they like"
    # A node with only heads: the workers' account is not used.
    nodes.rules("fw-worker", rendered.rules(outgoing=["%s:%d" % (THIRD, PORT)]))
    assert nodes.ways("fw-worker", "llama-rpc", HEAD, "fd09::1", ELSE, 0) == dict.fromkeys(OPEN, False)


def test_head_accepts_gateway_and_own_node(nodes):
    """ELSE as the port of a head on the worker's node, and the other node as the gateway, or as anybody."""
    nodes.rules("fw-head", "")
    for clients, admitted in (("%s/32" % HEAD, True), ("10.9.7.0/24", False)):
        nodes.rules("fw-worker", rendered.rules(clients=["%s:%d" % (clients, ELSE)]))
        seen = nodes.ways("fw-head", "root", WORKER, "fd09::2", ELSE)
        assert (seen["tcp"], seen["mapped"], seen["tcp6"]) == (admitted, admitted, False)
        assert nodes.ways("fw-worker", "root", WORKER, "fd09::2", ELSE)["tcp"]
