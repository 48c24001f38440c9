# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Listening addresses of a gateway's host, and what is in the way there. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from ...module_utils._gateway.paths import COUNT, READ, WORK
from ...module_utils._node import paths
from ...module_utils._text import printable
from .._intent.hosts import networks_of
from .ports import LISTENER, RULE, SHOWN, port_conflicts, processes_of

# "nginx -T" shows each file that it reads after such a line.
FILE = re.compile(r"^# configuration file (\S+):$", re.MULTILINE)
LISTENS = re.compile(r"^\s*listen\s+(?:(\[[^\]]*\]|[^\s;:]+):)?(\d+)[\s;]", re.MULTILINE)
OPEN = 'rule family="ipv4" port port="%d" protocol="tcp" accept'
ANYWHERE = ("0.0.0.0", "::", "*", "")


def gateway_host(config: Mapping[str, Any], host: Mapping[str, Any]) -> dict[str, Any]:
    """config: of filter gateway_config; host: {address: that clients reach it at, port, addresses: that nginx listens
    on, tls: whether it has a certificate, tiers: {tier: port}, clients: networks, empty for all, interface: output
    of `ip -oneline -4 address show to ADDRESS`}.

    -> tiers: {tier: {service, port, endpoints, direct: whether nginx may use these}} of the tiers that services name;
    ports: that nginx listens on; urls: for clients; local: scheme and address for requests of the host itself;
    pages: [{url}] that prove the engine; questions: [{url, model}] that prove each port; rules: {rich
    rule of firewalld: interface}; reads, posts: paths of servers that clients may ask for by GET, and by POST.
    """
    services = config["services"]
    tiers = {
        service["tier"]: {
            "service": name,
            "port": int(host["tiers"][service["tier"]]),
            "endpoints": service["endpoints"] if service["state"] == "started" else [],
            "direct": service["direct"],
        }
        for name, service in sorted(services.items())
        if service.get("tier") in host["tiers"]
    }
    port = int(host["port"])
    scheme = "https" if host["tls"] else "http"
    first = host["addresses"][0]
    own = "127.0.0.1" if first in ANYWHERE else f"[{first}]" if ":" in first else first
    usual = {"http": 80, "https": 443}[scheme]
    named = host["address"] if port == usual else "%s:%d" % (host["address"], port)
    started = {name: one for name, one in services.items() if one["state"] == "started" and one["endpoints"]}
    questions = []
    if started:
        questions.append({"url": "%s://%s:%d/v1" % (scheme, own, port), "model": _asked(config, started)})
    questions += [
        {"url": "http://%s:%d/v1" % (own, tier["port"]), "model": _model(services[tier["service"]])}
        for tier in tiers.values()
        if tier["service"] in started
    ]
    ports = sorted({port, *(tier["port"] for tier in tiers.values())})
    return {
        "tiers": tiers,
        "ports": ports,
        "reads": list(READ),
        "posts": [*WORK, *COUNT],
        "rules": _rules(ports, host["clients"], host["interface"]),
        "urls": [
            f"{scheme}://{named}/v1",
            *("http://%s:%d/v1 (tier %s)" % (host["address"], tier["port"], name) for name, tier in tiers.items()),
        ],
        "local": "%s://%s:%d" % (scheme, own, port),
        # Jobs of SLURM may all wait: then no service is ready, and /health says so.
        "pages": [
            {"url": "%s://%s:%d%s" % (scheme, own, port, page)}
            for page in (["/health"] if started else []) + ["/v1/models"]
        ],
        "questions": [question for question in questions if question["model"]],
    }


def _rules(ports: Sequence[int], clients: Any, shown: str) -> dict[str, str]:
    found = SHOWN.search(shown)
    interface = found.group(1) if found else ""
    networks = networks_of(clients)
    rules = [RULE % (network, port) for network in networks for port in ports]
    return dict.fromkeys(rules or [OPEN % port for port in ports], interface)


def _asked(config: Mapping[str, Any], started: Mapping[str, Any]) -> str | None:
    """The model for verify: the default of the routes if it is served, else one that generates text."""
    default = config["routes"]["default"]
    for one in started.values():
        if any(default in (model["name"], *model["aliases"]) for model in one["models"]):
            return default
    return next((model for model in map(_model, started.values()) if model), None)


def _model(service: Mapping[str, Any]) -> str | None:
    """A model of a service that generates text."""
    return next((model["name"] for model in service["models"] if not model.get("embeddings")), None)


def sites(text: str) -> dict[str, set[int]]:
    """{file: ports that its servers listen on} by the output of `nginx -T`."""
    _before, *parts = FILE.split(text)
    found: dict[str, set[int]] = {}
    for path, body in zip(parts[::2], parts[1::2], strict=True):
        lines = "\n".join(line for line in body.splitlines() if not line.lstrip().startswith("#"))
        found.setdefault(path, set()).update(int(port) for _address, port in LISTENS.findall(lines))
    return found


