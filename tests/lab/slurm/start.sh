#!/usr/bin/env bash
# start.sh LAB: starts SLURM in a lab's containers ctl, c1, c2 and c3, with a munge key of this lab, accounting, and the
# users ai and vasp, whose associations have no QoS but `normal`. Ends when the three nodes are idle.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../common.sh"
lab=$1
files=$(mktemp -d); trap 'rm -rf "$files"' EXIT
cp -r "$(dirname "$0")/etc" "$files"
mkdir "$files/etc/munge"
head -c 1024 /dev/urandom >"$files/etc/munge/munge.key"

# inside NODE SCRIPT: as root of a container; SCRIPT reads this shell's standard input.
inside() { docker exec -i "$lab-$1" sh -ec "$2"; }

configure() {
    # shellcheck disable=SC2016  # the shell in the container expands it
    tar -C "$files" -c etc | inside "$1" '
        tar -C / -x --no-same-owner
        chown -R munge: /etc/munge
        chmod 0400 /etc/munge/munge.key
        [ "$(hostname)" = ctl ] || rm /etc/slurm/slurmdbd.conf
        systemd-tmpfiles --create /etc/tmpfiles.d/fakegpu.conf
        # Equal numbers on all machines, which a share knows users by.
        id ai >/dev/null 2>&1 || useradd --create-home --uid 2000 --shell /bin/bash ai
        id vasp >/dev/null 2>&1 || useradd --create-home --uid 2001 --shell /bin/bash vasp
        systemctl enable --quiet munge
        systemctl restart munge'
}

# As the operators of SLURM do it: the collection does none of it.
control() {
    # shellcheck disable=SC2016  # the shell in the container expands it
    inside ctl '
        install -d -m 0755 /cluster/shared/scripts /cluster/shared/ai
        install -d -o ai -g ai -m 0755 /cluster/shared/ai/endpoints /cluster/shared/ai/logs
        chown slurm: /etc/slurm/slurmdbd.conf
        chmod 0600 /etc/slurm/slurmdbd.conf
        systemctl enable --quiet --now mariadb
        mysql -e "create database if not exists slurm_acct_db;
            create user if not exists slurm@localhost identified by \"only-for-tests\";
            grant all on slurm_acct_db.* to slurm@localhost"
        systemctl enable --quiet --now slurmdbd
        for _ in $(seq 100); do ! sacctmgr -n show cluster >/dev/null 2>&1 || break; sleep 0.2; done
        if [ -z "$(sacctmgr -n show cluster)" ]; then
            sacctmgr -i add cluster lab
            sacctmgr -i add account lab
            sacctmgr -i add user ai,vasp account=lab
        fi
        systemctl enable --quiet --now slurmctld'
}

for name in ctl c1 c2 c3; do configure $name & done
for job in $(jobs -p); do wait "$job"; done
control
for name in c1 c2 c3; do inside $name 'systemctl enable --quiet --now slurmd' & done
for job in $(jobs -p); do wait "$job"; done
for _ in $(seq 150); do
    idle=$(inside ctl 'sinfo -h -o %D -t idle -p gpu_ai' || true)
    [ "$idle" != 3 ] || exit 0
    sleep 0.2
done
inside ctl 'sinfo -N -l; tail -n 5 /var/log/slurm/slurmctld.log' >&2
die "$lab: ${idle:-0} idle nodes seen, 3 are needed: see above"
