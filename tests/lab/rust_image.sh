#!/usr/bin/env bash
# Makes the image of a node that judges programs, the base image with Debian's rustc and clippy, and prints its name.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

base=$("$repository/tests/lab/image.sh" | tail -n 1)
packages="rustc rust-clippy"
key=$(printf '%s %s' "$base" "$packages" | cat - "$0" | sha256sum | cut -c1-12)
image=llama-lab-rust:$key

install_rust() (
    maker=llama-lab-make-rust-$key
    docker rm -f "$maker" 2>/dev/null || true
    trap 'docker rm -f "$maker"' EXIT
    docker run --name "$maker" --stop-signal SIGRTMIN+3 -e DEBIAN_FRONTEND=noninteractive "$base" sh -ec "
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends $packages
        rm -rf /var/cache/apt/archives/*.deb /usr/share/doc /usr/share/man /var/log/apt"
    docker commit -c 'CMD [\"/lib/systemd/systemd\"]' "$maker" "$image"
)

exec 9>"$lab_cache/rust-image.lock"
flock 9
docker image inspect "$image" >/dev/null 2>&1 \
    || run "installing rustc in the base image" install_rust >&2
echo "$image"
