#!/usr/bin/env bash
# Every gate, also after one has failed, and a table of their seconds.
set -uo pipefail
cd "$(dirname "$0")" || exit
GATES_TABLE=$(mktemp)
export GATES_TABLE
trap 'rm -f "$GATES_TABLE"' EXIT
trap 'exit 130' INT TERM
failed=0

chain() {
    local gate bad=0
    for gate in "$@"; do ./"$gate.sh" || bad=1; done
    return $bad
}

# Two chains side by side: a gate keeps one core busy, unit tests two. In process groups of their own, which an
# interrupted run ends.
set -m
chain lint packaging versions card tasks & first=$!
chain inventories sanity & second=$!
set +m
trap 'kill -- "-$first" "-$second" 2>/dev/null; wait; rm -f "$GATES_TABLE"' EXIT
wait "$first" || failed=1
wait "$second" || failed=1
echo
echo "Gates, $SECONDS s in all:"
cat "$GATES_TABLE"
[ -z "${MINUTES:-}" ] || ./minutes.sh "$GATES_TABLE" "$SECONDS" >>"$MINUTES"
./skipped.sh "$GATES_TABLE" || failed=1
exit $failed
