# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator reads: the acceptance report of a service and the status of a cluster. Private to the collection."""

import json


def acceptance(head, health, load, prompt, max_tokens):
    """One service's report: what was asked and answered, how fast, and what each worker held (MiB) and moved (bytes).

    head is an entry of head_instances; health and load are the results of llama_health and llama_load_info for it.
    """
    moved = {worker["endpoint"]: worker for worker in health.get("workers") or []}
    workers = []
    for node, endpoint in zip(head["workers"], head["rpc_endpoints"]):
        devices = [device for device in load["devices"] if device["endpoint"] == endpoint]
        workers.append(
            {
                "node": node,
                "endpoint": endpoint,
                "layers": sum(device["layers"] or 0 for device in devices),
                "model_mib": round(sum(device["model_mib"] for device in devices), 2),
                "kv_mib": round(sum(device["kv_mib"] for device in devices), 2),
                "bytes_sent": moved.get(endpoint, {}).get("bytes_sent"),
                "bytes_received": moved.get(endpoint, {}).get("bytes_received"),
            }
        )
    rate = health.get("tokens_per_second")
    request = {"model": head["model"], "max_tokens": max_tokens, "temperature": 0, "messages": [{"role": "user", "content": prompt}]}
    # A single quote would end the shell's word; JSON can write it as an escape.
    body = json.dumps(request).replace("'", "\\u0027")
    return {
        "service": head["service"],
        "endpoint": head["endpoint"],
        "model": head["model"],
        "quant": head["quant"],
        "state": health["state"],
        "tokens_per_second": None if rate is None else round(rate, 1),
        "answer": health.get("answer"),
        "workers": workers,
        "curl": "curl -sS %s/chat/completions -H 'Content-Type: application/json' -d '%s'" % (head["endpoint"], body),
    }


def acceptance_lines(report):
    """A report as lines to print, the endpoint and what it is worth last."""
    lines = [
        "worker %(node)s (%(endpoint)s): %(layers)d layers, %(model_mib).1f MiB of weights, %(kv_mib).1f MiB of KV cache" % worker
        + ("" if worker["bytes_sent"] is None else ", %(bytes_sent)d bytes out and %(bytes_received)d back for the answer" % worker)
        for worker in report["workers"]
    ]
    lines.append("endpoint: %s" % report["endpoint"])
    if report["answer"] is None:
        lines.append("tokens/s: not measured, the service is %s with other requests and makes progress" % report["state"])
        return lines + [report["curl"]]
    return lines + ["tokens/s: %s" % report["tokens_per_second"], report["curl"], "answer: %s" % " ".join(report["answer"].split())]


def status_lines(nodes, heads):
    """A cluster's state as lines to print.

    nodes: {node: result of llama_unit_info}; heads: list of (entry of head_instances, result of llama_health).
    """
    lines = ["%s: %s at %s, %s" % (head["service"], health["state"], head["endpoint"], health["reason"]) for head, health in heads]
    for node, info in nodes.items():
        if not info["units"]:
            lines.append("  %-12s no units" % node)
        for unit in info["units"]:
            note = ", its configuration changed since it started" if unit["stale"] else ""
            lines.append(
                "  %-12s %-36s %s since %s, %d restarts, build %s%s"
                % (node, unit["name"], unit["active_state"], unit["since"] or "-", unit["restarts"], info["current_build"], note)
            )
    return lines
