#!/usr/bin/env bash
# The artifact as Galaxy and an operator see it: built, checked by Galaxy's importer, installed into an empty path,
# documented, callable.
# shellcheck source=tests/gates/common.sh
. "$(dirname "$0")/common.sh"
dev=$(dev_venv)
importer=$(venv tests/gates/requirements/packaging.txt "$(find_python 3.11 3.12 3.13)")
source=$(tree)
PATH=$dev/bin:$PATH
export ANSIBLE_HOME=$scratch/home ANSIBLE_LOCALHOST_WARNING=false

shipped=(CHANGELOG.md LICENSE README.md SECURITY.md requirements.txt changelogs docs inventories meta playbooks plugins
    roles)

# From the checkout as it is, with .git, .venv and .collections in it. Whatever git has of the directories that are
# shipped is in the archive, and nothing else is.
# shellcheck disable=SC2329  # gate calls it
build() {
    "$importer/bin/ansible-galaxy" collection build "$repository" --output-path "$scratch/artifact"
    tar -tzf "$scratch"/artifact/*.tar.gz | grep -vxF -e MANIFEST.json -e FILES.json | grep -v '/$' \
        | sort >"$scratch/built"
    cd "$repository"
    git ls-files -co --exclude-standard "${shipped[@]}" \
        | grep -v '^inventories/lab/' | while read -r path; do [ ! -L "$path" ] && [ ! -e "$path" ] \
            || echo "$path"; done | sort >"$scratch/tracked"
    diff "$scratch/tracked" "$scratch/built" \
        || { echo "galaxy.yml: the archive (>) is not what git has (<): correct build_ignore"; return 1; }
}

# A module, filter or connection of another collection needs a dependency on it, and no other is declared.
# shellcheck disable=SC2329  # gate calls it
dependencies() {
    cd "$repository"
    # shellcheck disable=SC2046  # paths without spaces
    grep -hoE '\b(ansible\.(posix|netcommon|utils|windows)|community\.[a-z_]+)\.[a-z_]+' \
        $(grep -E '^(inventories|playbooks|roles)/.*\.(yml|j2)$' "$scratch/tracked") \
        | cut -d. -f1,2 | sort -u >"$scratch/used" || true
    sed -n '/^dependencies:/,/^[a-z_]*:/s/^  \([a-z_.]*\):.*/\1/p' galaxy.yml | sort -u | diff "$scratch/used" - || {
        echo "galaxy.yml: dependencies (>) are not the collections that shipped files name (<): correct them there" \
            "and in README.md"; return 1; }
}

# Without the importer's ansible-lint: the lint gate runs a stricter one.
# shellcheck disable=SC2329  # gate calls it
import() {
    mkdir "$scratch/import"
    cd "$scratch/import"
    PATH=$importer/bin:$PATH GALAXY_IMPORTER_RUN_ANSIBLE_LINT=false python \
        -m galaxy_importer.main "$scratch"/artifact/*.tar.gz 2>&1 | tee log
    ! grep -E '^(WARNING|ERROR)' log
}

# Nothing but the artifact; not run from the checkout.
# shellcheck disable=SC2329  # gate calls it
install() {
    cd "$scratch"
    ansible-galaxy collection install "$scratch"/artifact/*.tar.gz --offline --collections-path "$scratch/installed"
    export ANSIBLE_COLLECTIONS_PATH=$scratch/installed
    local playbooks
    mapfile -t playbooks < <(basename -as .yml "$source"/playbooks/[!_]*.yml)
    ansible-playbook -i "$source/inventories/lab" --syntax-check "${playbooks[@]/#/thefermisea.llama_cluster.}"
}

# shellcheck disable=SC2329  # gate calls it
document() {
    export ANSIBLE_COLLECTIONS_PATH=$scratch/installed
    cd "$scratch/installed/ansible_collections/thefermisea/llama_cluster"
    documentation module plugins/modules/[!_]*.py
    documentation filter plugins/filter/*.yml
    documentation callback plugins/callback/*.py
    documentation role roles/*
}

# documentation TYPE FILE...: what ansible-doc says of the plugins or roles with these files' names; nothing to say of
# one is a failure.
# shellcheck disable=SC2329  # document calls it
documentation() {
    local type=$1 names; shift
    mapfile -t names < <(basename -a "$@" | sed -E 's/\.(py|yml)$//; s/^/thefermisea.llama_cluster./')
    ansible-doc -t "$type" "${names[@]}" | tee "$scratch/documentation"
    for name in "${names[@]}"; do
        grep -qwF "$name" "$scratch/documentation" \
            || { echo "ansible-doc -t $type has nothing to say about $name"; return 1; }
    done
}

gate "packaging: ansible-galaxy collection build" build
[ $failed = 0 ] || finish
gate "packaging: dependencies are what shipped files use" dependencies
# The archive has nothing else.
inputs=("$importer" -- "${shipped[@]}" galaxy.yml)
gate "packaging: galaxy-importer" import
gate "packaging: install into an empty path" install
gate "packaging: ansible-doc of every plugin and role" document
finish
