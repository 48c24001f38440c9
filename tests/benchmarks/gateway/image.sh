#!/usr/bin/env bash
# Makes the image in which the gateway's benchmarks run, the lab's base image with HAProxy, and prints its name.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../../lab/common.sh"

base=$("$repository/tests/lab/image.sh")
image=llama-bench-gateway:${base#*:}
if ! docker image inspect "$image" >/dev/null 2>&1; then
    maker=llama-bench-gateway-make
    docker rm -f "$maker" >/dev/null 2>&1 || true # one that an interrupted run left, mostly there is none
    docker run --name "$maker" -e DEBIAN_FRONTEND=noninteractive "$base" sh -ec "
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends haproxy" >"$lab_cache/logs/bench-gateway.log" 2>&1
    docker commit "$maker" "$image" >/dev/null
    docker rm "$maker" >/dev/null
fi
echo "$image"
