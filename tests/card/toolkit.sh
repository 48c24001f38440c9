#!/usr/bin/env bash
# toolkit.sh: puts a CUDA toolkit into the cache's files and prints its path: NVIDIA's own wheels, joined into one
# directory as its installer would, and a driver library of empty functions, which a machine without a card links with.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"

wheels=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96
    nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.0.2.14)
toolkit=$lab_cache/files/cuda-13.0
stamp=$toolkit/.made-$(printf '%s\n' "${wheels[@]}" | cat - "$0" | sha256sum | cut -c1-12)

# Only symbols are looked at: of the driver's header, each function it declares under the name that is exported.
driver() {
    mkdir -p "$1/lib/stubs"
    {
        grep -oE '\bcu[A-Z][A-Za-z0-9_]*\s*\(' "$1/include/cuda.h" | tr -d '( '
        # A macro of the header gives a newer name: the library exports that one.
        grep -oE '^#define\s+cu[A-Z]\w*\s+(cu[A-Z]\w*|__CUDA_API_PT[DS]+Z\(cu\w+\))' "$1/include/cuda.h" \
            | grep -oE 'cu[A-Z][A-Za-z0-9_]*\)?$' | tr -d ')'
    } | sort -u | sed 's/.*/int &(void) { return 100; }/' >"$1/lib/stubs/libcuda.c"
    gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$1/lib/stubs/libcuda.so.1" "$1/lib/stubs/libcuda.c"
    ln -s libcuda.so.1 "$1/lib/stubs/libcuda.so"
}

fetch() (
    scratch=$(mktemp -d "$lab_cache/files/.cuda-XXXXXX"); trap 'rm -rf "$scratch"' EXIT
    command -v gcc >/dev/null || apt_install gcc libc6-dev
    "$repository/.venv/bin/python" -m pip install --quiet --no-deps --no-compile --target "$scratch/wheels" \
        "${wheels[@]}"
    made=$scratch/wheels/nvidia/cu13
    for library in cudart cublas cublasLt; do ln -s "lib$library.so.13" "$made/lib/lib$library.so"; done
    ln -s lib "$made/lib64"
    driver "$made"
    touch "$made/${stamp##*/}"
    # The user that compiles in a container does not exist on this machine.
    chmod -R a+rX "$made"
    rm -rf "$toolkit"
    mv "$made" "$toolkit"
)

exec 9>"$lab_cache/toolkit.lock"
flock 9
[ -f "$stamp" ] || run "fetching CUDA 13.0" fetch >&2
echo "$toolkit"
