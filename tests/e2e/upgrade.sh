#!/usr/bin/env bash
# make e2e WHAT=upgrade: a real upgrade over nine months of llama.cpp, b7772 -> b11434, and back, on a lab of its own.
# The first run compiles b7772 (about ten minutes); the built tree stays in the cache.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
cd "$repository"

old=b7772
new=b11434

# The output of the playbooks goes to logs.
as_tests_do
export LLAMA_LAB_SLOT=${LLAMA_LAB_SLOT:-240} LLAMA_LAB_RUN=${LLAMA_LAB_RUN:-upgrade-test}

options=("$@")

play() {
    local name=$1 started=$SECONDS; shift
    say "$name $*"
    .venv/bin/ansible-playbook "playbooks/$name.yml" -i inventories/lab "$@" \
        "${options[@]}" >"$lab_cache/logs/upgrade-test-$name.log" 2>&1 \
        || { tail -n 40 "$lab_cache/logs/upgrade-test-$name.log" >&2
             die "$name failed: the whole log is $lab_cache/logs/upgrade-test-$name.log"; }
    grep -E '^(chat|rollback|endpoint|tokens/s|the inventory|what was)' "$lab_cache/logs/upgrade-test-$name.log" || true
    say "$name took $((SECONDS - started)) s"
}

# The builds of the running processes, on all nodes.
expect() {
    local node unit program
    for node in node1:head node2:rpc node3:rpc; do
        unit=llama-${node#*:}-chat
        # shellcheck disable=SC2016
        program=$(docker exec "llama-lab$LLAMA_LAB_SLOT-${node%:*}" sh \
            -c 'readlink -f "/proc/$(systemctl show -p MainPID --value "$1")/exe"' sh "$unit")
        case $program in */releases/"$1"-*) ;; *) die "${node%:*}: $unit runs $program, a program of $1 is needed" ;;
        esac
    done
    say "all nodes run $1"
}

tests/lab/venv.sh
tests/lab/engine.sh
tests/lab/artifacts.sh
tests/e2e/old_source.sh
tests/lab/image.sh >/dev/null
trap 'tests/lab/down.sh "llama-cluster.run=$LLAMA_LAB_RUN"' EXIT
run "creating the lab's containers" .venv/bin/ansible-playbook molecule/shared/create.yml -i inventories/lab

play site -e lab_version=$old
expect $old
play upgrade -e lab_version=$new
expect $new
play rollback
expect $old
play verify -e lab_version=$old
say "upgrade test: $old -> $new -> $old passed"
