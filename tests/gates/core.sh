#!/usr/bin/env bash
# core.sh VERSION: where the programs of this ansible-core are, installed where they are missing; nothing on a machine
# without a Python for it.
# shellcheck source=tests/gates/common.sh
. "$(dirname "$0")/common.sh"
if python=$(controller "$1"); then echo "$(venv "tests/gates/requirements/core-$1.txt" "$python")/bin"; fi
