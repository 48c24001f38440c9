# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks that an inventory names. Private to the collection."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from ...module_utils._text import Refusal
from .values import shown


def mistake(clients: Any) -> tuple[str, str, str] | None:
    """-> (what is wrong with llama_clients, what is needed, next step), or None."""
    if not isinstance(clients, (list, tuple)):
        meant = str(clients) if all(_network(one) for one in re.split(r",\s*", str(clients))) else "10.0.0.0/24"
        return shown(clients), "a list of IPv4 networks is", f"write [{meant}]"
    for text in clients:
        if re.match(r"^[0-9.]+\.0\Z", str(text)) and _network(text):
            # 10.0.0.0 alone is the one address of that name, which no client has.
            return shown(text), "an IPv4 network with its mask is", f"write {_masked(str(text))}"
        if not _network(text):
            whole = _network(text, strict=False)
            return shown(text), "an IPv4 network is", f"write {whole}" if whole else "write it as 10.0.0.0/24"
    return None


def _masked(address: str) -> str:
    """An address that ends in zeros as the network that was meant."""
    zeros = re.search(r"(\.0)+\Z", address)
    return "%s/%d" % (address, 32 - 4 * len(zeros.group() if zeros else ""))


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
