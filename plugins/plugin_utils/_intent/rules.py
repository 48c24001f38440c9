# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which settings of a service do not go together, as rows: key, whether it is wrong, what is wrong. A new rule is a
row. Private to the collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...module_utils._cache_keys import CACHE_TYPES, PLAIN_CACHE_TYPES
from ...module_utils._companion_keys import SCALES
from ...module_utils._family import JINJA_KNOWS, THINKING, THINKS, built_in, is_template_file
from ...module_utils._forms import SEEDED
from ...module_utils._llama.args import OLDEST, build_number, command_line_of, unknown_values
from ...module_utils._llama.drafts import DRAFTS_UNKNOWN, TYPED, UNTYPED
from ...module_utils._llama.flags import flags, owner
from ...module_utils._model.tensor_mode import TENSOR_BUILD
from ...module_utils._settings import (
    LARGEST,
    WORKER_KEYS,
    caches,
    context,
    effective,
    value,
)
from .records import Settings
from .values import did_you_mean, hidden, is_a, plain, shown

Row = tuple[str, object, str]
# {key: its place in the inventory}, in the entry of the service or of its model.
Where = Callable[[str], str]
# Keys that stand for others.
SHORT = {"cache": ("cache_type_k", "cache_type_v"), "mmap": ("load_mode",)}
# The first build with llama.cpp PR 28789 whose tensor cache was measured.
CACHE_BUILD = 11434
# The first build that was seen to fall asleep, and to stay so, while /health, /metrics and /props are asked.
SLEEP_BUILD = 11434


def broken(where: Where, rows: Iterable[Row]) -> list[str]:
    """A sentence for each rule that is broken."""
    return [f"{where(key)}: {text}" for key, wrong, text in rows if wrong]


def setting_rules(one: Settings, whole: Settings) -> list[Row]:
    """one: a service, or a model of a router as a service. whole: the same with what its model's entry says."""
    total, split, offload = context(one), one.get("tensor_split"), value(one, "n_gpu_layers")
    workers, cardless, moe = "workers" in one, one.get("cards") == [], "cpu_moe" in one
    offloads = offload != "auto"
    layers = f"{offload} seen with"
    twice = [short for short, longs in SHORT.items() if short in one and any(long in one for long in longs)]
    keys, values = (effective(whole, key) for key in SHORT["cache"])
    return [
        (
            "slot_ctx_size" if "slot_ctx_size" in one else "ctx_size",
            total and total > LARGEST,
            f"{total} tokens in all slots seen, at most {LARGEST} are allowed: lower it",
        ),
        (
            "ctx_size",
            total and one.get("ctx_size", total) != total,
            f"{one.get('ctx_size')} seen with slot_ctx_size {one.get('slot_ctx_size')} for each of "
            f"{caches(one)} slots, {total} is needed: drop ctx_size, the product is what llama-server gets",
        ),
        (
            "cpu_moe",
            moe and workers,
            "seen with workers, a service of one node is needed for it, since experts lie in the head's main memory: "
            "drop the key or the workers",
        ),
        (
            "cpu_moe",
            moe and not workers and cardless,
            "seen with cards [], a card is needed for it, since without one all weights lie in main memory anyway: "
            "drop one of them",
        ),
        (
            "n_gpu_layers",
            offloads and workers,
            f"{layers} workers, a service of one node is needed for it, since the other layers lie in the head's main "
            "memory: drop the key or the workers",
        ),
        (
            "n_gpu_layers",
            offloads and not workers and cardless,
            f"{layers} cards [], a card is needed for it, since without one all layers lie in main memory: drop one "
            "of both",
        ),
        (
            "n_gpu_layers",
            offloads and moe and not (workers or cardless),
            f"{layers} cpu_moe, one of both is needed, since both say what lies in main memory: drop one (of a mixture "
            "of experts, cpu_moe keeps more on the cards)",
        ),
        (
            "n_gpu_layers",
            offloads and isinstance(split, dict) and not (workers or cardless or moe),
            f"{layers} layers per node in tensor_split, auto is needed there, since not all layers lie on cards: drop "
            "it",
        ),
        (
            "cache_ram",
            workers and value(one, "cache_ram"),
            f"{one.get('cache_ram')} seen with workers, 0 is needed, since a head with RPC workers aborts when it "
            "saves a prompt: drop the key",
        ),
        (
            "sleep_idle_seconds",
            "sleep_idle_seconds" in one and value(one, "launcher") == "slurm",
            "seen with launcher slurm, a service of units is needed for it, since a job keeps its cards while it "
            "sleeps: drop the key",
        ),
        *(
            (key, key in one and not workers, "seen without workers, it is only for them: drop the key")
            for key in WORKER_KEYS
        ),
        *(
            (
                short,
                True,
                "%s seen with %s, one of both is needed: drop one"
                % (str(one[short]).lower(), " and ".join(long for long in SHORT[short] if long in one)),
            )
            for short in twice
        ),
        (
            "cache_type_v",
            workers and keys != values and not twice,
            f"{values} seen with cache_type_k {keys}, the same type for both is needed, since an RPC worker aborts at "
            "the first token of a mixed pair: set both",
        ),
        (
            "cache" if "cache" in one else "cache_type_k",
            workers and keys == values and keys not in CACHE_TYPES and not twice,
            f"{keys} seen with workers, one of {', '.join(CACHE_TYPES)} is needed, since an RPC worker aborts at the "
            "first token of another type: choose one of them",
        ),
        (
            "flash_attn",
            effective(whole, "flash_attn") == "off" and values not in PLAIN_CACHE_TYPES and not twice,
            f"off seen with cache_type_v {values}, on or auto is needed: llama.cpp has no quantized V cache without "
            "flash attention",
        ),
        *_tensor_rules(whole),
        *_family_rules(whole),
    ]


