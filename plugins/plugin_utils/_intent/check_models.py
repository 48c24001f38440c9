# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mistakes in one entry of llama_models, one sentence each. Private to the collection."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...module_utils._companion_keys import ADAPTER, PROJECTOR
from ...module_utils._forms import MODEL_NAME as FORM
from ...module_utils._model.architectures import RECURRENT
from ...module_utils._model.shape import MAX_BLOCKS
from ...module_utils._settings import FAMILY_KEYS
from .models import files_of, model_file
from .values import is_a, key_errors, list_errors, plain, shown, type_errors, unknown_key

# key -> (type, what docs/settings.md says of it).
MODEL_KEYS = {
    "repo": (str, "The Hugging Face repository of its files, OWNER/NAME."),
    "revision": (str, "A branch, tag or commit of the repository (default: main)."),
    "aliases": (list, "Further names that clients may use."),
    "parameters": (int, "The number of its weights, for estimates before a hub is asked."),
    "header": (dict, "What the header of its GGUF file says, for plans where it cannot be read."),
    "quants": (dict, "Name to files, see below."),
    "mmproj": (dict, "The files of its projector, with the keys of a quant: see `mmproj` of a service."),
    "loras": (dict, "LoRA adapters, name to files with the keys of a quant: see `lora` of a service."),
}
QUANT_KEYS = {
    "files": (list, "Files of the repository: all shards or pieces, in order."),
    "urls": (list, "The same from anywhere else: http, https or file URLs. A file URL is a path on the node."),
    "file": (str, "The name of the file on the nodes (default: the name of the first source)."),
    "sha256": (list, "The digests of the files, in the same order."),
    "size": (int, "All bytes of the files together, for estimates."),
    "bits_per_weight": (float, "For estimates where the size is not known."),
}
SHA256 = re.compile(r"^[0-9a-fA-F]{64}\Z")
REPO = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*\Z")
URL = re.compile(r"^(https?://[^/\s]|file:///|/)")
MODEL_NAME = FORM[0]
FILE_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\Z")


def model_errors(name: Any, model: Any) -> list[str]:
    entry = f"llama_models.{plain(name)}"
    if not MODEL_NAME.match(str(name)):
        return [
            f"{entry}: {name!r} is the name that clients use, letters, digits and . _ : / @ + - are needed: rename it"
        ]
    found = type_errors(entry, model, dict)
    if found:
        return found
    found = _key_errors(entry, model, MODEL_KEYS, FAMILY_KEYS)
    for name_of, key in FAMILY_KEYS.items():
        found.extend(key_errors(f"{entry}.{name_of}", model[name_of], key) if model.get(name_of) is not None else [])
    if not model.get("quants"):
        return found or [f"{entry}.quants: missing, a map of quant name to its files is needed: add it"]
    if found:
        return found
    wrong = [alias for alias in model.get("aliases") or [] if not MODEL_NAME.match(alias)]
    if wrong:
        found.append(
            "%s.aliases: %s seen, names of letters, digits and . _ : / @ + - are needed: rename it"
            % (entry, shown(wrong[0]))
        )
    if model.get("repo") and not REPO.match(model["repo"]):
        found.append(
            f"{entry}.repo: {model['repo']!r} seen, OWNER/NAME of a Hugging Face repository is needed: correct it"
        )
    found.extend(header_errors(entry + ".header", model.get("header") or {}))
    for quant, spec in model["quants"].items():
        if quant == PROJECTOR or str(quant).startswith(ADAPTER):
            found.append(
                f"{entry}.quants: {plain(quant)} seen, which is the name of a file beside the model, another is "
                "needed: rename it"
            )
        found.extend(_quant_errors(f"{entry}.quants.{plain(quant)}", name, model, spec))
    if model.get("mmproj"):
        found.extend(_quant_errors(f"{entry}.mmproj", name, model, model["mmproj"]))
    for adapter, spec in (model.get("loras") or {}).items():
        found.extend(_quant_errors(f"{entry}.loras.{plain(adapter)}", name, model, spec))
        if not MODEL_NAME.match(str(adapter)):
            found.append(
                f"{entry}.loras: {shown(adapter)} seen, letters, digits and . _ : / @ + - are needed: rename it"
            )
    return found


