#!/usr/bin/env bash
# deployed.sh SLOT: makes sure that there are images of a lab's nodes as site.yml leaves them, and prints their name;
# node1's is NAME-node1.
# The name says what deployed them, and the slot, because a deployed node has the lab's addresses in its units and
# rules.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
slot=$1
cd "$repository"
# Its output is a log.
as_tests_do
export LLAMA_LAB_SLOT=$slot

content() {
    tests/lab/image.sh | tail -n 1
    # Tracked and new files as they are in the checkout.
    git ls-files -co --exclude-standard -z -- plugins roles playbooks inventories/lab molecule/shared tests/lab \
        ansible.cfg requirements.txt requirements-lab.txt | sort -zu \
        | tar --null -T - --ignore-failed-read --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - 2>/dev/null
}
nodes=(node1 node2 node3)
name=llama-lab-deployed:$(content | sha256sum | cut -c1-12)-slot$slot

deploy() (
    trap 'ansible-playbook molecule/shared/destroy.yml -i inventories/lab' EXIT
    ansible-playbook molecule/shared/create.yml -i inventories/lab
    # Scenarios verify it.
    ansible-playbook playbooks/site.yml -i inventories/lab --skip-tags verify
    # The run's lock goes after the run, and its shell must not meet the shutdown: a stopped nsenter keeps a container.
    for node in "${nodes[@]}"; do
        timeout 30 docker exec "llama-lab$slot-$node" \
            sh -c 'while [ -e /run/llama-cluster/run.lock ]; do sleep 0.2; done'
    done
    sleep 1
    # Shut down as a machine is, so that a container of the image boots as one does.
    docker stop "${nodes[@]/#/llama-lab$slot-}"
    for node in "${nodes[@]}"; do docker commit "llama-lab$slot-$node" "$name-$node"; done
    # Images of earlier contents go; one that a container still uses stays until the next time.
    docker image ls --format '{{.Repository}}:{{.Tag}}' llama-lab-deployed | grep -- "-slot$slot-" | grep -vF "$name" \
        | xargs -rn1 docker image rm || true
)

if ! docker image inspect "${nodes[@]/#/$name-}" >/dev/null 2>&1; then
    run "deploying the lab of slot $slot, to be kept as images" deploy >&2
fi
echo "$name"
