#!/usr/bin/env bash
# minutes.sh TABLE SECONDS: the lines of the gates for the table of .ci/run, from the table of the gates and what they
# took in all.
set -euo pipefail
printf 'gates\t%d\n' "$2"
# PASS  lint: ansible-lint, profile production  96 s
awk '$1 != "SKIPPED" {
    part = $2; sub(":", "", part)
    if (!(part in seconds)) names[++count] = part
    match($0, / [0-9]+ s  /)
    seconds[part] += substr($0, RSTART, RLENGTH)
} END { for (i = 1; i <= count; i++) printf "  %s\t%d\n", names[i], seconds[names[i]] }' "$1"
