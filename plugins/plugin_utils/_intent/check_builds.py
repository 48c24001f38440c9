# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with llama_builds, one sentence a mistake whatever the number of nodes. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._llama.args import OLDEST, build_number
from ...module_utils._settings import ALL_CACHE_TYPES
from .builds import builds_of, version_of
from .check_models import SHA256
from .records import HostVars, Settings
from .values import hidden, is_a, near, plain, shown, type_errors, unknown_key

NAME = re.compile(r"^[a-z0-9][a-z0-9_.-]{0,39}\Z")
# A name of somebody's own may follow the tag of an archive.
VERSION = re.compile(r"^b[0-9]+([._-][A-Za-z0-9._-]*)?\Z")
REPOSITORY = re.compile(r"^(https?|git)://[^\s'\"]+\Z")
COMMIT = re.compile(r"^[0-9a-f]{40}\Z")
ABSOLUTE = re.compile(r"^/[^\x00-\x1f\x7f]*\Z")
PRINTED = re.compile(r"^[^\x00-\x1f\x7f]+\Z")
ARCHITECTURE = re.compile(r"^([0-9]{2,3}[a-f]?(-real|-virtual)?|native|all|all-major)\Z")
OPTION = re.compile(r"^[A-Z][A-Za-z0-9_]*\Z")
TYPE = re.compile(r"^[a-z][a-z0-9_]{0,19}\Z")
# The first release with RPC over RDMA.
RDMA = 9824
ACCELERATORS = ("auto", "cpu", "cuda")
# key -> (type, what its text has to be, what is needed, with its verb, next step)
KEYS: dict[str, tuple[type, re.Pattern[str] | None, str, str]] = {
    "version": (str, None, "", ""),
    "repository": (str, REPOSITORY, "the https address of a git repository is", "write it from https:// on"),
    "commit": (str, COMMIT, "40 hexadecimal digits are", "copy the whole commit, a branch or a tag may move"),
    "number": (int, None, "", ""),
    "source": (str, PRINTED, "an address or a file of this machine is", "correct it"),
    "source_sha256": (str, SHA256, "64 hexadecimal digits are", "copy the whole digest"),
    "accelerator": (str, None, "", ""),
    "cuda_architectures": (object, None, "", ""),
    "cuda_home": (str, ABSOLUTE, "an absolute path is", "write it from / on"),
    "rdma": (bool, None, "", ""),
    "cmake_options": (dict, None, "", ""),
    "cache_types": (dict, None, "", ""),
}


def build_errors(nodes: Sequence[str], hostvars: HostVars) -> list[str]:
    found: dict[str, None] = {}
    for node in nodes:
        given = hostvars[node].get("llama_builds")
        if given is None:
            continue
        wrong = type_errors("llama_builds", given, dict)
        for name, entry in {} if wrong else given.items():
            wrong += _entry_errors(name, entry)
        found.update(dict.fromkeys(wrong))
    given = hostvars[nodes[0]].get("llama_builds") if nodes else None
    others = [node for node in nodes if hostvars[node].get("llama_builds") != given]
    if others and not found:
        found[
            "llama_builds: %s has other builds than %s, the same for all nodes are needed, since head and workers of a "
            "service run one: write them in group_vars/all" % (others[0], nodes[0])
        ] = None
    found.update(dict.fromkeys([] if found else _same_version_errors(given or {})))
    return list(found)


def _same_version_errors(given: Mapping[str, Any]) -> list[str]:
    """Builds and archives are called by their version: two sources of one would be one build."""
    found: list[str] = []
    sources: dict[str, tuple[str, Any]] = {}
    for name, entry in builds_of({"llama_builds": given}).items():
        if entry.get("repository"):
            continue
        version, source = version_of(entry), entry.get("source")
        other, first = sources.setdefault(version, (name, source))
        if first != source:
            found.append(
                "llama_builds.%s: %s seen from another source than llama_builds.%s, a version of its own is needed, "
                "since builds and archives are called by it: write version: %s-NAME" % (name, version, other, version)
            )
    return found


def unknown_build(entry: str, service: Settings, builds: Mapping[str, Any]) -> list[str]:
    """A sentence in a list for a service that names no entry of llama_builds."""
    name = service.get("build", "default")
    if name in builds:
        return []
    known = ", ".join(str(one) for one in builds)
    return [
        "%s.build: %s is not in llama_builds%s"
        % (entry, shown(name), near(name, builds, ", one of %s is needed: add it there or choose one" % known))
    ]


