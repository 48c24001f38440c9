# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes in the `draft` of a service. Private to the collection."""

from __future__ import annotations

from ...module_utils._llama.drafts import DRAFT_TYPES, MODEL, UNTRIED, Kind, most
from ...module_utils._settings import effective, value
from .records import Settings
from .rules import Row, Where, broken
from .values import did_you_mean, is_a, shown, unknown_key

# In the order of mistakes.
DRAFT_KEYS = ("type", "model", "quant", "max", "min", "match", "hits")


def draft_rules(whole: Settings) -> list[Row]:
    draft = whole.get("draft")
    if draft is None:
        return []
    if draft is True:
        return [
            (
                "draft",
                True,
                "true seen, a model or a type is needed: write {model: NAME, quant: Q} or {type: ngram-mod}, or false "
                "for none",
            )
        ]
    given, types = draft.get("type", MODEL), [name for name in DRAFT_TYPES if name]
    needs = UNTRIED.get(str(given).removeprefix("draft-"))
    if needs:
        return [
            (
                "draft.type",
                True,
                f"{given} seen, one of {', '.join(types)} is needed, since it was not tried and wants {needs}: "
                "choose one of them",
            )
        ]
    if "type" in draft and given not in types:
        near = did_you_mean(given, types, ": choose one of them, or drop the key for a draft model")
        return [("draft.type", True, f"{shown(given)} seen, one of {', '.join(types)} is needed{near}")]
    kind = DRAFT_TYPES[given]
    rows = _draft_values(draft, kind)
    if any(wrong for _key, wrong, _text in rows):
        return rows
    least, tokens = draft.get("min", 0), most(draft)
    together, batch = (tokens + 1) * value(whole, "parallel"), effective(whole, "batch_size")
    return [
        ("draft.min", "max" in draft and least > tokens, f"{least} seen, at most max ({tokens}) is allowed: lower it"),
        (
            "draft",
            kind.model and "workers" in whole,
            "seen with workers, a service of one node is needed for it, since drafting over RPC is slower than not "
            "drafting and ends heads: drop the workers, take {type: ngram-mod}, or set draft: false",
        ),
        (
            "batch_size",
            together > batch,
            f"{batch} seen with {tokens} drafted tokens and one more in each of {value(whole, 'parallel')} slots, "
            f"at least {together} is needed, since they are checked at once: raise it, or lower draft's max",
        ),
        *(
            ("draft", whole.get(other), f"seen with {other}, for which nothing is generated: set draft: false")
            for other in ("embeddings", "reranking")
        ),
    ]


def _draft_values(draft: Settings, kind: Kind) -> list[Row]:
    """The keys of a draft one by one."""
    known = (*(("model", "quant") if kind.model else ("type",)), *kind.flags)
    return [
        *(
            (
                f"draft.{key}",
                key not in known,
                f"seen with type {draft.get('type')}, {', '.join(known)} can be given with it: drop the key",
            )
            for key in DRAFT_KEYS
            if key in draft
        ),
        *(
            (
                f"draft.{key}",
                kind.model and not is_a(draft.get(key), str),
                f"{shown(draft.get(key))} seen, a text is needed: give the name",
            )
            for key in ("model", "quant")
        ),
        *(
            (
                f"draft.{key}",
                not is_a(number, int) or not (key != "min") <= number <= kind.limit,
                f"{shown(number)} seen, {int(key != 'min')} to {kind.limit}{' tokens' * (key != 'hits')} are allowed: "
                + ("remove the quotes" if isinstance(number, str) and number.isdigit() else "choose another number"),
            )
            for key, number in draft.items()
            if key in kind.flags
        ),
    ]


def draft_errors(where: Where, whole: Settings) -> list[str]:
    """whole: a service with what its model's entry says."""
    draft = whole.get("draft")
    unknown = [key for key in draft if key not in DRAFT_KEYS] if isinstance(draft, dict) else []
    return [unknown_key(where("draft"), key, DRAFT_KEYS) for key in unknown] + broken(where, draft_rules(whole))
