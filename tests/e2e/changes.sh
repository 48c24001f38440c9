#!/usr/bin/env bash
# make e2e WHAT=changes: twenty clients ask a gateway for a service with two replicas while its build is upgraded
# (b7772 -> b11434) and rolled back, its model gets another quant, the one before and one that does not load, and a
# node leaves for maintenance and returns; then for one without replicas while site.yml restarts it. On a lab of its
# own; no request may fail. Ends with a table.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
cd "$repository"

old=b7772
new=b11434
# The output of the playbooks goes to logs.
as_tests_do
export LLAMA_LAB_SLOT=${LLAMA_LAB_SLOT:-232} LLAMA_LAB_RUN=${LLAMA_LAB_RUN:-changes-test}
reports=$lab_cache/reports/llama-lab$LLAMA_LAB_SLOT/changes
status=0

node() { local name=$1; shift; docker exec "llama-lab$LLAMA_LAB_SLOT-$name" "$@"; }
play() { .venv/bin/ansible-playbook "playbooks/$1.yml" -i inventories/lab -i tests/lab/changes "${@:2}"; }
fails() { ! play "$@"; }

# under_clients MODEL WORDS COMMAND...: prints its row of the table.
under_clients() {
    say "$2"
    LLAMA_KEY=$key .venv/bin/python tests/e2e/under_clients.py "http://10.213.$LLAMA_LAB_SLOT.13:8000/v1" "$1" \
        "$reports" "$2" bash -c "$(declare -f play fails); \"\$@\"" -- "${@:3}" || status=1
}

# expect BUILD QUANT: what really runs on both replicas.
expect() {
    local name line
    for name in node1 node2; do
        # shellcheck disable=SC2016
        line=$(node "$name" sh -c 'pid=$(systemctl show -P MainPID llama-head-small)
            readlink -f "/proc/$pid/exe"; tr "\0" " " <"/proc/$pid/cmdline"')
        case $line in
            */releases/"$1"-*"$2".gguf*) ;;
            *) die "$name: llama-head-small runs $line, $1 and $2 are needed" ;;
        esac
    done
    say "both replicas run $1 with $2"
}

make_quants() {
    local name model=/srv/llama-lab/SmolLM2-135M-Instruct.Q4_1.gguf
    for name in node1 node2; do
        node "$name" /opt/llama.cpp/current/bin/llama-quantize --allow-requantize $model \
            /var/tmp/SmolLM2-135M-Instruct.Q8_0.gguf Q8_0 2
        # The value of its key general.architecture.
        node "$name" sh -c "sed '0,/general.architecture/s/\(general.architecture.\{12\}\)llama/\1llamb/' $model \
            >/var/tmp/SmolLM2-135M-Instruct.Q4_X.gguf"
    done
}

tests/lab/venv.sh
tests/lab/engine.sh
tests/lab/artifacts.sh
tests/e2e/old_source.sh
tests/lab/image.sh >/dev/null
trap 'tests/lab/down.sh "llama-cluster.run=$LLAMA_LAB_RUN"' EXIT
run "creating the lab's containers" .venv/bin/ansible-playbook molecule/shared/create.yml -i inventories/lab
rm -rf "$reports"

run "deploying two services and a gateway" play site -e lab_version=$old
expect $old Q4_1
run "making other quants" make_quants
key=$(node node3 cat /etc/llama-cluster/gateway/curl-header | sed 's/.* //')

now="-e lab_version=$old"
under_clients smollm2 "upgrade.yml, $old to $new" play upgrade -e lab_version=$new
expect $new Q4_1
under_clients smollm2 "rollback.yml of it" play rollback
expect $old Q4_1
switch="switch_model $now -e service=small -e quant="
# shellcheck disable=SC2086  # words
{
    under_clients smollm2 "switch_model.yml, Q4_1 to Q8_0" play ${switch}Q8_0
    expect $old Q8_0
    under_clients smollm2 "switch_model.yml, Q8_0 to Q4_1" play ${switch}Q4_1
    expect $old Q4_1
    under_clients smollm2 "switch_model.yml to a model that does not load" fails ${switch}Q4_X
    expect $old Q4_1
    under_clients smollm2 "maintenance.yml of a replica's node" play maintenance $now -e node=node2
    under_clients smollm2 "maintenance.yml, its return" play maintenance $now -e node=node2 -e state=return
    expect $old Q4_1
    under_clients smollm2 "site.yml with less context" play site $now -e '{"lab_slot_ctx_size": 1024}'
    under_clients lone "site.yml with more context, a service without replicas" play site $now
}
.venv/bin/python tests/e2e/under_clients.py --table "$reports"
[ "$status" = 0 ] || die "requests failed, or playbooks did: see the rows above"
say "changes test: no request failed"
