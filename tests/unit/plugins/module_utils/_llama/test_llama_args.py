"""Command lines against what the real programs say of themselves: fixtures/help holds the whole --help of both
builds."""

import re
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _family, _settings
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import args as llama_args
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import args as llama_words
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import drafts, flags

ROOT = Path(__file__).resolve().parents[5]
HELP = ROOT / "tests/unit/fixtures/help"
BUILDS = ("b7772", "b11434")
SERVERS = {"b7772": "rpc-server", "b11434": "ggml-rpc-server"}
KEYS = [key for key in _settings.KEYS if key.flag]
MODES = _settings.BY_KIND["server"]["load_mode"].choices
INSTANCE = {
    "service": "chat",
    "model_path": "/opt/models/m.gguf",
    "aliases": ["m", "Big"],
    "address": "10.0.0.1",
    "port": 8000,
    "rpc_endpoints": ["10.1.0.2:50052", "10.1.0.3:50052"],
    "tensor_split": [27, 27, 27],
    "api_key_file": "/etc/llama-cluster/keys/chat",
}
# Every setting of a service that is rendered, with every value that may be chosen from.
SAMPLES = {
    int: [1],
    float: [1.5],
    bool: [True, False],
    list: [["qwen3.context_length=int:131072", "a.b=bool:true"]],
    dict: [{"enable_thinking": False, "depth": 2}],
}
SETTINGS = [{key.name: value} for key in KEYS for value in key.choices or SAMPLES[key.type]]
SETTINGS += [{"numa": words} for words in _settings.LLAMA_NUMA]
SETTINGS += [{"chat_template": "chatml"}, {"chat_template": "a.jinja"}]


def options(build, program):
    """{flag: the text of its entry} of a program's --help."""
    found = {}
    for entry in re.split(r"\n(?= {0,2}-)", (HELP / ("%s-%s.txt" % (build, program))).read_text()):
        # The flags end where two spaces or a new line begin the description; values, such as [on|off], stand between
        # them.
        for flag in re.findall(
            r"(?:^|[\s,])(--?[a-zA-Z][\w.-]*)",
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
    drafting = dict(INSTANCE, draft_path="/opt/models/d.gguf")
    for service in ({"draft": {"max": 8, "min": 1}}, {"draft": {"max": 8}, "cards": []}):
        found.update(flags_of(llama_args.head_args(drafting, service, build)))
    for name, kind in drafts.DRAFT_TYPES.items() if build == "b11434" else ():
        service = {"draft": dict(dict.fromkeys(kind.flags, 3), **({"type": name} if name else {}))}
        found.update(flags_of(llama_args.head_args(dict(INSTANCE, draft_path=""), service, build)))
    for experts in ("all", 12):
        found.update(flags_of(llama_args.head_args(dict(INSTANCE, cpu_moe=experts), {}, build)))
    return sorted(found, key=str)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        ("b7772", "--draft-max 8 --draft-min 1"),
        ("b11434", "--spec-type draft-simple --spec-draft-n-max 8 --spec-draft-n-min 1"),
    ],
)
def test_draft_flags_depend_on_build(build, words):
    instance = dict(INSTANCE, draft_path="/opt/models/d.gguf")
    args = llama_args.head_args(instance, {"draft": {"model": "d", "quant": "Q", "max": 8, "min": 1}}, build)
    said = "--model-draft /opt/models/d.gguf --n-gpu-layers-draft 999 " + words
    assert said in " ".join(args) and llama_args.parse_args(args).draft
    plain = llama_args.head_args(instance, {"draft": {"model": "d", "quant": "Q"}, "cards": []}, build)
    assert "max" not in " ".join(plain) and "--device-draft none" in " ".join(plain)
    assert not llama_args.parse_args(llama_args.head_args(instance, {}, build)).draft


def test_types_of_draft_are_those_of_the_build():
    known = options("b11434", "llama-server")["--spec-type"]
    for kind in drafts.DRAFT_TYPES.values():
        assert re.search(rf"[ ,]{kind.spec}[,\n]", known)
        for key in {"max", "match", "hits"} & set(kind.flags):
            default = re.search(
                r"\(default: ([0-9]+)\)", options("b11434", "llama-server")[kind.flags[key]].replace("\n", " ")
            )
            assert default and (key != "max" or int(default.group(1)) == kind.most)


def test_type_drafts_without_a_file():
    service = {"draft": {"type": "ngram-mod", "max": 32, "match": 16}, "cards": []}
    args = llama_args.head_args(dict(INSTANCE, draft_path=""), service, "b11434")
    assert "--spec-type ngram-mod --spec-ngram-mod-n-match 16 --spec-ngram-mod-n-max 32" in " ".join(args)
    assert not {"--model-draft", "--device-draft", "--n-gpu-layers-draft"} & set(args)
    assert llama_args.parse_args(args).draft == "ngram-mod"


