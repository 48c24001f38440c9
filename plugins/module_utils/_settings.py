# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of a service and what they mean by themselves. Private to the collection."""


def kind_of(service):
    """server or router."""
    return service.get("kind", "server")


def context(service):
    """The tokens of --ctx-size: ctx_size, or slot_ctx_size for each of the slots; None where the service gives neither."""
    if "slot_ctx_size" in service:
        return service["slot_ctx_size"] * service.get("parallel", 1)
    return service.get("ctx_size")
