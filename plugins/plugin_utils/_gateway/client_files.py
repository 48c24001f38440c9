# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of a client as a file, without a running gateway. Private to the collection."""

from collections.abc import Mapping
from typing import Any

from ...module_utils._gateway import clients
from ...module_utils._text import Refusal


def client_configuration(config: Mapping[str, Any], client: str = "") -> dict[str, str]:
    """{url, file, text} of a client: its page at the gateway, the name of its file, the content. Without a client the
    list of all clients, which has no file. Errors: Refusal for an unknown client."""
    base_url = config["base_urls"][0].rstrip("/")
    if not client:
        return {"url": base_url + "/clients", "file": "", "text": clients.clients_index(config, base_url)}
    text = clients.client_configuration(config, client, base_url)
    if text is None:
        known = ", ".join(clients.CLIENTS)
        raise Refusal(f"client: {client} seen, one of {known} is needed: run with -e client=openai")
    return {"url": base_url + "/clients/" + client, "file": clients.CLIENTS[client][0], "text": text}
