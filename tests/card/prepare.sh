#!/usr/bin/env bash
# prepare.sh [--cpu|--vulkan]: makes .card on a machine without a card: all that tests/card/run.py needs beside this
# checkout where there is one. That is the nodes' root, Ansible for their controller, a vocabulary, and llama.cpp
# compiled by the role for one compute capability. With --cpu, for a try without a card, the lab's own build is in the
# place of that. With --vulkan it makes .card/vulkan, for cards of AMD and Intel, with nodes of Debian 13. What was made
# from the same content before comes out of the cache, in seconds.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
cd "$repository"
kind=${1:-} card=$repository/.card debian=12 python=3.11
case $kind in
    "" | --cpu) ;;
    --vulkan) card=$card/vulkan debian=13 python=3.13 ;;
    *) die "$kind: no option of prepare.sh, --cpu, --vulkan or nothing is needed" ;;
esac
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

# keep MAKER TARGET CONTENT [WORD]: has MAKER make it under a name that says what from, and puts it into .card
keep() {
    local maker=$1 target=$2 made=$kept/$3-$2
    shift 3
    "$maker" "$made" "$@"
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
    tests/lab/image.sh $debian >/dev/null
    archive=$(tests/card/compile.sh "$card" ${kind:+"$kind"} | tail -n 1)
}

lab() { tests/lab/venv.sh && tests/lab/artifacts.sh; }

# Two runs at once would each make all of it.
exec 8>"$kept/lock"
flock 8
step lab lab
root=$(content tests/card/root.sh)-$debian ansible=$(content tests/card/ansible.sh requirements.txt)-$python
step root keep tests/card/root.sh root.tar.xz "$root" $debian
step ansible keep tests/card/ansible.sh ansible.tar.xz "$ansible" $python
step vocabulary keep vocabulary vocabulary.gguf "$(content tests/card/vocabulary.py tests/lab/artifacts.sh)"
step build build

.venv/bin/python - "$card" "$archive" "$kind" "${steps[@]}" <<'END'
import json, pathlib, re, subprocess, sys, time

folder, archive, kind, *steps = sys.argv[1:]
folder = pathlib.Path(folder)
target = folder / "prepared.json"
before = json.loads(target.read_text()) if target.exists() else {}
names = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path != target)
build = re.sub(r"^llama\.cpp-|-x86_64-debian1[23]\.tar\.gz$", "", archive)
prepared = {
    "seconds": {name: int(seconds) for name, _, seconds in (step.partition("=") for step in steps)},
    "bytes": {str(name): (folder / name).stat().st_size for name in names if name.parts[0] != "vulkan"},
    # A try without a card leaves what was prepared for one.
    "build": before.get("build", "") if kind == "--cpu" else build,
    "cpu_build": build if kind == "--cpu" else before.get("cpu_build", ""),
    "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
}
if kind == "--vulkan":
    words = ["tar", "-xOf", str(folder / "root.tar.xz"), "./var/lib/dpkg/status"]
    status = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    (own,) = [one for one in status.split("\n\n") if one.startswith("Package: mesa-vulkan-drivers\n")]
    prepared["mesa"] = re.search(r"^Version: ([0-9.]+)", own, re.MULTILINE)[1]
else:
    prepared.update(cuda="13.0", architecture="90")
target.write_text(json.dumps(prepared, indent=2) + "\n")
for name, seconds in prepared["seconds"].items():
    print("%-40s %6.1f min" % (name, seconds / 60))
for name, size in prepared["bytes"].items():
    print("%-76s %6.1f MiB" % (name, size / (1 << 20)))
END

checkout=$(git ls-files -z | xargs -0 stat --printf '%s\n' 2>/dev/null | awk '{sum += $1} END {print sum + 0}' || true)
carried=$(find "$card" -mindepth 1 -path "$repository/.card/vulkan" -prune -o -type f -printf '%s\n' \
    | awk '{sum += $1} END {print sum + 0}')
mib() { echo "$((($1 + (1 << 19)) >> 20)) MiB"; }
say "checkout $(mib "$checkout") and ${card#"$repository"/} $(mib "$carried")," \
    "after $((SECONDS / 60)) min $((SECONDS % 60)) s"
[ "$kind" = --vulkan ] || [ $((checkout + carried)) -le $limit ] \
    || die ".card: $(mib $((checkout + carried))) with the checkout seen, $(mib $limit) or less is needed to carry them"
