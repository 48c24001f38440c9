"""Damaged and hostile requests, sent raw to nginx and the engine (make fuzz-gateway).

    fuzz.py [--rounds 3000] [--seed 1]

The upstream is a fake llama-server that records what reached it. Fails where a closed path did, by any reading of what
it got; where a request arrived with two lengths; where an answer was 500, 502 or 504 while all servers serve; where the
engine ended or noted an exception. Everything is on the loopback of a container.
"""

import argparse
import asyncio
import json
import pathlib
import random
import re
import sys
import time
from urllib.parse import unquote

import load
import report
from candidates import EngineBehindNginx, Fakes, service

CHAT, OTHER = 24001, 24011
RECORD = pathlib.Path("/tmp/fuzz.jsonl")
SIDE_BY_SIDE, PATIENCE = 12, 2.0
CLOSED = (
    *("/slots", "/slots/0", "/slots/0?action=save", "/v1/slots", "/models/load", "/models/unload"),
    *("/v1/models/load", "/v1/models/unload", "/v1/stream?conv_id=x", "/v1/streams/lookup"),
)
CLOSED_TO_POST = ("/props", "/lora-adapters")
OPEN = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/embeddings", "/health", "/metrics", "/tokenize")
FORBIDDEN = (500, 502, 504)


def is_closed(method, target):
    """Whether some reading of a request line that reached the server is a closed path: encoded up to four times, with
    or without what follows a semicolon, dots taken as they stand or followed. More readings than any one server has."""
    readings = {re.split(r"[?#\s]", target)[0]}
    readings |= {reading.partition(";")[0] for reading in readings}
    for _one in range(4):
        readings |= {unquote(reading) for reading in readings}
    return any(names_closed(method, parts) for reading in readings for parts in split(reading))


def split(path):
    """-> the parts of a path, with dots as they stand, and with dots followed."""
    plain = [part for part in re.split(r"[/\\]+", path.lower()) if part not in ("", ".")]
    followed = []
    for part in plain:
        if part == "..":
            del followed[-1:]
        else:
            followed.append(part)
    return plain, followed


def names_closed(method, parts):
    if parts[:1] == ["v1"]:
        parts = parts[1:]
    if parts[:1] in (["slots"], ["stream"], ["streams"]) or parts[-2:] in (["models", "load"], ["models", "unload"]):
        return True
    return method not in ("GET", "HEAD", "OPTIONS") and parts[:1] in (["props"], ["lora-adapters"])


