#!/usr/bin/env bash
# run.sh [--seed N] [--count N] [--least PERCENT] [FILE...]: mutants of FILEs; of all that unit tests are for,
# otherwise.
# shellcheck source=tests/gates/common.sh
. "$(dirname "$0")/../gates/common.sh"
dev=$(dev_venv)
tool=$(venv tests/mutants/requirements.txt "$(find_python 3.11 3.12 3.13)")

# Tests that become another user go through it.
chmod 711 "$scratch"
# A mutant may remove, kill or write anything. The machine is read-only for it but for $scratch, a /run of its own and a
# /tmp that forgets.
# shellcheck disable=SC2016  # the inner shell's
as_root unshare --mount bash -c '
    set -e
    mount -t tmpfs tmpfs /run
    mkdir /run/scratch /run/upper /run/work
    mount --bind "$1" /run/scratch
    mount -t overlay overlay -o lowerdir=/tmp,upperdir=/run/upper,workdir=/run/work /tmp
    mount --bind /run/scratch "$1"
    while read -r _ path _; do
        case $path in "$1" | /tmp* | /run* | /proc* | /dev* | /sys*) continue ;; esac
        mount -o remount,bind,ro "$path" 2>/dev/null || [ ! -w "$path" ]
    done </proc/self/mounts
    shift
    exec "$@"' _ "$scratch" "$tool/bin/python" "$repository/tests/mutants/mutants.py" --python "$dev/bin/python" \
        --scratch "$scratch" "$@"
