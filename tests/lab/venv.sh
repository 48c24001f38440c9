#!/usr/bin/env bash
# venv.sh [requirements-dev.txt]: makes .venv with what the lab needs (or the given file), again only when the file
# changed.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
requirements=${1:-requirements-lab.txt}
cd "$repository"

# The system's comes first: it is built with optimizations that a Python of pyenv lacks. One that can make virtual
# environments is better than one for which a package is missing.
find_python() {
    for needed in ensurepip,venv,sys sys; do
        for candidate in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
            command -v "$candidate" >/dev/null \
                && "$candidate" -c "import $needed; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))" \
                    2>/dev/null && echo "$candidate" && return
        done
    done
    die "Python 3.11 to 3.13 is needed, $(python3 --version 2>&1 || echo none) seen: install it," \
        "for example with apt-get install python3.11"
}

make_venv() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null \
        || apt_install "$("$python" -c 'import sys; print("python3.%d-venv" % sys.version_info[1])')"
    "$python" -m venv .venv
}

stamp=.venv/.$requirements.$(cat requirements*.txt | sha256sum | cut -c1-12)
if [ ! -f "$stamp" ]; then
    python=$(find_python)
    [ -x .venv/bin/python ] || run "making the virtual environment" make_venv
    # Not compiled ahead: of Ansible's thousands of modules a few are ever imported.
    run "installing $requirements" .venv/bin/python -m pip install --quiet --no-compile --requirement "$requirements"
    rm -f ".venv/.$requirements".*
    touch "$stamp"
fi
