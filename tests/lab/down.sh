#!/usr/bin/env bash
# down.sh [LABEL]: removes every container, network and volume of the lab (or of the run with that label). The cache
# stays; see README.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
label=${1:-llama-cluster.run=by-hand}

docker info >/dev/null 2>&1 || { say "no container engine answers: there is nothing to remove"; exit 0; }
mapfile -t containers < <(docker ps -aq --filter "label=$label")
[ ${#containers[@]} = 0 ] \
    || { docker rm -f -v "${containers[@]}" >/dev/null; say "removed ${#containers[@]} containers"; }
mapfile -t networks < <(docker network ls -q --filter "label=$label")
[ ${#networks[@]} = 0 ] || { docker network rm "${networks[@]}" >/dev/null; say "removed ${#networks[@]} networks"; }
mapfile -t volumes < <(docker volume ls -q --filter "label=$label")
[ ${#volumes[@]} = 0 ] || { docker volume rm "${volumes[@]}" >/dev/null; say "removed ${#volumes[@]} volumes"; }
[ ${#containers[@]}${#networks[@]}${#volumes[@]} != 000 ] || say "nothing of $label is left"
