# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the values of settings look, and the words for those that are not written as they are. Private to the
collection."""

import re

from ._key import Words

SIZE = (re.compile(r"^[1-9][0-9]*[KMGT]\Z"), "a size such as 100G", "write digits and one of K, M, G, T")
SLURM_NAME = (re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z"), "a name of SLURM's", "correct it")
# YAML reads a bare 24:00:00 as a number of seconds.
SLURM_TIME = (
    re.compile(r"^(?:[1-9][0-9]{0,5}|[0-9]{1,4}(?::[0-5]?[0-9]){1,2}|[0-9]{1,3}-[0-9]{1,2}(?::[0-5]?[0-9]){0,2})\Z"),
    "SLURM's form of a time, such as 24:00:00 or 7-00:00:00,",
    'write it in quotes, as in "24:00:00"',
)
GRES = (
    re.compile(r"^[A-Za-z][A-Za-z0-9_]{0,31}(?::[A-Za-z][A-Za-z0-9_.-]{0,63})?:[1-9][0-9]{0,2}\Z"),
    "NAME:COUNT or NAME:TYPE:COUNT such as gpu:v100s:1",
    "correct it",
)
# A name becomes an argument of a command line, a part of a list or a path: letters, digits and what separates nothing
# there.
MODEL_NAME = (
    re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}\Z"),
    "a name of letters, digits and . _ : / @ + -",
    "rename it",
)
# No flag and its value in one word, and nothing that a journal could not show.
WORD = (
    re.compile(r"^(?!-[^=]*\s)[^\x00-\x1f\x7f]+\Z"),
    "a word of a command line",
    "write each word as an entry of its own",
)
CPU_MOE = (re.compile(r"^(auto|all)\Z"), "auto, all or a number of layers", "write auto, all, or digits without quotes")
GPU_LAYERS = (re.compile(r"^auto\Z"), "auto or a number of layers", "write auto, or digits without quotes")
# A value of rpc_cache.
SEEDED = "seeded"
RPC_CACHE = (re.compile(rf"^{SEEDED}\Z"), f"true, false or {SEEDED}", "write one of them, without quotes")
SPLIT = (re.compile(r"^auto\Z"), "auto or a map of node to layers", "write auto, or NODE: LAYERS for each node")

SPELLED_OUT = {
    "none": ["--no-mmap", "--no-direct-io"],
    "mmap": ["--mmap", "--no-direct-io"],
    "mlock": ["--no-mmap", "--no-direct-io", "--mlock"],
    "mmap+mlock": ["--mmap", "--no-direct-io", "--mlock"],
    "dio": ["--direct-io"],
}
BY_NAME = {mode: ["--load-mode", mode] for mode in SPELLED_OUT}
# 10114: --load-mode (#20834), in which mlock first meant mmap too. 10884: no flag of before works any more.
LOAD_MODES: Words = (
    (7760, SPELLED_OUT),
    (10114, {mode: BY_NAME[mode] for mode in ("none", "mmap", "dio")}),
    (10884, BY_NAME),
)