class Maker:
    """Requests of one seed, as bytes."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *values):
        return self.random.choice(values)

    def closed(self):
        """A closed path, or an open one, disguised."""
        path = self.pick(*CLOSED, *CLOSED_TO_POST, *OPEN)
        for _one in range(self.random.randrange(4)):
            path = self.disguise(path)
        return self.pick("", "", "", "/reasoning", "/task/x", "/task/analyze", "/v1", "http://bench") + path

    def disguise(self, path):
        at = self.random.randrange(1, max(2, len(path)))
        kind = self.random.randrange(16)
        slashes = [n for n, letter in enumerate(path) if letter == "/"] or [0]
        slash = self.pick(*slashes)
        if kind == 0:
            return path[:slash] + self.pick("%2f", "%2F", "%252f", "%255c", "\\", "%5c", "%c0%af") + path[slash + 1 :]
        if kind == 1:
            return path[:at] + "".join("%%%02x" % ord(letter) for letter in path[at : at + 1]) + path[at + 1 :]
        if kind == 2:
            return path[:at] + "".join("%%25%02X" % ord(letter) for letter in path[at : at + 1]) + path[at + 1 :]
        if kind == 3:
            return (
                path[:slash]
                + "/"
                + self.pick(".", "..", "x/..", "%2e", "%2e%2e", ".%2e", "x/%2e%2e", "...")
                + path[slash:]
            )
        if kind == 4:
            return path[:slash] + "/" * self.random.randrange(1, 4) + path[slash:]
        if kind == 5:
            return (
                "/v1/chat/completions/" + self.pick("..", "%2e%2e", "..%2f..", "%2e%2e/%2e%2e/%2e%2e") + "/../.." + path
            )
        if kind == 6:
            return path + self.pick(
                "/", "//", "/.", "/..", "%20", "%00", "%0d%0a", "?", "#", ";x", ";/../v1/models", "%3fx", "%23"
            )
        if kind == 7:
            return "".join(letter.upper() if self.random.random() < 0.5 else letter for letter in path)
        if kind == 8:
            return (
                path[:at]
                + self.pick("%0a", "%0d", "%09", "\t", "\x00", "\x7f", "\xe9", "%ff", "%zz", "%", "%u002f")
                + path[at:]
            )
        if kind == 9:
            return (
                path
                + "?"
                + self.pick("model=x", "autoload=true", "action=erase", "a=b#c", "x=%2e%2e/slots", "/../slots")
            )
        if kind == 10:
            return self.pick("//bench", "/", "", "http://127.0.0.1:24001", "/.//", "/%2f") + path
        if kind == 11:
            return "".join("%%%02x" % ord(letter) for letter in path)
        if kind == 12:
            return "/" + "".join("%%%02X" % ord(letter) for letter in path[1:])
        if kind == 13:
            return "/v1" + path
        if kind == 14:
            return path.replace("/v1", self.pick("/V1", "/v1/", "/v1/./", "/%76%31", "/v1/x/.."), 1)
        return "/x" * self.random.randrange(1, 2000) + "/.." * self.random.randrange(0, 2000) + path

    def body(self):
        model = self.pick(
            "or1-behemoth", "or1-behemoth", "OR1-Behemoth", "two", "nobody", "", "\ud800", None, 5, ["x"], {"a": 1}
        )
        plain = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "model": model}
        kind = self.random.randrange(15)
        if kind < 4:
            return json.dumps(plain).encode()
        if kind == 4:
            return json.dumps(plain).encode().replace(b'"x"', b'"\xff\xfe\xc3"')
        if kind == 5:
            depth = self.pick(50, 2000, 100000)
            return b'{"model": ' + b"[" * depth + b"]" * self.pick(depth, 0) + b"}"
        if kind == 6:
            return b'{"a": ' * self.pick(900, 50000) + b'"model"'
        if kind == 7:
            return b'{"model": "or1-behemoth", "model": "two", "max_tokens": 1, "model": "or1-behemoth"}'
        if kind == 8:
            text = json.dumps(plain).encode()
            return text[: self.random.randrange(len(text))]
        if kind == 9:
            return self.pick(
                b"", b"null", b"[]", b'"model"', b"1e999999", b"-", b"NaN", b'{"model": NaN}', b"{}" * 9, b"\x00" * 99
            )
        if kind == 10:
            return json.dumps(dict(plain, model="or1-behemoth")).encode("utf-16")
        if kind == 11:
            return b"\xef\xbb\xbf" + json.dumps(plain).encode()
        if kind == 12:
            return json.dumps(dict({"pad": "x" * self.pick(200000, 1100000, 5000000)}, **plain)).encode()
        if kind == 13:
            return (
                b'{"model": "'
                + self.pick(b"\\ud800", b"\\u0000", b"a\\r\\nX-Llama-Tier: fast", b"%0d%0a", b"x" * 70000)
                + b'", "max_tokens": 1}'
            )
        return (
            b'{"max_tokens": '
            + self.pick(b"9" * 5000, b"1e400", b"-1", b"true", b'"\\ud83d"')
            + b', "model": "or1-behemoth"}'
        )

    def heads(self):
        some = [
            "Authorization: Bearer dummy",
            "X-Task: " + self.pick("analyze", "x", "a" * 5000, "\xe9", "a\tb", ""),
            "X-Llama-Tier: " + self.pick("fast", "reasoning", "x"),
            "X_Llama_Tier: fast",
            "X-Llama-Service: two",
            "x-api-key: " + self.pick("a", "a" * 3000),
            "Connection: "
            + self.pick("keep-alive", "close, X-Real-IP", "X-Llama-Tier", "upgrade", "Transfer-Encoding"),
            "Upgrade: " + self.pick("h2c", "websocket"),
            "Expect: 100-continue",
            "X-Forwarded-For: 1.2.3.4",
            "X-Original-URL: /slots",
            "X-Rewrite-URL: /slots",
            "Accept-Encoding: gzip",
            "Range: bytes=0-1",
            "TE: trailers",
            "Trailer: Content-Length",
            "Cookie: " + "c" * self.pick(10, 9000),
            "X-Long: " + "l" * self.pick(10, 7000, 40000),
            "Content-Type: " + self.pick("application/json", "text/plain", "x" * 300, "multipart/form-data"),
            "Content-Encoding: gzip",
            " folded: line",
            "no colon",
            "Bad Name: x",
            "X-Bin: \x01\x02\xff",
            "Host: " + self.pick("a", "a/b", "bench:99999", "[::1", ""),
        ]
        found = self.random.sample(some, self.random.randrange(0, 5))
        if self.random.random() < 0.1 and found:
            found += found[:1] * self.pick(1, 2, 150)
        return found

    def message(self, number):
        """-> bytes of one request, or of several."""
        method = self.pick(
            "GET", "GET", "POST", "POST", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "get", "PROPFIND"
        )
        path = self.pick(*OPEN) if self.random.random() < 0.35 else self.closed()
        heads = ["Host: bench", "X-Fuzz: %d" % number, *self.heads()]
        body = self.body() if method != "GET" or self.random.random() < 0.2 else b""
        inner = self.pick(
            "GET /slots", "POST /props", "POST /models/load", "GET /v1/../slots", "POST /v1/models/unload"
        )
        inner = (
            "%s HTTP/1.1\r\nHost: bench\r\nX-Fuzz: %d-inner\r\nContent-Length: 0\r\n\r\n" % (inner, number)
        ).encode()
        kind = self.random.randrange(14)
        if kind < 5:
            heads.append("Content-Length: %d" % len(body))
        elif kind == 5:
            heads += ["Content-Length: %d" % len(body), "Content-Length: %s" % self.pick(len(body), 0, len(body) + 5)]
            body += inner
        elif kind == 6:
            heads += ["Content-Length: %d" % (len(inner) + 5), self.coding()]
            body = b"0\r\n\r\n" + inner
        elif kind == 7:
            heads += [self.coding(), "Content-Length: 4"]
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)
        elif kind == 8:
            heads.append(self.coding())
            body = self.chunks(body) + self.pick(b"", inner)
        elif kind == 9:
            heads.append(
                "Content-Length: "
                + self.pick(
                    "-1", "+3", "0x10", "1 1", "1,1", "99999999999999999999", "3.0", "", "\x0b4", "00%d" % len(body)
                )
            )
            body += inner
        elif kind == 10:
            heads.append("Content-Length: %d" % (len(body) + self.pick(1, 50, 100000)))
        elif kind == 11:
            heads.append("Content-Length: %d" % len(body))
            body += inner * self.pick(1, 3)
        elif kind == 12:
            heads.append("Content-Length: 0")
            body = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * self.pick(1, 20) + inner
        else:
            heads.append("Content-Length: %d" % len(body))
            heads.append("X-Inject: a" + self.pick("\r", "\n", "\r\n ", "\x00") + "Content-Length: 3")
        self.random.shuffle(heads)
        version = self.pick(*["HTTP/1.1"] * 8, "HTTP/1.0", "HTTP/2.0", "HTTP/1.9", "http/1.1", "", "HTTP/1.1 x")
        line = "%s%s%s%s%s" % (method, self.pick(*[" "] * 9, "  ", "\t"), path, self.pick(*[" "] * 9, "  "), version)
        end = self.pick(*["\r\n"] * 9, "\n")
        return (line + end + end.join(heads) + end * 2).encode("latin-1", "replace") + body

    def coding(self):
        return self.pick(
            *("Transfer-Encoding: chunked", "Transfer-Encoding : chunked", "Transfer-Encoding: xchunked"),
            *("Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity"),
            *(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
                "transfer-encoding: CHUNKED",
                "X: a\nTransfer-Encoding: chunked",
            ),
            *("Transfer-Encoding: \x0bchunked", "Transfer_Encoding: chunked", "Transfer-Encoding: gzip, chunked"),
        )

    def chunks(self, body):
        kind = self.random.randrange(9)
        if kind < 3:
            half = len(body) // 2
            pieces = [piece for piece in (body[:half], body[half:]) if piece]
            return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        size = self.pick(
            b"-1", b"ffffffffffffffff", b"0x5", b"5 ", b" 5", b"5;" + b"e" * 9000, b"zz", b"", b"00000000000000000005"
        )
        return (
            size
            + self.pick(b"\r\n", b"\n", b"\r")
            + body
            + self.pick(b"\r\n0\r\n\r\n", b"0\r\n\r\n", b"", b"\r\n0\r\nX-T: a\r\n\r\n")
        )


async def send(port, message):
    """-> status numbers of the answers, as far as they came."""
    received = b""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as problem:
        return ["no connection: %s" % problem]
    try:
        writer.write(message)
        until = time.monotonic() + PATIENCE
        while True:
            # An answer with nothing after it is the last; a request that is not whole has none.
            patience = 0.05 if received else until - time.monotonic()
            piece = await asyncio.wait_for(reader.read(65536), max(0.01, patience))
            if not piece:
                break
            received += piece
    except (asyncio.TimeoutError, OSError):
        pass
    finally:
        writer.transport.abort()
    return [int(code) for code in re.findall(rb"HTTP/1\.[01] (\d{3})", received)]


def judge_record(lines, probes):
    """-> faults in what reached the server, beside the engine's own questions for slots."""
    faults = []
    for line in lines:
        seen = json.loads(line)
        if line in probes:
            continue
        method, _space, rest = seen["line"].partition(" ")
        target = rest.rpartition(" ")[0] or rest
        if is_closed(method, target):
            faults.append("a closed path reached the server: %r" % seen["line"][:200])
        if seen["lengths"] > 1 or (seen["lengths"] and seen["codings"]) or seen["codings"] > 1:
            faults.append("two lengths reached the server: %r" % seen["heads"][:12])
        if not re.fullmatch(r"[A-Z]+ [!-~]+ HTTP/1\.[01]", seen["line"]):
            faults.append("no request line of HTTP reached the server: %r" % seen["line"][:200])
    return faults


