#!/usr/bin/env bash
# run.sh WHAT [ARGUMENT...]: one benchmark, with its needs. The arguments are passed to its program.
#   acquisition  fetching beside wget, aria2c and get_url: half an hour, both programs and 12 GB of disk
#   card         what RPC costs on one card: PROGRAMS MODEL [--rounds 1]; PROGRAMS is the directory of a build for it
#   gateway      what the gateway costs and what is lost when something dies: six minutes, [overhead] [loss]
#   memory       the memory formulas beside llama-fit-params: BUILD=DIR..., half an hour; real loads with --model FILE
#   plans        the memory plans of the reference inventories, the tables of docs/plan.md
#   recovery     the table of docs/benchmarks.md: half an hour
#   runs         what a site.yml that changes nothing costs, with three nodes and with ten: ten minutes
#   soak         random kill -9 of the lab's workers and heads: half an hour, [--cycles 100] [--seed 7]
#   speed        llama_bench beside a server that writes down what it does: a minute
#   tuning       what tune.yml's races choose and cost, on recorded and planted grids: a minute
#   wire         verify.yml of the good deployment and of sabotaged ones: half an hour, [--good 20]
set -euo pipefail
cd "$(dirname "$0")/../.."
what=$1; shift
here=tests/benchmarks
tests/lab/venv.sh requirements-dev.txt
python() { .venv/bin/python "$@"; }

case $what in
    acquisition) python $here/acquisition/run.py "$@" ;;
    card | runs)
        [ "$what" = card ] || { tests/lab/engine.sh; tests/lab/artifacts.sh; }
        python "$here/$what/run.py" "$@" ;;
    gateway)
        [ $# -gt 0 ] || set -- overhead loss
        for part in "$@"; do $here/gateway/inside.sh "$part.py"; done ;;
    memory)
        builds=() models=()
        while [ $# -gt 0 ]; do
            if [ "$1" = --model ]; then models+=("$1" "$2"); shift; else builds+=("$1"); fi
            shift
        done
        for program in run experts; do python $here/memory/$program.py "${builds[@]}"; done
        [ ${#models[@]} = 0 ] || python $here/memory/loads.py "${builds[@]}" "${models[@]}" ;;
    plans) python $here/plan_tables.py ;;
    recovery) tests/lab/up.sh; python $here/recovery/table.py ;;
    soak) tests/lab/up.sh; python $here/recovery/soak.py "$@" ;;
    speed) python $here/speed/calibration.py ;;
    tuning) python $here/tuning/regret.py "$@" ;;
    wire) tests/lab/up.sh; python $here/wire/run.py "$@" ;;
    *) sed -n '2,/^set/{s/^# \?//p}' "$0" >&2; exit 2 ;;
esac
