# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._registry import files
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.registry_files import HOSTS, NAME, RECORD


def parse(name=NAME, hosts=None, **changed):
    return files.parse(name, files.encode(dict(RECORD, **changed)), HOSTS if hosts is None else hosts)


def test_an_endpoint_has_the_address_of_the_list_and_never_that_of_the_file():
    endpoint = parse()
    assert (endpoint.node, endpoint.address, endpoint.port) == ("vasp-01", "10.0.0.20", 8081)
    assert set(endpoint.as_dict()) == {
        "service", "node", "address", "port", "state", "slots", "slot_ctx_size", "models", "tier", "build", "quant",
        "job_id",
    }  # fmt: skip


@pytest.mark.parametrize("host", ["vasp-01", "vasp-01.cluster.local", "10.0.0.20"])
def test_a_host_is_named_as_slurm_or_the_inventory_does(host):
    assert parse(host=host).node == "vasp-01"


def test_workers_are_not_under_the_name_that_makes_readers_ask_them():
    assert b"rpc_workers" not in files.encode(RECORD)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"host": "evil.example"}, "4711-72b.json.host: evil.example seen, a node of the inventory is needed: add"),
        ({"host": "10.0.0.66"}, "4711-72b.json.host: 10.0.0.66 seen, a node of the inventory is needed: add"),
        ({"host": "vasp-010"}, "4711-72b.json.host: vasp-010 seen, a node of the inventory is needed: add"),
        ({"port": 0}, "4711-72b.json.port: 0 seen, a port from 1 to 65535 is needed: restart"),
        ({"port": True}, "4711-72b.json.port: true seen, a port from 1 to 65535 is needed: restart"),
        ({"job_id": "4711"}, '4711-72b.json.job_id: "4711" seen, a whole number below 4294967296 is needed: restart'),
        ({"job_id": 1}, "4711-72b.json.job_id: 1 seen, the number of the file's name is needed: restart"),
        ({"version": 2}, "4711-72b.json.version: 2 seen, 1 is needed: restart"),
        ({"version": True}, "4711-72b.json.version: true seen, 1 is needed: restart"),
        ({"state": "up"}, '4711-72b.json.state: "up" seen, loading, ready or draining is needed: restart'),
        ({"models": []}, "4711-72b.json.models: [] seen, a list of names is needed: restart"),
        ({"models": ["a\n"]}, '4711-72b.json.models: ["a\\n"] seen, a list of names is needed: restart'),
        ({"slots": 0}, "4711-72b.json.slots: 0 seen, a number from 1 to 4096 or null is needed: restart"),
        (
            {"heartbeat": 3600},
            "4711-72b.json.heartbeat: 3600 seen, a number of seconds from 1 to 60 is needed: restart",
        ),
    ],
)
def test_a_broken_file_is_one_sentence(changed, told):
    with pytest.raises(Refusal) as refusal:
        parse(**changed)
    assert str(refusal.value).startswith(told)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("cut", [0, 1, 100, len(files.encode(RECORD)) - 2])
def test_a_half_written_file_is_one_sentence(cut):
    with pytest.raises(Refusal, match="^4711-72b.json: no JSON object seen, one is needed: restart"):
        files.parse(NAME, files.encode(RECORD)[:cut], HOSTS)


def test_every_field_that_is_read_has_to_be_there():
    for field, _check, _needed in files.FIELDS:
        short = {name: value for name, value in RECORD.items() if name != field}
        with pytest.raises(Refusal, match="^4711-72b.json: no %s seen, " % field):
            files.parse(NAME, json.dumps(short).encode("ascii"), HOSTS)


@pytest.mark.parametrize("name", ["-72b.json", "4711.json", "x-72b.json", ".4711-72b.json.9.partial", "4711-72b.json~"])
def test_other_names_are_somebody_elses(name):
    assert not files.NAME.match(name)


def test_what_no_job_serves_has_a_number_that_no_job_has():
    numbers = {files.job_number(node, service) for node in HOSTS for service in ("fast", "reasoning")}
    assert len(numbers) == 4
    assert all(2**31 <= number < 2**32 for number in numbers)
    assert files.file_name(files.job_number("a", "b"), "72b").endswith("-72b.json")
