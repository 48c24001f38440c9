# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The crate that runs a task's tests against an answer. Private to the collection.

The answer runs in the same process as the tests, so nothing that the process prints by itself is believed. Each test
has a random token, which the crate reads from stdin before the answer runs, and prints after the test has passed. The
answer is compiled without unsafe code and the process cannot be traced, so it cannot read them from memory.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .._text import Refusal

MARK = "#[test]"
TEST = re.compile(r"^[ \t]*#\[test\]\s*(#\[should_panic\]\s*)?fn (\w+)\(\)", re.MULTILINE)
# An answer can export macros under these names, and `use answer::*` would prefer them to std's: with these,
# such an answer is ambiguous and does not compile.
MACROS = (
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "eprint",
    "eprintln",
    "format",
    "format_args",
    "matches",
    "panic",
    "print",
    "println",
    "stringify",
    "concat",
    "todo",
    "unimplemented",
    "unreachable",
    "write",
    "writeln",
)
MACRO = "macro_rules! %s { ($($t:tt)*) => { ::std::%s!($($t)*) } }\n"
# PR_SET_DUMPABLE is 4: /proc/self/mem and the like then belong to root.
CRATE = """\
#![allow(warnings)]
%(macros)s
mod tests_of_answer {
%(tests)s
pub(crate) fn all_%(nonce)s() -> [(fn(), ::std::primitive::bool); %(count)d] { [%(rows)s] }
}
extern "C" { fn prctl(option: i32, ...) -> i32; }
fn main() {
    let hidden = unsafe { prctl(4, 0usize) };
    let mut tokens = String::new();
    ::std::io::Read::read_to_string(&mut ::std::io::stdin(), &mut tokens).unwrap();
    if hidden != 0 { ::std::process::exit(1); }
    for ((test, panics), token) in tests_of_answer::all_%(nonce)s().into_iter().zip(tokens.lines()) {
        if ::std::panic::catch_unwind(test).is_err() == panics { ::std::println!("\\n{}", token); }
    }
    ::std::process::exit(0);
}
"""


class Case(NamedTuple):
    """A test of a task: its function, and whether it has to panic."""

    name: str
    panics: bool


def cases_of(task: str, text: str) -> list[Case]:
    """The tests of a tests.rs. Errors: Refusal without one, and if one has another form."""
    found = [Case(name, bool(panics)) for panics, name in TEST.findall(text)]
    if not found or len(found) != text.count(MARK):
        raise Refusal(
            f"task {task}: tests.rs has {text.count(MARK)} times #[test] and {len(found)} tests, at least one and as "
            "many are needed: write each as #[test] and fn NAME() below it, with at most #[should_panic] between them"
        )
    return found


def crate(text: str, tests: list[Case], nonce: str) -> str:
    """The source of the program that runs these tests of a tests.rs."""
    rows = ", ".join(f"({test.name}, {'true' if test.panics else 'false'})" for test in tests)
    macros = "".join(MACRO % (name, name) for name in MACROS)
    tests_only = TEST.sub(lambda found: f"fn {found.group(2)}()", text)
    return CRATE % {"macros": macros, "tests": tests_only, "nonce": nonce, "count": len(tests), "rows": rows}