@pytest.mark.parametrize("build", BUILDS)
def test_every_flag_that_is_rendered_exists(build):
    known = options(build, "llama-server")
    assert len(known) > 200
    assert [flag for flag, _value in rendered(build) if flag not in known] == []


@pytest.mark.parametrize("build", BUILDS)
def test_every_value_that_may_be_chosen_exists(build):
    known = options(build, "llama-server")
    chosen = {value for key in KEYS for value in key.choices} | {"layer", *_settings.LLAMA_NUMA}
    checked = [(flag, value) for flag, value in rendered(build) if value in chosen and flag != "--log-verbosity"]
    assert len(checked) > 12
    assert [
        (flag, value)
        for flag, value in checked
        if not re.search(r"(?<![\w+])%s(?![\w+])" % re.escape(value), known[flag])
    ] == []


@pytest.mark.parametrize("build", BUILDS)
def test_flags_have_their_values(build):
    known = options(build, "llama-server")
    for flag, value in rendered(build):
        names = known[flag].strip().split("\n")[0]
        takes = re.search(r"%s,? *(--?[\w-]+,? *)*([A-Z]|\[|\{|<|N\b|none,)" % re.escape(flag), names)
        assert bool(takes) == (value is not None), (flag, names)


@pytest.mark.parametrize(
    ("build", "gone"),
    [("b7772", ["--load-mode"]), ("b11434", ["--mlock", "--mmap", "--no-mmap", "--direct-io", "--no-direct-io"])],
)
def test_flags_of_other_builds_are_absent(build, gone):
    known = options(build, "llama-server")
    assert not set(gone) & (set(known) | {flag for flag, _value in rendered(build)})


@pytest.mark.parametrize("build", BUILDS)
def test_both_measured_builds_know_every_mode(build):
    for mode in MODES:
        assert llama_words.unknown_values({"load_mode": mode}, llama_args.build_number(build)) == []


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


def test_template_is_name_or_file():
    plain = llama_args.head_args(INSTANCE, {})
    for template, words in (
        ("chatml", ["--chat-template", "chatml"]),
        ("./t", ["--chat-template-file", "/etc/llama-cluster/template-chat.jinja"]),
        ("t.jinja", ["--chat-template-file", "/etc/llama-cluster/template-chat.jinja"]),
    ):
        args = llama_args.head_args(INSTANCE, {"chat_template": template})
        assert [word for word in args if word not in plain] == words and len(args) == len(plain) + 2


def test_words_of_the_inventory_stand_behind_its_settings():
    args = llama_args.head_args(INSTANCE, {"extra_args": ["--mmproj", "/m p.gguf"], "timeout": 9})
    place = args.index("--mmproj")
    assert args[place : place + 2] == ["--mmproj", "/m p.gguf"] and "--timeout" in args[:place]


@pytest.mark.parametrize("build", BUILDS)
def test_built_in_templates_match_build(build):
    text = options(build, "llama-server")["--chat-template"].partition("list of built-in templates:")[2]
    listed = text.partition("(env")[0].replace(",", " ").split()
    assert sorted(_family.built_in(llama_args.build_number(build))) == sorted(listed) and len(listed) >= 50


@pytest.mark.parametrize("build", BUILDS)
def test_help_is_read_as_here(build):
    known = flags.known_flags((HELP / ("%s-llama-server.txt" % build)).read_text())
    seen = options(build, "llama-server")
    assert known == {flag for flag, entry in seen.items() if flags.REMOVED not in entry}
    assert "--reasoning-format" in known and flags.known_flags("") == flags.known_flags("no such program") == set()


