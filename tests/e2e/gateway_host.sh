#!/usr/bin/env bash
# make e2e WHAT=gateway_host: a gateway on a host that is no node, and a registry of endpoints on a share of all hosts:
# deployed by site.yml, asked, and removed, on a lab of its own.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
cd "$repository"

# The output of the playbooks goes to logs.
as_tests_do
export LLAMA_LAB_SLOT=${LLAMA_LAB_SLOT:-228} LLAMA_LAB_RUN=${LLAMA_LAB_RUN:-gateway-host-test}
export LLAMA_LAB_SHARE=llama-lab$LLAMA_LAB_SLOT-share
share=/cluster/shared/endpoints
logs=$lab_cache/logs

node() { local name=$1; shift; docker exec -i "llama-lab$LLAMA_LAB_SLOT-$name" "$@"; }
lab() { .venv/bin/ansible-playbook "$1.yml" -i inventories/lab -i tests/lab/gateway_host "${@:2}"; }
play() { run "gateway-host-test $1" lab "playbooks/$1" "${@:2}"; }

# ask MODEL: prints the node that answered, as the gateway names it.
ask() {
    node node4 curl -sS --max-time 30 -o /dev/null -w '%{http_code} %header{x-llama-node}\n' \
        -H @/etc/llama-cluster/gateway/curl-header -H 'Content-Type: application/json' \
        -d "{\"model\": \"$1\", \"max_tokens\": 2, \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}" \
        http://127.0.0.1:8000/v1/chat/completions
}

# eventually EXPECTED COMMAND...: within 30 s its output is this.
eventually() {
    local expected=$1 seen=; shift
    for _ in $(seq 30); do
        seen=$("$@" 2>&1) || true
        [ "$seen" != "$expected" ] || { say "$*: $seen"; return; }
        sleep 1
    done
    die "$*: '$seen' seen, '$expected' is needed"
}

files() { node node4 sh -c "ls $share | tr '\n' ' '"; }

# A server that no inventory knows, as a job of SLURM would start it; its file is written for 9 s.
start_job() {
    node node2 sh -c "/opt/llama.cpp/current/bin/llama-server -m /srv/llama-lab/SmolLM2-135M-Instruct.Q4_1.gguf \
        --alias of-a-job --host 10.213.$LLAMA_LAB_SLOT.12 --port 8105 -c 1024 -t 1 >/root/job.log 2>&1 &"
    node node2 sh -c "cat >$share/.new && chown 661:661 $share/.new && mv $share/.new $share/4711-job.json" <<END
{"version": 1, "job_id": 4711, "service": "job", "model": "of-a-job", "models": ["of-a-job"], "host": "node2",
 "port": 8105, "state": "ready", "tier": null, "slots": 1, "slot_ctx_size": 1024, "build": null, "quant": "Q4_1",
 "heartbeat": 3}
END
}

tests/lab/venv.sh
tests/lab/engine.sh
tests/lab/artifacts.sh
tests/lab/image.sh >/dev/null
trap 'tests/lab/down.sh "llama-cluster.run=$LLAMA_LAB_RUN"' EXIT
run "creating the lab's containers" lab molecule/shared/create
node node1 install -d -o 661 -g 661 -m 755 $share

play site
file=$(files)
case $file in [0-9]*-135m.json\ ) ;; *) die "$share: '$file' seen, only the file of chat is needed" ;; esac
eventually "200 node1" ask smollm2
play site
! grep -E 'changed=[1-9]' "$logs/gateway-host-test-site.log" >&2 \
    || die "a second site.yml changed something, changed=0 is needed: see above"
play site --tags gateway
play verify
play status
grep -E '^ *(gateway on node4|chat):? ' "$logs/gateway-host-test-status.log" \
    || die "status.yml does not show the gateway"

start_job
eventually "200 node2" ask of-a-job
# Its writer has ended.
eventually "404 " ask of-a-job
node node1 systemctl stop llama-head-chat
eventually "4711-job.json " files
node node1 systemctl start llama-head-chat
eventually "${file}4711-job.json " files

play teardown
for name in node1 node4; do
    left=$(node "$name" sh -c 'getent passwd | grep -o "^llama[^:]*"; ls -d /etc/llama-cluster /opt/llama-cluster \
        /etc/systemd/system/llama-* /var/lib/llama-* /run/llama-* /etc/nginx/conf.d/llama* 2>/dev/null' || true)
    [ -z "$left" ] || die "$name: teardown.yml has left $left"
done
say "gateway host test: passed"
