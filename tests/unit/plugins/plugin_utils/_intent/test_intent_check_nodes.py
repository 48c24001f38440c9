"""Variables of nodes that end in one sentence."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.check_nodes import node_errors
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.check_shared import machine_errors
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.inventory import Inventory

CARD = {"name": "Tesla V100S-PCIE-32GB", "memory_mib": 32510}


def test_a_mistake_of_a_group_is_said_once():
    hostvars = {name: {"node_setup_uid": 1000} for name in ("a", "b", "c")}
    assert node_errors(["a", "b", "c"], hostvars) == [
        "node_setup_uid: 1000 seen for a, b, c, 0 to 999 is needed: choose another number"
    ]


@pytest.mark.parametrize(
    "facts",
    [
        {"llama_clients": ["10.0.0.0/24", "192.168.1.7"]},
        {"llama_devices": [CARD, {"main": True, "memory_mib": 257000, "bandwidth": 90.5}]},
        {"llama_devices": []},
        {"llama_devices": [dict(CARD, memory_mib=512), dict(CARD, bandwidth=10**6)]},
        {"preflight_margin_mib": 0, "node_setup_uid": 999},
        {"preflight_margin_mib": 2**20},
        {"preflight_margin_mib": "9618", "node_setup_uid": 970, "node_setup_rpc_uid": 0, "llama_cpp_build_host": "n"},
        {"llama_bundle": "/media/my disk/bundle"},
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
            "preflight_margin_mib: '1 GB' seen for n, a whole number is needed: write only digits",
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
        ({"node_setup_rpc_uid": True}, "node_setup_rpc_uid: True seen for n, a whole number is needed: "),
        (
            {"llama_bundle": "bundle"},
            "llama_bundle: 'bundle' seen for n, an absolute path on this machine is needed: write it from / on",
        ),
        (
            {"llama_cpp_build_host": "m"},
            "llama_cpp_build_host: 'm' seen for n, a node that compiles is needed: name one of llama_nodes",
        ),
        ({"model_hub": "hub.example"}, "model_hub: 'hub.example' seen for n, an http or https URL is needed"),
        ({"llama_clients": ["127.0.0.0/8"]}, "llama_clients: 127.0.0.0/8 seen for n, a network of your clients is"),
        (
            {"llama_clients": "10.0.0.0/24"},
            "llama_clients: '10.0.0.0/24' seen for n, a list of IPv4 networks is needed",
        ),
        (
            {"llama_clients": "10.10.0.0/24, 10.8.0.0/24"},
            "llama_clients: '10.10.0.0/24, 10.8.0.0/24' seen for n, a list of IPv4 networks is needed: write "
            "[10.0.0.0/24]",
        ),
        (
            {"llama_clients": "the lab"},
            "llama_clients: 'the lab' seen for n, a list of IPv4 networks is needed: write [10.0.0.0/24]",
        ),
        (
            {"llama_clients": ["10.0.0.0/33"]},
            "llama_clients: '10.0.0.0/33' seen for n, an IPv4 network with its mask is needed: write 10.0.0.0/24",
        ),
        (
            {"llama_clients": ["10.0.0.0/8", "10.0.0.5/24"]},
            "llama_clients: '10.0.0.5/24' seen for n, an IPv4 network with its mask is needed: write 10.0.0.0/24",
        ),
        (
            {"llama_devices": [{"name": "RTX 3090"}]},
            "llama_devices: card 1 without memory_mib seen for n, its memory in MiB is needed: add it, as in [{name: ",
        ),
        (
            {"llama_devices": [dict(CARD, memory_mib="24 GB")]},
            "llama_devices.1.memory_mib: '24 GB' seen for n, a whole number is needed",
        ),
        ({"llama_devices": [dict(CARD, memory_mib=10**400)]}, "llama_devices.1.memory_mib: 1000000000000"),
        ({"llama_devices": [dict(CARD, memory_mib=0)]}, "llama_devices.1.memory_mib: 0 seen for n, "),
        ({"llama_devices": [dict(CARD, memory_mib=-1)]}, "llama_devices.1.memory_mib: -1 seen for n, "),
        ({"llama_devices": [dict(CARD, bandwidth=10**6 + 1)]}, "llama_devices.1.bandwidth: 1000001 seen for n, "),
        (
            {"llama_devices": [dict(CARD, bandwidth=float("nan"))]},
            "llama_devices.1.bandwidth: nan seen for n, 0 to 1000000 is needed",
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
    ],
)
def test_each_mistake_is_one_sentence(facts, sentence):
    (found,) = node_errors(["n"], {"n": facts})
    assert found.startswith(sentence)


def test_a_cluster_of_many_is_not_spelled_out():
    hostvars = {name: {"node_setup_uid": 1000} for name in "abcd"}
    assert node_errors(list("abcd"), hostvars) == [
        "node_setup_uid: 1000 seen for all 4 nodes, 0 to 999 is needed: choose another number"
    ]


def test_two_nodes_have_two_addresses():
    hostvars = {name: {"llama_fabric_address": "10.0.0.1"} for name in ("a", "b")}
    assert node_errors(["a", "b", "c"], dict(hostvars, c={})) == [
        "llama_fabric_address: '10.0.0.1' seen for a, b, an address of its own is needed: correct it in hosts.yml"
    ]


def sentence_of(**facts):
    return "".join(node_errors(["n"], {"n": facts}))


@pytest.mark.parametrize(
    "path", ["/srv/llama", "/opt/llama.cpp", "/data/ops/models", "/usr/local/llama", "/data", "/s/-x"]
)
def test_a_directory_of_its_own(path):
    assert sentence_of(llama_models_dir=path) == ""


@pytest.mark.parametrize(
    "path",
    ["/etc", "/etc/llama", "/", "/usr", "/usr/local", "/usr/bin/llama", "/var/lib", "/var/tmp/x", "/home", "/lib64/x"],
)
def test_a_directory_of_the_system_is_refused(path):
    assert sentence_of(llama_models_dir=path).startswith("llama_models_dir: ")


@pytest.mark.parametrize(
    "path", ["srv/llama", "/srv/a b", "/srv/../etc", "/srv//x", "/srv/", "", "/srv/x\n", "/srv/.x"]
)
def test_a_path_that_is_none(path):
    assert "an absolute path of letters, digits, dots and dashes is needed" in sentence_of(llama_models_dir=path)


@pytest.mark.parametrize("address", ["n", "1n", "n.example.org", "10.0.0.1", "a" * 253])
def test_an_address_of_clients(address):
    assert sentence_of(ansible_host=address) == "" == sentence_of(llama_address=address)


@pytest.mark.parametrize("address", ["10.0.0", "10.0.0.256", "-n", "a" * 254, "a b", "n\n"])
def test_an_address_that_is_none(address):
    wanted = "an IPv4 address or a host name is needed: correct it"
    assert sentence_of(llama_address=address, ansible_host="n").endswith(wanted)
    assert sentence_of(ansible_host=address).endswith(wanted + ", or give clients a llama_address")


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("CUDA_VISIBLE_DEVICES", True),
        ("_x1", True),
        ("MONKEY", True),
        ("1X", False),
        ("A-B", False),
        ("", False),
        ("LLAMA_CLUSTER_DIGEST", False),
        ("HF_TOKEN", False),
        ("api_key", False),
        ("DB_PASSWORD_FILE", False),
    ],
)
def test_a_variable_of_a_programs_environment(name, right):
    for variable in ("rpc_worker_environment", "head_server_environment"):
        assert (sentence_of(**{variable: {name: "1"}}) == "") is right


@pytest.mark.parametrize("variable", ["rpc_worker_environment", "head_server_environment"])
def test_another_order_of_cards_is_refused(variable):
    assert "PCI_BUS_ID is needed" in sentence_of(**{variable: {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}})
    assert sentence_of(**{variable: {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}}) == ""


@pytest.mark.parametrize("variable", ["rpc_worker_environment", "head_server_environment"])
def test_devices_of_vulkan_are_numbers(variable):
    for value in ("", "0", 0, "1,0", "0, 2"):
        assert sentence_of(**{variable: {"GGML_VK_VISIBLE_DEVICES": value}}) == ""
    for value in ("Vulkan0", "-1", "0 1", "0,", "0000", ",".join(["1"] * 33)):
        words = sentence_of(**{variable: {"GGML_VK_VISIBLE_DEVICES": value}})
        assert "numbers that vulkaninfo prints are needed: write such as 0,1" in words
    for name in ("GGML_VK_ALLOW_SYSMEM_FALLBACK", "GGML_VK_PREFER_HOST_MEMORY"):
        assert "weights would lie in main memory" in sentence_of(**{variable: {name: "1"}})


def test_value_without_text_is_refused():
    """A unit would have the word None, which hides all cards."""
    assert "text without control characters is needed" in sentence_of(rpc_worker_environment={"X": None})


@pytest.mark.parametrize("value", ["", 1, True, "a b", "tab\there", "two\nlines"])
def test_a_value_of_an_environment(value):
    assert sentence_of(head_server_environment={"X": value}) == ""


@pytest.mark.parametrize("value", [[1], {"a": 1}, [], {}, "a\x1b[2J", "a\x00", "a\x0b", "a\x1f", "a\x7f", "a\x08"])
def test_a_value_that_a_unit_cannot_hold(value):
    assert "text without control characters is needed" in sentence_of(head_server_environment={"X": value})


@pytest.mark.parametrize("given", ["X=1", ["X=1"], 7])
def test_an_environment_that_is_no_map(given):
    assert sentence_of(rpc_worker_environment=given).endswith("a map of NAME to value is needed: write NAME: VALUE")


@pytest.mark.parametrize(
    "facts", [{"rpc_worker_numa_node": 0}, {"head_server_numa_node": "1"}, {"rpc_worker_numa_node": ""}]
)
def test_a_numa_node(facts):
    assert sentence_of(**facts) == ""
    (name,) = facts
    assert sentence_of(**{name: "-1"}).startswith(name + ": '-1' seen for n, the number of a NUMA node is needed")


def test_the_second_card_is_called_the_second():
    found = sentence_of(llama_devices=[CARD, dict(CARD, memory_mib=0)])
    assert found.startswith("llama_devices.2.memory_mib: 0 seen for n, ")
    assert sentence_of(llama_devices=[CARD, 7]).startswith("llama_devices: 7 as card 2 seen for n, a map is needed")
    assert sentence_of(llama_devices=[CARD, {"name": "x"}]).startswith("llama_devices: card 2 without memory_mib seen")


@pytest.mark.parametrize("value", ["1", "yes", 1])
def test_main_memory_is_said_with_true(value):
    assert sentence_of(llama_devices=[dict(CARD, main=value)]).startswith("llama_devices.1.main: ")


@pytest.mark.parametrize(("address", "name"), [("10.0.0.1", True), ("rtx.fabric", False), (None, False), ("", False)])
def test_only_addresses_can_be_the_same(address, name):
    found = node_errors(["a", "b"], {node: {"llama_fabric_address": address} for node in "ab"})
    assert any("an address of its own is" in one for one in found) is name


def test_host_that_compiles_is_one_of_nodes():
    assert node_errors(["a", "b"], {"a": {"llama_cpp_build_host": "b"}, "b": {}}) == []
    (found,) = node_errors(["rtx1", "rtx2"], {"rtx1": {"llama_cpp_build_host": "rtx3"}, "rtx2": {}})
    assert found.startswith(
        "llama_cpp_build_host: 'rtx3' seen for rtx1, a node that compiles is needed: did you mean rtx"
    )


@pytest.mark.parametrize(
    ("card", "step"),
    [
        ({"memory_mib": 24}, "write 24576 if it has 24 GB"),
        ({"memory_mib": 511}, "write 523264 if it has 511 GB"),
        ({"main": True, "memory_mib": 512}, "write 524288 if it has 512 GB"),
        ({"memory_mib": 512}, ""),
        ({"main": True, "memory_mib": 2048}, ""),
    ],
)
def test_memory_in_gb_is_reported(card, step):
    assert sentence_of(llama_devices=[card]).endswith(step) and bool(sentence_of(llama_devices=[card])) == bool(step)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "0.0.0.0", "224.0.0.1", "255.255.255.255"])
def test_a_fabric_address_is_one_that_others_reach(address):
    assert "an address that the other nodes reach is needed" in sentence_of(llama_fabric_address=address)


@pytest.mark.parametrize(("network", "refused"), [("192.168.50.0", True), ("10.0.0.0", True), ("10.0.0.7", False)])
def test_network_without_mask_is_refused(network, refused):
    found = sentence_of(llama_clients=[network])
    assert ("an IPv4 network with its mask is needed" in found) is refused


GROUPS = {"llama_nodes": ["a", "b"], "llama_gateway": ["g"], "llama_monitoring": ["m"]}
FACTS = {name: {"ansible_host": "10.0.0.%d" % number} for number, name in enumerate("abgm", 1)}


def reported(**changes):
    hostvars = {name: dict(facts, **changes.get(name, {})) for name, facts in FACTS.items()}
    return machine_errors(Inventory({}, {}, GROUPS, hostvars))


@pytest.mark.parametrize(("one", "other"), [("b", "a"), ("g", "b"), ("m", "g")])
def test_two_names_of_one_machine_are_refused(one, other):
    address = FACTS[other]["ansible_host"]
    (sentence,) = reported(**{one: {"ansible_host": address}})
    assert sentence.startswith("ansible_host: %s seen for %s and %s, " % (address, other, one))


@pytest.mark.parametrize(
    "facts",
    [
        # Behind one address of a router, or of a jump host.
        {"ansible_port": 2222},
        {"ansible_ssh_common_args": "-o ProxyJump=other"},
        {"ansible_connection": "local"},
        {"ansible_connection": "community.docker.docker"},
        {"ansible_host": ""},
    ],
)
def test_machines_with_other_ports_are_accepted(facts):
    assert reported(b=dict({"ansible_host": FACTS["a"]["ansible_host"]}, **facts)) == []


def test_shared_client_address_is_refused():
    (sentence,) = reported(a={"llama_address": "10.9.9.9"}, b={"llama_address": "10.9.9.9"})
    assert sentence == "llama_address: 10.9.9.9 seen for a and b, an address of its own is needed: correct it"
    # A gateway may be one of the nodes under another address.
    assert reported(a={"llama_address": "10.9.9.9"}, g={"llama_address": "10.9.9.9"}) == []
