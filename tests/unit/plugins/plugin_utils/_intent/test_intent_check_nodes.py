"""Variables of nodes that end in one sentence."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.check_nodes import node_errors

CARD = {"name": "Tesla V100S-PCIE-32GB", "memory_mib": 32510}


def test_a_mistake_of_a_group_is_said_once():
    hostvars = {name: {"llama_cpp_accelerator": "rocm"} for name in ("a", "b", "c")}
    assert node_errors(["a", "b", "c"], hostvars) == [
        "llama_cpp_accelerator: 'rocm' seen for a, b, c, cpu or cuda is needed: choose one of them"
    ]


@pytest.mark.parametrize(
    "facts",
    [
        {"llama_cpp_version": "b11434"},
        {"llama_cpp_version": "b11434-mine"},
        {"llama_cpp_version": "mine", "llama_cpp_source": "/srv/mine.tar.gz"},
        {"llama_cpp_source_sha256": ""},
        {"llama_cpp_source_sha256": "a" * 64},
        {"llama_cpp_cuda_architectures": "auto"},
        {"llama_cpp_cuda_architectures": ["70", "90a", "86-real", 89]},
        {"llama_clients": ["10.0.0.0/24", "192.168.1.7"]},
        {"llama_devices": [CARD, {"main": True, "memory_mib": 257000, "bandwidth": 90.5}]},
        {"llama_devices": []},
        {"llama_devices": [dict(CARD, memory_mib=1), dict(CARD, bandwidth=10**6)]},
        {"preflight_margin_mib": 0, "node_setup_uid": 999},
        {"preflight_margin_mib": 2**20},
        {"preflight_margin_mib": "9618", "node_setup_uid": 970, "node_setup_rpc_uid": 0, "llama_cpp_build_host": "n"},
        {"llama_bundle": "/media/my disk/bundle", "llama_cpp_cuda_home": "/usr/local/cuda-12.2/"},
        {"llama_address": "node1.example.org", "llama_fabric_address": "10.100.0.31"},
        {"node_setup_user": "serve", "node_setup_rpc_user": "serve-rpc"},
    ],
)
def test_what_is_right(facts):
    assert node_errors(["n"], {"n": facts}) == []


@pytest.mark.parametrize(
    "facts, sentence",
    [
        (
            {"llama_cpp_version": 11434},
            "llama_cpp_version: 11434 seen for n, the tag of a release such as b11434 is needed: write b11434",
        ),
        (
            {"llama_cpp_version": "11434"},
            "llama_cpp_version: '11434' seen for n, the tag of a release such as b11434 is needed: write b11434",
        ),
        (
            {"llama_cpp_version": "latest"},
            "llama_cpp_version: 'latest' seen for n, the tag of a release such as b11434 is needed: choose one of "
            "github.com",
        ),
        (
            {"llama_cpp_version": "b7759"},
            "llama_cpp_version: b7759 seen for n, b7760 or a newer release is needed: its command line is the oldest",
        ),
        (
            {"llama_cpp_version": "b4000"},
            "llama_cpp_version: b4000 seen for n, b7760 or a newer release is needed: its command line is the oldest",
        ),
        ({"llama_cpp_version": "mine/../x", "llama_cpp_source": "x"}, "llama_cpp_version: 'mine/../x' seen for n, "),
        (
            {"llama_cpp_source_sha256": "abc"},
            "llama_cpp_source_sha256: 'abc' seen for n, 64 hexadecimal digits is needed: copy the whole digest",
        ),
        (
            {"head_server_accelerator": "rocm"},
            "head_server_accelerator: 'rocm' seen for n, cpu or cuda is needed: choose one of them",
        ),
        (
            {"llama_fabric_address": "rtx2.fabric"},
            "llama_fabric_address: 'rtx2.fabric' seen for n, an IPv4 address is needed: write the address of its "
            "fabric",
        ),
        (
            {"llama_fabric_address": "10.0.0.300"},
            "llama_fabric_address: '10.0.0.300' seen for n, an IPv4 address is needed",
        ),
        (
            {"ansible_host": "10.0.0.300"},
            "ansible_host: '10.0.0.300' seen for n, an IPv4 address or a host name is needed: correct it, or give "
            "clients a llama",
        ),
        (
            {"ansible_host": "n", "llama_address": "10.0.0.300"},
            "llama_address: '10.0.0.300' seen for n, an IPv4 address or a host name is needed: correct it",
        ),
        (
            {"preflight_margin_mib": "1 GB"},
            "preflight_margin_mib: '1 GB' seen for n, 0 to 1048576 is needed: write digits alone",
        ),
        (
            {"preflight_margin_mib": 2**20 + 1},
            "preflight_margin_mib: 1048577 seen for n, 0 to 1048576 is needed: choose another number",
        ),
        (
            {"preflight_margin_mib": -1},
            "preflight_margin_mib: -1 seen for n, 0 to 1048576 is needed: choose another number",
        ),
        ({"node_setup_uid": 1000}, "node_setup_uid: 1000 seen for n, 0 to 999 is needed: choose another number"),
        ({"node_setup_rpc_uid": True}, "node_setup_rpc_uid: True seen for n, 0 to 999 is needed: "),
        (
            {"llama_bundle": "bundle"},
            "llama_bundle: 'bundle' seen for n, an absolute path on this machine is needed: write it from / on",
        ),
        (
            {"llama_cpp_cuda_home": "cuda\n"},
            "llama_cpp_cuda_home: 'cuda\\n' seen for n, an absolute path is needed: write it from / on",
        ),
        (
            {"llama_cpp_build_host": "m"},
            "llama_cpp_build_host: 'm' seen for n, a node that compiles is needed: name one of llama_nodes",
        ),
        ({"model_hub": "hub.example"}, "model_hub: 'hub.example' seen for n, an http or https URL is needed"),
        (
            {"llama_cpp_cuda_architectures": "86"},
            "llama_cpp_cuda_architectures: '86' seen for n, auto or a list is needed: write auto, or",
        ),
        (
            {"llama_cpp_cuda_architectures": ["8.6"]},
            "llama_cpp_cuda_architectures: '8.6' seen for n, a compute capability without its dot is needed",
        ),
        (
            {"llama_clients": "10.0.0.0/24"},
            "llama_clients: '10.0.0.0/24' seen for n, a list of IPv4 networks is needed",
        ),
        (
            {"llama_clients": "10.10.0.0/24, 10.8.0.0/24"},
            "llama_clients: '10.10.0.0/24, 10.8.0.0/24' seen for n, a list of IPv4 networks is needed: write "
            "[10.10.0.0/24, 10.8.0.0/24]",
        ),
        (
            {"llama_clients": "the lab"},
            "llama_clients: 'the lab' seen for n, a list of IPv4 networks is needed: write [10.0.0.0/24]",
        ),
        (
            {"llama_clients": ["10.0.0.0/33"]},
            "llama_clients: '10.0.0.0/33' seen for n, an IPv4 network is needed: write it as 10.0.0.0/24",
        ),
        (
            {"llama_clients": ["10.0.0.0/8", "10.0.0.5/24"]},
            "llama_clients: '10.0.0.5/24' seen for n, an IPv4 network is needed: write 10.0.0.0/24",
        ),
        (
            {"llama_devices": [{"name": "RTX 3090"}]},
            "llama_devices: card 1 without memory_mib seen for n, its memory in MiB is needed: add it, as in [{name: ",
        ),
        (
            {"llama_devices": [dict(CARD, memory_mib="24 GB")]},
            "llama_devices.1.memory_mib: '24 GB' seen for n, a whole number above 0 and up to 2147",
        ),
        ({"llama_devices": [dict(CARD, memory_mib=10**400)]}, "llama_devices.1.memory_mib: 1000000000000"),
        ({"llama_devices": [dict(CARD, memory_mib=0)]}, "llama_devices.1.memory_mib: 0 seen for n, "),
        ({"llama_devices": [dict(CARD, memory_mib=-1)]}, "llama_devices.1.memory_mib: -1 seen for n, "),
        ({"llama_devices": [dict(CARD, bandwidth=10**6 + 1)]}, "llama_devices.1.bandwidth: 1000001 seen for n, "),
        (
            {"llama_devices": [dict(CARD, bandwidth=float("nan"))]},
            "llama_devices.1.bandwidth: nan seen for n, a number above 0 and up to 1000000 is needed",
        ),
        (
            {"llama_devices": [dict(CARD, name="V100\x1b[2J")]},
            "llama_devices.1.name: 'V100\\x1b[2J' seen for n, a name without control characters is needed",
        ),
        (
            {"llama_devices": [dict(CARD, memory=1)]},
            "llama_devices.1.memory: an unknown key seen for n, one of name, memory_mib, bandwidth, main is needed: ",
        ),
        (
            {"llama_devices": CARD},
            "llama_devices: a map of 2 seen for n, a list of maps is needed: write one map for each card",
        ),
        ({"llama_devices": ["3090"]}, "llama_devices: '3090' as card 1 seen for n, a map is needed"),
        (
            {"node_setup_rpc_user": "llama"},
            "node_setup_rpc_user: llama seen for n, another account than node_setup_user is needed: ",
        ),
        (
            {"llama_builds": {}},
            "llama_builds: a name kept for later seen for n, one build for all nodes is needed: set llama_cpp_version",
        ),
    ],
)
def test_each_mistake_is_one_sentence(facts, sentence):
    (found,) = node_errors(["n"], {"n": facts})
    assert found.startswith(sentence)


def test_a_cluster_of_many_is_not_spelled_out():
    hostvars = {name: {"llama_cpp_accelerator": "rocm"} for name in "abcd"}
    assert node_errors(list("abcd"), hostvars) == [
        "llama_cpp_accelerator: 'rocm' seen for all 4 nodes, cpu or cuda is needed: choose one of them"
    ]


def test_two_nodes_have_two_addresses():
    hostvars = {name: {"llama_fabric_address": "10.0.0.1"} for name in ("a", "b")}
    assert node_errors(["a", "b", "c"], dict(hostvars, c={})) == [
        "llama_fabric_address: '10.0.0.1' seen for a, b, an address of its own is needed: correct it in hosts.yml"
    ]
