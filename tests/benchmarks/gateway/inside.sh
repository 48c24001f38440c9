#!/usr/bin/env bash
# Runs a program of this folder in a container that has a loopback and no other network: inside.sh PROGRAM ARGUMENT...
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../../lab/common.sh"

image=$("$repository/tests/lab/image.sh")
collection=/opt/bench/ansible_collections/thefermisea/llama_cluster
rendered=$(mktemp -d)
trap 'rm -rf "$rendered"' EXIT
"$repository/.venv/bin/python" "$repository/tests/benchmarks/gateway/render.py" "$rendered"
chmod 755 "$rendered"
docker run --rm --init --network none \
    --env PYTHONPATH=/opt/bench --env PYTHONDONTWRITEBYTECODE=1 \
    --volume "$repository:$collection:ro" \
    --volume "$rendered:/rendered:ro" \
    "$image" python3 "$collection/tests/benchmarks/gateway/$1" "${@:2}"
