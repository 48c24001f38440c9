# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mistakes in llama_builds, one sentence each whatever the number of nodes. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._cache_keys import ALL_CACHE_TYPES
from ...module_utils._key import Key
from ...module_utils._llama.args import OLDEST, build_number
from ...module_utils._settings import LARGEST
from .builds import builds_of, version_of
from .check_models import SHA256
from .records import HostVars, Settings
from .rules import Row, broken
from .values import hidden, is_a, key_errors, plain, shown, type_errors, unknown_key

NAME = re.compile(r"^[a-z0-9][a-z0-9_.-]{0,39}\Z")
# A suffix of your own may follow the tag of an archive.
VERSION = re.compile(r"^b[0-9]+([._-][A-Za-z0-9._-]*)?\Z")
PRINTED = re.compile(r"^[^\x00-\x1f\x7f]+\Z")
ARCHITECTURE = re.compile(r"^([0-9]{2,3}[a-f]?(-real|-virtual)?|native|all|all-major)\Z")
OPTION = re.compile(r"^[A-Z][A-Za-z0-9_]*\Z")
TYPE = re.compile(r"^[a-z][a-z0-9_]{0,19}\Z")
# The first release with RPC over RDMA.
RDMA = 9824
_COMMIT = (re.compile(r"^[0-9a-f]{40}\Z"), "a commit of 40 hexadecimal digits")
_ROWS = (
    Key("version", str, ""),
    Key(
        "repository",
        str,
        "",
        form=(
            re.compile(r"^(https?|git)://[^\s'\"]+\Z"),
            "the https address of a git repository",
            "write it from https:// on",
        ),
    ),
    Key("commit", str, "", form=(*_COMMIT, "copy the whole commit, a branch or a tag may move")),
    Key("number", int, "", bounds=(OLDEST, LARGEST)),
    Key("source", str, "", form=(PRINTED, "an address or a file of this machine", "correct it")),
    Key("source_sha256", str, "", form=(SHA256, "a digest of 64 hexadecimal digits", "copy the whole digest")),
    Key("accelerator", str, "", choices=("auto", "cpu", "cuda", "vulkan")),
    Key("cuda_architectures", (str, list), "", empty=True),
    Key(
        "cuda_home",
        str,
        "",
        form=(re.compile(r"^/[^\x00-\x1f\x7f]*\Z"), "an absolute path", "write it from / on"),
    ),
    Key("rdma", bool, ""),
    Key("cmake_options", dict, ""),
    Key("cache_types", dict, ""),
)
KEYS = {key.name: key for key in _ROWS}


def build_errors(nodes: Sequence[str], hostvars: HostVars) -> list[str]:
    found: dict[str, None] = {}
    given = {node: hostvars[node].get("llama_builds") for node in nodes}
    for builds in given.values():
        wrong = [] if builds is None else type_errors("llama_builds", builds, dict)
        for name, entry in {} if wrong or builds is None else builds.items():
            wrong += _entry_errors(name, entry)
        found.update(dict.fromkeys(wrong))
    others = [node for node in nodes if given[node] != given[nodes[0]]]
    if others and not found:
        return [
            "llama_builds: %s has other builds than %s, the same for all nodes are needed, since head and workers of a "
            "service run one: write them in group_vars/all" % (others[0], nodes[0])
        ]
    return list(found) or _same_version_errors(given[nodes[0]] if nodes else {})


def _same_version_errors(given: Mapping[str, Any] | None) -> list[str]:
    """Builds and archives are called by their version: two sources of one would be one build."""
    found: list[str] = []
    sources: dict[str, tuple[str, Any]] = {}
    for name, entry in builds_of({"llama_builds": given}).items():
        version, source = version_of(entry), entry.get("source")
        other, first = sources.setdefault(version, (name, source)) if not entry.get("repository") else (name, source)
        if first != source:
            found.append(
                "llama_builds.%s: %s seen from another source than llama_builds.%s, a version of its own is needed, "
                "since builds and archives are called by it: write version: %s-NAME" % (name, version, other, version)
            )
    return found


def _entry_errors(name: Any, given: Any) -> list[str]:
    entry = f"llama_builds.{plain(name)}"
    if not NAME.match(str(name)):
        return [f"{entry}: a name of lower-case letters, digits, dots and dashes is needed: rename it"]
    found = type_errors(entry, given, dict)
    for key, value in {} if found else given.items():
        found += key_errors(f"{entry}.{key}", value, KEYS[key]) if key in KEYS else [unknown_key(entry, key, KEYS)]
    return found or broken(lambda key: f"{entry}.{key}", [*_source_rules(given), *_compiler_rules(given)])


