"""Stands in for tailscale, which needs an account of a tailnet. Beside it lie state.json, what its daemon would know,
and calls.txt, each command line. Output, exit codes and errors are those of the real CLI 1.52 and later."""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
HOST = "slurm-ctl.tail0.ts.net"
STATE = HERE / "state.json"


def fail(text):
    sys.exit(print(text, file=sys.stderr) or 1)


def main(words):
    state = json.loads(STATE.read_text()) if STATE.exists() else {}
    if words[:1] + words[2:] == ["serve", "--json"] and words[1] == "status":
        # A host that has never served anything says null.
        return print(json.dumps(state.get("serve"), indent=2))
    if words[0] == "status":
        status = {"Version": state.get("version", "1.76.6-t1edcf9d46"), "BackendState": state.get("backend", "Running")}
        status["Self"] = {"DNSName": HOST + "."}
        status["CertDomains"] = state.get("certificates", [HOST])
        return print(json.dumps(status, indent=2))
    flags = dict(word[2:].partition("=")[::2] for word in words[1:] if word.startswith("--"))
    (target,) = (word for word in words[1:] if not word.startswith("--"))
    config = state.setdefault("serve", None) or {}
    state["serve"] = config
    change(config, flags, target)
    STATE.write_text(json.dumps(state))
    return None


def change(config, flags, target):
    (kind,) = set(flags) & {"https", "http", "tcp"}
    port, path = flags[kind], flags.get("set-path", "")
    place = "%s:%s" % (HOST, port)
    tcp, web = config.setdefault("TCP", {}), config.setdefault("Web", {})
    if target == "off":
        handlers = web.get(place, {}).get("Handlers", {})
        if kind == "tcp" and "TCPForward" not in tcp.get(port, {}) or kind != "tcp" and path not in handlers:
            fail("error: failed to remove %s serve: handler does not exist\n" % ("TCP" if kind == "tcp" else "web"))
        handlers.pop(path, None)
        if not handlers:
            web.pop(place, None)
            tcp.pop(port)
    elif "bg" not in flags:
        fail("stub: the real one would stay in the foreground")
    elif kind == "tcp":
        if "TCPForward" not in tcp.get(port, {"TCPForward": ""}):
            fail("error: cannot serve TCP; already serving web on %s for %s" % (port, HOST))
        tcp[port] = {"TCPForward": target[len("tcp://") :]}
    else:
        if "TCPForward" in tcp.get(port, {}):
            fail("error: cannot serve web; already serving TCP")
        tcp[port] = {kind.upper(): True}
        handlers = web.setdefault(place, {}).setdefault("Handlers", {})
        # /x and /x/ take each other's place.
        for other in [one for one in handlers if one.rstrip("/") == path.rstrip("/")]:
            del handlers[other]
        handlers[path] = {"Proxy": target}
    for name in ("TCP", "Web"):
        if not config[name]:
            del config[name]


with open(HERE / "calls.txt", "a") as stream:
    stream.write(" ".join(sys.argv[1:]) + "\n")
main(sys.argv[1:])
