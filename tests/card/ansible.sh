#!/usr/bin/env bash
# ansible.sh TARGET PYTHON: packs Ansible for the card test's controller, whose Python is 3.11 on Debian 12 and 3.13 on
# Debian 13, without a network: site/ with the ansible-core that requirements.txt stands for, what it imports, and pygal
# as there.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
target=$1 version=$2

pack() (
    command -v xz >/dev/null || apt_install xz-utils
    scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
    python=$repository/.venv/bin/python
    core=$("$python" -c 'import importlib.metadata; print(importlib.metadata.version("ansible-core"))')
    pygal=$(sed -En 's/^(pygal==[^ #]+).*/\1/p' "$repository/requirements.txt")
    wheels=(-m pip install --quiet --no-compile --target "$scratch/site" --only-binary=:all: --python-version "$version"
        --platform manylinux2014_x86_64 --implementation cp)
    # Without cryptography, which is large: ansible-playbook needs it only for vaults.
    "$python" "${wheels[@]}" jinja2 PyYAML packaging "resolvelib>=0.8,<2" "$pygal"
    "$python" "${wheels[@]}" --no-deps "ansible-core==$core"
    cd "$scratch/site"
    rm -rf ansible_test ansible/galaxy/data ansible/_internal/_ansiballz/_builtin_tests
    find . -depth \( -name __pycache__ -o -name tests -path './[!a]*' \) -type d -exec rm -rf {} +
    # As the controller runs them: nothing of this machine's own packages.
    export PYTHONPATH=$scratch/site PYTHONDONTWRITEBYTECODE=1 HOME=$scratch
    "$python" -S -m ansible playbook --version
    "$python" -S -c "import pygal, yaml, jinja2"
    tar -C "$scratch" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -c site | xz -T0 -6 >"$target.partial"
    mv "$target.partial" "$target"
)

[ -f "$target" ] || run "packing Ansible for the controller" pack
