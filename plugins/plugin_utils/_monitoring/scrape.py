# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of samplers and of Prometheus. Private to the collection."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ...module_utils._node import paths
from ...module_utils._node.units import unit_kind
from ...module_utils._settings import is_stopped
from .._intent import gateway, monitoring
from .._intent.hosts import node_address
from .._intent.records import Groups, HostVars, Models, Service, Services
from .._intent.services import node_rpc, node_serving, placed, stopped_units
from .._known import is_planned, slurped
from . import dropped
from .dashboards import dashboards

MIB = 1 << 20
HERE = paths.MONITORING
# Limits of a scraped page, far above a node with many services. A compromised server cannot fill the disk, nor write
# metrics of other jobs.
LIMITS = {"body_size_limit": "16MB", "label_limit": 32, "label_name_length_limit": 64, "label_value_length_limit": 512}
# A target in samplers.json.
TARGET = re.compile(r'\{"labels": \{"node": "([^"]+)"\}, "targets": \["[^"]+:(\d+)"\]\}\Z')


def sampler_config(
    services: Services,
    models: Models,
    groups: Groups,
    hostvars: HostVars,
    host: str,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """sampler.json of a host.

    settings: version of the collection, export (http or textfile), textfile_dir, port, models_dir,
    certificate, plan: of memory_plan(), before: the file as it is, as slurp has it, which tells what is not planned in
    this run; services: those that have changed, empty for all, where the rest of the file stays as it is.
    """
    before = slurped(settings.get("before"))
    node = host in (groups.get("llama_nodes") or [])
    serving = node_serving(services, models, host, groups, hostvars, settings["models_dir"]) if node else {"heads": []}
    heads = serving["heads"]
    workers = node_rpc(services, host, groups, hostvars)["workers"] if node else []
    http = {
        "address": node_address(host, hostvars),
        "port": int(settings["port"]),
        "allowed": monitoring.monitoring_addresses(host, groups, hostvars),
    }
    current = {
        "version": settings["version"],
        "http": http if settings["export"] == "http" else None,
        "textfile": settings["textfile_dir"] if settings["export"] == "textfile" else None,
        "disks": [settings["models_dir"], paths.STATE] if node else [paths.STATE],
        "fabric_address": str(hostvars[host].get("llama_fabric_address") or "") if node else "",
        "planned": _planned(host, heads, workers, settings.get("plan") or {}, before),
        "models": {head["service"]: {"model": head["model"], "quant": head["quant"]} for head in heads},
        "stopped": stopped_units(services, groups),
        # Its units have no service in their names.
        "primary": serving.get("primary", ""),
        "certificate": settings["certificate"],
    }
    changed = settings.get("services")
    return current if changed is None or not before else renewed(before, current, changed)


def renewed(before: Mapping[str, Any], current: Mapping[str, Any], services: Sequence[str]) -> dict[str, Any]:
    """sampler.json with changed services, empty for all; other services stay as they are."""

    def changed(service: str) -> bool:
        return not services or service in services

    def service_of(unit: str) -> str:
        return unit_kind(unit)[1] or current["primary"]

    def merged(name: str, service_of: Callable[[str], str]) -> dict[str, Any]:
        kept = {key: value for key, value in before[name].items() if not changed(service_of(key))}
        return kept | {key: value for key, value in current[name].items() if changed(service_of(key))}

    kept = [unit for unit in before["stopped"] if not changed(service_of(unit))]
    stopped = [unit for unit in current["stopped"] if unit in kept or changed(service_of(unit))]
    return {
        **before,
        "planned": merged("planned", service_of),
        "models": merged("models", str),
        "stopped": [*stopped, *(unit for unit in kept if unit not in stopped)],
    }


def _scraped(settings: Mapping[str, Any], hostvars: HostVars) -> dict[str, int]:
    """{host: port of its node_exporter} of those left out, as they are scraped."""
    found = {}
    for one in slurped(settings.get("before"), list):
        match = TARGET.match(json.dumps(one, sort_keys=True))
        if match and match.group(1) in settings["left_out"]:
            found[match.group(1)] = int(match.group(2))
    return {host: port for host, port in found.items() if port != monitoring.sampler_port(host, hostvars)}


def _planned(
    host: str,
    heads: Sequence[Mapping[str, Any]],
    workers: Sequence[Mapping[str, Any]],
    plan: Mapping[str, Any],
    before: Mapping[str, Any],
) -> dict[str, int]:
    """{unit: bytes of main memory that the plan gives it on a host}, of what is not planned in this run as before"""
    units = {head["service"]: head["unit"] for head in heads} | {one["service"]: one["unit"] for one in workers}
    led = {head["service"] for head in heads}
    earlier = before.get("planned") or {}
    found: dict[str, int] = {
        unit: earlier[unit]
        for service, unit in units.items()
        if unit in earlier and not is_planned(plan, service, host if service in led else "")
    }
    for service, plans in (plan.get("services") or {}).items():
        for one in plans if units.get(service) not in found else []:
            rows = [row for row in one["devices"] if row["node"] == host and row["kind"] == "main"]
            parts = rows + [one["host"]] * (one.get("node") == host and service in led)
            size = sum(row["weights_mib"] + row["kv_mib"] + row["compute_mib"] for row in parts)
            if size and service in units:
                found[units[service]] = found.get(units[service], 0) + size * MIB
    return found


def prometheus_config(
    services: Services,
    models: Models,
    groups: Groups,
    hostvars: HostVars,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """-> {scrape: scrape_configs of Prometheus, targets: {file: targets of file_sd}, keys: services whose API key it
    needs, monitor: what llama-cluster-monitor reads}

    settings: interval in seconds, of samplers; keys: the API keys of services; prometheus, alertmanager: their URLs,
    empty for none; textfile: {host: port of its node_exporter}; left_out: hosts outside of this run, whose targets stay
    as in before, the present file in base64.
    """
    gateways = gateway.hosts(groups)
    textfile = {**_scraped(settings, hostvars), **(settings.get("textfile") or {})}
    pages = {
        host: "%s:%d" % (node_address(host, hostvars), textfile.get(host) or monitoring.sampler_port(host, hostvars))
        for host in monitoring.sampled(groups)
    }
    served = [one for one in placed(services, groups) if not is_stopped(one.settings)]
    keyed = [one.name for one in served if settings["keys"].get(one.name)]
    entrances = {host: _entrance(host, hostvars) for host in gateways}
    targets = {
        "samplers": [{"targets": [page], "labels": {"node": host}} for host, page in pages.items()],
        "gateways": [
            {"targets": [address], "labels": {"node": host, "__scheme__": scheme}}
            for host, (scheme, address) in entrances.items()
        ],
        **{"service-" + one.name: _service_targets(one, models, hostvars) for one in served},
    }
    scrape = [
        {
            "job_name": "llama_sampler",
            "scrape_interval": "%ds" % settings["interval"],
            "scrape_timeout": "%ds" % min(4, settings["interval"]),
            # The page of node_exporter has its own, too.
            **_kept("llama_.*", 50000),
            "file_sd_configs": [{"files": [HERE + "/targets/samplers.json"]}],
        },
        {
            "job_name": "llama_gateway",
            "scrape_interval": "%ds" % settings["interval"],
            "scrape_timeout": "%ds" % min(4, settings["interval"]),
            **_kept("llama_gateway_.*", 20000),
            # In counters of a server `node` is the server's.
            "honor_labels": True,
            # Its certificate does not have its address.
            "tls_config": {"insecure_skip_verify": True},
            "file_sd_configs": [{"files": [HERE + "/targets/gateways.json"]}],
        },
        *(_service_job(one, one.name in keyed) for one in served),
    ]
    return {
        "scrape": scrape,
        "targets": {name + ".json": one for name, one in targets.items()},
        "keys": keyed,
        "monitor": {
            "nodes": {host: f"http://{page}/metrics" for host, page in pages.items()},
            "gateway": {host: "%s://%s/metrics" % entrance for host, entrance in entrances.items()},
            # Only Prometheus may read alertmanager.
            "alerts": settings["prometheus"] if settings["alertmanager"] else None,
            "prometheus": settings["prometheus"],
        },
    }


def _kept(names: str, samples: int) -> dict[str, Any]:
    """The limits of a page, and the metrics that are kept."""
    keep = {"source_labels": ["__name__"], "regex": names, "action": "keep"}
    return {**LIMITS, "sample_limit": samples, "metric_relabel_configs": [keep]}


def _entrance(host: str, hostvars: HostVars) -> tuple[str, str]:
    """(scheme, address and port) of a gateway."""
    facts = hostvars[host]
    scheme = "https" if gateway.setting("gateway_tls", facts) else "http"
    address = str(facts.get("gateway_address") or node_address(host, hostvars))
    return scheme, f"{address}:{int(gateway.setting('gateway_port', facts))}"


def _service_targets(one: Service, models: Models, hostvars: HostVars) -> list[dict[str, Any]]:
    """Targets of a service; for a router one for each model, none of which loads it."""
    found = []
    for head in one.heads:
        target = "%s:%d" % (node_address(head, hostvars), one.port)
        labels = {"node": head, "service": one.name}
        if one.kind == "router":
            for model in one.settings.get("models") or {}:
                parts = {"__param_model": model, "__param_autoload": "false", "model": model}
                found.append({"targets": [target], "labels": {**labels, **parts}})
        else:
            found.append({"targets": [target], "labels": labels})
    return found


def _service_job(one: Service, keyed: bool) -> dict[str, Any]:
    key = {"type": "Bearer", "credentials_file": f"{HERE}/keys/{one.name}"}
    return {
        "job_name": "llama_server/" + one.name,
        # Each scrape is a line in the journal of the head.
        "scrape_interval": "30s",
        "scrape_timeout": "10s",
        **_kept("llamacpp:.*", 2000),
        **({"authorization": key} if keyed else {}),
        "file_sd_configs": [{"files": [f"{HERE}/targets/service-{one.name}.json"]}],
    }


def output_files(found: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Files below HERE without keys, for node_files.

    found: by prometheus_config(); settings: as there, and install: whether Prometheus is managed, so that promtool
    validates, unless checked is False: it needs the keys, which a dry run has not written.
    """
    install = settings["install"]
    checked = ["promtool", "check"] if install and settings.get("checked", True) else []
    files: list[dict[str, Any]] = []
    for one in dropped.rules():
        text = one.path.read_text(encoding="utf-8")
        files.append({"path": f"{HERE}/rules/{one.name}", "content": text, **_by(checked, "rules")})
    files += [{"path": f"{HERE}/targets/{name}", "content": _text(one)} for name, one in found["targets"].items()]
    files += [{"path": f"{HERE}/dashboards/{name}.json", "content": _text(one)} for name, one in dashboards().items()]
    files.append({"path": HERE + "/monitor.json", "content": _text(found["monitor"])})
    if not install:
        return [*files, {"path": HERE + "/scrape.yml", "content": _text({"scrape_configs": found["scrape"]})}]
    whole = {
        "global": {"scrape_interval": "30s", "evaluation_interval": "%ds" % settings["interval"]},
        "rule_files": [HERE + "/rules/*.yml"],
        "alerting": {
            "alertmanagers": [
                {
                    "static_configs": [{"targets": [urlsplit(settings["alertmanager"]).netloc]}],
                    "basic_auth": {"username": "llama", "password_file": HERE + "/alertmanager-password"},
                }
            ]
        },
        "scrape_configs": found["scrape"],
    }
    return [*files, {"path": HERE + "/prometheus.yml", "content": _text(whole), **_by(checked, "config")}]


def _by(tool: list[str], what: str) -> dict[str, Any]:
    return {"validate": [*tool, what, "%s"]} if tool else {}


def secret_files(found: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Files for the group of Prometheus' account: the keys of services, and the receivers of alerts. The validation of
    other files needs them. settings: as there, group, and webhooks."""
    private = {"group": settings["group"], "mode": "0640", "hidden": True}
    keys = [
        {"path": f"{HERE}/keys/{name}", "content": settings["keys"][name][0] + "\n", **private}
        for name in found["keys"]
    ]
    files: list[dict[str, Any]] = [
        *([{"path": HERE + "/keys", "state": "directory", "group": settings["group"], "mode": "0750"}] if keys else []),
        *keys,
    ]
    if settings["install"]:
        content = _text(_alertmanager(settings["webhooks"]))
        by = {"validate": ["amtool", "check-config", "%s"]}
        files.append({"path": HERE + "/alertmanager.yml", "content": content, **private, **by})
    return files


def _alertmanager(webhooks: Sequence[str]) -> dict[str, Any]:
    return {
        "route": {
            "receiver": "all",
            "group_by": ["alertname", "service", "node"],
            "group_wait": "2s",
            "group_interval": "30s",
            "repeat_interval": "12h",
        },
        # The page of a service covers its notices. Without a service missing labels would count as equal.
        "inhibit_rules": [
            {
                "source_matchers": ['severity="page"', 'service=~".+"'],
                "target_matchers": ['severity="notice"', 'service=~".+"'],
                "equal": ["service", "node"],
            }
        ],
        "receivers": [{"name": "all", "webhook_configs": [{"url": url, "send_resolved": True} for url in webhooks]}],
    }


def _text(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
