#!/usr/bin/env bash
# make soak-slurm ARGS="cycles=20 events=100 seed=7": a lab with a real SLURM, deployed by site.yml, under constant
# requests: jobs that preempt each service in turn, then random events (scancel, kill -9 of a step, of the keeper, of
# slurmd and slurmctld, a node without power, a share that hangs). Ends with a table of each, and with 1 if a bound was
# missed.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
cd "$repository"

# The output of the playbooks goes to logs.
as_tests_do
export LLAMA_LAB_SLOT=${LLAMA_LAB_SLOT:-224} LLAMA_LAB_RUN=${LLAMA_LAB_RUN:-slurm-test}
lab=llama-lab$LLAMA_LAB_SLOT

play() { .venv/bin/ansible-playbook "$1" -i inventories/lab/containers.yml -i molecule/slurm/inventory; }

tests/lab/venv.sh requirements-dev.txt
tests/lab/engine.sh
tests/lab/artifacts.sh
trap 'tests/lab/down.sh "llama-cluster.run=$LLAMA_LAB_RUN"' EXIT
run "creating the containers of $lab" play molecule/shared/create.yml
run "starting SLURM in $lab" tests/lab/slurm/start.sh "$lab"
run "deploying both services as jobs" play playbooks/site.yml
.venv/bin/python tests/e2e/slurm_soak.py "$LLAMA_LAB_SLOT" "$@"
