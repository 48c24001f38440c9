# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values as words of a systemd unit file. Private to the collection.

systemd splits a line at white space, takes quotes and backslashes away, replaces % specifiers, and in a command
$VARIABLES too (systemd.syntax, systemd.unit and systemd.service). A word of systemd_escape() comes out of all that as
it went in, and systemd_words() reads a line of them.
"""

from __future__ import annotations

import re

from .._text import Refusal

# Characters that systemd does not change, quoted or not.
PLAIN = "[A-Za-z0-9_@+=:,./-]+"
ESCAPES = dict(
    {chr(code): f"\\x{code:02x}" for code in [*range(1, 32), 127]},
    **{"\\": "\\\\", '"': '\\"', "%": "%%", "\n": "\\n", "\t": "\\t"},
)
IN_COMMANDS = dict(ESCAPES, **{"$": "$$"})
CHARACTERS = {escape: character for character, escape in IN_COMMANDS.items()}
ESCAPE = "|".join(map(re.escape, CHARACTERS))
WORD = re.compile(f'(?:({PLAIN})|"((?:[^"\\\\%$]|{ESCAPE})*)")(?: |\\Z)')


def systemd_escape(value: object, command: bool = False) -> str:
    """value: text or a number; command: whether the line replaces $VARIABLES, as ExecStart= does and Environment= does
    not."""
    text = str(value)
    if re.match(PLAIN + r"\Z", text):
        return text
    if "\0" in text:
        raise Refusal(
            f"systemd_escape: {text!r} has a NUL character, no argument and no variable can hold one: remove it"
        )
    escapes = IN_COMMANDS if command else ESCAPES
    return f'"{"".join((escapes.get(one, one) for one in text))}"'


def systemd_words(line: str) -> list[str] | None:
    """The words of a command of systemd_escape(), None for another form."""
    words, end = [], 0
    while end < len(line):
        found = WORD.match(line, end)
        if not found:
            return None
        end = found.end()
        words.append(re.sub(ESCAPE, lambda part: CHARACTERS[part.group()], found.group(1) or found.group(2)))
    return words
