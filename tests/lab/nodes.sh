#!/usr/bin/env bash
# nodes.sh LAB ETHERNET FABRIC NODE=IMAGE=ADDRESS=FABRIC_ADDRESS...: makes a lab's networks and containers, where they
# are missing or made from another image, and waits until systemd is up in each. ETHERNET and FABRIC are subnets.
# LLAMA_LAB_SHARE, a volume or a directory, is /cluster/shared in all of them.
# By the engine's own command: modules, one for each of them, took three times as much of the controller's CPU.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
lab=$1 ethernet=$2 fabric=$3; shift 3
labels=(--label "llama-cluster.lab=$lab" --label "llama-cluster.run=${LLAMA_LAB_RUN:-by-hand}")

network() {
    docker network inspect "$1" >/dev/null 2>&1 || docker network create "${labels[@]}" --subnet "$2" "$1"
}

node() {
    local name image address fabric_address made
    IFS="=" read -r name image address fabric_address <<<"$1"
    made=$(docker container inspect --format '{{.Config.Image}}' "$lab-$name" 2>/dev/null || true)
    if [ "$made" != "$image" ]; then
        [ -z "$made" ] || docker rm --force --volumes "$lab-$name"
        # Abilities of a real machine's root: mounts, firewall, locked memory, and the environment of other users'
        # processes. Compiled objects by the content of their sources; every compiling user may add to them.
        docker create "${labels[@]}" --name "$lab-$name" --hostname "$name" --pull never \
            --network "$lab-ethernet" --ip "$address" --network-alias "$name" \
            --cap-add SYS_ADMIN --cap-add NET_ADMIN --cap-add IPC_LOCK --cap-add SYS_PTRACE \
            --security-opt seccomp=unconfined --security-opt apparmor=unconfined --cgroupns host \
            --tmpfs /run --tmpfs /run/lock --tmpfs /tmp \
            --volume /sys/fs/cgroup:/sys/fs/cgroup:rw \
            --volume "$lab_cache/files:/srv/llama-lab:ro" \
            --volume "$lab_cache/ccache:/var/cache/ccache" \
            --volume "$lab_cache/ansible-code:/var/cache/ansible-code" \
            --volume "$repository/tests/lab/modules:/var/cache/ansible-modules:ro" \
            ${LLAMA_LAB_SHARE:+--volume "$LLAMA_LAB_SHARE:/cluster/shared"} \
            --env CCACHE_DIR=/var/cache/ccache --env CCACHE_BASEDIR=/var/cache/private --env CCACHE_NOHASHDIR=1 \
            --env CCACHE_UMASK=000 --env CCACHE_MAXSIZE=2G \
            "$image" /lib/systemd/systemd
        docker network connect --ip "$fabric_address" "$lab-fabric" "$lab-$name"
    fi
    docker start "$lab-$name"
}

booted() {
    local state=
    for _ in $(seq 20); do
        state=$(docker exec "$lab-$1" systemctl is-system-running --wait || true)
        case $state in running | degraded) return ;; esac
        sleep 1
    done
    die "$lab-$1: systemd is '$state', running or degraded is needed: docker exec $lab-$1 systemctl list-jobs"
}

case ${LLAMA_LAB_SHARE:-} in
    "" | /*) ;;
    *) docker volume create "${labels[@]}" "$LLAMA_LAB_SHARE" ;;
esac
network "$lab-ethernet" "$ethernet"
network "$lab-fabric" "$fabric"
making=()
for one in "$@"; do node "$one" & making+=($!); done
for one in "${making[@]}"; do wait "$one"; done
for one in "$@"; do booted "${one%%=*}"; done
