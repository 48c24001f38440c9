# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks that an inventory names. Private to the collection."""

import ipaddress
import re
from typing import Any

from ...module_utils._text import Refusal
from .values import shown


def mistake(clients: Any) -> tuple[str, str, str] | None:
    """-> (what is wrong with llama_clients, what is needed, next step), or None."""
    if not isinstance(clients, (list, tuple)):
        meant = str(clients) if all(_network(one) for one in re.split(r",\s*", str(clients))) else "10.0.0.0/24"
        return shown(clients), "a list of IPv4 networks is", "write [%s]" % meant
    for text in clients:
        if not _network(text):
            whole = _network(text, strict=False)
            return shown(text), "an IPv4 network is", "write %s" % whole if whole else "write it as 10.0.0.0/24"
    return None


def _network(text: Any, strict: bool = True) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(str(text), strict)
    except ValueError:
        return None


def networks_of(clients: Any) -> list[ipaddress.IPv4Network]:
    wrong = mistake(clients)
    if wrong:
        raise Refusal("llama_clients: %s seen, %s needed: %s" % wrong)
    return [ipaddress.IPv4Network(str(text)) for text in clients]