def gateway_refusals(host: str, gateway: Mapping[str, Any], node: Mapping[str, Any]) -> list[str]:
    """gateway: what gateway_host() says as `here`, with configuration: the output of `nginx -T`, status: that it ended
    with, 127 without nginx, addresses, auth, missing: files of the certificate, readable: its key where others may read
    it, changes: kinds of services' units that the run changes before it, tailscale: whether it hands our ports on, and
    handed_on: of gateway_tailnet(); node: the fact llama_node with listeners and machine."""
    here, listeners = gateway["here"], node["listeners"]
    found = [
        "gateway_tls: no file %s on %s, the certificate and its key are needed there: have them issued and copied, "
        "then run again" % (path, host)
        for path in gateway["missing"]
    ]
    found += [
        "gateway_tls.key: %s on %s seen, which every user there may read, a key of root's is needed: chmod o-rwx it, "
        "and have another one issued if other users may have read it" % (path, host)
        for path in gateway["readable"]
    ]
    public = [one for one in node["machine"]["addresses"] if ip_address(one).is_global]
    if gateway["auth"] == "log_only" and public and set(gateway["addresses"]) & set(ANYWHERE):
        found.append(
            "gateway_auth: log_only seen with the public address %s of %s, required is needed, or anybody could use "
            "the models: set it, or name private gateway_addresses" % (public[0], host)
        )
    configuration = gateway["configuration"]
    status = int(gateway["status"])  # ansible-core 2.16 makes a text of it
    if status not in (0, 127):
        found.append(
            "%s: nginx refuses its current configuration (%s), a valid one is needed: correct it until `nginx -t` is "
            "content" % (host, " ".join(configuration.split())[-300:])
        )
    served = sites(configuration) if status == 0 else {}
    mine = served.pop(paths.NGINX_SITE, set()).union(*(served.pop(path, set()) for path in gateway["leaving"]))
    # nginx releases ports that no file has when it reads the new configuration.
    listeners = "\n".join(line for line in listeners.splitlines() if 'users:(("nginx",' not in line)
    entries = dict.fromkeys(here["ports"], "gateway_port")
    entries.update({tier["port"]: f"gateway_tiers.{name}" for name, tier in here["tiers"].items()})
    others = set()
    for path, ports in sorted(served.items()):
        for port in sorted(ports & set(here["ports"])):
            others.add(port)
            found.append(
                "%s: port %d of %s is that of a site in %s, a free port is needed: remove that site, or choose another "
                "port" % (entries[port], port, host, path)
            )
    wanted = [
        (entries[port], address, port)
        for port in here["ports"]
        for address in gateway["addresses"]
        if port not in others | mine
    ]
    # A wildcard address conflicts with every listener of the port.
    held = [(address.strip("[]").split("%")[0], int(port)) for address, port in LISTENER.findall(listeners)]
    wanted = [
        (entry, place, port)
        for entry, address, port in wanted
        for place in ({one for one, taken in held if taken == port} if address in ANYWHERE else {address})
    ]
    managed = node["managed_processes"]
    conflicts = port_conflicts(wanted, listeners, processes_of(gateway["changes"], managed), managed)
    return found + list(dict.fromkeys(conflicts)) + _dead_handlers(host, gateway, held)


def _dead_handlers(host: str, gateway: Mapping[str, Any], held: Sequence[tuple[str, int]]) -> list[str]:
    """Handlers of tailscale to ports of the gateway on the loopback, where nginx will not listen. held: (address, port)
    of listeners that stay."""
    if {*gateway["addresses"], *(["127.0.0.1"] if gateway["tailscale"] else [])} & {"127.0.0.1", *ANYWHERE}:
        return []
    own = {port for address, port in held if address in ("127.0.0.1", "::1", *ANYWHERE)}
    return [
        "gateway_tailscale: false, and tailscale serve of %s hands %s on, where nginx will not listen "
        "(gateway_addresses has %s): set gateway_tailscale to true, or remove that handler with tailscale serve"
        % (host, one["handler"], ", ".join(gateway["addresses"]))
        for one in gateway["handed_on"]
        if one["port"] in gateway["here"]["ports"] and one["port"] not in own
    ]


def answer_refusals(host: str, answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """answers: results of curl, with the request as `item`; their output ends with the status in a line of its own."""
    found = []
    for result in answers:
        body, _line, status = str(result.get("stdout") or "").rpartition("\n")
        if status != "200":
            text = " ".join((body or str(result.get("stderr") or "")).split())[:300]
            found.append(
                "%s: status %s of %s seen (%s), an answer is needed: see journalctl -u llama-gateway, and "
                "playbooks/verify.yml for the services"
                % (host, status or "000", result["item"]["url"], printable(text or "no message"))
            )
    return found
