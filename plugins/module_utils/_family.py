# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings that belong to a family of models: what its template, its thinking and its context need. Rows of the
table of settings. Private to the collection."""

import re
from collections.abc import Mapping
from typing import Any

from ._key import Key, Words

# From the oldest build on.
EVER = 0
# --reasoning, and a budget of tokens (#20297, 11 March 2026); b8692 is the first release that is known to have both.
# Before, a budget of 0 made the template not think, and -1 was the only other one.
THINKS = 8692
REASONING: Words = (
    (EVER, {"off": ["--reasoning-budget", "0"]}),
    (THINKS, {mode: ["--reasoning", mode] for mode in ("on", "off")}),
)
# Names that llama.cpp has a template for, by the first measured build that lists them.
BUILT_IN = (
    (
        EVER,
        "bailing bailing-think bailing2 chatglm3 chatglm4 chatml command-r deepseek deepseek2 deepseek3 exaone-moe "
        "exaone3 exaone4 falcon3 gemma gigachat glmedge gpt-oss granite grok-2 hunyuan-dense hunyuan-moe kimi-k2 "
        "llama2 llama2-sys llama2-sys-bos llama2-sys-strip llama3 llama4 megrez minicpm mistral-v1 mistral-v3 "
        "mistral-v3-tekken mistral-v7 mistral-v7-tekken monarch openchat orion pangu-embedded phi3 phi4 rwkv-world "
        "seed_oss smolvlm solar-open vicuna vicuna-orca yandex zephyr",
    ),
    (11434, "deepseek-ocr granite-4.0 granite-4.1 hunyuan-vl"),
)
# --jinja knows only this template by name; it takes any other name for the text of a template.
JINJA_KNOWS = "chatml"
# The template's own argument for `reasoning`.
THINKING = "enable_thinking"
OVERRIDE = (
    re.compile(
        r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}=(int:-?[0-9]{1,18}|float:-?[0-9]+(\.[0-9]+)?|bool:(true|false)|str:[A-Za-z0-9._:/@+-]{1,127})\Z"
    ),
    "KEY=TYPE:VALUE such as qwen3.context_length=int:131072",
    "correct it",
)
TEMPLATE = (
    re.compile(r"^[^\x00-\x20\x7f](?:[^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?\Z"),
    "the name of a built-in template, or the path of a file",
    "correct it",
)
DRAFT = (
    re.compile(r""),
    "a map or false",
    "write {model: NAME, quant: Q}, or {type: ngram-mod} without a second model, or false for none",
)

FAMILY = (
    Key(
        "jinja",
        bool,
        "Whether the chat template is read by Jinja (llama-server's default), which tools need.",
        flag=((EVER, {True: ["--jinja"], False: ["--no-jinja"]}),),
        family=True,
    ),
    Key(
        "chat_template",
        str,
        "The chat template, if it is not the model's own: [a file on the controller, or a name of "
        "llama.cpp's](inventory.md#model-families).",
        form=TEMPLATE,
        family=True,
    ),
    Key(
        "chat_template_kwargs",
        dict,
        "Arguments of the chat template; a service's map replaces the one of its model.",
        flag="--chat-template-kwargs",
        family=True,
    ),
    Key(
        "reasoning",
        str,
        "Whether the model thinks before it answers, in quotes; `auto`: as its template has it.",
        default="auto",
        choices=("on", "off", "auto"),
        flag=REASONING,
        family=True,
    ),
    Key(
        "reasoning_budget",
        int,
        "Tokens that it may think for; -1: as many as it likes, 0: none.",
        bounds=(-1, None),
        flag="--reasoning-budget",
        family=True,
    ),
    Key(
        "reasoning_format",
        str,
        "Where the thoughts go: `none` leaves them in `content`, `deepseek` puts them into `reasoning_content`, "
        "`deepseek-legacy` into both.",
        choices=("auto", "none", "deepseek", "deepseek-legacy"),
        flag="--reasoning-format",
        family=True,
    ),
    Key(
        "temperature",
        float,
        "Sampling, if a request does not set it, as the following five.",
        bounds=(0, 5),
        flag="--temp",
        family=True,
    ),
    Key(
        "top_p",
        float,
        "Sampling: the most likely tokens, of this probability together.",
        bounds=(0, 1),
        flag="--top-p",
        family=True,
    ),
    Key(
        "top_k",
        int,
        "Sampling: so many of the most likely tokens, 0 for all.",
        bounds=(0, None),
        flag="--top-k",
        family=True,
    ),
    Key(
        "min_p",
        float,
        "Sampling: tokens of at least this part of the likeliest one's probability.",
        bounds=(0, 1),
        flag="--min-p",
        family=True,
    ),
    Key(
        "repeat_penalty",
        float,
        "Sampling: what repeats itself is less likely; 1 for no penalty.",
        bounds=(0, 10),
        flag="--repeat-penalty",
        family=True,
    ),
    Key(
        "presence_penalty",
        float,
        "Sampling: what was said before is less likely; 0 for no penalty.",
        bounds=(-2, 2),
        flag="--presence-penalty",
        family=True,
    ),
    Key(
        "swa_full",
        bool,
        "Whether layers with a sliding window cache the whole context, by which a prompt can be used again in part.",
        own=False,
        flag=((EVER, {True: ["--swa-full"], False: []}),),
        memory=True,
        family=True,
    ),
    Key(
        "embeddings",
        bool,
        "Whether it serves embeddings, and nothing else: [texts and batches](inventory.md#model-families).",
        own=False,
        flag=((EVER, {True: ["--embeddings"], False: []}),),
        memory=True,
        family=True,
    ),
    Key(
        "pooling",
        str,
        "How the embeddings of a text's tokens become one, where the model's header does not say it right.",
        choices=("mean", "cls", "last"),
        flag="--pooling",
        family=True,
    ),
    Key(
        "reranking",
        bool,
        "Whether it serves scores of documents for a query, and nothing else; a query and a document together may "
        "fill a slot.",
        flag=((EVER, {True: ["--reranking"], False: []}),),
        family=True,
    ),
    Key(
        "draft",
        (bool, dict),
        "What drafts tokens that the model checks at once: a small model, `{model: NAME, quant: Q}`, or what was said "
        "before, such as `{type: ngram-mod}`; `false`: nothing. [Drafting](inventory.md#drafting).",
        form=DRAFT,
        family=True,
    ),
    Key(
        "rope_scaling",
        str,
        "How positions beyond the model's own context are scaled.",
        choices=("none", "linear", "yarn"),
        flag="--rope-scaling",
        family=True,
    ),
    Key(
        "rope_scale",
        float,
        "The factor by which the context grows.",
        bounds=(1, 10**4),
        flag="--rope-scale",
        family=True,
    ),
    Key(
        "rope_freq_base",
        float,
        "The base frequency of RoPE.",
        bounds=(1, 10**12),
        flag="--rope-freq-base",
        family=True,
    ),
    Key(
        "yarn_orig_ctx",
        int,
        "The context that the model was made for, with `rope_scaling: yarn`.",
        flag="--yarn-orig-ctx",
        family=True,
    ),
    Key(
        "override_kv",
        list,
        "Keys of the model's header to read otherwise, each `KEY=TYPE:VALUE` with type int, float, bool or str.",
        form=OVERRIDE,
        flag="--override-kv",
        family=True,
    ),
)

# (key, values, companions): with such a value in a service, these keys of its model's entry do not count.
EXCLUDES = (
    ("jinja", (False,), ("chat_template_kwargs", "reasoning")),
    ("reasoning", ("off",), ("reasoning_budget",)),
    ("embeddings", (False,), ("pooling",)),
    ("rope_scaling", ("none", "linear"), ("yarn_orig_ctx",)),
)


def inherited(model: Mapping[str, Any], service: Mapping[str, Any]) -> dict[str, Any]:
    """The family settings of a model's entry that hold for a service: it replaces them, and with a key those that
    cannot stand beside its value."""
    found = dict(model)
    for key, values, companions in EXCLUDES:
        for companion in companions if service.get(key) in values else ():
            found.pop(companion, None)
    if service.get("reasoning_budget") is not None and found.get("reasoning") == "off":
        del found["reasoning"]
    if THINKING in (service.get("chat_template_kwargs") or {}):
        found.pop("reasoning", None)
    elif service.get("reasoning") in ("on", "off") and THINKING in (found.get("chat_template_kwargs") or {}):
        words = found["chat_template_kwargs"]
        found["chat_template_kwargs"] = {name: words[name] for name in words if name != THINKING}
    found.update(service)
    return found


def is_template_file(template: str) -> bool:
    """Whether a chat_template is a file, not a name."""
    return "/" in template or template.endswith(".jinja")


def built_in(build: int) -> list[str]:
    """The names of the templates that a build (a number) has."""
    return [name for first, names in BUILT_IN if first <= build for name in names.split()]
