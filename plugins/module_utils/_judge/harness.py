# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The crate that runs a task's tests against an answer. Private to the collection.

The answer runs in the same process as the tests, so nothing that the process prints by itself is believed. Each test
has a random token, which the crate reads from stdin before the answer runs, and prints after the test has passed. The
answer is compiled without unsafe code and the process cannot be traced, so it cannot read them from memory, but for
errors of rustc that let safe code do what unsafe code does. It starts no program: itself would say what a test expects.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .._text import Refusal

MARK = "#[test]"
TEST = re.compile(r"^[ \t]*#\[test\]\s*(#\[should_panic\]\s*)?fn (\w+)\(\)", re.MULTILINE)
# An answer can export names, and `use answer::*` would prefer them to std's: with these, such an answer is ambiguous
# and does not compile. A macro would even run as a part of the tests.
MACROS = (
    *("assert", "cfg", "column", "compile_error", "concat", "dbg", "debug_assert", "debug_assert_eq"),
    *("debug_assert_ne", "env", "eprint", "eprintln", "file", "format", "format_args", "include", "include_bytes"),
    *("include_str", "line", "matches", "module_path", "option_env", "panic", "print", "println", "stringify"),
    *("thread_local", "todo", "unimplemented", "unreachable", "vec", "write", "writeln"),
)
MACRO = "macro_rules! %s { ($($t:tt)*) => { ::std::%s!($($t)*) } }\n"
# Preludes as a whole have some of these macros too.
STD = """\
mod names_of_std {
    pub use ::std::{borrow::ToOwned, boxed::Box, clone::Clone, convert::{AsMut, AsRef, From, Into}, default::Default};
    pub use ::std::{cmp::{Eq, Ord, PartialEq, PartialOrd}, option::Option::{self, *}, result::Result::{self, *}};
    pub use ::std::{iter::{Extend, FromIterator, IntoIterator, Iterator}, primitive::*};
    pub use ::std::{mem::drop, ops::Drop, string::{String, ToString}, vec::Vec};
}
"""
NAMES = "use ::std; use crate::names_of_std::*;"
# A type of the answer that equals every number is not what a test expects. Types are compared as lists: a set of std
# takes as long to compile as everything else together.
COMPARED = ("assert_eq", "assert_ne")
COMPARING = """\
macro_rules! %s { ($left:expr, $right:expr $(, $($t:tt)*)?) => { match (&$left, &$right) { (left, right) => {
    $crate::require_alike(left, right);
    ::std::%s!(*left, *right $(, $($t)*)?)
} } } }
"""
# PR_SET_DUMPABLE is 4: /proc/self/mem and the like then belong to root. 38 is PR_SET_NO_NEW_PRIVS, and 22
# PR_SET_SECCOMP with a filter of Berkeley's, after which execve and execveat fail with EPERM.
CRATE = """\
#![allow(warnings)]
%(macros)s
%(std)s
mod tests_of_answer {
%(names)s
%(tests)s
pub(crate) fn all_%(nonce)s() -> [(fn(), ::std::primitive::bool); %(count)d] { [%(rows)s] }
}
fn types_of_answer(name: &'static str) -> ::std::vec::Vec<&'static str> {
    let words = name.split(|one: char| !(one.is_alphanumeric() || "_:".contains(one)));
    words.filter(|word| word.starts_with("answer::")).collect()
}
fn are_alike(left: ::std::vec::Vec<&str>, right: ::std::vec::Vec<&str>) -> bool {
    left.iter().all(|one| right.contains(one)) && right.iter().all(|one| left.contains(one))
}
fn require_alike<L: ?Sized, R: ?Sized>(_: &L, _: &R) {
    let (left, right) = (types_of_answer(::std::any::type_name::<L>()), types_of_answer(::std::any::type_name::<R>()));
    ::std::assert!(are_alike(left, right), "a type of the answer, instead of another");
}
#[repr(C)]
struct Instruction(u16, u8, u8, u32);
#[repr(C)]
struct Filter(u16, *const Instruction);
extern "C" { fn prctl(option: i32, ...) -> i32; }
fn limited() -> bool {
    let (execve, execveat) = if cfg!(target_arch = "x86_64") { (59, 322) } else { (221, 281) };
    let instructions = [
        Instruction(0x20, 0, 0, 0),
        Instruction(0x15, 1, 0, execve),
        Instruction(0x15, 0, 1, execveat),
        Instruction(0x06, 0, 0, 0x0005_0001),
        Instruction(0x06, 0, 0, 0x7fff_0000),
    ];
    let filter = Filter(5, instructions.as_ptr());
    unsafe {
        prctl(4, 0usize) == 0
            && prctl(38, 1usize, 0usize, 0usize, 0usize) == 0
            && prctl(22, 2usize, &filter as *const Filter) == 0
    }
}
fn main() {
    if !limited() { ::std::process::exit(1); }
    let mut tokens = String::new();
    ::std::io::Read::read_to_string(&mut ::std::io::stdin(), &mut tokens).unwrap();
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
    tests_only = TEST.sub(lambda found: f"fn {found.group(2)}()", text)
    values = {"macros": macros(), "std": STD, "names": NAMES, "tests": tests_only}
    return CRATE % {**values, "nonce": nonce, "count": len(tests), "rows": rows}


def macros() -> str:
    """Macros of std, and those that compare only what may be equal."""
    comparing = "".join(COMPARING % (name, name) for name in COMPARED)
    return comparing + "".join(MACRO % (name, name) for name in MACROS)


def refused_crate(text: str) -> str:
    """The source of the library that must not compile, of a refused.rs."""
    known = "".join(MACRO % (name, name) for name in (*COMPARED, *MACROS))
    return f"#![allow(warnings)]\n{known}{STD}mod refused {{\n{NAMES}\n{text}\n}}\n"
