# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads plugins before the first task: each task of each host is a process forked from this one, and would load them
again. This halves what a run costs the controller. Private to the collection.
"""

from __future__ import annotations

import gc

from ansible.plugins.loader import connection_loader, filter_loader, lookup_loader, test_loader

# Any filter: Ansible searches every file for it.
FILTER = "thefermisea.llama_cluster.did_you_mean"
LOOKUPS = ("env", "file", "pipe", "template")
CONNECTIONS = ("local", "ssh")


def warm() -> None:
    """Loads filters, tests, lookups and connections and exempts them from garbage collection, which would copy their
    memory in each process."""
    list(filter_loader.all())
    list(test_loader.all())
    filter_loader.get(FILTER)
    for name in LOOKUPS:
        lookup_loader.get("ansible.builtin." + name, class_only=True)
    for name in CONNECTIONS:
        connection_loader.get("ansible.builtin." + name, class_only=True)
    gc.collect()
    gc.freeze()
