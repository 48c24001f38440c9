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

# The output of verify is not repeated; its curl line is run from here.
report=$lab_cache/reports/llama-lab${LLAMA_LAB_SLOT:-0}/chat.json
show() { .venv/bin/python -c "import json, sys; report = json.load(open(sys.argv[1])); print($1)" "$report"; }
bash -c "$(show 'report["curl"]')" \
    | .venv/bin/python -c 'import json, sys; json.load(sys.stdin)["choices"][0]["message"]["content"]'
say "the lab is up after $((SECONDS - started)) s, and the curl line above works from here"
workers=$(show '", ".join(worker["node"] for worker in report["workers"])')
cat <<END
+-- endpoint    $(show 'report["endpoint"]'), $(show 'report["tokens_per_second"]') tokens/s
|   model       $(show '"%s %s" % (report["model"], report["quant"])'), split over $workers
|   look at it  .venv/bin/ansible-playbook playbooks/status.yml -i inventories/lab
|   break it    .venv/bin/ansible-playbook playbooks/drill.yml -i inventories/lab
|   your nodes  cp -r inventories/example inventories/mine, then README.md, "Deploy"
+-- remove it   make lab-down
END
