#!/usr/bin/env bash
# slurm.sh up|down: a lab with a real SLURM, the controller `ctl` and the nodes c1, c2 and c3 with one fake card each,
# as scenario slurm has it before site.yml. LLAMA_LAB_SLOT names it; without one it is that of a scenario run manually.
#   tests/lab/slurm.sh up
#   docker exec llama-lab1-ctl runuser -u vasp -- sbatch -D /tmp -p gpu_vasp --qos=vasp_priority --gres=gpu:v100s:1 \
#       --wrap 'sleep 60'
#   LLAMA_LAB_SLOT=1 .venv/bin/ansible-playbook playbooks/site.yml -i inventories/lab/containers.yml \
#       -i molecule/slurm/inventory
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
cd "$repository"
export LLAMA_LAB_SLOT=${LLAMA_LAB_SLOT:-1}
lab=llama-lab$LLAMA_LAB_SLOT
play() { .venv/bin/ansible-playbook "$1" -i inventories/lab/containers.yml -i molecule/slurm/inventory; }

case ${1:-} in
    up)
        tests/lab/engine.sh
        tests/lab/artifacts.sh
        run "creating the containers of $lab" play molecule/shared/create.yml
        run "starting SLURM in $lab" tests/lab/slurm/start.sh "$lab"
        # The collection writes them too, from slurm_qos and slurm_associations.
        docker exec "$lab-ctl" sh -c '
            sacctmgr -i add qos ai_opportunistic Priority=100 GraceTime=30 PreemptMode=requeue
            sacctmgr -i add qos vasp_priority Priority=1000 Preempt=ai_opportunistic
            sacctmgr -i modify user ai set qos+=ai_opportunistic
            sacctmgr -i modify user vasp set qos+=vasp_priority' >/dev/null
        docker exec "$lab-ctl" sinfo ;;
    down) tests/lab/down.sh "llama-cluster.lab=$lab" ;;
    *) die "usage: slurm.sh up|down" ;;
esac
