# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command lines of llama.cpp's programs, rendered from resolved instances (see _intent) in the dialect of the build
that runs them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._companion_keys import projects_on_card
from .._family import is_template_file
from .._key import Words
from .._node import paths
from .._settings import KEYS, LLAMA_NUMA, value
from . import drafts

PIN = "b11434"
"""The default release."""


class Dialect(NamedTuple):
    """Differences between builds; flags of settings are in _settings."""

    first: int  # build number
    many_aliases: bool  # --alias takes a list
    # The lowest that logs how many MiB went to which device, which the acceptance check reads, and none that logs
    # prompts.
    log_verbosity: int


# b7772 and b11434 are tested against their --help. 9181: aliases by list (#19926), and logs of loading moved up one
# level (#23021).
DIALECTS = (Dialect(7760, False, 3), Dialect(9181, True, 4))
OLDEST = DIALECTS[0].first

# Every layer on a device; llama.cpp clamps it to the model's own number.
ALL_LAYERS = 999
# A number in a command line.
WHOLE = re.compile(r"^[0-9]{1,10}\Z")


def build_number(version: str | None) -> int | None:
    """The number of a release tag, such as 11434 of b11434; None for another tag."""
    tag = re.match(r"^b(\d+)\Z", str(version or ""))
    return int(tag.group(1)) if tag else None


def command_line_of(version: str | None) -> int:
    """The build number that decides about flags; for custom builds that of the default release."""
    return max(build_number(version) or build_number(PIN) or OLDEST, OLDEST)


def rpc_args(instance: Mapping[str, Any]) -> list[str]:
    """Arguments of ggml-rpc-server for a worker, the same in every build. --threads is only for CPU devices; 0 leaves
    llama.cpp's default."""
    args = ["--host", instance["address"], "--port", str(instance["port"])]
    if instance.get("threads"):
        args += ["--threads", str(instance["threads"])]
    if instance.get("cache"):
        args.append("--cache")
    return args


def head_args(instance: Mapping[str, Any], service: Mapping[str, Any], version: str | None = PIN) -> list[str]:
    """Arguments of llama-server for a head: addresses and files from the instance, settings from the service."""
    args = model_args(instance, service, version)
    if instance["api_key_file"]:
        args += ["--api-key-file", instance["api_key_file"]]
    return args + ["--metrics", "--log-verbosity", str(_dialect(version).log_verbosity)]


def model_args(instance: Mapping[str, Any], service: Mapping[str, Any], version: str | None = PIN) -> list[str]:
    """Arguments of llama-server for one model, of a head or of a router.

    --fit off keeps llama.cpp from changing settings. A build that takes one alias gets the model's name, since a server
    of one model accepts every name.
    """
    aliases = instance["aliases"] if _dialect(version).many_aliases else instance["aliases"][:1]
    args = ["--model", instance["model_path"], "--alias", ",".join(aliases)]
    if "address" in instance:
        args += ["--host", instance["address"], "--port", str(instance["port"])]
    if instance.get("rpc_endpoints"):
        args += ["--rpc", ",".join(instance["rpc_endpoints"])]
    if instance.get("rpc_endpoints") or value(service, "split_mode") == "tensor":
        args += ["--split-mode", value(service, "split_mode")]
    if service.get("cards") == []:
        args += ["--device", "none"]
    layers = value(service, "n_gpu_layers")
    args += ["--n-gpu-layers", str(ALL_LAYERS if layers == "auto" else layers), "--fit", "off"]
    if instance["tensor_split"]:
        args += ["--tensor-split", ",".join(str(count) for count in instance["tensor_split"])]
    if instance.get("cpu_moe"):
        args += ["--cpu-moe"] if instance["cpu_moe"] == "all" else ["--n-cpu-moe", str(instance["cpu_moe"])]
    build = command_line_of(version)
    args += arguments(service, build)
    if service.get("draft"):
        args += _draft_args(instance["draft_path"], service) + drafts.words(service["draft"], build)
    args += _companion_args(instance, service)
    if service.get("numa") in LLAMA_NUMA:
        args += ["--numa", service["numa"]]
    template = service.get("chat_template")
    if template is not None and is_template_file(template):
        args += ["--chat-template-file", paths.TEMPLATES.replace("*", instance["service"])]
    elif template is not None:
        args += ["--chat-template", template]
    return args + (service.get("extra_args") or [])


def router_args(instance: Mapping[str, Any], service: Mapping[str, Any], version: str | None = PIN) -> list[str]:
    """Arguments of llama-server for a router, which passes them on to its models."""
    args = ["--models-preset", paths.PRESETS.replace("*", instance["service"])]
    args += ["--models-max", str(instance["models_max"]), "--host", instance["address"], "--port"]
    args.append(str(instance["port"]))
    if "timeout" in service:
        args += ["--timeout", str(service["timeout"])]
    if instance["api_key_file"]:
        args += ["--api-key-file", instance["api_key_file"]]
    return args + ["--log-verbosity", str(_dialect(version).log_verbosity)]


