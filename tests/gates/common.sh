# Shared by the gates: their environments, a copy of the tree at the path Ansible wants, one line per gate.
# shellcheck shell=bash
# shellcheck source=tests/lab/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lab/common.sh"

# Logs are read in editors.
export NO_COLOR=1 ANSIBLE_NOCOLOR=1
scratch=$(mktemp -d)
running=
failed=0
# A gate runs in a process group of its own, so that Ctrl-C leaves nothing behind.
stop() { [ -z "$running" ] || kill -- "-$running" 2>/dev/null || true; rm -rf "$scratch"; }
trap stop EXIT
trap 'exit 130' INT TERM

# Two clones on one machine keep their logs apart.
logs=$lab_cache/logs/gates-$(printf %s "$repository" | sha256sum | cut -c1-8)
mkdir -p "$logs"

# For a gate that only reads files: what decides its verdict, as words and virtual environments, --, pathspecs of git.
# Within a week of a pass with the same inputs the next gate passes without running, unless FULL is set.
inputs=()
passed=$lab_cache/passed

# digest WORD... -- PATHSPEC...: of these words, of what is installed in virtual environments among them, of the gate
# itself, and of the names, modes and contents of the files that git has or does not ignore.
digest() {
    {
        cat "$repository/tests/gates/common.sh" "$repository/tests/gates/${0##*/}" || return
        while [ "$1" != -- ]; do
            echo "$1"
            [ ! -e "$1/bin/python" ] || ls "$1"/lib/python*/site-packages
            shift
        done
        git -C "$repository" ls-files -co --exclude-standard -z "$@" | sort -zu \
            | tar -C "$repository" --null --no-recursion --dereference --ignore-failed-read -T - --mtime=@0 \
                --owner=0 --group=0 --numeric-owner -cf -
    } 2>/dev/null | sha256sum | cut -c1-64
}

# gate NAME COMMAND...: one line with verdict and seconds; the end of its log when it failed. The next gate runs all the
# same.
gate() {
    local name=$1 log start=$SECONDS status=0 known=("${inputs[@]}") before=''; shift
    inputs=()
    [ ${#known[@]} = 0 ] || before=$(digest "$name" "${known[@]}") || before=''
    if [ -n "$before" ] && [ -z "${FULL:-}" ] && [ -n "$(find "$passed/$before" -mtime -7 2>/dev/null)" ]; then
        verdict PASS "$name" 0 "inputs unchanged since $(date -r "$passed/$before" '+%F %H:%M')"
        return
    fi
    log=$logs/$(printf %s "$name" | tr -cs 'A-Za-z0-9.' -).log
    set -m
    ("$@") >"$log" 2>&1 </dev/null & running=$!
    set +m
    wait "$running" || status=$?
    running=
    if [ $status = 0 ]; then
        verdict PASS "$name" $((SECONDS - start))
        # Not where a file changed while it ran.
        if [ -n "$before" ] && [ "$before" = "$(digest "$name" "${known[@]}")" ]; then
            mkdir -p "$passed"
            touch "$passed/$before"
            find "$passed" -type f -mtime +30 -delete
        fi
    else
        failed=1
        [ -z "$before" ] || rm -f "$passed/$before"
        verdict FAIL "$name" $((SECONDS - start))
        tail -n 40 "$log"
        echo "The whole log: $log"
    fi
}

finish() { exit $failed; }

# verdict PASS|FAIL|SKIPPED NAME SECONDS [REASON]; all.sh collects these lines.
verdict() {
    local line; line=$(printf '%-7s  %-58s %4s s  %s' "$@")
    echo "$line"
    [ -z "${GATES_TABLE:-}" ] || echo "$line" >>"$GATES_TABLE"
}

# find_python VERSION...: the first of these CPythons on this machine: on PATH, from pyenv or uv.
find_python() {
    local version found tell
    # A pyenv shim is on PATH whether or not its version is selected: only running it tells, and where it really is. The
    # system's comes first, which is built with optimizations, if it can make virtual environments.
    tell="import ensurepip, os, sys; sys.argv[1] == '%d.%d' % sys.version_info[:2] or sys.exit(1)
print(os.path.realpath(sys.executable))"
    for version in "$@"; do
        for found in "/usr/bin/python$version" "$(type -P "python$version" || true)" \
            "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python3 \
            "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}/cpython-$version".*/bin/python3; do
            [ -x "$found" ] && "$found" -c "$tell" "$version" 2>/dev/null && return
        done
    done
    return 1
}

# venv REQUIREMENTS PYTHON: a virtual environment with these requirements, kept under a name that says what it was made
# from.
venv() {
    local name=$1 python=$2 path start=$SECONDS files
    files=("$repository/$name")
    while read -r included; do files+=("$(dirname "$repository/$name")/$included"); done \
        < <(sed -n 's/^-r //p' "$repository/$name")
    path=$lab_cache/venvs/$( (echo "$python"; "$python" -VV; cat "${files[@]}") | sha256sum | cut -c1-16)
    mkdir -p "$lab_cache/venvs"
    exec 8>"$path.lock"
    flock 8
    if [ ! -f "$path/complete" ]; then
        rm -rf "$path"
        { "$python" -m venv "$path" \
            && "$path/bin/python" -m pip install --quiet --no-compile -r "$repository/$name"; } >"$logs/venv.log" 2>&1 \
            || { tail -n 15 "$logs/venv.log" >&2; die "$name cannot be installed with $python: see $logs/venv.log"; }
        touch "$path/complete"
        say "installed $name with $("$python" -V) in $((SECONDS - start)) s" >&2
    fi
    exec 8>&-
    echo "$path"
}

# The environment of a contributor: what requirements-dev.txt names.
dev_venv() {
    local found
    found=$(find_python 3.11 3.12 3.13) \
        || die "no Python 3.11, 3.12 or 3.13 found, ansible-core 2.19 needs one: install python3 and its venv module"
    venv requirements-dev.txt "$found"
}

# controller VERSION: the first Python found that this ansible-core may have on the controller.
controller() {
    case $1 in
        2.17) find_python 3.11 3.12 3.10 ;;
        2.18) find_python 3.11 3.12 3.13 ;;
        2.21) find_python 3.13 3.12 3.14 ;;
        *) die "ansible-core: $1 seen, 2.17, 2.18 or 2.21 is needed" ;;
    esac
}

# tree: the path of a copy of the checkout without what git ignores, in a directory named
# ansible_collections/thefermisea/llama_cluster.
tree() {
    local path=$scratch/tree/ansible_collections/thefermisea/llama_cluster
    if [ ! -d "$path" ]; then
        mkdir -p "$path"
        git -C "$repository" ls-files -co --exclude-standard -z -- . ':!.collections' \
            | tar -C "$repository" --null -T - --ignore-failed-read -cf - | tar -C "$path" -xf -
    fi
    echo "$path"
}
