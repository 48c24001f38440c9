#!/usr/bin/env bash
# Every gate, also after one has failed, and the table of what they took.
set -uo pipefail
cd "$(dirname "$0")" || exit
GATES_TABLE=$(mktemp)
export GATES_TABLE
trap 'rm -f "$GATES_TABLE"' EXIT
trap 'exit 130' INT TERM
failed=0
for gate in lint sanity lanes packaging; do
    ./$gate.sh || failed=1
done
echo
echo "Gates, $SECONDS s in all:"
cat "$GATES_TABLE"
exit $failed
