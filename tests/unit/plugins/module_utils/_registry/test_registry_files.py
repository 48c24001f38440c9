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


def test_address_comes_from_the_list():
    endpoint = parse()
    assert (endpoint.node, endpoint.address, endpoint.port) == ("vasp-01", "10.0.0.20", 8081)
    assert set(endpoint.as_dict()) == {
        "service", "node", "address", "port", "state", "slots", "slot_ctx_size", "models", "tier", "build", "quant",
        "job_id", "why", "retry_after",
    }  # fmt: skip


@pytest.mark.parametrize("host", ["vasp-01", "vasp-01.cluster.local", "10.0.0.20"])
def test_host_by_name_domain_or_address(host):
    assert parse(host=host).node == "vasp-01"


# Readers of rpc_workers connect to workers.
def test_record_has_no_rpc_workers():
    assert b"rpc_workers" not in files.encode(RECORD)


@pytest.mark.parametrize(
    "field, seen",
    [
        ("host", "evil.example"),
        ("host", "10.0.0.66"),
        ("host", "vasp-010"),
        ("port", 0),
        ("port", True),
        ("job_id", "4711"),
        ("job_id", 1),
        ("version", 2),
        ("version", True),
        ("state", "up"),
        ("models", []),
        ("models", ["a\n"]),
        ("slots", 0),
        ("heartbeat", 3600),
        *((field, None) for field, _check, needed in files.FIELDS if "null" not in needed),
    ],
)
def test_wrong_value_is_refused_by_field(field, seen):
    with pytest.raises(Refusal, match=rf"^4711-72b.json\.{field}: ") as refusal:
        parse(**{field: seen})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("field", [field for field, _check, _needed in files.FIELDS])
def test_missing_field_is_refused(field):
    short = {name: value for name, value in RECORD.items() if name != field}
    with pytest.raises(Refusal, match=f"^4711-72b.json: no {field} seen, "):
        files.parse(NAME, json.dumps(short).encode("ascii"), HOSTS)


WAITS = {"state": "waiting", "why": "job 4711 waits (Priority), expected 14:05", "retry_after": 60}


def test_waiting_endpoint_has_its_sentence():
    endpoint = parse(**WAITS)
    assert (endpoint.state, endpoint.why, endpoint.retry_after) == tuple(WAITS.values())
    assert parse(state="waiting")[-2:] == (None, None)


def test_sentence_of_a_server_is_ignored():
    ready = {**WAITS, "state": "ready"}
    assert parse(**ready)[-2:] == (None, None)


@pytest.mark.parametrize("field, seen", [("why", "a\nb"), ("why", "x" * 201), ("retry_after", 0), ("retry_after", 601)])
def test_wrong_word_of_a_waiting_endpoint_is_refused(field, seen):
    with pytest.raises(Refusal, match=rf"^4711-72b.json\.{field}: "):
        parse(**dict(WAITS, **{field: seen}))


def test_only_a_waiting_endpoint_has_no_job():
    assert parse("0-72b.json", job_id=0, **WAITS).job_id == 0
    with pytest.raises(Refusal, match=r"^0-72b.json\.job_id: 0 seen, the number of a job is needed"):
        parse("0-72b.json", job_id=0)


@pytest.mark.parametrize("cut", [0, 1, 100, len(files.encode(RECORD)) - 2])
def test_half_written_file_is_refused(cut):
    with pytest.raises(Refusal, match="^4711-72b.json: no JSON object seen"):
        files.parse(NAME, files.encode(RECORD)[:cut], HOSTS)


@pytest.mark.parametrize("name", ["-72b.json", "4711.json", "x-72b.json", ".4711-72b.json.9.partial", "4711-72b.json~"])
def test_other_file_names_are_ignored(name):
    assert not files.NAME.match(name)


def test_number_without_a_job_is_unique():
    numbers = {files.job_number(node, service) for node in HOSTS for service in ("fast", "reasoning")}
    assert len(numbers) == 4
    assert all(2**31 <= number < 2**32 for number in numbers)
