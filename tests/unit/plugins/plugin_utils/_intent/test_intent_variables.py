"""Variables that nothing reads, and variables without a value."""

import re
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.filter import intent
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import variables as intent_variables

ROOT = Path(__file__).resolve().parents[5]


class HostVars(dict):
    """As Ansible's: what is asked for is computed, what raw_get() hands out is as it was written."""

    def __init__(self, raw, compute=lambda value: value):
        super().__init__(
            {node: {name: _Value(value, compute) for name, value in of_node.items()} for node, of_node in raw.items()}
        )
        self.raw = raw

    def __getitem__(self, node):
        return Node(super().__getitem__(node))

    def raw_get(self, node):
        return self.raw[node]


class Node(dict):
    def __getitem__(self, name):
        return super().__getitem__(name)()


class _Value:
    def __init__(self, value, compute):
        self.value, self.compute = value, compute

    def __call__(self):
        return self.compute(self.value)


def reported(text):
    """The error of Ansible for a value, from 2.19 on."""

    def compute(_value):
        raise RuntimeError(text)

    return compute


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("llama_fabric_adress", "llama_fabric_adress: nothing reads this variable, did you mean llama_fabric_address?"),
        ("model_hubb", "model_hubb: nothing reads this variable, did you mean model_hub?"),
        ("ctxsize", "ctxsize: nothing reads this variable, did you mean ctx_size?"),
        ("llama_zzz", "llama_zzz: nothing reads this variable, docs/settings.md lists those that are read"),
        ("llama_services", None),
        ("llama_builds", None),
        ("model_train_path", None),
        ("ansible_host", None),
        ("my_own", None),
        ("_private", None),
    ],
)
def test_a_variable_that_nothing_reads(name, sentence):
    hostvars = HostVars({"a": {}, "b": {name: 1}, "c": {name: 2}})
    assert intent_variables.unknown_variables(hostvars, ["b", "c"]) == ([] if sentence is None else [sentence])
    # The sentence names the nodes if not all have it.
    assert intent_variables.unknown_variables(hostvars, ["a", "b", "c"]) == (
        [] if sentence is None else [sentence.replace("this variable,", "this variable of b, c,")]
    )


def test_unknown_and_undefined_variables_are_separate():
    asked = []

    class Asked(HostVars):
        def __getitem__(self, node):
            asked.append(node)
            return super().__getitem__(node)

    raw = {"llama_zzz": 1, "llama_api_keys": "{{ vault_keys }}", "llama_models": "{{ vault_keys }}"}
    hostvars = Asked({"a": raw, "b": raw}, reported("'vault_keys' is undefined"))
    found = intent_variables.variable_mistakes(hostvars, ["a", "b"])
    assert found == {
        "unknown": intent_variables.unknown_variables(hostvars, ["a", "b"]),
        "undefined": intent_variables.undefined_variables(hostvars, ["a", "b"]),
    }
    assert [len(sentences) for sentences in found.values()] == [1, 2]
    asked.clear()
    intent_variables.undefined_variables(hostvars, ["a", "b"])
    assert asked == ["a", "b"], "Ansible puts the variables of a host together anew each time"


def test_what_another_variable_uses_is_read():
    raw = {"llama_quant": "Q8_0", "llama_services": {"chat": {"quant": "{{ llama_quant }}"}}}
    assert intent_variables.unknown_variables(HostVars({"a": raw}), ["a"]) == []


def test_facts_of_modules_are_no_variables():
    hostvars = HostVars({"a": {"llama_node": {"units": []}, "ansible_facts": {"llama_node": {"units": []}}}})
    assert intent_variables.unknown_variables(hostvars, ["a"]) == []


@pytest.mark.parametrize(
    "compute, sentence",
    [
        (
            reported("'vault_keys' is undefined"),
            "llama_api_keys: vault_keys is not defined for a, b, a value is needed: put it into "
            "group_vars/all/vault.yml, or run with -e ",
        ),
        (
            reported("'my_keys' is undefined"),
            "llama_api_keys: my_keys is not defined for a, b, a value is needed: define it in group_vars or with -e",
        ),
        (
            reported("A vault exception marker was tripped."),
            "llama_api_keys: encrypted for a, b, the password of the vault is needed: run with --ask-vault-pass",
        ),
        (
            reported("object of type 'dict' has no attribute 's3cret'"),
            "llama_api_keys: no value for a, b, an expression that can be computed is needed: ",
        ),
        # Before 2.19 the template stays.
        (
            lambda _value: "{{ vault_keys.chat | default('my_keys') }}",
            "llama_api_keys: vault_keys is not defined for a, b, ",
        ),
        (lambda _value: {"chat": ["x {{ other }}"]}, None),
        (lambda _value: {"chat": ["k3y"]}, None),
    ],
)
def test_a_variable_without_a_value(compute, sentence):
    raw = {"llama_api_keys": "{{ vault_keys }}", "other": 1}
    found = intent_variables.undefined_variables(HostVars({"a": raw, "b": raw}, compute), ["a", "b"])
    assert found == [] if sentence is None else len(found) == 1 and found[0].startswith(sentence)