@pytest.mark.parametrize("build", BUILDS)
def test_all_spellings_of_flag_have_owner(build):
    """All names of an entry of --help have one owner; extra_args must not have rendered flags."""
    owned = flags.owners()
    for flag, entry in options(build, "llama-server").items():
        same = [other for other, its in options(build, "llama-server").items() if its == entry]
        assert len({owned.get(name) for name in same}) == 1, (flag, same)
    for setting in SETTINGS:
        args = llama_args.head_args(INSTANCE, setting, build)
        assert [flag for flag in flags.flags(args) if flag not in owned] == []


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("--ctx-size", "ctx_size"), ("-c", "ctx_size"), ("--temperature", "temperature"), ("--no-jinja", "jinja"),
        ("--ctx-size=4096", "ctx_size"), ("--mlock", "load_mode"), ("--port", "port"), ("--api-key", "llama_api_keys"),
        ("--metrics", ""), ("--n-cpu-moe", "cpu_moe"), ("-cmoe", "cpu_moe"), ("-dev", "cards"),
        ("--device=none", "cards"), ("--fim-qwen-1.5b-default", "model and quant"), ("--tools", ""), ("-ag", ""),
        ("--mcp-servers-json", ""), ("--mmproj-url", ""), ("-hfd", ""), ("--props", ""), ("--mmproj", "mmproj"),
        ("--media-path", ""),
        ("-ngl", "n_gpu_layers"), ("--numa", "numa"), ("-md", "draft"),
        ("--draft-max", "draft"), ("--spec-type", "draft"), ("--spec-default", "draft"),
        ("--spec-ngram-mod-n-max", "draft"), ("--rerank", "reranking"), ("-ot", None), ("--lora=x", "lora"),
    ],
)  # fmt: skip
def test_what_stands_for_a_flag(word, instead):
    assert flags.owner(word) == instead


def test_a_number_below_zero_is_no_flag():
    assert flags.flags(["-ot", "-1", "a", "-.5", "--", "-", "--x=-1"]) == ["-ot", "--x=-1"]


@pytest.mark.parametrize(
    ("build", "aliases", "verbosity"),
    [("b7772", "m", "3"), ("b9180", "m", "3"), ("b9181", "m,Big", "4"), ("b11434", "m,Big", "4")],
)
def test_aliases_and_verbosity_by_build(build, aliases, verbosity):
    args = dict(flags_of(llama_args.head_args(INSTANCE, {}, build)))
    assert (args["--alias"], args["--log-verbosity"]) == (aliases, verbosity)


@pytest.mark.parametrize(
    ("service", "tokens"),
    [
        ({"ctx_size": 8192, "parallel": 2}, "8192"),
        ({"slot_ctx_size": 4096, "parallel": 2}, "8192"),
        ({"slot_ctx_size": 4096}, "4096"),
        ({"slot_ctx_size": 4096, "parallel": 4, "kv_unified": True}, "4096"),
    ],
)
def test_the_context_is_that_of_all_slots(service, tokens):
    args = llama_args.head_args(INSTANCE, service)
    assert args[args.index("--ctx-size") + 1] == tokens


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", (False, True, False, False, None, 0)),
        ("--ctx-size 8192 --parallel 2", (False, True, False, False, 4096, 0)),
        ("-c 8192 -np 1 --no-jinja", (False, False, False, False, 8192, 0)),
        ("--no-jinja --jinja --embeddings", (True, True, False, False, None, 0)),
        ("--reasoning on --reasoning off", (False, True, True, False, None, 0)),
        ("-rea on --reasoning-budget 0", (False, True, True, False, None, 0)),
        ("--reasoning-budget 512 --ctx-size 0 --parallel 0 --n-predict 512", (False, True, False, False, None, 512)),
        ("--reasoning-format none", (False, True, False, True, None, 0)),
        ("--reasoning-format auto", (False, True, False, False, None, 0)),
        ("-n -1", (False, True, False, False, None, 0)),
        # Values of a server may be anything.
        ("-c \u00b2 -np \u00b2 -n \u00b2", (False, True, False, False, None, 0)),
        ("-c %s -np 1 -n %s" % ("9" * 5000, "9" * 5000), (False, True, False, False, None, 0)),
    ],
)
def test_what_a_command_line_says_of_answers(words, expected):
    assert llama_args.parse_args(words.split()) == (*expected, "", False, False, False)


@pytest.mark.parametrize("build", BUILDS)
def test_reranking_server_does_not_generate(build):
    settings = llama_args.parse_args(llama_args.head_args(INSTANCE, {"reranking": True}, build))
    assert (
        settings.embeddings
        and settings.reranking
        and llama_args.parse_args(["--rerank"]) == llama_args.parse_args(["--reranking"])
    )
    assert not llama_args.parse_args(["--embeddings"]).reranking


@pytest.mark.parametrize("build", BUILDS)
def test_rendered_slot_is_parsed(build):
    service = {"slot_ctx_size": 4096, "parallel": 3}
    assert llama_args.parse_args(llama_args.head_args(INSTANCE, service, build)).slot_ctx == 4096
    shared = dict(service, kv_unified=True)
    assert llama_args.parse_args(llama_args.head_args(INSTANCE, shared, build)).slot_ctx == 4096
    assert llama_args.parse_args(["-c", "4096", "-np", "4", "-kvu", "-no-kvu"]).slot_ctx == 1024
