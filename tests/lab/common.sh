# Shared by the lab's scripts: where things are cached, how to speak, how to become root.
# shellcheck shell=bash
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

# shellcheck disable=SC2034  # used by the scripts that source this
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# Everything slow to make lives here, outside the checkout, under names that say what it was made from.
lab_cache=${LLAMA_CLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llama-cluster}
export LLAMA_CLUSTER_CACHE=$lab_cache
mkdir -p "$lab_cache/logs"

say() { printf '[%s] %s\n' "$(date +%T)" "$*"; }
die() { printf 'lab: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo -E "$@"
    else die "root is needed to run '$1' and sudo is not installed: run make as root or install sudo"
    fi
}

# run LABEL COMMAND...: a silent command with its own log; says how long it took, shows the log's end when it fails.
run() {
    local label=$1 log start=$SECONDS pid status=0; shift
    log=$lab_cache/logs/$(printf %s "$label" | tr -cs 'A-Za-z0-9.' -).log
    say "$label ..."
    "$@" >"$log" 2>&1 </dev/null & pid=$!
    while kill -0 $pid 2>/dev/null; do
        for _ in $(seq 20); do sleep 1; kill -0 $pid 2>/dev/null || break; done
        kill -0 $pid 2>/dev/null && say "$label ... $((SECONDS - start)) s"
    done
    wait $pid || status=$?
    if [ $status != 0 ]; then
        tail -n 15 "$log" >&2
        die "$label failed with status $status after $((SECONDS - start)) s: the whole log is $log"
    fi
    say "$label: done in $((SECONDS - start)) s"
}

apt_install() {
    command -v apt-get >/dev/null \
        || die "apt-get not found: the lab prepares Debian or Ubuntu only; install $* yourself and run make again"
    as_root apt-get update -qq
    as_root apt-get install -y -qq --no-install-recommends "$@"
}

# One line each for tasks, which logs and tests read, and the callbacks that make a run of a lab cheap.
as_tests_do() {
    export ANSIBLE_CONFIG=$repository/ansible.cfg ANSIBLE_STDOUT_CALLBACK=default PATH=$repository/.venv/bin:$PATH \
        ANSIBLE_CALLBACKS_ENABLED=thefermisea.llama_cluster.warm,compiled_once,entered,one_process \
        ANSIBLE_CALLBACK_PLUGINS=$repository/tests/lab/callback
}
