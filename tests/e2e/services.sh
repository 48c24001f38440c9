#!/usr/bin/env bash
# make e2e WHAT=services: a service of every shape, deployed together by one site.yml over a lab of its own and proved,
# each killed with kill -9 and proved again. Prints what the playbooks do, the plan first, and how long each recovery
# took.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
cd "$repository"

export LLAMA_LAB_SLOT=${LLAMA_LAB_SLOT:-236} LLAMA_LAB_RUN=${LLAMA_LAB_RUN:-services-test}
inventory=(-i inventories/lab -i tests/lab/services)
reports=$lab_cache/reports/llama-lab$LLAMA_LAB_SLOT
mixture=$lab_cache/files/SmolLM2-mixture.Q4_1.gguf
whole=worker_kill_generating,worker_kill_idle,head_kill,head_kill_idle
# Service, replica, drills.
breaks=("chat - $whole" "gemma - head_kill,head_kill_idle" "experts - head_kill,head_kill_idle"
    "quick node2 head_kill,head_kill_idle" "quick node3 head_kill,head_kill_idle" "embed - head_kill_idle"
    "turns - head_kill,head_kill_idle")

# play NAME ARGUMENTS...: shows what a playbook prints, and keeps it.
play() {
    local name=$1 started=$SECONDS log; shift
    log=$lab_cache/logs/services-test-$name.log
    say "$name $*"
    .venv/bin/ansible-playbook "playbooks/$name.yml" "${inventory[@]}" "$@" 2>&1 | tee "$log" \
        || die "$name failed: its output is above and in $log"
    say "$name took $((SECONDS - started)) s"
}

write_mixture() {
    .venv/bin/python tests/lab/mixture.py "$lab_cache/files/SmolLM2-135M-Instruct.Q4_1.gguf" "$mixture.partial"
    mv "$mixture.partial" "$mixture"
}

change_nothing() {
    ANSIBLE_STDOUT_CALLBACK=default play site
    ! grep -E 'changed=[1-9]' "$lab_cache/logs/services-test-site.log" >&2 \
        || die "a second site.yml changed something, changed=0 is needed: see above"
}

tests/lab/venv.sh
tests/lab/engine.sh
tests/lab/artifacts.sh gemma
[ -f "$mixture" ] || run "writing a mixture of experts" write_mixture
tests/lab/image.sh >/dev/null
trap 'tests/lab/down.sh "llama-cluster.run=$LLAMA_LAB_RUN"' EXIT
run "creating the lab's containers" .venv/bin/ansible-playbook molecule/shared/create.yml -i inventories/lab
rm -rf "$reports"

play site
change_nothing >/dev/null
say "a second site.yml changed nothing"
play verify
for each in "${breaks[@]}"; do
    read -r service node drills <<<"$each"
    replica=(); [ "$node" = - ] || replica=(-e "node=$node")
    play drill -e "service=$service" "${replica[@]}" -e "drills=$drills"
done
play verify
play status
.venv/bin/python tests/e2e/times.py "$reports"
say "services test: all of them answer, and did after each kill -9"