def file_errors(models: Mapping[str, Any]) -> list[str]:
    """Files beside models that would have the name of another file on a node, as many projectors have in
    repositories."""
    found, taken = [], dict[str, tuple[str, list[Any], bool]]()
    for name, model in models.items():
        besides = {PROJECTOR: "mmproj"} if model.get("mmproj") else {}
        besides.update({f"{ADAPTER}{adapter}": f"loras.{adapter}" for adapter in model.get("loras") or {}})
        for file, key in {**{quant: f"quants.{quant}" for quant in model["quants"]}, **besides}.items():
            spec, path = files_of(model, file), model_file(model, file)
            source = [spec.get("urls"), spec.get("files") and [model["repo"], model.get("revision"), spec["files"]]]
            own = (f"llama_models.{name}.{key}", source, file in besides)
            other = taken.setdefault(path, own)
            if other[1] != source and (other[2] or own[2]):
                found.append(
                    f"{own[0]}: {path} seen, as {other[0]} has it, a name of its own is needed: give one by file"
                )
    return found


def _key_errors(
    entry: str, given: dict[str, Any], keys: dict[str, tuple[type, str]], more: Iterable[str] = ()
) -> list[str]:
    """Unknown keys and values of another type; an empty value is left out. more: keys that are looked at elsewhere."""
    known = [*keys, *more]
    found = [unknown_key(entry, key, known) for key in given if key not in known]
    for key, (kind, _text) in keys.items():
        where, value = f"{entry}.{key}", given.get(key)
        if value is None:
            continue
        found.extend(list_errors(where, value) if kind is list else type_errors(where, value, kind))
        if kind in (int, float) and is_a(value, kind) and value <= 0:
            found.append(f"{where}: {value} seen, more than 0 is needed: correct it or remove the key")
    return found


def _quant_errors(where: str, name: str, model: dict[str, Any], spec: Any) -> list[str]:
    found = type_errors(where, spec, dict) or _key_errors(where, spec, QUANT_KEYS)
    if found:
        return found
    found = [
        f"{where}.urls: {shown(url)} seen, an http, https or file URL is needed: correct it"
        for url in spec.get("urls") or []
        if not URL.match(url)
    ]
    if found:
        return found
    found = _name_errors(where, spec)
    if bool(spec.get("files")) == bool(spec.get("urls")):
        both = "both" if spec.get("files") else "neither"
        found.append(
            "%s: %s seen, either files (of repo) or urls is needed: %s"
            % (where, both, "drop one" if spec.get("files") else "add one")
        )
    if spec.get("files") and not model.get("repo"):
        found.append(
            "%s.files: %s has no repo, the Hugging Face repository of the files is needed: add it beside quants"
            % (where, name)
        )
    sources, digests = spec.get("files") or spec.get("urls") or [], spec.get("sha256") or []
    if digests and len(digests) != len(sources):
        found.append(
            "%s.sha256: %d seen, one for each of its %d files is needed: add or remove digests"
            % (where, len(digests), len(sources))
        )
    found.extend(digest_errors(f"{where}.sha256", digests))
    return found


def digest_errors(entry: str, digests: Iterable[str]) -> list[str]:
    return [
        f"{entry}: {shown(one)} seen, 64 hexadecimal digits are needed: copy the whole digest"
        for one in digests
        if not SHA256.match(one)
    ]


def _name_errors(where: str, spec: dict[str, Any]) -> list[str]:
    """Mistakes in the name of a file on the nodes."""
    if spec.get("file"):
        name, key = spec["file"], "file"
    elif spec.get("files") or spec.get("urls"):
        name, key = model_file({"quants": {"": spec}}, ""), "files" if spec.get("files") else "urls"
    else:
        return []
    if FILE_NAME.match(name):
        return []
    step = "rename it" if key == "file" else "give the name it shall have by file"
    return [
        f"{where}.{key}: {name!r} is the name of the file, letters, digits, dots, dashes, + and _ are needed: {step}"
    ]


class HeaderKey(NamedTuple):
    """A key of a model's `header`."""

    gguf: str | None  # what a GGUF header calls it, after its architecture
    kind: str = "count"  # text, count, flag, or for lists: counts, flags
    required: bool = False


