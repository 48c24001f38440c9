# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries of llama_builds that end in one sentence, and those that are right."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.check_builds import build_errors
from ansible_collections.thefermisea.llama_cluster.tests.unit.intents import HOSTVARS, SERVICES, changed, mistakes

FORK = {"repository": "https://github.com/someone/llama.cpp", "commit": "0123456789" * 4}
OWN = {"source": "/srv/mine.tar.gz", "source_sha256": "a" * 64}


def reported(entry, name="turbo"):
    return build_errors(["n", "m"], {node: {"llama_builds": {name: entry}} for node in ("n", "m")})


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"version": "b11434", "accelerator": "auto"},
        {"accelerator": "vulkan", "cmake_options": {"Vulkan_INCLUDE_DIR": "/opt/vulkan/include"}},
        {"version": "b7760", "source": "/srv/x.tar.gz"},
        {"version": "b11434-mine", **OWN},
        {"version": "b11434", "source_sha256": "a" * 64},
        OWN,
        {**OWN, "number": 7760},
        FORK,
        {**FORK, "number": 11434, "cache_types": {"turbo4": 4.125, "q2_x": 2}},
        {"accelerator": "cuda", "cuda_architectures": ["70", "90a", "86-real", 89]},
        {"cuda_home": "/usr/local/cuda-12.2/"},
        {"accelerator": "cpu", "cuda_architectures": "auto", "rdma": True},
        {"cmake_options": {"GGML_NATIVE": True, "GGML_LTO": "ON", "GGML_CUDA_PEER_MAX_BATCH_SIZE": 128}},
    ],
)
def test_what_is_right(entry):
    assert reported(entry) == []


COMMIT = "a commit of 40 hexadecimal digits is needed: copy the whole commit, a branch or a tag may move"
TAG = "the tag of a release such as b11434 is needed: "


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("b11434", ": 'b11434' seen, a map is needed: write its keys below it"),
        ({"versoin": "b1"}, ".versoin: unknown key, did you mean version?"),
        ({"version": 11434}, ".version: 11434 seen, a string is needed: put it in quotes"),
        ({"version": "11434"}, ".version: '11434' seen, " + TAG + "write b11434"),
        ({"version": "latest"}, ".version: 'latest' seen, " + TAG + "choose one of github.com/ggml-org/llama.cpp/"),
        ({"version": "b11434-mine"}, ".version: 'b11434-mine' seen, " + TAG + "choose one of github.com"),
        ({"version": "mine/../x", **OWN}, ".version: 'mine/../x' seen, " + TAG),
        ({"version": "b7759"}, ".version: b7759 seen, b7760 or a newer release is needed: its command line is the "),
        ({**FORK, "commit": "main"}, ".commit: 'main' seen, " + COMMIT),
        ({**FORK, "commit": "A" * 40}, ".commit: 'AAAA"),
        ({"repository": FORK["repository"]}, ".commit: missing, 40 hexadecimal digits are needed with repository"),
        ({"commit": FORK["commit"]}, ".commit: seen without repository, it is needed to fetch a commit: add it"),
        ({**FORK, "version": "b11434"}, ".version: seen beside repository, one of them is needed: drop the other"),
        ({**FORK, "source": "/x"}, ".source: seen beside repository, one of them is needed: drop the other"),
        ({**FORK, "repository": "git@x:y"}, ".repository: 'git@x:y' seen, the https address of a git repository is "),
        ({**FORK, "number": 7000}, ".number: 7000 seen, 7760 to 2147483647 is needed"),
        ({"version": "b11434", "number": 11434}, ".number: seen beside version, which says it already: drop one of "),
        ({"source": "/srv/x.tar.gz"}, ".source_sha256: missing, it is needed to tell a source without version from "),
        ({"source_sha256": "abc"}, ".source_sha256: 'abc' seen, a digest of 64 hexadecimal digits is needed: "),
        ({"accelerator": "rocm"}, ".accelerator: 'rocm' seen, one of auto, cpu, cuda, vulkan is needed: choose "),
        ({"cuda_home": "cuda"}, ".cuda_home: 'cuda' seen, an absolute path is needed: write it from / on"),
        ({"cuda_architectures": "86"}, ".cuda_architectures: '86' seen, auto or a list is needed: write auto, or "),
        ({"cuda_architectures": []}, ".cuda_architectures: [] seen, auto or a list is needed: write auto, or "),
        ({"cuda_architectures": ["86", "9", "8.6"]}, ".cuda_architectures: '9' seen, a compute capability without "),
        (
            {"version": "b7772", "rdma": True},
            ".rdma: true seen with b7772, b9824 or a newer release is needed for it: older ones have RPC over TCP ",
        ),
        ({**FORK, "number": 9000, "rdma": True}, ".rdma: true seen with b9000-g"),
        ({"rdma": "yes"}, ".rdma: 'yes' seen, true or false is needed: write it without quotes"),
        ({"cmake_options": ["X=1"]}, ".cmake_options: a list of 1 seen, a map is needed: write its keys below it"),
        ({"cmake_options": {"-DGGML_LTO": "ON"}}, ".cmake_options.-DGGML_LTO: no name of a CMake option, capitals, "),
        ({"cmake_options": {"GGML_VULKAN": True}}, ".cmake_options.GGML_VULKAN: seen, accelerator decides it, or one "),
        ({"cmake_options": {"GGML_LTO": [1]}}, ".cmake_options.GGML_LTO: a list of 1 seen, one word or number is "),
        ({"cmake_options": {"GGML_LTO": "a\nb"}}, ".cmake_options.GGML_LTO: 'a\\nb' seen, one word or number is "),
        ({"cache_types": {"q8_0": 8.5}}, ".cache_types.q8_0: a type of llama.cpp itself, another name is needed: drop"),
        ({"cache_types": {"turbo4": "4"}}, ".cache_types.turbo4: '4' seen, the bits per element, above 0 and up to "),
        ({"cache_types": {"turbo4": 33}}, ".cache_types.turbo4: 33 seen, the bits per element, above 0 and up to 32, "),
        ({"cache_types": {"Turbo 4": 4}}, ".cache_types.Turbo 4: a name as --cache-type-k takes it is needed: correct"),
    ],
)
def test_each_mistake_is_one_sentence(entry, sentence):
    (found,) = reported(entry)
    assert found.startswith("llama_builds.turbo" + sentence)


