#!/bin/bash
# down.sh [LABEL]: removes every container and network of the lab (or of the run with that label). The cache stays; see README.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
label=${1:-llama-cluster.run=by-hand}

docker info >/dev/null 2>&1 || { say "no container engine answers: there is nothing to remove"; exit 0; }
containers=$(docker ps -aq --filter "label=$label")
[ -z "$containers" ] || { docker rm -f -v $containers >/dev/null; say "removed $(echo "$containers" | wc -l) containers"; }
networks=$(docker network ls -q --filter "label=$label")
[ -z "$networks" ] || { docker network rm $networks >/dev/null; say "removed $(echo "$networks" | wc -l) networks"; }
[ -n "$containers$networks" ] || say "no container or network of $label is left"
