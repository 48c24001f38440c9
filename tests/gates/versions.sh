#!/usr/bin/env bash
# The oldest and the newest ansible-core: every module called on a node's Python, every playbook and inventory read. An
# older one is refused.
# shellcheck source=tests/gates/common.sh
. "$(dirname "$0")/common.sh"

# The collections that playbooks name besides our own come with the `ansible` package, whose core is another one.
dev=$(dev_venv)
others=$("$dev/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir "$scratch/others" "$scratch/others/ansible_collections"
ln -s "$others/ansible_collections/ansible" "$others/ansible_collections/community" \
    "$scratch/others/ansible_collections/"
export ANSIBLE_COLLECTIONS_PATH=$scratch/tree:$scratch/others ANSIBLE_HOME=$scratch/home \
    ANSIBLE_REMOTE_TMP=$scratch/remote ANSIBLE_ASYNC_DIR=$scratch/async
export ANSIBLE_LOCALHOST_WARNING=false ANSIBLE_INVENTORY_UNPARSED_WARNING=false
export SMOKE_DIR SMOKE_PYTHON
cd "$(tree)"

read=(ansible.cfg galaxy.yml inventories meta playbooks plugins roles)

# shellcheck disable=SC2329  # gate calls it
smoke() {
    SMOKE_DIR=$(mktemp -d "$scratch/smoke.XXXX")
    PYTHONPATH=tests/unit "$core/bin/python" -c 'import gguf_files, sys; sys.stdout.buffer.write(gguf_files.model())' \
        >"$SMOKE_DIR/source.gguf"
    "$core/bin/ansible-playbook" -i localhost, -e "ansible_python_interpreter=$target" tests/gates/smoke.yml
}

# shellcheck disable=SC2329  # gate calls it
inventories() {
    for inventory in inventories/*/; do
        "$core/bin/ansible-playbook" -i "$inventory" tests/gates/intent.yml
    done
    # The text of a playbook is the same for all of them.
    "$core/bin/ansible-playbook" -i inventories/example --syntax-check playbooks/[!_]*.yml
}

# core_on VERSION TARGETS: every module on the first Python found of these.
core_on() {
    local python targets
    read -ra targets <<<"$2"
    if ! python=$(controller "$1"); then
        verdict SKIPPED "versions: core $1" 0 \
            "no CPython found that it may have on the controller: install 3.11 and 3.13"
        return
    fi
    core=$(venv "tests/gates/requirements/core-$1.txt" "$python")
    if target=$(find_python "${targets[@]}"); then
        SMOKE_PYTHON=$("$target" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        gate "versions: core $1 calls every module on CPython $SMOKE_PYTHON" smoke
    else
        verdict SKIPPED "versions: core $1 calls every module" 0 \
            "no CPython ${2// /, } found for the node: install one, on PATH or with pyenv"
    fi
    inputs=("$core" "$dev" -- "${read[@]}" tests/gates/intent.yml)
    gate "versions: core $1 reads every inventory and playbook" inventories
}

# shellcheck disable=SC2329  # gate calls it
refused() {
    for playbook in playbooks/[!_]*.yml; do
        "$core/bin/ansible-playbook" -i inventories/beefcake2 "$playbook" >"$scratch/refused" && status=0 || status=$?
        cat "$scratch/refused"
        # The sentence, and that nothing was changed.
        if [ "$status" != 2 ] || [ "$(wc -l <"$scratch/refused")" != 2 ] \
            || ! grep -q '^ansible-core: 2.17.* seen, 2.18 or newer' "$scratch/refused"; then
            echo "$playbook: not refused by its first task"
            return 1
        fi
    done
}

if python=$(controller 2.17); then
    core=$(venv tests/gates/requirements/core-2.17.txt "$python")
    inputs=("$core" "$dev" -- "${read[@]}")
    gate "versions: core 2.17 is refused in one sentence" refused
else
    verdict SKIPPED "versions: core 2.17 is refused in one sentence" 0 \
        "no CPython 3.11, 3.12 or 3.10 found for the controller: install one"
fi

core_on 2.18 "3.9"
core_on 2.21 "3.13 3.12 3.14"
finish