def test_why_a_variable_has_no_value():
    raw = HostVars(
        {"a": {"llama_models": "{{ my_models.q }}", "my_models": {}}},
        reported("object of type 'dict' has no attribute 'q'"),
    )
    assert intent_variables.undefined_variables(raw, ["a"]) == [
        "llama_models: no value (object of type 'dict' has no attribute 'q') for a, an expression that can be computed "
        "is needed: correct it"
    ]


def test_variables_of_others_are_not_computed():
    assert (
        intent_variables.undefined_variables(
            HostVars({"a": {"my_own": "{{ nothing }}"}}, reported("'nothing' is undefined")), ["a"]
        )
        == []
    )


@pytest.mark.parametrize(
    "value", ["{{ ansible_facts.processor_vcpus }}", "{{ my_jobs }}", "{{ ansible_play_hosts_all | length }}"]
)
def test_what_only_run_knows_is_not_asked_for(value):
    raw = {"llama_cpp_jobs": value, "my_jobs": "{{ ansible_facts['processor_vcpus'] // 2 }}", "ansible_facts": {}}
    assert (
        intent_variables.undefined_variables(
            HostVars({"a": raw}, reported("object of type 'dict' has no attribute 'processor_vcpus'")), ["a"]
        )
        == []
    )


def test_every_variable_that_a_default_reads_is_known():
    """Intent that a role derives its defaults from, and that no role is given itself."""
    read = {
        word
        for path in ROOT.glob("roles/*/defaults/main.yml")
        for word in re.findall(r"{{[^}]*?\b((?:llama|gateway)_\w+)", path.read_text())
    }
    assert {"llama_services", "llama_models", "llama_fabric_interface", "gateway_registry_suffix"} <= read
    # llama_node is the fact that node_facts leaves.
    assert read - intent_variables.known() - {"llama_node"} == {"llama_gateway", "llama_slurm"}, "groups"


def test_required_role_options_are_not_inventory_variables():
    assert "apply_wait" in intent_variables.known()
    assert "apply_wanted" not in intent_variables.known()


def test_every_extra_variable_that_is_documented_is_known():
    pages = [*ROOT.glob("playbooks/*.yml"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]
    named = {name for page in pages for name in re.findall(r"-e ([a-z]\w*)=", page.read_text())}
    assert len(named) > 10
    # llama_quant is a variable of the reference inventories.
    assert (
        named - intent_variables.known() - set(intent_variables.EXTRA) - {"ansible_python_interpreter", "llama_quant"}
        == set()
    )
    read = {word for path in ROOT.glob("playbooks/**/*.yml") for word in re.findall(r"\w+", path.read_text())}
    assert set(intent_variables.EXTRA) - read == set()


def test_typed_variables_are_read_or_warned(monkeypatch):
    hostvars = HostVars(
        {
            "a": {
                "ctx": 8192,
                "colour": 1,
                "quant": "Q4",
                "mine": 1,
                "own": 1,
                "secret": 1,
                "used": 1,
                "llama_clients": "{{ used }}",
            }
        }
    )
    assert intent_variables.unknown_variables(hostvars, ["a"]) == []
    typed = ("ctx=8192 quant=Q4 used=1", "colour='a b'", '{"own": 1}', "@vault.yml")
    monkeypatch.setattr(intent.context, "CLIARGS", {"extra_vars": typed})
    found = intent.FilterModule().filters()["variable_mistakes"](hostvars, ["a"])
    assert found["unknown"] == [
        "colour: nothing reads this variable, docs/settings.md lists those that are read",
        "ctx: nothing reads this variable, did you mean ctx_size?",
    ]
    assert found["loose"] == []


def test_end_of_a_list_with_blanks_is_refused(monkeypatch):
    monkeypatch.setattr(intent.context, "CLIARGS", {"extra_vars": ("tasks=fix, complete limit=3", "models=small")})
    found = intent.FilterModule().filters()["variable_mistakes"](HostVars({"a": {}}), ["a"])
    assert found["loose"] == ["-e: complete without a name seen, NAME=VALUE is needed: write a list without blanks"]


def test_value_of_another_type_than_its_role_takes():
    raw = {
        "a": {"node_setup_uid": "many", "rpc_worker_at_boot": "maybe", "model_connections": "8"},
        "b": {"node_setup_uid": "many", "rpc_worker_environment": [1], "rpc_worker_numa_node": None},
        "c": {"node_setup_uid": "970", "head_server_numa_node": 1, "llama_services": 5, "llama_cpp_jobs": "2"},
    }
    found = intent_variables.mistyped_variables(HostVars(raw), list(raw))
    assert len(found) == 3, found
    assert "argument 'node_setup_uid' is of type" in found[0] and "convert to int" in found[0]
    assert "argument 'rpc_worker_at_boot' is of type" in found[1]
    assert "argument 'rpc_worker_environment' is of type" in found[2] and "convert to dict" in found[2]
    assert intent_variables.mistyped_variables(HostVars(raw), ["c"]) == []


def test_type_of_run_time_value_is_skipped():
    raw = {"a": {"node_setup_uid": "{{ ansible_facts.uid }}"}}
    assert intent_variables.mistyped_variables(HostVars(raw, reported("'uid' is undefined")), ["a"]) == []
