#!/usr/bin/env bash
# skipped.sh [TABLE]: says what this machine could not test: of a table of the gates, which is kept, or of the last one.
# shellcheck source=tests/gates/common.sh
. "$(dirname "$0")/common.sh"
[ -z "${1:-}" ] || cp "$1" "$logs/table"
if grep '^SKIPPED' "$logs/table" >"$scratch/skipped"; then
    echo
    echo "Not tested on this machine:"
    cat "$scratch/skipped"
fi
