"""Values of another type than they have to be, and what YAML made of them."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._settings import BY_KIND
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import values as intent_values
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.values import hidden


@pytest.mark.parametrize(
    "value, kinds, sentence",
    [
        (8000, int, None),
        (2, float, None),
        (1.5, float, None),
        ("8000", int, "e: '8000' seen, a whole number is needed: remove the quotes"),
        ("4.0", float, "e: '4.0' seen, a number is needed: remove the quotes"),
        ("16k", int, "e: '16k' seen, a whole number is needed: write 16384"),
        ("80 GB", int, "e: '80 GB' seen, a whole number is needed: write only digits"),
        (True, int, "e: True seen, a whole number is needed: correct it"),
        ("yes", bool, "e: 'yes' seen, true or false is needed: write it without quotes"),
        ("maybe", bool, "e: 'maybe' seen, true or false is needed: write true or false"),
        (
            False,
            str,
            'e: False seen, a string is needed: put it in quotes, as in "off", because YAML reads a bare off, no, on '
            "or yes as true or false",
        ),
        (4, str, "e: 4 seen, a string is needed: put it in quotes"),
        (None, str, "e: nothing seen, a string is needed: give one or remove the key"),
        (["a", "b"], (str, dict), "e: a list of 2 seen, a string or a map is needed: write its keys below it"),
    ],
)
def test_each_type_has_a_next_step(value, kinds, sentence):
    assert intent_values.type_errors("e", value, kinds) == ([] if sentence is None else [sentence])


@pytest.mark.parametrize(
    "name, value, sentence",
    [
        ("flash_attn", "off", None),
        (
            "flash_attn",
            False,
            'e: False seen, one of on, off, auto is needed: put it in quotes, as in "off", because YAML reads',
        ),
        (
            "draft",
            "small",
            "e: 'small' seen, a map or false is needed: write {model: NAME, quant: Q}, or {type: ngram-mod} with",
        ),
        ("draft", {"model": "small", "quant": "Q8_0"}, None),
        ("split_mode", "tensor", None),
        ("split_mode", "row", "e: 'row' seen, one of layer, tensor is needed: choose one of them"),
        ("mmproj", "cpu", None),
        ("mmproj", "gpu", "e: 'gpu' seen, true, cpu or false is needed: write one of them"),
        ("lora", {"tone": 0.5}, None),
        ("lora", ["tone"], "e: a list of 1 seen, a map is needed: write its keys below it"),
        ("launcher", None, "e: nothing seen, one of systemd, slurm is needed: choose one of them"),
        ("flash_attn", "of", "e: 'of' seen, one of on, off, auto is needed, did you mean off?"),
        ("launcher", "all", "e: 'all' seen, one of systemd, slurm is needed: choose one of them"),
        ("rpc_port", 70000, "e: 70000 seen, 1 to 65535 is needed: choose another number"),
        ("ctx_size", -1, "e: -1 seen, at least 1 is needed: raise it or remove the key"),
        ("rope_scale", 4, None),
        ("rope_scale", 1, None),
        ("rope_scale", 10000, None),
        ("rope_scale", 10000.5, "e: 10000.5 seen, 1 to 10000 is needed: choose another number"),
        ("rope_freq_base", 10**12, None),
        ("rope_freq_base", 10**12 + 1, "e: 1000000000001 seen, 1 to 1000000000000 is needed: choose another number"),
        ("rpc_port", 0, "e: 0 seen, 1 to 65535 is needed: choose another number"),
        ("rpc_port", 1, None),
        ("rpc_port", 65535, None),
        ("rpc_port", 65536, "e: 65536 seen, 1 to 65535 is needed: choose another number"),
        ("ctx_size", 0, "e: 0 seen, at least 1 is needed: raise it or remove the key"),
        ("ctx_size", 1, None),
        ("parallel", 256, None),
        ("rope_scale", 0.5, "e: 0.5 seen, 1 to 10000 is needed: choose another number"),
        ("rope_scale", float("inf"), "e: inf seen, 1 to 10000 is needed: choose another number"),
        ("rope_freq_base", float("nan"), "e: nan seen, 1 to 1000000000000 is needed: choose another number"),
        ("rope_freq_base", 45845268600.0, None),
        ("slot_ctx_size", 2**31 - 1, None),
        ("slot_ctx_size", 2**31, "e: 2147483648 seen, at most 2147483647 is allowed: lower it or remove the key"),
        ("parallel", 257, "e: 257 seen, 1 to 256 is needed: choose another number"),
        ("head", None, "e: nothing seen, the node that answers is needed: write it there"),
        ("quant", None, "e: nothing seen, one of the quants of the model is needed: write it there"),
        ("cards", [], None),
        ("cards", [0, 2], None),
        ("cards", 1, None),
        ("cards", 0, "e: 0 seen, at least 1 is needed: raise it or remove the key"),
        ("cards", "0", "e: '0' seen, a whole number or a list is needed: remove the quotes"),
        ("cards", True, "e: True seen, a whole number or a list is needed: correct it"),
        ("override_kv", [], "e: an empty list seen, at least one entry is needed: add one or remove the key"),
        ("override_kv", ["--help=int:1"], "e: '--help=int:1' seen, KEY=TYPE:VALUE such as "),
        ("override_kv", ["a=float:1.2.3"], "e: 'a=float:1.2.3' seen, KEY=TYPE:VALUE such as "),
        ("memory_max", "100 GB", "e: '100 GB' seen, a size such as 100G is needed: write digits and one of K, M, G, T"),
        ("memory_max", 100, "e: 100 seen, a size such as 100G is needed: write digits and one of K, M, G, T"),
        ("tensor_split", "auto", None),
        ("tensor_split", {"a": 1}, None),
        (
            "tensor_split",
            "even",
            "e: 'even' seen, auto or a map of node to layers is needed: write auto, or NODE: LAYERS for each node",
        ),
        (
            "tensor_split",
            [20, 30],
            "e: a list of 2 seen, auto or a map of node to layers is needed: write auto, or NODE: LAYERS for each node",
        ),
        ("cpu_moe", "auto", None),
        ("cpu_moe", "all", None),
        ("cpu_moe", 1, None),
        ("cpu_moe", 0, "e: 0 seen, at least 1 is needed: raise it or remove the key"),
        ("cpu_moe", "12", "e: '12' seen, auto, all or a number of layers is needed: write auto, all, or digits"),
        ("cpu_moe", True, "e: True seen, auto, all or a number of layers is needed: write auto, all, or digits"),
        ("numa", "interleave", None),
        ("numa", "numactl", None),
        ("numa", {"node": 0}, None),
        ("n_gpu_layers", "auto", None),
        ("n_gpu_layers", 2, None),
        ("n_gpu_layers", 1, "e: 1 seen, at least 2 is needed: raise it or remove the key"),
        ("n_gpu_layers", "20", "e: '20' seen, auto or a number of layers is needed: write auto, or digits without"),
        ("override_kv", ["qwen3.context_length=int:131072"], None),
        (
            "override_kv",
            ["qwen3.context_length=131072"],
            "e: 'qwen3.context_length=131072' seen, KEY=TYPE:VALUE such as ",
        ),
        ("override_kv", ["a=str:$(id)"], "e: 'a=str:$(id)' seen, KEY=TYPE:VALUE such as "),
        ("override_kv", "a=int:1", "e: 'a=int:1' seen, a list is needed: write [a=int:1]"),
    ],
)
def test_each_key_is_held_against_the_table(name, value, sentence):
    found = intent_values.key_errors("e", value, BY_KIND["server"][name])
    assert found == [] if sentence is None else len(found) == 1 and found[0].startswith(sentence)


@pytest.mark.parametrize("address", ["10.0.0.1", "0.0.0.0", "255.255.255.255"])
def test_addresses(address):
    assert intent_values.IPV4.match(address)


@pytest.mark.parametrize(
    "address",
    ["10.0.0.256", "10.0.0", "10.0.0.1.2", "10.0.0.1.", "010.0.0.1", "rtx2.fabric", "10.0.0.1/24", "10.0.0.1\n"],
)
def test_what_only_looks_like_an_address(address):
    assert not intent_values.IPV4.match(address)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        ([], "[]"),
        ({}, "{}"),
        ([1, 2], "a list of 2"),
        ({"a": 1}, "a map of 1"),
        (0, "0"),
        ("x" * 78, "'%s'" % ("x" * 78)),
        ("x" * 79, "'%s..." % ("x" * 76)),
    ],
)
def test_value_is_shown_in_at_most_80_letters(value, text):
    assert intent_values.shown(value) == text and len(text) <= 80


def test_a_name_is_no_line_of_its_own():
    assert intent_values.plain("a b") == "a b" and intent_values.plain(7) == 7
    assert intent_values.plain("a\nb") == r"'a\nb'"


@pytest.mark.parametrize(
    ("some", "nodes", "words"),
    [("abc", "abc", "a, b, c"), ("abcd", "abcd", "all 4 nodes"), ("abc", "abcd", "a, b, c"), ("a", "abcde", "a")],
)
def test_more_than_three_nodes_are_counted(some, nodes, words):
    assert intent_values.named(some, nodes) == words


@pytest.mark.parametrize(
    ("value", "kind", "right"),
    [
        (1, int, True),
        (True, int, False),
        (1.0, int, False),
        (1, float, True),
        (1.0, float, True),
        (True, float, False),
        (True, bool, True),
        (1, bool, False),
        ("1", int, False),
    ],
)
def test_types_as_people_mean_them(value, kind, right):
    assert intent_values.is_a(value, kind) is right


def test_a_name_that_is_near_is_offered():
    assert intent_values.did_you_mean("raesoning", ["reasoning", "chat"], ": x") == ", did you mean reasoning?"
    assert intent_values.did_you_mean("zzz", ["reasoning", 7], ": x") == ": x"
    assert intent_values.did_you_mean("zzz", []) == ""
    assert intent_values.did_you_mean(70, [7, 701]) == ", did you mean 701?"


def test_unknown_key_lists_known_keys():
    assert intent_values.unknown_key("e", "zzz", ["b", "a"]) == "e.zzz: unknown key; known keys: a, b"


def test_kind_and_step_of_callers_own():
    assert intent_values.type_errors("e", 7, str, "a colour", "choose red") == [
        "e: 7 seen, a colour is needed: choose red"
    ]


def test_of_several_wrong_entries_the_first_is_shown():
    assert intent_values.list_errors("e", ["a", 7, 8])[0].startswith("e: 7 seen, a list of strings is needed")
    (sentence,) = intent_values.key_errors("e", ["a=int:1", "b", "c"], BY_KIND["server"]["override_kv"])
    assert sentence.startswith("e: 'b' seen, KEY=TYPE:VALUE such as ")


@pytest.mark.parametrize(
    "text, path",
    [
        ("/home/ops/m.gguf", "/home/ops/m.gguf"),
        ("/root", "/root"),
        ("//home/./ops", "/home/ops"),
        ("--mmproj=/root/m.gguf", "/root/m.gguf"),
        ("/opt/a.gguf:0.5,/tmp/b.gguf:1", "/tmp/b.gguf"),
        ("/opt/lib:~/lib", "~/lib"),
        ("/run/user/1000/x", "/run/user/1000/x"),
        ("/homes/ops", ""),
        ("/data/home/ops", ""),
        ("/opt/tmp", ""),
        ("/rooted", ""),
        ("a ~ b", ""),
        ("look into /tmp", ""),
        ("7", ""),
        (7, ""),
    ],
)
def test_what_units_do_not_see(text, path):
    assert hidden(text) == path
