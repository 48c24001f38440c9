# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers without sense: special tokens, repetition, an echo of the question; and a picture that a server did not read.
Private to the collection."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from typing import Any, Optional

from .._llama.api import plain

# Tokens of templates and tokenizers, complete or cut off, of all families; and names of speakers before lines. DeepSeek
# has wide bars.
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
# The marker of a list item.
MARKER = re.compile(r"^[\W\d_]+")
# Characters of an answer's end that are searched, and of the longest repeated part.
MOST, PART = 4000, 240
# Equal lines.
LINES = 3
# The default template of llama-server, without whitespace.
CHATML = (
    "{%-formessageinmessages-%}{{-'<|im_start|>'+message.role+''+message.content+'<|im_end|>'-}}{%-endfor-%}"
    "{%-ifadd_generation_prompt-%}{{-'<|im_start|>assistant'-}}{%-endif-%}"
)


def is_fallback(template: Any) -> bool:
    return "".join(str(template).replace("\\n", "").split()) == CHATML


def repeated(text: str) -> str:
    """The part that makes up half of an answer, or its end until it was cut off; else empty."""
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
    """Whether an answer begins with the question or repeats it. Questions of two words are ignored."""
    said, asked = (" ".join(one.split()).lower() for one in (text, question))
    return len(asked.split()) > 2 and (MARKER.sub("", said).startswith(asked) or said.count(asked) > 1)


def nonsense(text: str, question: str) -> str:
    """The error of an answer, or empty."""
    found = SPECIAL.search(text)
    if found:
        return f"the answer holds special tokens ({plain(found.group().strip())}), text is needed"
    if echoes(text, question):
        return "the answer repeats the question, another text is needed"
    again = repeated(text)
    return f"the answer repeats itself over and over ({plain(again)}), an end is needed" if again else ""


SIDE = 64
RED = b"\xff\x00\x00"


def _png() -> bytes:
    """A red square."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = (b"\0" + RED * SIDE) * SIDE
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def with_picture(prompt: str) -> dict[str, Any]:
    """The request for an answer to a prompt with the picture."""
    url = "data:image/png;base64," + base64.b64encode(_png()).decode("ascii")
    parts = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": url}}]
    return {"messages": [{"role": "user", "content": parts}]}


def judge_picture(tokens: int, without: int) -> tuple[Optional[str], Optional[str]]:
    """tokens: of the prompt with the picture; without: of the same prompt. Returns the result and the error."""
    if tokens > without:
        return "%d tokens read" % (tokens - without), None
    return None, (
        "a picture added no tokens to a prompt of %d, some are needed: set the mmproj that was made for this model"
        % without
    )
