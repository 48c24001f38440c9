#!/usr/bin/env bash
# The inventories that operators read and copy: site.yml knows all of their hosts, and their own plan refuses nothing
# but what their reader has to do first: keys of the example. No node and no hub is
# asked: the `header` and the sizes in their models.yml say what a plan needs.
# shellcheck source=tests/gates/common.sh
. "$(dirname "$0")/common.sh"
PATH=$(dev_venv)/bin:$PATH
cd "$repository"
export ANSIBLE_CONFIG=$repository/ansible.cfg
# A plan costs a third less, and is the same.
export ANSIBLE_CALLBACK_PLUGINS=$repository/tests/lab/callback ANSIBLE_CALLBACKS_ENABLED=compiled_once,one_process

# shellcheck disable=SC2329  # gate calls it
listed_and_planned() {
    ansible-playbook playbooks/site.yml -i "$1" --list-tasks
    # Nothing listens there.
    local said; said=$(ansible-playbook playbooks/plan.yml -i "$1" -e model_hub=http://127.0.0.1:9 2>&1) && return
    echo "$said"
    # After the plan, and nothing else.
    ! sed -n '/^gateway: \|^no gateway, /,$p' <<<"$said" | sed 1d |
        grep -v "^  \|^note: \|^stopped: \|: put-a-key-of-your-own-here seen" || return 1
    grep -q "^stopped: [0-9]* mistake" <<<"$said"
}

for inventory in example two-sparks strix-halo beefcake2 beefcake2-hybrid beefcake2-slurm beefcake2-april; do
    gate "inventories: $inventory is listed and planned" listed_and_planned "inventories/$inventory"
done
finish
