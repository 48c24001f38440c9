# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with extra_args of a service, one sentence a mistake. Private to the collection."""

from ...module_utils._llama.flags import flags, owner
from .records import Settings
from .values import hidden, shown


def extra_errors(entry: str, service: Settings) -> list[str]:
    words = service.get("extra_args") or []
    found = []
    if words and not flags(words[:1]):
        found.append(
            "%s.extra_args: %s seen first, a flag is needed there, its values after it: correct the order"
            % (entry, shown(words[0]))
        )
    found += [
        "%s.extra_args: %s seen, which units cannot see, a path outside /home, /root and /tmp is needed: move the file"
        % (entry, hidden(word))
        for word in words
        if hidden(word)
    ]
    for flag in flags(words):
        instead = owner(flag)
        if instead:
            found.append(
                "%s.extra_args: %s seen, %s is needed for that: write it there and drop the flag"
                % (entry, shown(flag.partition("=")[0]), instead)
            )
        elif instead is not None:
            found.append(
                "%s.extra_args: %s seen, a flag that the collection does not set itself is needed: drop it"
                % (entry, shown(flag.partition("=")[0]))
            )
    return found
