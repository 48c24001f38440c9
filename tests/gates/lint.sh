#!/usr/bin/env bash
# What is read without running it: roles and playbooks, YAML, Python and its types, shell, changelog fragments.
# shellcheck source=tests/gates/common.sh
. "$(dirname "$0")/common.sh"
cd "$repository"
dev=$(dev_venv)
shellcheck=$(venv tests/gates/requirements/sanity.txt "$(find_python 3.11 3.12 3.13)")/bin/shellcheck
PATH=$dev/bin:$PATH

# shellcheck disable=SC2329  # gate calls it
shell_scripts() {
    {
        git grep -lIE --untracked '^#!/(usr/)?bin/(env )?(ba|da)?sh' -- ':!*.j2' ':!*.md' ':!*.py' ':!*.yml' \
            ':!tests/golden/expected'
        git ls-files -co --exclude-standard '*.sh'
    } | sort -u | xargs "$shellcheck" --external-sources
}

# ansible-lint starts ansible-playbook --syntax-check for each of 94 playbooks and roles, a second of a core each. It is
# given one that writes down what is to be checked, and one process checks it all.
# shellcheck disable=SC2329  # gate calls it
ansible_lint() {
    mkdir "$scratch/asked" "$scratch/roles"
    cat >"$scratch/asked/ansible-playbook" <<END
#!/bin/bash
playbook=\${@: -1}
# Made for a role, and removed.
[[ \$playbook != */play????????.yml ]] || { cp "\$playbook" $scratch/roles; playbook=$scratch/roles/\${playbook##*/}; }
realpath "\$playbook" >>$scratch/playbooks
END
    chmod +x "$scratch/asked/ansible-playbook"
    PATH=$scratch/asked:$PATH ansible-lint --offline --strict --format pep8 "$@"
    sort -u "$scratch/playbooks" | xargs ansible-playbook --syntax-check
}

# All but what .ansible-lint excludes.
inputs=("$dev" -- ':!*.md' ':!*.sh' ':!tests/*.py' ':!molecule/*.py' ':!roles/acceptance/files/tasks')
gate "lint: ansible-lint, profile production" ansible_lint
gate "lint: yamllint" yamllint --strict .
gate "lint: ruff check" ruff check --no-cache .
gate "lint: ruff format" ruff format --no-cache --check .
gate "lint: mypy of node code" mypy --python-version 3.10 plugins/module_utils
gate "lint: mypy of controller code" mypy --python-version 3.11 plugins/plugin_utils
gate "lint: shellcheck" shell_scripts
gate "lint: changelog fragments" antsibull-changelog lint
finish
