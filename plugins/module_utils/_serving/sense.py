# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an answer is one: what a model says that was spoken to in another way than it was trained. Private to the
collection."""

import re
from typing import Any

from .._llama.api import plain

# Tokens that only templates and tokenizers write, whole or cut off, of any family; and speakers' names in front of
# lines. The bars of DeepSeek's are wide ones.
SPECIAL = re.compile(
    "|".join(
        (
            r"<\|[A-Za-z_/][^|<>\s]{0,40}\|?>?",
            r"<[A-Za-z_/]\w{0,40}\|>",
            "<\uff5c[^\uff5c<>\n]{1,40}\uff5c?>?",
            r"</?\w{1,20}_of_\w{1,30}>",
            r"</?s>",
            r"<(bos|eos|eod|eog|eom|eop|eot|pad|sop|unk|mask|cls|sep|eot_id|im_start|im_end|endoftext|_user|_bot)>",
            r"<(unused|extra_id_|reserved_special_token_)\d+>",
            r"<0x[0-9A-F]{2}>",
            r"\[/?(INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|gMASK|PAD\d*|BOS|EOS|UNK|CLS|SEP|MASK)\]",
            r"<</?SYS>>",
            r"^[ \t]*#{2,3} ?(Instruction|Response|Input|Human|Assistant|User|System)\b:?",
            r"^[ \t]*(USER|ASSISTANT|HUMAN|SYSTEM|User|Assistant|Human|System):",
        )
    ),
    re.MULTILINE,
)
# What a list has in front of its lines.
MARKER = re.compile(r"^[\W\d_]+")
# Characters of an answer's end that are looked at, and of the longest part that comes again in them.
MOST, PART = 4000, 240
# So many lines that are the same.
LINES = 3
# What llama-server speaks to a model whose file has no template, without spaces and line feeds.
CHATML = (
    "{%-formessageinmessages-%}{{-'<|im_start|>'+message.role+''+message.content+'<|im_end|>'-}}{%-endfor-%}"
    "{%-ifadd_generation_prompt-%}{{-'<|im_start|>assistant'-}}{%-endif-%}"
)


def is_fallback(template: Any) -> bool:
    return "".join(str(template).replace("\\n", "").split()) == CHATML


def repeated(text: str) -> str:
    """What an answer repeats over and over; empty where it repeats nothing for half of it, or until it was cut off."""
    text = text.strip()[-MOST:]
    lines = [MARKER.sub("", line).strip() for line in text.splitlines() if line.strip()]
    for line, more in zip(lines, zip(*(lines[at:] for at in range(1, LINES)))):
        if len(line.split()) > 1 and set(more) == {line}:
            return line
    text = " ".join(text.split()) + " "
    for size in range(1, min(PART, len(text) // 3) + 1):
        run = longest = end = 0
        for at in range(size, len(text)):
            run = run + 1 if text[at] == text[at - size] else 0
            if run > longest:
                longest, end = run, at
        whole = longest + size
        times = 3 if size >= 20 else 4 if size >= 8 else max(6, 24 // size)
        to_the_end = end == len(text) - 1 and whole >= max(200, 6 * size)
        if whole >= times * size and (2 * whole >= len(text) or to_the_end):
            return text[end - whole + 1 : end - whole + 1 + size].strip()
    return ""


def echoes(text: str, question: str) -> bool:
    """Whether an answer begins with the question, or asks it again and again. A word or two may be an answer."""
    said, asked = (" ".join(one.split()).lower() for one in (text, question))
    return len(asked.split()) > 2 and (MARKER.sub("", said).startswith(asked) or said.count(asked) > 1)


def nonsense(text: str, question: str) -> str:
    """What is wrong with an answer, empty for nothing."""
    found = SPECIAL.search(text)
    if found:
        return f"the answer holds special tokens ({plain(found.group().strip())}), text is needed"
    if echoes(text, question):
        return "the answer repeats the question, another text is needed"
    again = repeated(text)
    return f"the answer repeats itself over and over ({plain(again)}), an end is needed" if again else ""