def _tensor_rules(whole: Settings) -> list[Row]:
    """Settings that do not go with a part of every layer on each device."""
    if value(whole, "split_mode") != "tensor":
        return []
    draft = whole.get("draft") or {}
    # Main memory, and files beside the model, were not tried with it: (key, whether it is given, seen, needed).
    untried = (
        ("cards", whole.get("cards") == [], "[]", "cards or workers are"),
        ("cpu_moe", whole.get("cpu_moe"), whole.get("cpu_moe"), "no experts in main memory are"),
        ("n_gpu_layers", value(whole, "n_gpu_layers") != "auto", whole.get("n_gpu_layers"), "auto is"),
        ("draft", isinstance(draft, dict) and "model" in draft, "a model", "a type such as ngram-simple is"),
        ("mmproj", whole.get("mmproj"), "a projector", "false is"),
        ("lora", whole.get("lora"), "an adapter", "none is"),
    )
    return [
        (
            "flash_attn",
            effective(whole, "flash_attn") == "off",
            "off seen with split_mode tensor, on or auto is needed, since llama.cpp has no such split without flash "
            "attention: drop one of both",
        ),
        (
            "tensor_split",
            isinstance(whole.get("tensor_split"), dict),
            "layers per node seen with split_mode tensor, auto is needed, since each device has a part of every layer: "
            "drop one of both",
        ),
        (
            "rpc_cache",
            whole.get("rpc_cache") == SEEDED,
            f"{SEEDED} seen with split_mode tensor, true or false is needed, since each worker is sent parts of "
            "tensors: write true",
        ),
        *(
            (
                key,
                wrong,
                f"{seen} seen with split_mode tensor, {needed} needed, since it was not tried: drop one of both",
            )
            for key, wrong, seen, needed in untried
        ),
    ]


def _family_rules(whole: Settings) -> list[Row]:
    template, jinja, thinking = whole.get("chat_template"), whole.get("jinja", True), value(whole, "reasoning")
    of_file = template is not None and is_template_file(template)
    ubatch, batch = effective(whole, "ubatch_size"), effective(whole, "batch_size")
    texts = "embeddings" if whole.get("embeddings") else "reranking" if whole.get("reranking") else ""
    return [
        (
            "chat_template",
            jinja and not of_file and template not in (None, JINJA_KNOWS),
            # As the text of a template, every prompt would be that name.
            f"{shown(template)} seen with Jinja, which takes the name of a built-in template for its text, jinja false "
            "is needed: add jinja: false, or give a file",
        ),
        *(
            (
                key,
                not jinja and key in whole and whole[key] != "auto",
                "seen with jinja false, Jinja is needed for it: drop one of both",
            )
            for key in ("chat_template_kwargs", "reasoning")
        ),
        (
            "chat_template",
            not jinja and of_file,
            "a file seen with jinja false, Jinja is needed to read it: drop jinja",
        ),
        (
            "reasoning_budget",
            thinking == "off" and whole.get("reasoning_budget") is not None,
            f"{whole.get('reasoning_budget')} seen with reasoning off, no budget is needed without thinking: drop one "
            "of both",
        ),
        (
            "chat_template_kwargs",
            thinking != "auto" and THINKING in (whole.get("chat_template_kwargs") or {}),
            f"enable_thinking seen with reasoning {thinking}, which sets it, one of both is needed: drop "
            "enable_thinking",
        ),
        (
            "pooling",
            "pooling" in whole and not whole.get("embeddings"),
            "seen without embeddings, which it is for: add embeddings: true or drop the key",
        ),
        (
            "reranking",
            whole.get("embeddings") and whole.get("reranking"),
            "seen with embeddings, one of both is needed, since a server pools in one way: drop one, or set it to "
            "false",
        ),
        (
            "ubatch_size" if "ubatch_size" in whole else "batch_size",
            texts and ubatch > batch,
            f"micro-batches of {ubatch} tokens seen with {texts} and batches of {batch}, at most that is allowed, "
            f"since no text is longer than either: write batch_size: {ubatch}",
        ),
        (
            "yarn_orig_ctx",
            "yarn_orig_ctx" in whole and whole.get("rope_scaling") != "yarn",
            "seen without rope_scaling yarn, which it is for: add that or drop the key",
        ),
    ]


