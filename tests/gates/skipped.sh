#!/usr/bin/env bash
# skipped.sh [TABLE]: says what this machine could not test: of a table of the gates, which is kept, or of the last one.
# What was not tested has not passed: it fails, unless SKIPS=accepted says that it may.
# shellcheck source=tests/gates/common.sh
. "$(dirname "$0")/common.sh"
[ -z "${1:-}" ] || cp "$1" "$logs/table"
if grep '^SKIPPED' "$logs/table" >"$scratch/skipped"; then
    echo
    echo "Not tested on this machine:"
    cat "$scratch/skipped"
    [ "${SKIPS:-}" = accepted ] \
        || die "$(wc -l <"$scratch/skipped") not tested, every test is needed: install what is named above," \
            "or accept it with SKIPS=accepted"
fi
