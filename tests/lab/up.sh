#!/usr/bin/env bash
# make lab: from a fresh clone to three nodes that answer a prompt.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
cd "$repository"
started=$SECONDS

tests/lab/venv.sh
tests/lab/engine.sh
tests/lab/artifacts.sh
tests/lab/image.sh >/dev/null

say "creating three nodes"
run "creating the lab's containers" .venv/bin/ansible-playbook molecule/shared/create.yml -i inventories/lab

say "deploying inventories/lab with playbooks/site.yml (the first build of llama.cpp takes about ten minutes)"
.venv/bin/ansible-playbook playbooks/site.yml -i inventories/lab

# What verify measured, and the curl line tried from here.
report=$lab_cache/reports/llama-lab${LLAMA_LAB_SLOT:-0}/chat.json
show() { .venv/bin/python -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$report" "$1"; }
curl_line=$(show curl)
answer=$(bash -c "$curl_line" | .venv/bin/python -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["message"]["content"].strip())')
say "the lab is up after $((SECONDS - started)) s; make lab-down removes it"
echo "endpoint: $(show endpoint)"
echo "tokens/s: $(show tokens_per_second)"
echo "$curl_line"
echo "$answer"
