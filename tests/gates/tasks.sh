#!/usr/bin/env bash
# The tasks of evaluate.yml can be solved and can be failed: every reference passes its judge, every mutant does not.
# shellcheck source=tests/gates/common.sh
. "$(dirname "$0")/common.sh"
cd "$repository"
if ! command -v rustc >/dev/null && command -v apt-get >/dev/null; then
    run "installing rustc" apt_install rustc
fi
python=$(find_python 3.11 3.12 3.13)
inputs=("$("${RUSTC:-rustc}" -vV; cc --version; "$python" -VV)" -- roles/acceptance/files/tasks tests/gates/tasks.py
    plugins/module_utils)
gate "tasks: references pass, mutants fail" "$python" tests/gates/tasks.py
finish
