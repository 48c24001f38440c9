#!/usr/bin/env bash
# make e2e WHAT=clients: the openai SDK, litellm, TensorZero and curl at a gateway of its own, on the ports 23000 to
# 23014 of the loopback: llama-servers with a small model, and in a container the engine and nginx. With LLAMA_GATEWAY
# (see gateway_clients.py) at one that is deployed, where nothing is broken.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
cd "$repository"

requirements=tests/e2e/clients-requirements.txt
venv=$lab_cache/venvs/clients-$(sha256sum "$requirements" | cut -c1-12)

install_clients() {
    rm -rf "$venv.partial"
    .venv/bin/python -m venv --without-pip "$venv.partial"
    .venv/bin/python -m pip --python "$venv.partial" install --quiet --only-binary :all: --requirement "$requirements"
    mv "$venv.partial" "$venv"
}

tests/lab/venv.sh
[ -d "$venv" ] || run "installing the clients" install_clients
# At a gateway that is there nothing else is needed.
if [ -z "${LLAMA_GATEWAY:-}" ]; then
    tests/lab/engine.sh
    tests/lab/artifacts.sh
    LLAMA_LAB_IMAGE=$(tests/lab/image.sh)
    archive=$(find "$lab_cache/builds" -name 'llama.cpp-b11434-cpu-*-debian12.tar.gz' | sort | head -1)
    [ -n "$archive" ] ||
        die "$lab_cache/builds: no build of b11434 for Debian 12 seen, one is needed: run make lab first"
    unpacked=$(mktemp -d); trap 'rm -rf "$unpacked"' EXIT
    tar -C "$unpacked" -xzf "$archive"
    export LLAMA_LAB_IMAGE LLAMA_BIN=$unpacked/bin LLAMA_MODEL=$lab_cache/files/SmolLM2-135M-Instruct.Q4_1.gguf
fi
"$venv/bin/python" -m pytest -q -W ignore::UserWarning -p no:cacheprovider -c /dev/null --rootdir tests/e2e \
    tests/e2e/gateway_clients.py "$@"
