#!/usr/bin/env bash
# Installs what this checkout builds for Galaxy, and nothing else, into a path of its own and prints that path, for
# ANSIBLE_COLLECTIONS_PATH:
#   cd / && ANSIBLE_COLLECTIONS_PATH=$(CHECKOUT/tests/lab/installed.sh) ansible-playbook thefermisea.llama_cluster.site
# -i CHECKOUT/inventories/lab The path's name says what is in it, so what is installed already is not installed again.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
PATH=$repository/.venv/bin:$PATH
scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
export ANSIBLE_HOME=$scratch/home

build() { cd "$scratch" && ansible-galaxy collection build "$repository" --output-path "$scratch"; }
# Forced: galaxy installs nothing if any of its configured paths has this version already.
install() { cd "$scratch" \
    && ansible-galaxy collection install "$scratch"/*.tar.gz --offline --force --collections-path \
        "$scratch/installed"; }

run "building the collection" build >&2
# The archive's own list of its files with their sha256, and its metadata: unlike the archive these hold no times.
key=$(tar -xzOf "$scratch"/*.tar.gz FILES.json MANIFEST.json | sha256sum | cut -c1-16)
installed=$lab_cache/installed/$key
mkdir -p "$lab_cache/installed"
exec 9>"$lab_cache/installed/lock"
flock 9
if [ ! -d "$installed" ]; then
    run "installing the collection" install >&2
    mv "$scratch/installed" "$installed"
fi
echo "$installed"
