#!/usr/bin/env bash
# compile.sh FOLDER [--cpu|--vulkan]: role llama_cpp compiles what the card test deploys, in one container of the lab,
# and this writes the variables that site.yml needs for it to FOLDER: build.yml or vulkan.yml, and builds/ with its one
# archive; or cpu.yml, whose archive stays in the lab's own cache. The role does not compile what the cache already has.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
mkdir -p "$1" "$lab_cache/card"
folder=$(cd "$1" && pwd)
cd "$repository"
# Its output is a log. Neither labs made manually nor the scenarios take this slot.
as_tests_do
export LLAMA_LAB_SLOT=${LLAMA_CARD_SLOT:-250} LLAMA_LAB_RUN=card-build

kind=${2:---cuda} debian=12
if [ "$kind" != --cuda ]; then
    cache=$lab_cache/builds
    words=()
    # As inventories/lab/containers.yml has it, with this machine's paths: where it is read the cache is the same.
    variables=$folder/${kind#--}.yml
    cat >"$variables" <<END
---
llama_builds:
  default: {version: b11434, source: "$lab_cache/files/llama.cpp-b11434.tar.gz"}
llama_cpp_cache: "$cache"
END
    if [ "$kind" = --vulkan ]; then
        # As scenario vulkan has it: one build for both.
        sed -i 's/}$/, accelerator: vulkan}/' "$variables"
        echo "llama_cpp_targets: [llama-server, ggml-rpc-server]" >>"$variables"
        debian=13
        words=(-e "@$variables" -e '{"lab_image": "image.sh 13"}')
    fi
else
    toolkit=$(tests/card/toolkit.sh | tail -n 1)
    source=$lab_cache/files/llama.cpp-b11434.tar.gz
    reduced=$lab_cache/card/$(cat tests/card/reduce.py "$source" | sha256sum | cut -c1-12)-source.tar.gz
    [ -f "$reduced" ] || .venv/bin/python tests/card/reduce.py "$source" "$reduced"
    cache=$lab_cache/card/builds
    # Its deployment does not read the source: its sha256 is part of the build's name, and the build exists.
    variables=$folder/build.yml
    cat >"$variables" <<END
---
llama_builds:
  default:
    version: b11434
    source: /nonexistent/llama.cpp-b11434-card.tar.gz
    source_sha256: $(sha256sum "$reduced" | cut -c1-64)
    cmake_options:
      # Symbols that the reduced source lacks become address 0, which needs a program at a fixed address.
      CMAKE_EXE_LINKER_FLAGS: "-no-pie -Wl,--unresolved-symbols=ignore-all"
      CMAKE_CUDA_ARCHITECTURES: 90-real
      GGML_CUDA_COMPRESSION_MODE: size
llama_cpp_targets: [llama-server, ggml-rpc-server]
END
    # A real card would decide these values; the container has neither driver nor toolkit.
    compiling=$lab_cache/card/compiling.json
    .venv/bin/python - "$variables" "$toolkit" "$reduced" >"$compiling" <<'END'
import json, sys
import yaml

path, toolkit, source = sys.argv[1:]
with open(path) as stream:
    variables = yaml.safe_load(stream)
inside = "/srv/llama-lab/" + toolkit.rpartition("/")[2]
build = dict(source=source, accelerator="cuda", cuda_architectures=["90"], cuda_home=inside)
variables["llama_builds"]["default"].update(build)
variables["rpc_worker_environment"] = {"LD_LIBRARY_PATH": "%s/lib:%s/lib/stubs" % (inside, inside)}
json.dump(variables, sys.stdout)
END
    words=(-e "@$compiling")
fi

playbook() { ansible-playbook "$@" -i inventories/lab -e "llama_cpp_cache=$cache"; }

compile() (
    trap 'playbook molecule/shared/destroy.yml' EXIT
    playbook molecule/shared/create.yml "${words[@]}"
    playbook molecule/shared/prepare_node.yml --limit node1 "${words[@]}"
)

# The role's name for it, made of everything that goes into it.
name=llama.cpp-$(.venv/bin/python tests/card/release.py "$variables")-x86_64-debian$debian.tar.gz
exec 9>"$lab_cache/card.lock"
flock 9
[ -f "$cache/$name" ] || run "compiling ${name%-x86_64*} by the role" compile >&2
if [ "$kind" != --cpu ]; then
    mkdir -p "$folder/builds"
    find "$folder/builds" -type f ! -name "$name" -delete
    if ! cmp -s "$cache/$name" "$folder/builds/$name"; then
        # Whole at any time: a test may be reading it.
        cp "$cache/$name" "$folder/builds/.partial"
        mv "$folder/builds/.partial" "$folder/builds/$name"
    fi
fi
echo "$name"