def _dialect(version: str | None) -> Dialect:
    return [one for one in DIALECTS if one.first <= command_line_of(version)][-1]


def _draft_args(path: str, service: Mapping[str, Any]) -> list[str]:
    """The file of a draft model, if it has one: layers go to the model's devices; the cache is f16, llama.cpp's
    default."""
    args = ["--model-draft", path, "--n-gpu-layers-draft", str(ALL_LAYERS)] if path else []
    return args + (["--device-draft", "none"] if path and service.get("cards") == [] else [])


def _companion_args(instance: Mapping[str, Any], service: Mapping[str, Any]) -> list[str]:
    args = ["--mmproj", instance["mmproj_path"]] if service.get("mmproj") else []
    args += ["--no-mmproj-offload"] if args and not projects_on_card(service) else []
    scaled = [f"{instance['lora_paths'][name]}:{scale:g}" for name, scale in (service.get("lora") or {}).items()]
    return args + (["--lora-scaled", ",".join(scaled)] if scaled else [])


class Settings(NamedTuple):
    """Settings of a llama-server's command line that concern its answers."""

    embeddings: bool  # only embeddings or scores, no generation
    tools: bool  # with jinja, which tools need
    reasoning_off: bool
    reasoning_raw: bool  # thoughts stay in content
    slot_ctx: int | None  # tokens of a slot, None for the model's default
    n_predict: int  # default limit of an answer in tokens, 0 for none
    draft: str  # what drafts: a word of --spec-type, or `model` for a draft model; empty for nothing
    reranking: bool  # only scores
    template: bool  # a chat template that is not the model's
    pictures: bool = False  # has a projector for them

    @property
    def asked(self) -> str:
        """The kind of request."""
        if self.reranking:
            return "a request for scores"
        return "a request for an embedding" if self.embeddings else "a completion"


def parse_args(arguments: Sequence[str]) -> Settings:
    """The settings of a command line, as head_args() renders it."""

    def value(*flags: str) -> str:
        return ([""] + [given for flag, given in zip(arguments, arguments[1:]) if flag in flags])[-1]

    def last(*flags: str) -> str:
        return ([""] + [flag for flag in arguments if flag in flags])[-1]

    def whole(*flags: str) -> int:
        text = value(*flags)
        return int(text) if WHOLE.match(text) else 0

    context, slots = whole("--ctx-size", "-c"), whole("--parallel", "-np")
    slots = 1 if last("--kv-unified", "-kvu", "--no-kv-unified", "-no-kvu").startswith(("--kv", "-kv")) else slots
    off = value("--reasoning", "-rea") == "off" or value("--reasoning-budget") == "0"
    return Settings(
        embeddings=bool(last("--embedding", "--embeddings", "--rerank", "--reranking")),
        tools=last("--jinja", "--no-jinja") != "--no-jinja",
        reasoning_off=off,
        reasoning_raw=value("--reasoning-format") == "none",
        slot_ctx=context // slots if context and slots else None,
        n_predict=whole("--n-predict", "--predict", "-n"),
        draft="model" if value("--model-draft", "-md", "--spec-draft-model") else value("--spec-type"),
        reranking=bool(last("--rerank", "--reranking")),
        template=bool(value("--chat-template", "--chat-template-file")),
        pictures=bool(value("--mmproj")),
    )


def unknown_values(service: Mapping[str, Any], build: int) -> list[tuple[str, Any, list[Any]]]:
    """[(name, value, values that are known)] of settings for whose value a build (a number) has no words; a default
    needs none."""
    found = []
    for key in KEYS:
        given = value(service, key.name)
        if isinstance(key.flag, tuple) and given != key.default and given not in _of_build(key.flag, build):
            found.append((key.name, given, [key.default] + sorted(_of_build(key.flag, build))))
    return found


def arguments(service: Mapping[str, Any], build: int) -> list[str]:
    """llama-server's words for all settings of a service, for a build (a number)."""
    args: list[str] = []
    for key in KEYS:
        given = value(service, key.name)
        if key.flag is None or given is None:
            continue
        if isinstance(key.flag, tuple):
            args += _of_build(key.flag, build).get(given, [])
        else:
            args += [key.flag, _word(given)]
    return args


def _word(given: Any) -> str:
    if isinstance(given, dict):
        return json.dumps(_plain(given), sort_keys=True)
    return ",".join(given) if isinstance(given, list) else str(given)


def _plain(given: Any) -> Any:
    """Containers of Ansible compute their values when they are asked for, which json does not."""
    if isinstance(given, dict):
        return {str(name): _plain(one) for name, one in given.items()}
    return [_plain(one) for one in given] if isinstance(given, list) else given


def _of_build(flag: Words, build: int) -> dict[Any, list[str]]:
    return [words for first, words in flag if first <= build][-1]
