#!/usr/bin/env bash
# ansible-test sanity and the unit tests, on the core the collection is developed on.
# shellcheck source=tests/gates/common.sh
. "$(dirname "$0")/common.sh"
interpreter=$(find_python 3.11 3.12 3.13) \
    || die "no Python 3.11, 3.12 or 3.13 found, ansible-core 2.19 needs one: install it and run this gate again"
tools=$(venv tests/gates/requirements/sanity.txt "$interpreter")
version=$("$interpreter" -c "import sys; print('%d.%d' % sys.version_info[:2])")

# ansible-test keeps its virtual environments in the home directory and would fetch pip's installer from the network: it
# gets a home in the cache that already has one, with the real home's pip configuration and interpreters.
home=$lab_cache/ansible-test
mkdir -p "$home/.config" "$home/.ansible/test/cache"
for path in .config/pip .pip .pyenv; do
    [ ! -d "$HOME/$path" ] || ln -sfn "$HOME/$path" "$home/$path"
done
# Unit tests look for these and a fresh machine lacks them; the scenarios need the models too.
lacking=()
command -v ss >/dev/null || lacking+=(iproute2)
command -v systemd-analyze >/dev/null || lacking+=(systemd)
command -v gcc >/dev/null || lacking+=(gcc libc6-dev)
if [ ${#lacking[@]} -gt 0 ] && command -v apt-get >/dev/null; then
    run "installing ${lacking[*]}" apt_install "${lacking[@]}"
fi
"$repository/tests/lab/venv.sh" requirements-dev.txt
"$repository/tests/lab/artifacts.sh"
"$repository/tests/lab/prometheus.sh"
mkdir -p "$home/.cache/llama-cluster"
ln -sfn "$lab_cache/files" "$home/.cache/llama-cluster/files"
# 24.2 is the pip of core 2.19.
cp "$repository/tests/gates/get_pip.py" "$home/.ansible/test/cache/get_pip_24_2.py"
# The real interpreter comes first: ansible-test drops the variables that pyenv's shims need.
usual_path=$PATH
export HOME=$home PATH=$tools/bin:${interpreter%/*}:$PATH
cd "$(tree)"

# One at a time: two runs would build the same virtual environments.
exec 9>"$home/lock"
flock --nonblock 9 || { say "another run of ansible-test has $home/lock, waiting for it"; flock 9; }
# sanity WORD...: with these tests of ansible-test, or these paths.
# shellcheck disable=SC2329  # gate calls it
sanity() { ansible-test sanity --local --python "$version" --color no "$@"; }
inputs=("$tools" -- galaxy.yml meta plugins)
gate "sanity: ansible-test of plugins, Python $version" sanity --test ansible-doc --test import --test pep8 \
    --test pylint --test validate-modules --test yamllint plugins/
inputs=("$tools" -- galaxy.yml meta '*.py')
gate "sanity: pylint of tests" sanity --test pylint molecule/ roles/ tests/
# Not what gate lint does of other files, with ruff and stricter settings: pep8, shellcheck and yamllint.
inputs=("$tools" -- .)
gate "sanity: ansible-test of all files" sanity --skip-test ansible-doc --skip-test import --skip-test pep8 \
    --skip-test pylint --skip-test shellcheck --skip-test validate-modules --skip-test yamllint
# Not by ansible-test, which starts a process for each test and so makes the fixtures of a module again for each of its
# tests. Three on two cores: some tests wait for downloads and servers.
# shellcheck disable=SC2329  # gate calls it
units() {
    cd "$repository"
    # Like make unit: without the settings of gates.
    env -u LLAMA_CLUSTER_CACHE -u XDG_CACHE_HOME -u NO_COLOR -u ANSIBLE_NOCOLOR -u GATES_TABLE -u MINUTES \
        PATH="$usual_path" timeout --kill-after=10 1200 .venv/bin/pytest -q -p no:cacheprovider --numprocesses 3 \
        --junitxml "$scratch/units.xml" tests/unit
}
gate "units: Python $version" units

# A test that was skipped has tested nothing: it is named, and fails if its reason can be taken away.
# shellcheck disable=SC2329  # gate calls it
skips() { "$interpreter" tests/gates/skips.py "$scratch/units.xml" | tee "$scratch/skips"; }
gate "units: skipped for known reasons only" skips
while IFS=$'\t' read -r test reason; do verdict SKIPPED "units: one test" 0 "$reason: $test"; done <"$scratch/skips"
finish
