# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the settings that belong to a family of models, one sentence a mistake. They stand in the entry of
a service or in that of its model. Private to the collection."""

from collections.abc import Callable, Mapping
from typing import Any

from ...module_utils._family import JINJA_KNOWS, THINKING, THINKS, built_in, is_template_file
from ...module_utils._llama.args import command_line_of
from ...module_utils._llama.words import unknown_values
from ...module_utils._settings import FAMILY_KEYS, effective, value
from .records import Settings
from .values import key_errors, near, shown

# The entry of a key.
Where = Callable[[str], str]


def sound_family(model: Any) -> dict[str, Any]:
    """The family settings of an entry of llama_models, without those that its own check refuses."""
    given = model if isinstance(model, Mapping) else {}
    return {
        name: given[name]
        for name, key in FAMILY_KEYS.items()
        if given.get(name) is not None and not key_errors("", given[name], key)
    }


def family_errors(where: Where, service: Settings) -> list[str]:
    """Settings that do not go together. service: resolved with its model."""
    found = _template_errors(where, service)
    thinking, budget = value(service, "reasoning"), service.get("reasoning_budget")
    if thinking == "off" and budget is not None:
        found.append(
            "%s: %d seen with reasoning off, no budget is needed where nobody thinks: drop one of both"
            % (where("reasoning_budget"), budget)
        )
    if thinking != "auto" and THINKING in (service.get("chat_template_kwargs") or {}):
        found.append(
            "%s: enable_thinking seen with reasoning %s, which sets it, one of both is needed: drop enable_thinking"
            % (where("chat_template_kwargs"), thinking)
        )
    if "pooling" in service and not service.get("embeddings"):
        found.append(
            f"{where('pooling')}: seen without embeddings, which it is for: add embeddings: true or drop the key"
        )
    if service.get("embeddings") and service.get("reranking"):
        found.append(
            "%s: seen with embeddings, one of both is needed, since a server pools in one way: drop one, or set it to "
            "false" % where("reranking")
        )
    ubatch, batch = effective(service, "ubatch_size"), effective(service, "batch_size")
    whole = "embeddings" if service.get("embeddings") else "reranking" if service.get("reranking") else ""
    if whole and ubatch > batch:
        found.append(
            "%s: micro-batches of %d tokens seen with %s and batches of %d, at most that is allowed, since no "
            "text is longer than either: write batch_size: %d"
            % (where("ubatch_size" if "ubatch_size" in service else "batch_size"), ubatch, whole, batch, ubatch)
        )
    if "yarn_orig_ctx" in service and service.get("rope_scaling") != "yarn":
        found.append(
            f"{where('yarn_orig_ctx')}: seen without rope_scaling yarn, which it is for: add that or drop the key"
        )
    return found


def _template_errors(where: Where, service: Settings) -> list[str]:
    template, jinja = service.get("chat_template"), service.get("jinja", True)
    if jinja:
        if template is None or is_template_file(template) or template == JINJA_KNOWS:
            return []
        # As the text of a template, every prompt would be that name.
        return [
            "%s: %s seen with Jinja, which takes the name of a built-in template for its text, jinja false is needed: "
            "add jinja: false, or give a file" % (where("chat_template"), shown(template))
        ]
    found = [
        f"{where(name)}: seen with jinja false, Jinja is needed for it: drop one of both"
        for name in ("chat_template_kwargs", "reasoning")
        if name in service and service[name] != "auto"
    ]
    if template is not None and is_template_file(template):
        found.append(f"{where('chat_template')}: a file seen with jinja false, Jinja is needed to read it: drop jinja")
    return found


def build_errors(where: Where, service: Settings, version: str) -> list[str]:
    """What a build does not know. service: resolved with its model."""
    build = command_line_of(version)
    found = [
        "%s: %s seen with build %s, which knows %s: choose one of these or another release"
        % (where(name), given, version, ", ".join(map(str, known)))
        for name, given, known in unknown_values(service, build)
    ]
    if service.get("reasoning_budget", 0) > 0 and build < THINKS:
        found.append(
            "%s: %d seen with build %s, which knows 0 and -1, b%d or newer is needed for another: choose "
            "one of these or another release"
            % (where("reasoning_budget"), service["reasoning_budget"], version, THINKS)
        )
    template = service.get("chat_template")
    if template is not None and not is_template_file(template) and template not in built_in(build):
        found.append(
            "%s: %s seen, the path of a file (with a slash, or ending in .jinja) or a built-in template of %s is "
            "needed%s"
            % (
                where("chat_template"),
                shown(template),
                version,
                near(template, built_in(build), ": choose one that llama-server --help lists"),
            )
        )
    return found