HEADER_KEYS = {
    "architecture": HeaderKey(None, "text", True),
    "assumed": HeaderKey(None, "flag"),
    "block_count": HeaderKey("block_count", required=True),
    "context_length": HeaderKey("context_length"),
    "embedding_length": HeaderKey("embedding_length", required=True),
    "feed_forward_length": HeaderKey("feed_forward_length"),
    "head_count": HeaderKey("attention.head_count", required=True),
    "head_count_kv": HeaderKey("attention.head_count_kv", "counts", True),
    "key_length": HeaderKey("attention.key_length"),
    "value_length": HeaderKey("attention.value_length"),
    "vocab_size": HeaderKey(None, required=True),
    "tie_word_embeddings": HeaderKey(None, "flag"),
    "sliding_window": HeaderKey("attention.sliding_window"),
    "sliding_window_pattern": HeaderKey("attention.sliding_window_pattern", "flags"),
    "key_length_swa": HeaderKey("attention.key_length_swa"),
    "value_length_swa": HeaderKey("attention.value_length_swa"),
    "expert_count": HeaderKey("expert_count"),
    "expert_used_count": HeaderKey("expert_used_count"),
    "expert_feed_forward_length": HeaderKey("expert_feed_forward_length"),
    "expert_shared_feed_forward_length": HeaderKey("expert_shared_feed_forward_length"),
    "leading_dense_block_count": HeaderKey("leading_dense_block_count"),
    "q_lora_rank": HeaderKey("attention.q_lora_rank"),
    "kv_lora_rank": HeaderKey("attention.kv_lora_rank"),
    "key_length_mla": HeaderKey("attention.key_length_mla"),
    "value_length_mla": HeaderKey("attention.value_length_mla"),
    "rope_dimension_count": HeaderKey("rope.dimension_count"),
    "full_attention_interval": HeaderKey("full_attention_interval"),
    "ssm_conv_kernel": HeaderKey("ssm.conv_kernel"),
    "ssm_state_size": HeaderKey("ssm.state_size"),
    "ssm_group_count": HeaderKey("ssm.group_count"),
    "ssm_inner_size": HeaderKey("ssm.inner_size"),
}
# Keys that each key needs beside it.
_TOGETHER = {
    "expert_count": ("expert_used_count", "expert_feed_forward_length"),
    "expert_used_count": ("expert_count",),
    "expert_feed_forward_length": ("expert_count",),
    "expert_shared_feed_forward_length": ("expert_count",),
    "leading_dense_block_count": ("expert_count", "feed_forward_length"),
    "sliding_window_pattern": ("sliding_window",),
    "key_length_swa": ("sliding_window_pattern", "value_length_swa"),
    "kv_lora_rank": ("key_length_mla", "value_length_mla", "rope_dimension_count"),
    "key_length_mla": ("kv_lora_rank",),
}
_STATES = ("ssm_conv_kernel", "ssm_state_size", "ssm_group_count", "ssm_inner_size")
_NEEDED = {"count": "a whole number above 0", "flag": "true or false"}


def header_errors(entry: str, header: Mapping[str, Any]) -> list[str]:
    """A sentence for each mistake; a missing header has none."""
    found = [unknown_key(entry, key, HEADER_KEYS) for key in header if key not in HEADER_KEYS]
    missing = _missing(header) if header else []
    if missing:
        found.append(
            "%s: %s missing, what the header of the GGUF file says of them is needed to estimate a plan: add them"
            % (entry, ", ".join(missing))
        )
    for key, value in header.items():
        if key in HEADER_KEYS:
            found.extend(_value_errors(f"{entry}.{key}", value, HEADER_KEYS[key].kind))
    if found or not header:
        return found
    if header["block_count"] > MAX_BLOCKS:
        found.append(
            "%s.block_count: %d seen, 1 to %d is needed: correct it" % (entry, header["block_count"], MAX_BLOCKS)
        )
    rotated = header.get("rope_dimension_count", 0)
    if "kv_lora_rank" in header and header["key_length_mla"] <= rotated:
        found.append(
            "%s.key_length_mla: %d seen, more than the %d of rope_dimension_count is needed: give both parts of a key "
            "together" % (entry, header["key_length_mla"], rotated)
        )
    used, count = header.get("expert_used_count", 0), header.get("expert_count", 0)
    if used > count:
        found.append(
            "%s.expert_used_count: %d seen, at most the %d of expert_count are allowed: correct one of them"
            % (entry, used, count)
        )
    return found


def _missing(header: Mapping[str, Any]) -> list[str]:
    needed = [key for key, known in HEADER_KEYS.items() if known.required]
    if "expert_count" not in header:
        needed.append("feed_forward_length")
    if RECURRENT.get(str(header.get("architecture"))) == "interval":
        needed.extend(_STATES)
    for key in header:
        needed.extend(_TOGETHER.get(key, ()))
    return [key for key in HEADER_KEYS if key in needed and key not in header]


def _value_errors(where: str, value: Any, kind: str) -> list[str]:
    if kind == "text":
        return type_errors(where, value, str)
    one, many = kind.rstrip("s"), kind.endswith("s")
    if _is_one(value, one) and kind != "flags":
        return []
    if many and isinstance(value, list) and value and all(_is_one(item, one, 0) for item in value):
        return []
    more = {"count": ", or a list of them for the layers", "flag": " for each of some layers"}[one] if many else ""
    needed = "a list of true and false" if kind == "flags" else _NEEDED[one]
    return [f"{where}: {value!r} seen, {needed}{more} is needed: correct it"]


def _is_one(value: Any, kind: str, least: int = 1) -> bool:
    return isinstance(value, bool) if kind == "flag" else is_a(value, int) and value >= least