def build_rules(whole: Settings, version: str) -> list[Row]:
    """Rules on the settings that a build knows."""
    if (build_number(version) or OLDEST) < OLDEST:
        return []
    build, template, budget = command_line_of(version), whole.get("chat_template"), whole.get("reasoning_budget", 0)
    names, typed = built_in(build), (whole.get("draft") or {}).get("type")
    return [
        *(
            (
                key,
                True,
                f"{given} seen with build {version}, which knows {', '.join(map(str, known))}: choose one of these or "
                "another release",
            )
            for key, given, known in unknown_values(whole, build)
        ),
        (
            "split_mode",
            value(whole, "split_mode") == "tensor" and build < TENSOR_BUILD,
            f"tensor seen with build {version}, b{TENSOR_BUILD} or newer is needed, which is known to have it: take "
            "another release, or drop the key",
        ),
        (
            "sleep_idle_seconds",
            "sleep_idle_seconds" in whole and build < SLEEP_BUILD,
            f"seen with build {version}, b{SLEEP_BUILD} or newer is needed, which is known to sleep while it is "
            "watched: take another release, or drop the key",
        ),
        (
            "reasoning_budget",
            budget > 0 and build < THINKS,
            f"{budget} seen with build {version}, which knows 0 and -1, b{THINKS} or newer is needed for another: "
            "choose one of these or another release",
        ),
        (
            "chat_template",
            template is not None and not is_template_file(template) and template not in names,
            f"{shown(template)} seen, the path of a file (with a slash, or ending in .jinja) or a built-in template of "
            f"{version} is needed{did_you_mean(template, names, ': choose one that llama-server --help lists')}",
        ),
        (
            "draft",
            "draft" in whole and not typed and build in DRAFTS_UNKNOWN,
            f"seen with build {version}, b{TYPED} or newer is needed, or at most b{UNTYPED}, whose flags for it are "
            "known: take another release",
        ),
        (
            "draft.type",
            typed and build < TYPED,
            f"{typed} seen with build {version}, b{TYPED} or newer is needed, whose flags for it are known: take "
            "another release, or a draft model",
        ),
    ]


def cache_rules(one: Settings, version: str) -> list[Row]:
    """The tensor cache of workers."""
    return [
        (
            "rpc_cache",
            one.get("rpc_cache") and (build_number(version) or 0) < CACHE_BUILD,
            f"cannot be used with build {version}, because builds before b{CACHE_BUILD} also store activations, "
            "without end: drop the key or take a newer build",
        ),
        (
            "rpc_cache",
            one.get("rpc_cache") == SEEDED and value(one, "launcher") == "slurm",
            f"{SEEDED} seen with launcher slurm, true is needed, since it is not known before where a job runs: write "
            "true",
        ),
    ]


def companion_rules(whole: Settings, model: Settings) -> list[Row]:
    """Files beside the model. model: its entry."""
    low, high = SCALES
    known, wanted = model.get("loras") or {}, whole.get("lora") or {}
    step = f"one of {', '.join(map(str, known))} is needed" if known else "an entry there is needed"
    return [
        (
            "mmproj",
            whole.get("mmproj") and not model.get("mmproj"),
            f"{str(whole.get('mmproj')).lower()} seen, the entry of {whole['model']} needs mmproj for it, the files of "
            "its projector: add it there or drop the key",
        ),
        *(
            (
                "lora",
                name not in known,
                f"{plain(name)} is not in loras of {whole['model']}, {step}{did_you_mean(name, known, ': add it')}",
            )
            for name in wanted
        ),
        *(
            (
                f"lora.{plain(name)}",
                not is_a(scale, float) or not low <= scale <= high,
                f"{shown(scale)} seen, a scale from {low} to {high} is needed: correct it",
            )
            for name, scale in wanted.items()
        ),
    ]


def word_rules(one: Settings) -> list[Row]:
    """extra_args."""
    words = one.get("extra_args") or []
    owners = [(flag.partition("=")[0], owner(flag)) for flag in flags(words)]
    return [
        (
            "extra_args",
            words and not flags(words[:1]),
            f"{shown(words[0]) if words else ''} seen first, a flag is needed there, its values after it: correct the "
            "order",
        ),
        *(
            (
                "extra_args",
                hidden(word),
                f"{hidden(word)} seen, which units cannot see, a path outside /home, /root and /tmp is needed: move "
                "the file",
            )
            for word in words
        ),
        *(
            (
                "extra_args",
                instead is not None,
                f"{shown(flag)} seen, {instead} is needed for that: write it there and drop the flag"
                if instead
                else f"{shown(flag)} seen, a flag that the collection does not set itself is needed: drop it",
            )
            for flag, instead in owners
        ),
    ]
