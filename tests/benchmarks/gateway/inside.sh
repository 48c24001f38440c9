#!/usr/bin/env bash
# Runs a program of this folder in a container that has a loopback and no other network: inside.sh PROGRAM ARGUMENT...
# What it measured goes to reports/gateway of the cache.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../../lab/common.sh"

image=$("$repository/tests/benchmarks/gateway/image.sh")
collection=/opt/bench/ansible_collections/thefermisea/llama_cluster
mkdir -p "$lab_cache/reports/gateway"
version=$(git -C "$repository" describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)
rendered=$(mktemp -d)
trap 'rm -rf "$rendered"' EXIT
"$repository/.venv/bin/python" "$repository/tests/benchmarks/gateway/render.py" "$rendered"
chmod 755 "$rendered"
docker run --rm --init --network none \
    --env PYTHONPATH=/opt/bench --env PYTHONDONTWRITEBYTECODE=1 --env "BENCH_COMMIT=$version" \
    --volume "$repository:$collection:ro" --volume "$lab_cache:/cache:ro" \
    --volume "$rendered:/rendered:ro" \
    --volume "$lab_cache/reports/gateway:/reports" \
    "$image" python3 "$collection/tests/benchmarks/gateway/$1" "${@:2}"
