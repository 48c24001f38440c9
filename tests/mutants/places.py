# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mutants of a file, made by Cosmic Ray's operators: comparisons, boolean expressions, arithmetic, constants.

A place is a position in a file. A seed gives every place a rank, and every mutant of a place one: both follow from the
text of the line alone. So a seed means the same mutants as long as their lines stay as they are, whatever else changes.
"""

import ast
import hashlib
import itertools
from collections import Counter, defaultdict, namedtuple

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators import (
    binary_operator_replacement,
    boolean_replacer,
    comparison_operator_replacement,
    number_replacer,
    unary_operator_replacement,
)
from cosmic_ray.operators.operator import Example, Operator

Mutant = namedtuple("Mutant", "path line before after source")
"""path: of the file; before, after: the line; source: the whole mutated file."""

# One mutant for each operator: most of the others are a TypeError for every caller.
ARITHMETIC = (
    *("Add_Sub", "Sub_Add", "Mul_FloorDiv", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "Pow_Mul"),
    *("LShift_RShift", "RShift_LShift", "BitOr_BitAnd", "BitAnd_BitOr", "BitXor_BitAnd"),
)
# "==" that becomes "is" would survive by CPython's small integers.
IDENTITY = ("Is_IsNot", "IsNot_Is")
EQUALITY = ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE")


class ReplaceIn(Operator):
    """Replaces "in" with "not in" and the other way round, which Cosmic Ray does not."""

    OTHER = {"in": " not in", "not in": " in"}

    def _places(self, node):
        if node.type == "comparison":
            yield from (
                place for place in range(1, len(node.children), 2) if self._word(node.children[place]) in self.OTHER
            )

    @staticmethod
    def _word(node):
        return " ".join(node.get_code().split())

    def mutation_positions(self, node):
        yield from ((node.children[place].start_pos, node.children[place].end_pos) for place in self._places(node))

    def mutate(self, node, index):
        place = list(self._places(node))[index]
        node.children[place] = parso.parse(self.OTHER[self._word(node.children[place])])
        return node

    @classmethod
    def examples(cls):
        return (Example("x in y", "x not in y"), Example("x not in y", "x in y"))


def operators():
    """[instance]"""
    found = [ReplaceIn, number_replacer.NumberReplacer, boolean_replacer.AddNot]
    found += [
        getattr(boolean_replacer, "Replace" + name)
        for name in ("TrueWithFalse", "FalseWithTrue", "AndWithOr", "OrWithAnd")
    ]
    found += [getattr(binary_operator_replacement, "ReplaceBinaryOperator_" + name) for name in ARITHMETIC]
    compared = [*IDENTITY, *("%s_%s" % pair for pair in itertools.permutations(EQUALITY, 2))]
    found += [getattr(comparison_operator_replacement, "ReplaceComparisonOperator_" + name) for name in compared]
    found += [
        getattr(unary_operator_replacement, "ReplaceUnaryOperator_Delete_" + name) for name in ("USub", "Not", "Invert")
    ]
    return [operator() for operator in found]


def annotations(source):
    """[(start, end)]: nothing runs there."""
    found = []
    for node in ast.walk(ast.parse(source)):
        for written in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if written is not None:
                found.append(((written.lineno, written.col_offset), (written.end_lineno, written.end_col_offset)))
    return found


def formats(node):
    """Whether a "%" fills a text: any other operator there is a TypeError, whoever calls."""
    if getattr(node, "value", None) != "%" or node.parent.type != "term":
        return False
    place = node.parent.children.index(node)
    left, right = node.parent.children[place - 1], node.parent.children[place + 1]
    return left.type in ("string", "strings") or right.get_first_leaf().value in ("(", "{")


def _rank(*words):
    return hashlib.sha256("\0".join(str(word) for word in words).encode()).hexdigest()


def places(source):
    """{(line, column): [(operator, occurrence)]}"""
    found = defaultdict(list)
    unread = annotations(source)
    nodes = list(ast_nodes(get_ast(source)))
    for operator in operators():
        positions = ((node, start) for node in nodes for start, _end in operator.mutation_positions(node))
        for occurrence, (node, start) in enumerate(positions):
            if not formats(node) and not any(first <= start < last for first, last in unread):
                found[start].append((operator, occurrence))
    return found


def ranked(seed, path, source):
    """[(rank, line, (operator, occurrence))]: one mutant for each place."""
    lines = source.splitlines()
    found, seen = [], Counter()
    for (line, column), mutations in sorted(places(source).items()):
        text = lines[line - 1].strip()
        place = (seed, path, text, column - lines[line - 1].index(text))
        # The same line may stand in a file several times.
        seen[place] += 1
        chosen = min(range(len(mutations)), key=lambda number: _rank(*place, number))
        found.append((_rank(*place, "place", seen[place]), line, mutations[chosen]))
    return found


def mutants(seed, count, root, paths):
    """([Mutant] of the lowest ranks, number of places)"""
    sources = {path: (root / path).read_text() for path in paths}
    found = sorted(
        (rank, path, line, mutation) for path in paths for rank, line, mutation in ranked(seed, path, sources[path])
    )
    made = []
    for _rank_of, path, line, (operator, occurrence) in found[:count]:
        mutated = mutate_code(sources[path], operator, occurrence)
        before, after = (" ".join(text.splitlines()[line - 1].split()) for text in (sources[path], mutated))
        made.append(Mutant(path, line, before, after, mutated))
    return made, len(found)
