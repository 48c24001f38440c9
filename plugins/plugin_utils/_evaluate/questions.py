# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models by the names that clients use, and the questions that they are asked. Private to the collection."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...module_utils._text import Refusal
from .._access.gateway import ANYWHERE
from .._intent import gateway
from .._intent.records import Groups, HostVars, Models
from .._intent.values import did_you_mean
from .._reports.bench import bench_heads
from .store import key_of

Map = Mapping[str, Any]
# The temperature of more than one sample; a single one is the most likely answer.
WARM = 0.7
# Arguments of llama-server, with their values, that say where a model is and how it is served, not what it answers.
ELSEWHERE = {
    *("--model", "--alias", "--host", "--port", "--api-key-file", "--metrics", "--log-verbosity", "--timeout"),
    *("--rpc", "--split-mode", "--tensor-split", "--device", "--n-gpu-layers", "--cpu-moe", "--n-cpu-moe", "--fit"),
    *("--threads", "--threads-batch", "--numa", "--load-mode", "--mmap", "--no-mmap", "--mlock", "--direct-io"),
    *("--no-direct-io", "--sleep-idle-seconds", "--cache-ram", "--cache-reuse"),
}


def models_of(
    heads: Sequence[Map], models: Models, groups: Groups, hostvars: HostVars, wanted: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], list[str]]:
    """-> (models to ask, a sentence for each other one). heads: of all nodes; of replicas the first one counts.
    wanted: names, services or models of the inventory, all without one.

    A model: {name: that clients ask for, with its service where several have it, service, label: of its benchmarks,
    model, quant, build, host: where requests are sent from, url, unit, gateway, api_key_file, asks: the name in
    requests, sha256: what is known of its files, arguments: that change answers}. Errors: Refusal for an unknown name.
    """
    known = dict.fromkeys(name for head in heads for name in _names(head))
    for word in wanted:
        if word not in known:
            raise Refusal(
                f"evaluate: model {word} seen, one of {', '.join(known) or 'no started service'} is needed"
                f"{did_you_mean(word, known) or ': correct -e models='}"
            )
    found: dict[tuple[str, str], dict[str, Any]] = {}
    bench = bench_heads([head for head in heads if not wanted or set(wanted) & set(_names(head))])
    left_out = [line.replace("not measured", "not asked") for line in bench["left_out"]]
    for head in bench["heads"]:
        name = head["model"] if head["models"] else head["aliases"][0]
        own = {name, head["service"], *(models[head["model"]].get("aliases") or [])}
        if wanted and head["models"] and not own & set(wanted):
            continue
        if head["state"] == "stopped":
            left_out.append(f"{name}: not asked, {head['service']} is stopped")
        else:
            found.setdefault((head["service"], name), _model(name, head, models, groups, hostvars))
    names = [name for _service, name in found]
    for (service, name), one in found.items():
        if names.count(name) > 1:
            one["name"] = f"{name} of {service}"
    return list(found.values()), left_out


def _names(head: Map) -> list[str]:
    """Whatever an operator may call a head, or one of its models."""
    served = [head["model"]] if head["model"] else []
    return [head["service"], *served, *head["aliases"], *(one["model"] for one in head["models"])]


def _model(name: str, head: Map, models: Models, groups: Groups, hostvars: HostVars) -> dict[str, Any]:
    served = next((one for one in head["models"] if one["model"] == head["model"]), head)
    return {
        "name": name,
        "service": head["service"],
        "label": head["label"],
        "asks": name,
        "sha256": _files(models[head["model"]]["quants"][head["quant"]]),
        "arguments": [*arguments_of(head["args"]), *_template(served["chat_template_file"])],
        **{key: head[key] for key in ("model", "quant", "build")},
        **_way(head, groups, hostvars),
    }


def _way(head: Map, groups: Groups, hostvars: HostVars) -> dict[str, Any]:
    """Where requests are sent from, and to: the gateway by its own host, else the head by its node. The unit of a head
    and the gateway's own file have the key; of a job only the file of its service."""
    behind = gateway.hosts(groups)
    if not behind:
        keys = {"unit": head["unit"], "api_key_file": "" if head["unit"] else head["api_key_file"], "gateway": False}
        return {"host": head["node"], "url": head["url"], **keys}
    facts = hostvars[behind[0]]
    first = gateway.setting("gateway_addresses", facts)[0]
    own = "127.0.0.1" if first in ANYWHERE else f"[{first}]" if ":" in first else first
    scheme = "https" if gateway.setting("gateway_tls", facts) else "http"
    url = "%s://%s:%d" % (scheme, own, int(gateway.setting("gateway_port", facts)))
    return {"host": behind[0], "url": url, "unit": "", "api_key_file": "", "gateway": True}


def _files(quant: Map) -> list[str]:
    """The identity of a quant's files: their sha256, else where they come from."""
    digests = quant.get("sha256") or []
    digests = [digests] if isinstance(digests, str) else list(digests)
    return digests or [key_of({key: value for key, value in quant.items() if key not in ("file", "sha256")})]


def _template(path: str) -> list[str]:
    """The digest of a chat template on the controller; none where preflight misses the file."""
    try:
        with open(path, "rb") as stream:
            return ["template " + hashlib.sha256(stream.read(1 << 20)).hexdigest()]
    except OSError:
        return []


def arguments_of(args: Sequence[str]) -> list[str]:
    """The arguments that change answers, flags with their values."""
    found: list[str] = []
    kept = True
    for word in map(str, args):
        if word.startswith("--") or (word.startswith("-") and word[1:2].isalpha()):
            kept = word not in ELSEWHERE
        if kept:
            found.append(word)
    return found


def temperature_of(samples: int) -> float:
    return WARM if samples > 1 else 0.0


def questions(tasks: Sequence[Map], about: Map, samples: int) -> Iterator[dict[str, Any]]:
    """{key, task, sample, prompt, max_tokens, temperature, seed} for each task and sample. about: of models_of()."""
    temperature = temperature_of(samples)
    for sample in range(samples):
        for task in tasks:
            parts = [about["sha256"], about["build"], about["arguments"], temperature, task["max_tokens"], sample]
            yield {
                "key": key_of([task["prompt"], *parts]),
                "task": task["name"],
                "sample": sample,
                "prompt": task["prompt"],
                "max_tokens": task["max_tokens"],
                "temperature": temperature,
                "seed": sample,
            }