def _source_rules(given: Settings) -> list[Row]:
    version, home = given.get("version", "b%d" % OLDEST), given.get("cuda_home")
    known = VERSION.match(version) and (build_number(version) is not None or "source" in given)
    number = given.get("number") or build_number(version_of(given).partition("-")[0])
    rows: list[Row] = [
        (
            "version",
            not known,
            f"{shown(version)} seen, the tag of a release such as b11434 is needed: "
            + (
                "write b" + version
                if re.match(r"^[0-9]+\Z", version)
                else "choose one of github.com/ggml-org/llama.cpp/releases, or give the source of your own"
            ),
        ),
        (
            "version",
            known and (build_number(version) or OLDEST) < OLDEST,
            f"{version} seen, b{OLDEST} or a newer release is needed: its command line is the oldest that this version "
            "renders",
        ),
        *(
            (
                key,
                "repository" in given and key in given,
                "seen beside repository, one of them is needed: drop the other",
            )
            for key in ("version", "source", "source_sha256")
        ),
        (
            "commit",
            "repository" in given and "commit" not in given,
            "missing, 40 hexadecimal digits are needed with repository: add it",
        ),
        (
            "commit",
            "commit" in given and "repository" not in given,
            "seen without repository, it is needed to fetch a commit: add it",
        ),
        (
            "source_sha256",
            "source" in given and not {"repository", "commit", "version", "source_sha256"} & set(given),
            "missing, it is needed to tell a source without version from others: add it",
        ),
        (
            "number",
            "number" in given and "version" in given,
            "seen beside version, which says it already: drop one of them",
        ),
        (
            "cuda_home",
            home and hidden(home),
            f"{home} seen, which units cannot see, a path outside /home, /root and /tmp is needed: install CUDA there",
        ),
    ]
    old = given.get("rdma") and number and number < RDMA and not any(wrong for _key, wrong, _text in rows)
    text = f"true seen with {version_of(given)}, b{RDMA} or a newer release is needed for it: older ones have RPC over "
    return [*rows, ("rdma", old, text + "TCP only")]


def _compiler_rules(given: Settings) -> list[Row]:
    cards = given.get("cuda_architectures", "auto")
    wrong = [one for one in cards if not ARCHITECTURE.match(str(one))] if isinstance(cards, list) else []
    options, types = given.get("cmake_options", {}), given.get("cache_types", {})
    return [
        (
            "cuda_architectures",
            cards == [] or (isinstance(cards, str) and cards != "auto"),
            f'{shown(cards)} seen, auto or a list is needed: write auto, or ["86"] for cards of compute capability 8.6',
        ),
        (
            "cuda_architectures",
            wrong,
            f"{shown([*wrong, ''][0])} seen, a compute capability without its dot is needed: write 86 for 8.6",
        ),
        *(
            (
                f"cmake_options.{plain(name)}",
                not OPTION.match(str(name)),
                "no name of a CMake option, capitals, digits and _ such as GGML_LTO are needed: write NAME: VALUE, "
                "without -D",
            )
            for name in options
        ),
        *(
            (
                f"cmake_options.{name}",
                name in options,
                f"seen, accelerator decides it, or one card would be counted twice: write accelerator: {word}",
            )
            for name, word in (("GGML_CUDA", "cuda"), ("GGML_VULKAN", "vulkan"))
        ),
        *(
            (
                f"cmake_options.{name}",
                OPTION.match(str(name)) and not (isinstance(one, (str, int, float)) and PRINTED.match(str(one))),
                f"{shown(one)} seen, one word or number is needed: correct it",
            )
            for name, one in options.items()
        ),
        *(
            (f"cache_types.{plain(name)}", True, text)
            for name, bits in types.items()
            for text in [_type_error(name, bits)]
            if text
        ),
    ]


def _type_error(name: Any, bits: Any) -> str:
    if not TYPE.match(str(name)):
        return "a name as --cache-type-k takes it is needed: correct it"
    if name in ALL_CACHE_TYPES:
        return "a type of llama.cpp itself, another name is needed: drop it, its bits are known"
    if not is_a(bits, float) or not 0 < bits <= 32:
        return f"{shown(bits)} seen, the bits per element, above 0 and up to 32, are needed: correct it"
    return ""
