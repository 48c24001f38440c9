"""Command lines against what the real programs say of themselves: fixtures/help holds the whole --help of both
builds."""

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _settings
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import args as llama_args

ROOT = Path(__file__).resolve().parents[5]
HELP = ROOT / "tests/unit/fixtures/help"
BUILDS = ("b7772", "b11434")
SERVERS = {"b7772": "rpc-server", "b11434": "ggml-rpc-server"}
KEYS = [key for key in _settings.KEYS if key.flag]
MODES = _settings.BY_KIND["server"]["load_mode"].choices
INSTANCE = {
    "model_path": "/opt/models/m.gguf",
    "aliases": ["m", "Big"],
    "address": "10.0.0.1",
    "port": 8000,
    "rpc_endpoints": ["10.1.0.2:50052", "10.1.0.3:50052"],
    "tensor_split": [27, 27, 27],
    "api_key_file": "/etc/llama-cluster/keys/chat",
}
# Every setting of a service that is rendered, with every value that may be chosen from.
SAMPLES = {int: 1, float: 1.5, list: ["qwen3.context_length=int:131072", "a.b=bool:true"]}
SETTINGS = [{key.name: value} for key in KEYS for value in key.choices or [SAMPLES[key.type]]]


def options(build, program):
    """{flag: the text of its entry} of a program's --help."""
    found = {}
    for entry in re.split(r"\n(?= {0,2}-)", (HELP / ("%s-%s.txt" % (build, program))).read_text()):
        # The flags end where two spaces or a new line begin the description; values, such as [on|off], stand between
        # them.
        for flag in re.findall(
            r"(?:^|[\s,])(--?[a-zA-Z][\w-]*)",
            re.sub(r"^((?:-\S+,\s+)*-.*?)(  |\n)", r"\1\n", entry.strip(), count=1).split("\n")[0],
        ):
            found[flag] = entry
    return found


def flags_of(args):
    """[(flag, value or None)] of a rendered command line."""
    found = []
    for word in args:
        if word.startswith("--"):
            found.append((word, None))
        else:
            found[-1] = (found[-1][0], word)
    return found


def rendered(build):
    """Every flag, with every value that may be chosen from, that can be rendered for a build."""
    found = set()
    for setting in SETTINGS:
        found.update(flags_of(llama_args.head_args(INSTANCE, setting, build)))
    for experts in ("all", 12):
        found.update(flags_of(llama_args.head_args(dict(INSTANCE, cpu_moe=experts), {}, build)))
    return sorted(found, key=str)


@pytest.mark.parametrize("build", BUILDS)
def test_every_flag_that_is_rendered_exists(build):
    known = options(build, "llama-server")
    assert len(known) > 200
    assert [flag for flag, _value in rendered(build) if flag not in known] == []


@pytest.mark.parametrize("build", BUILDS)
def test_every_value_that_may_be_chosen_exists(build):
    known = options(build, "llama-server")
    chosen = {value for key in KEYS for value in key.choices} | {"layer"}
    checked = [(flag, value) for flag, value in rendered(build) if value in chosen and flag != "--log-verbosity"]
    assert len(checked) > 12
    assert [
        (flag, value)
        for flag, value in checked
        if not re.search(r"(?<![\w+])%s(?![\w+])" % re.escape(value), known[flag])
    ] == []


@pytest.mark.parametrize("build", BUILDS)
def test_a_flag_takes_a_value_where_one_is_given(build):
    known = options(build, "llama-server")
    for flag, value in rendered(build):
        names = known[flag].strip().split("\n")[0]
        takes = re.search(r"%s,? *(--?[\w-]+,? *)*([A-Z]|\[|\{|<|N\b)" % re.escape(flag), names)
        assert bool(takes) == (value is not None), (flag, names)


@pytest.mark.parametrize(
    ("build", "gone"),
    [("b7772", ["--load-mode"]), ("b11434", ["--mlock", "--mmap", "--no-mmap", "--direct-io", "--no-direct-io"])],
)
def test_the_other_builds_flags_do_not_exist_and_are_not_rendered(build, gone):
    known = options(build, "llama-server")
    assert not set(gone) & (set(known) | {flag for flag, _value in rendered(build)})


@pytest.mark.parametrize("build", BUILDS)
def test_both_measured_builds_know_every_mode(build):
    assert sorted(llama_args.load_modes(build)) == sorted(MODES)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("threads", [0, 8])
def test_the_workers_flags_exist(build, threads):
    known = options(build, SERVERS[build])
    args = llama_args.rpc_args({"address": "10.1.0.2", "port": 50052, "threads": threads})
    assert [flag for flag, _value in flags_of(args) if flag not in known] == []
    assert ("--threads" in args) == bool(threads)


@pytest.mark.parametrize(
    ("experts", "words"), [(0, []), (12, ["--n-cpu-moe", "12"]), ("all", ["--cpu-moe"]), (None, [])]
)
def test_experts_in_main_memory(experts, words):
    plain = llama_args.head_args(INSTANCE, {}, "b11434")
    args = llama_args.head_args(dict(INSTANCE, cpu_moe=experts), {}, "b11434")
    assert [word for word in args if word not in plain] == words


@pytest.mark.parametrize(
    ("mode", "build", "flags"),
    [
        ("mlock", "b7760", ["--no-mmap", "--no-direct-io", "--mlock"]),
        ("mmap+mlock", "b10113", ["--mmap", "--no-direct-io", "--mlock"]),
        ("dio", "b10114", ["--load-mode", "dio"]),
        ("mlock", "b10884", ["--load-mode", "mlock"]),
        ("mlock", "mine", ["--load-mode", "mlock"]),
        ("auto", "b7760", []),
        ("auto", "b11434", []),
    ],
)
def test_load_mode_by_build(mode, build, flags):
    plain = llama_args.head_args(INSTANCE, {}, build)
    args = llama_args.head_args(INSTANCE, {"load_mode": mode}, build)
    assert [word for word in args if word not in plain] == flags
    assert len(args) == len(plain) + len(flags)


@pytest.mark.parametrize(
    ("build", "aliases", "verbosity"),
    [("b7772", "m", "3"), ("b9180", "m", "3"), ("b9181", "m,Big", "4"), ("b11434", "m,Big", "4")],
)
def test_aliases_and_verbosity_by_build(build, aliases, verbosity):
    args = dict(flags_of(llama_args.head_args(INSTANCE, {}, build)))
    assert (args["--alias"], args["--log-verbosity"]) == (aliases, verbosity)


def test_the_pin_is_the_roles_default():
    assert (
        yaml.safe_load((ROOT / "roles/llama_cpp/defaults/main.yml").read_text())["llama_cpp_version"] == llama_args.PIN
    )


@pytest.mark.parametrize(
    ("service", "tokens"),
    [
        ({"ctx_size": 8192, "parallel": 2}, "8192"),
        ({"slot_ctx_size": 4096, "parallel": 2}, "8192"),
        ({"slot_ctx_size": 4096}, "4096"),
    ],
)
def test_the_context_is_that_of_all_slots(service, tokens):
    args = llama_args.head_args(INSTANCE, service)
    assert args[args.index("--ctx-size") + 1] == tokens
