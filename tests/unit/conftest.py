# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the unit tests are spread over processes, by ansible-test too, which has no option for it, and what those
processes share."""

import sys

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Who has nothing left takes from the others: by default the slow tests that come last are one process's."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling  # noqa: PLC0415 - it is there where this is called

    return WorkStealingScheduling(config, log)


def pytest_collection_finish(session):
    """What runs playbooks is started before the first test: ansible-test forks a process for each test."""
    simulation = sys.modules.get("ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation")
    if simulation and session.items:
        simulation.playbook_servers()
