"""The tables of what RPC costs on one card."""

import math
import statistics
import typing


class Variant(typing.NamedTuple):
    name: str
    servers: int  # RPC servers beside the head


VARIANTS = (Variant("one process", 0), Variant("one RPC server", 1), Variant("two RPC servers", 2))


SPEED = (
    "variant",
    "tokens/s",
    "to one process",
    "of ceiling",
    "long prompt, tokens/s",
    "to one process",
    "first token, ms",
    "load, s",
)
CARD = (
    "variant",
    "planned, MiB",
    "used, MiB",
    "beyond, mean of processes",
    "busy",
    "power, W",
    "free after kill -9, s",
    "answer",
)


def rate(one, prompt):
    return one[prompt]["request_tokens_per_second"]["p50"]


def reading(one, prompt):
    return one[prompt]["server"]["prompt_tokens_per_second"]["p50"]


def mean(values):
    """Geometric."""
    return math.exp(statistics.mean(map(math.log, values)))


def compared(own, others):
    """Ratios of rounds: their geometric mean, the lowest and the highest."""
    ratios = [a / b for a, b in zip(own, others, strict=True)]
    return "%.3f (%.3f to %.3f)" % (mean(ratios), min(ratios), max(ratios))


def number(value, form="%.0f"):
    return "-" if value is None else form % value


def header(columns):
    yield "| %s |" % " | ".join(columns)
    yield "|---|%s" % ("--:|" * (len(columns) - 1))


def tables(rounds):
    """-> lines of Markdown"""
    first = VARIANTS[0].name
    yield from header(SPEED)
    for variant in VARIANTS:
        own, single = ([one[name] for one in rounds] for name in (variant.name, first))
        rates, ceiling = [rate(one, "short") for one in own], own[0]["ceiling"]
        cells = ["%.1f" % mean(rates), compared(rates, [rate(one, "short") for one in single])]
        cells.append("-" if ceiling is None else "%.0f %%" % (100 * mean(rates) / ceiling))
        read = [reading(one, "long") for one in own]
        cells += ["%.0f" % mean(read), compared(read, [reading(one, "long") for one in single])]
        cells.append("%.1f" % (1000 * statistics.median(one["short"]["time_to_first_token"]["p50"] for one in own)))
        cells.append("%.1f" % statistics.median(one["load_s"] for one in own))
        yield "| %s | %s |" % (variant.name, " | ".join(cells))
    yield ""
    yield from header(CARD)
    for variant in VARIANTS:
        own = [one[variant.name] for one in rounds]
        planned, most = sum(own[0]["planned_mib"]), own[0]["used_mib"]
        beyond = None if most is None else (most - planned) / (1 + variant.servers)
        equal = all(one["answer"] == rounds[0][first]["answer"] for one in own)
        freed_s = [math.inf if one["freed_s"] is None else one["freed_s"] for one in own]
        yield "| %s | %.0f | %s | %s | %s | %s | %s | %s |" % (
            *(variant.name, planned, number(most), number(beyond)),
            number(own[0]["card"]["utilization"], "%.0f %%"),
            number(own[0]["card"]["power_w"]),
            "-" if most is None else "%.1f" % max(freed_s),
            "the same" if equal else "another",
        )
