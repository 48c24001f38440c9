#!/usr/bin/env bash
# Makes the image of a lab with SLURM, the lab's base image with Debian's SLURM, munge and MariaDB, and prints its name.
# Nothing of them starts by itself, and there is no key: start.sh makes one for each lab.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../common.sh"

base=$("$repository/tests/lab/image.sh" | tail -n 1)
packages="slurm-wlm slurmdbd slurm-client munge mariadb-server"
key=$(printf '%s' "$base $packages" | cat - "$0" | sha256sum | cut -c1-12)
image=llama-lab-slurm:$key

install_packages() (
    maker=llama-lab-make-slurm-$key
    docker rm -f "$maker" 2>/dev/null || true
    trap 'docker rm -f "$maker"' EXIT
    docker run --name "$maker" --stop-signal SIGRTMIN+3 -e DEBIAN_FRONTEND=noninteractive "$base" sh -ec "
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends $packages
        systemctl disable slurmctld.service slurmd.service slurmdbd.service mariadb.service munge.service
        rm -f /etc/munge/munge.key
        rm -rf /var/cache/apt/archives/*.deb /usr/share/doc /usr/share/man /var/log/apt"
    docker commit -c 'CMD ["/lib/systemd/systemd"]' "$maker" "$image"
)

exec 9>"$lab_cache/image-slurm.lock"
flock 9
docker image inspect "$image" >/dev/null 2>&1 || run "installing SLURM in the lab's image" install_packages >&2
echo "$image"
