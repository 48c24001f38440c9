#!/usr/bin/env bash
# The card test without a card, in part: three nodes without a container engine boot, are deployed to, and give the same
# answer after a kill. make card ARGS=--cpu runs all of it.
# shellcheck source=tests/gates/common.sh
. "$(dirname "$0")/common.sh"
cd "$repository"

# shellcheck disable=SC2329  # gate calls it
nodes() {
    python3 tests/card/run.py --cpu --only boot,deploy,kills --state "$scratch/card"
}

if [ "$(id -u)" = 0 ]; then
    gate "card: what the card test carries is prepared" tests/card/prepare.sh --cpu
    gate "card: nodes in namespaces deploy, and answer after kill -9" nodes
else
    verdict SKIPPED "card: nodes in namespaces deploy" 0 "only root makes namespaces and mounts: run make test as root"
fi
finish
