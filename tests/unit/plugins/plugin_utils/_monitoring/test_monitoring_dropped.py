# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that roles bring are found by where they lie."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._monitoring import dropped


@pytest.fixture
def roles(tmp_path):
    """A collection's roles: two that bring something, one that brings nothing."""
    for path in (
        "alarm/observed/rules.yml",
        "alarm/observed/doctor/b_second.yml",
        "alarm/observed/doctor/a_first.yml",
        "monitoring/observed/rules.yml",
        "monitoring/observed/dashboard.yml",
        "monitoring/observed/doctor/notes.md",
        "plain/tasks/main.yml",
        "plain/files/rules.yml",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    return tmp_path


def test_general_files_come_first(roles):
    assert [one.role for one in dropped.rules(roles)] == ["monitoring", "alarm"]
    assert [one.role for one in dropped.dashboards(roles)] == ["monitoring"]
    assert [one.path.name for one in dropped.doctor_rules(roles)] == ["a_first.yml", "b_second.yml"]


def test_names_do_not_collide(roles):
    assert [one.name for one in dropped.rules(roles)] == ["monitoring.yml", "alarm.yml"]
    assert [one.name for one in dropped.doctor_rules(roles)] == ["alarm-a_first.yml", "alarm-b_second.yml"]


def test_collection_roles_are_the_default():
    assert (dropped.ROLES / "head_server/tasks/main.yml").is_file()
