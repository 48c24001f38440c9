# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mistakes in one entry of llama_models, one sentence each. Private to the collection."""

import re
from collections.abc import Iterable
from typing import Any

from ...module_utils._forms import MODEL_NAME as FORM
from ...module_utils._settings import FAMILY_KEYS
from .check_header import header_errors
from .models import model_file
from .values import is_a, key_errors, list_errors, plain, shown, type_errors, unknown_key

# key -> (type, what docs/settings.md says of it).
MODEL_KEYS = {
    "repo": (str, "The Hugging Face repository of its files, OWNER/NAME."),
    "revision": (str, "A branch, tag or commit of the repository (default: main)."),
    "aliases": (list, "Further names that clients may use."),
    "parameters": (int, "The number of its weights, for estimates before a hub is asked."),
    "header": (dict, "What the header of its GGUF file says, for plans where it cannot be read."),
    "quants": (dict, "Name to files, see below."),
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
        found.extend(_quant_errors(f"{entry}.quants.{plain(quant)}", name, model, spec))
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
