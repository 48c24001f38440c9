#!/usr/bin/env bash
# prepare.sh [--cpu]: makes .card on a machine without a card: all that tests/card/run.py needs beside this checkout
# where there is one. That is the nodes' root, Ansible for their controller, a vocabulary, and llama.cpp compiled by the
# role for one compute capability. With --cpu, for a try without a card, the lab's own build is in the place of that.
# What was made from the same content before comes out of the cache, in seconds.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
cd "$repository"
cpu=${1:-}
[ -z "$cpu" ] || [ "$cpu" = --cpu ] || die "$cpu: no option of prepare.sh, --cpu or nothing is needed"
card=$repository/.card
kept=$lab_cache/card
# Size of what goes to the other machine with the checkout.
limit=$((60 << 20))
mkdir -p "$card" "$kept"

# step NAME COMMAND...: records its seconds, few for a step that had nothing to make.
steps=()
step() {
    local name=$1 start=$SECONDS; shift
    "$@"
    steps+=("$name=$((SECONDS - start))")
}

# content FILE...: twelve digits that say what is in them
content() { cat "$@" | sha256sum | cut -c1-12; }

# keep MAKER TARGET CONTENT: has MAKER make it under a name that says what from, and puts it into .card
keep() {
    local maker=$1 target=$2 made
    made=$kept/$3-$target
    "$maker" "$made"
    # Whole at any time: a test may be reading it.
    cmp -s "$made" "$card/$target" || { cp "$made" "$card/.partial" && mv "$card/.partial" "$card/$target"; }
}

model=$lab_cache/files/SmolLM2-135M-Instruct.Q4_1.gguf
vocabulary() {
    [ ! -f "$1" ] || return 0
    .venv/bin/python tests/card/vocabulary.py "$model" "$1.partial"
    mv "$1.partial" "$1"
}

build() {
    tests/lab/engine.sh
    tests/lab/image.sh >/dev/null
    archive=$(tests/card/compile.sh "$card" ${cpu:+--cpu} | tail -n 1)
}

lab() { tests/lab/venv.sh && tests/lab/artifacts.sh; }

# Two runs at once would each make all of it.
exec 8>"$kept/lock"
flock 8
step lab lab
step root keep tests/card/root.sh root.tar.xz "$(content tests/card/root.sh)"
step ansible keep tests/card/ansible.sh ansible.tar.xz "$(content tests/card/ansible.sh requirements.txt)"
step vocabulary keep vocabulary vocabulary.gguf "$(content tests/card/vocabulary.py tests/lab/artifacts.sh)"
step build build

.venv/bin/python - "$card" "$archive" "$cpu" "${steps[@]}" <<'END'
import json, pathlib, re, sys, time

folder, archive, cpu, *steps = sys.argv[1:]
folder = pathlib.Path(folder)
target = folder / "prepared.json"
before = json.loads(target.read_text()) if target.exists() else {}
files = sorted(path for path in folder.rglob("*") if path.is_file() and path != target)
build = re.sub(r"^llama\.cpp-|-x86_64-debian12\.tar\.gz$", "", archive)
prepared = {
    "seconds": {name: int(seconds) for name, _, seconds in (step.partition("=") for step in steps)},
    "bytes": {str(path.relative_to(folder)): path.stat().st_size for path in files},
    # A try without a card leaves what was prepared for one.
    "build": before.get("build", "") if cpu else build,
    "cpu_build": build if cpu else before.get("cpu_build", ""),
    "cuda": "13.0",
    "architecture": "90",
    "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
}
target.write_text(json.dumps(prepared, indent=2) + "\n")
for name, seconds in prepared["seconds"].items():
    print("%-40s %6.1f min" % (name, seconds / 60))
for name, size in prepared["bytes"].items():
    print("%-76s %6.1f MiB" % (name, size / (1 << 20)))
END

checkout=$(git ls-files -z | xargs -0 stat --printf '%s\n' 2>/dev/null | awk '{sum += $1} END {print sum + 0}' || true)
carried=$(find .card -type f -printf '%s\n' | awk '{sum += $1} END {print sum + 0}')
mib() { echo "$((($1 + (1 << 19)) >> 20)) MiB"; }
say "checkout $(mib "$checkout") and .card $(mib "$carried"), after $((SECONDS / 60)) min $((SECONDS % 60)) s"
[ $((checkout + carried)) -le $limit ] \
    || die ".card: $(mib $((checkout + carried))) with the checkout seen, $(mib $limit) or less is needed to carry them"