def _entry_errors(name: Any, given: Any) -> list[str]:
    entry = f"llama_builds.{plain(name)}"
    if not NAME.match(str(name)):
        return [f"{entry}: a name of lower-case letters, digits, dots and dashes is needed: rename it"]
    found = type_errors(entry, given, dict)
    if found:
        return found
    for key, value in given.items():
        if key not in KEYS:
            found.append(unknown_key(entry, key, KEYS))
            continue
        kind, form, needed, step = KEYS[key]
        wrong = [] if kind is object else type_errors(f"{entry}.{key}", value, kind)
        if not wrong and form and not form.match(value):
            wrong = [f"{entry}.{key}: {shown(value)} seen, {needed} needed: {step}"]
        elif not wrong and key == "cuda_home" and hidden(value):
            wrong = [
                "%s.%s: %s seen, which units cannot see, a path outside /home, /root and /tmp is needed: install CUDA "
                "there" % (entry, key, value)
            ]
        found += wrong
    return found or _source_errors(entry, given) + _compiler_errors(entry, given) + _type_errors(entry, given)


def _source_errors(entry: str, given: Settings) -> list[str]:
    found = []
    if "version" in given:
        found += _version_errors(entry + ".version", given["version"], "source" in given)
    if "repository" in given:
        found += [
            f"{entry}.{key}: seen beside repository, one of them is needed: drop the other"
            for key in ("version", "source", "source_sha256")
            if key in given
        ]
        if "commit" not in given:
            found.append(f"{entry}.commit: missing, 40 hexadecimal digits are needed with repository: add it")
    elif "commit" in given:
        found.append(f"{entry}.commit: seen without repository, it is needed to fetch a commit: add it")
    elif "source" in given and "version" not in given and "source_sha256" not in given:
        found.append(
            f"{entry}.source_sha256: missing, it is needed to tell a source without version from others: add it"
        )
    if "number" in given and "version" in given:
        found.append(f"{entry}.number: seen beside version, which says it already: drop one of them")
    elif "number" in given and given["number"] < OLDEST:
        found.append(
            "%s.number: %d seen, %d or more is needed: its command line is the oldest that this version renders"
            % (entry, given["number"], OLDEST)
        )
    number = given.get("number") or build_number(version_of(given).partition("-")[0])
    if given.get("rdma") and not found and number and number < RDMA:
        found.append(
            "%s.rdma: true seen with %s, b%d or a newer release is needed for it: older ones have RPC over TCP alone"
            % (entry, version_of(given), RDMA)
        )
    return found


def _version_errors(entry: str, version: str, own: bool) -> list[str]:
    if not VERSION.match(version) or (build_number(version) is None and not own):
        step = (
            "write b" + version
            if re.match(r"^[0-9]+\Z", version)
            else "choose one of github.com/ggml-org/llama.cpp/releases, or give the source of your own"
        )
        return [f"{entry}: {shown(version)} seen, the tag of a release such as b11434 is needed: {step}"]
    if (build_number(version) or OLDEST) < OLDEST:
        return [
            "%s: %s seen, b%d or a newer release is needed: its command line is the oldest that this version renders"
            % (entry, version, OLDEST)
        ]
    return []


def _compiler_errors(entry: str, given: Settings) -> list[str]:
    found = []
    accelerator = given.get("accelerator", "auto")
    if accelerator not in ACCELERATORS:
        found.append(
            f"{entry}.accelerator: {shown(accelerator)} seen, one of {', '.join(ACCELERATORS)} is needed: choose one"
        )
    found += _architecture_errors(entry + ".cuda_architectures", given.get("cuda_architectures", "auto"))
    for name, value in given.get("cmake_options", {}).items():
        if not OPTION.match(str(name)):
            found.append(
                "%s.cmake_options.%s: no name of a CMake option, capitals, digits and _ such as GGML_LTO are needed: "
                "write NAME: VALUE, without -D" % (entry, plain(name))
            )
        elif not isinstance(value, (str, int, float)) or not PRINTED.match(str(value)):
            found.append(f"{entry}.cmake_options.{name}: {shown(value)} seen, one word or number is needed: correct it")
    return found


def _architecture_errors(entry: str, given: Any) -> list[str]:
    if given == "auto":
        return []
    if not isinstance(given, list) or not given:
        return [
            '%s: %s seen, auto or a list is needed: write auto, or ["86"] for cards of compute capability 8.6'
            % (entry, shown(given))
        ]
    return [
        f"{entry}: {shown(one)} seen, a compute capability without its dot is needed: write 86 for 8.6"
        for one in given
        if not ARCHITECTURE.match(str(one))
    ][:1]


def _type_errors(entry: str, given: Settings) -> list[str]:
    found = []
    for name, bits in given.get("cache_types", {}).items():
        where = f"{entry}.cache_types.{plain(name)}"
        if not TYPE.match(str(name)):
            found.append(f"{where}: a name as --cache-type-k takes it is needed: correct it")
        elif name in ALL_CACHE_TYPES:
            found.append(f"{where}: a type of llama.cpp itself, another name is needed: drop it, its bits are known")
        elif not is_a(bits, float) or not 0 < bits <= 32:
            found.append(
                f"{where}: {shown(bits)} seen, the bits per element, above 0 and up to 32, are needed: correct it"
            )
    return found