async def rounds(gateway, maker, first, count, doors):
    """-> ({status: count}, faults)"""
    statuses, faults, numbers = {}, [], iter(range(first, first + count))

    async def one():
        for number in numbers:
            message = maker.message(number)
            port = doors[number % len(doors)]
            found = await send(port, message)
            for status in found or ["no answer"]:
                statuses[status] = statuses.get(status, 0) + 1
                if status in FORBIDDEN or (isinstance(status, str) and status != "no answer"):
                    faults.append("%s for request %d: %r" % (status, number, message[:300]))

    await asyncio.gather(*(one() for _one in range(SIDE_BY_SIDE)))
    return statuses, faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    versions = report.versions()
    print(versions, flush=True)
    fakes = Fakes(pace=0.001)
    fakes.start(CHAT, "or1-behemoth", slots=64, record=RECORD)
    fakes.start(OTHER, "two", slots=64, record=RECORD)
    services = {
        "chat": service("or1-behemoth", [CHAT], slots=64, aliases=["OR1-Behemoth"], tier="fast"),
        "two": service("two", [OTHER], slots=64),
    }
    gateway = EngineBehindNginx(services)
    gateway.start()
    # Its clients' requests have heads that nginx adds.
    probes = {line for line in RECORD.read_text().splitlines() if json.loads(line)["line"] == "GET /slots HTTP/1.1"}
    before = gateway.engine_pids()
    maker, faults, rows = Maker(arguments.seed), [], []
    beyond = arguments.rounds * 4 // 5
    # Both doors, then the tier's door while the engine is gone, when nginx sends to the servers itself.
    for words, first, count, doors in (
        ("nginx and engine", 0, beyond, (gateway.port, gateway.port + 1)),
        ("tier's port, engine gone", beyond, arguments.rounds - beyond, (gateway.port + 1,)),
    ):
        if first:
            if gateway.engine_pids() != before:
                faults.append(
                    "the engine did not live through it: processes %s before, %s after"
                    % (before, gateway.engine_pids())
                )
            plain = load.request(load.chat("or1-behemoth", 1, stream=False))
            if not all(one.ok for one in asyncio.run(load.together(gateway.port, [plain] * 20, stream=False))):
                faults.append("plain requests failed afterwards")
            gateway.remove_engine()
        seen_before = len(RECORD.read_text().splitlines()) if RECORD.exists() else 0
        statuses, found = asyncio.run(rounds(gateway, maker, first, count, doors))
        reached = RECORD.read_text().splitlines()[seen_before:]
        faults += found + judge_record(reached, probes)
        counted = ", ".join("%s: %d" % each for each in sorted(statuses.items(), key=str))
        rows.append([words, count, len(reached), counted])
    if "Traceback" in gateway.log():
        at = gateway.log().index("Traceback")
        faults.append("the engine noted an exception: " + gateway.log()[at : at + 2500])
    print(report.table(("door", "requests", "reached a server", "answers"), rows))
    for fault in faults[:25]:
        print("fault: " + fault)
    print("seed %d, %d requests, %d faults" % (arguments.seed, arguments.rounds, len(faults)))
    report.keep("fuzz", {"versions": versions, "rows": rows, "faults": faults, "seed": arguments.seed})
    gateway.stop()
    fakes.stop()
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
