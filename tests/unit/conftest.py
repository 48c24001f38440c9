# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Spreads the unit tests over processes and starts what these share."""

import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_hub import FakeHub


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """An idle process takes tests from the others: else the slow tests at the end stay with one process."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling  # noqa: PLC0415 - only xdist calls this

    return WorkStealingScheduling(config, log)


def pytest_collection_finish(session):
    """Starts the servers of playbooks before the first test, for ansible-test, which forks a process for each test."""
    simulation = sys.modules.get("ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation")
    if simulation and session.items:
        simulation.playbook_servers()


@pytest.fixture(name="server")
def fixture_server():
    server = fake_llama_server.FakeLlamaServer()
    yield server
    server.stop()


@pytest.fixture(name="workers")
def fixture_workers():
    workers = [fake_llama_server.FakeWorker().attach(), fake_llama_server.FakeWorker().attach()]
    yield workers
    for worker in workers:
        worker.close()


@pytest.fixture(name="fake")
def fixture_fake():
    with FakeHub() as fake:
        yield fake
