# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values as words of a systemd unit file. Private to the collection.

systemd splits a line at white space, takes quotes and backslashes away, replaces % specifiers, and in a command
$VARIABLES too (systemd.syntax, systemd.unit and systemd.service). A word of systemd_escape() comes out of all that as
it went in.
"""

import re

from ...module_utils._text import Refusal

# What systemd leaves alone, quoted or not.
PLAIN = re.compile(r"^[A-Za-z0-9_@+=:,./-]+\Z")
ESCAPES = {"\\": "\\\\", '"': '\\"', "%": "%%", "\n": "\\n", "\t": "\\t"}


def systemd_escape(value: object, command: bool = False) -> str:
    """value: text or a number; command: whether the line replaces $VARIABLES, as ExecStart= does and Environment= does
    not."""
    text = str(value)
    if PLAIN.match(text):
        return text
    if "\0" in text:
        raise Refusal(
            "systemd_escape: %r has a NUL character, no argument and no variable can hold one: remove it" % text
        )
    escapes = dict(ESCAPES, **({"$": "$$"} if command else {}))
    return '"%s"' % "".join(
        escapes.get(one, one if one >= " " and one != "\x7f" else "\\x%02x" % ord(one)) for one in text
    )
