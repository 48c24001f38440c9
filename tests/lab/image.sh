#!/usr/bin/env bash
# image.sh [13]: makes the lab's base image (Debian 12 with systemd as PID 1) and prints its name; with 13 that of
# Debian 13, which has all that builds for Vulkan need, and Mesa's software device.
# Pulled where an image registry answers, made with debootstrap where none does; both then get the same packages.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

debian=${1:-12}
case $debian in
    12) suite=bookworm python=python3.11 more="" ;;
    13) suite=trixie python=python3.13
        more="libvulkan-dev glslc spirv-headers libvulkan1 mesa-vulkan-drivers vulkan-tools" ;;
    *) die "image.sh: $debian is no release of the lab, 12 or 13 is needed" ;;
esac
packages="systemd systemd-sysv dbus python3 python3-apt sudo iproute2 iputils-ping procps curl"
packages+=" ca-certificates nftables netbase"
# Build tools, nginx, firewalld, sshd and numactl are in the image so that tests spend their time on what they test, not
# on apt; ccache, so that a scenario that compiles does not compile what another one did.
packages="$packages cmake ninja-build make g++ nginx-light firewalld openssh-server openssh-client numactl ccache $more"
key=$(printf '%s' "$packages" | cat - "$0" "$repository/tests/lab/sitecustomize.py" | sha256sum | cut -c1-12)
image=llama-lab:$key base=llama-lab-base:$debian

pull_base() { timeout 120 docker pull -q "debian:$debian" && docker tag "debian:$debian" "$base"; }

bootstrap_base() {
    command -v debootstrap >/dev/null || apt_install debootstrap
    rm_root=$(mktemp -d); trap 'as_root rm -rf "$rm_root"' EXIT
    as_root debootstrap --variant=minbase "$suite" "$rm_root"
    as_root tar -C "$rm_root" -c . | docker import - "$base"
}

install_packages() (
    maker=llama-lab-make-$key
    docker rm -f "$maker" 2>/dev/null || true
    trap 'docker rm -f "$maker"' EXIT
    docker run --name "$maker" --stop-signal SIGRTMIN+3 -e DEBIAN_FRONTEND=noninteractive "$base" sh -ec "
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends $packages
        systemctl disable nginx.service nftables.service firewalld.service ssh.service
        # No login prompts, no timers that wake up in the middle of a test.
        systemctl mask getty.target console-getty.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer \
            fstrim.timer
        rm -rf /var/cache/apt/archives/*.deb /usr/share/doc /usr/share/man /var/log/apt"
    docker cp "$repository/tests/lab/sitecustomize.py" "$maker:/etc/$python/sitecustomize.py"
    docker commit -c 'CMD ["/lib/systemd/systemd"]' "$maker" "$image"
)

exec 9>"$lab_cache/image.lock"
flock 9
if ! docker image inspect "$image" >/dev/null 2>&1; then
    if ! docker image inspect "$base" >/dev/null 2>&1; then
        say "pulling debian:$debian" >&2
        pull_base >"$lab_cache/logs/pull.log" 2>&1 \
            || run "no image registry answers: making Debian $debian with debootstrap" bootstrap_base >&2
    fi
    run "installing the lab's packages in the base image of Debian $debian" install_packages >&2
fi
echo "$image"
