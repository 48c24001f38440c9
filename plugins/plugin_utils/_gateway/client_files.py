# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of a client as a file, before there is a gateway to ask. Private to the collection."""

from collections.abc import Mapping
from typing import Any

from ...module_utils._gateway import clients
from ...module_utils._text import Refusal


def client_file(config: Mapping[str, Any], client: str = "") -> dict[str, str]:
    """-> {url, file, text} of a client: where the gateway answers it, and how the file is called; of no client the
    list of all, which is no file. Refusal for a client that is not known."""
    base_url = config["base_urls"][0].rstrip("/")
    if not client:
        return {"url": base_url + "/clients", "file": "", "text": clients.clients_index(config, base_url)}
    text = clients.client_configuration(config, client, base_url)
    if text is None:
        known = ", ".join(clients.CLIENTS)
        raise Refusal(f"client: {client} seen, one of {known} is needed: run with -e client=openai")
    return {"url": base_url + "/clients/" + client, "file": clients.CLIENTS[client][0], "text": text}