def test_builds_are_one_map_for_all_nodes():
    assert build_errors(["n"], {"n": {"llama_builds": ["b11434"]}}) == [
        "llama_builds: a list of 1 seen, a map is needed: write its keys below it"
    ]
    assert reported({}, "Turbo 2") == [
        "llama_builds.Turbo 2: a name of lower-case letters, digits, dots and dashes is needed: rename it"
    ]
    assert build_errors(["n", "m"], {"n": {}, "m": {"llama_builds": {"turbo": FORK}}}) == [
        "llama_builds: m has other builds than n, the same for all nodes are needed, since head and workers of a "
        "service run one: write them in group_vars/all"
    ]


def of(**builds):
    return {host: dict(facts, llama_builds=builds) for host, facts in HOSTVARS.items()}


def test_a_service_names_a_build_that_there_is():
    assert mistakes(changed(build="default")) == []
    assert mistakes(changed(build="turbo"), hostvars=of(turbo=FORK)) == []
    assert mistakes(changed(build="turbo")) == [
        "llama_services.reasoning.build: 'turbo' is not in llama_builds, one of default is needed: add it there or "
        "choose one"
    ]
    assert mistakes(changed(build="turbq"), hostvars=of(turbo=FORK)) == [
        "llama_services.reasoning.build: 'turbq' is not in llama_builds, did you mean turbo?"
    ]
    # Mistakes of the builds are reported first.
    assert len(mistakes(changed(build="turbo"), hostvars=of(turbo={"version": "latest"}))) == 1


def test_cache_type_of_build_is_accepted():
    single = {"workers": None, "rpc_port": None, "tensor_split": None}
    hostvars = of(turbo={**FORK, "cache_types": {"turbo4": 4.125}})
    assert mistakes(changed(**single, build="turbo", cache="turbo4"), hostvars=hostvars) == []
    (sentence,) = mistakes(changed(**single, cache="turbo4"), hostvars=hostvars)
    assert sentence.startswith("llama_services.reasoning.cache: 'turbo4' seen, one of f32, ")
    (sentence,) = mistakes(changed(build="turbo", cache="turbo4"), hostvars=hostvars)
    assert "turbo4 seen with workers, one of f16, q8_0, q4_0 is needed" in sentence
    assert mistakes(SERVICES, hostvars=hostvars) == []


def test_missing_build_is_reported_before_cache_types():
    turbo = {**FORK, "cache_types": {"turbo4": 4.125}}
    (sentence,) = mistakes(changed(build="turbbo", cache="turbo4"), hostvars=of(turbo=turbo))
    assert sentence == "llama_services.reasoning.build: 'turbbo' is not in llama_builds, did you mean turbo?"
    short = {**turbo, "commit": "0123456"}
    (sentence,) = mistakes(changed(build="turbo", cache="turbo4"), hostvars=of(turbo=short))
    assert sentence.startswith("llama_builds.turbo.commit: '0123456' seen, ")


@pytest.mark.parametrize("build", [["turbo"], {"version": "b11434"}, 7])
def test_a_build_of_a_service_is_a_name(build):
    found = mistakes(changed(build=build, cache="turbo4", port="8000"))
    assert [sentence.partition(" seen, ")[0].partition(": ")[0] for sentence in found] == [
        "llama_services.reasoning." + key for key in ("build", "port")
    ]
    assert " is needed: " in found[0]


def test_two_sources_of_one_version_are_refused():
    both = {"default": {"version": "b11434"}, "mine": {"version": "b11434", "source": "/srv/mine.tar.gz"}}
    (sentence,) = build_errors(["n"], {"n": {"llama_builds": both}})
    assert sentence.startswith("llama_builds.mine: b11434 seen from another source than llama_builds.default, ")
    both["mine"]["version"] = "b11434-mine"
    assert build_errors(["n"], {"n": {"llama_builds": both}}) == []
