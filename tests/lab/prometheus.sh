#!/usr/bin/env bash
# prometheus.sh: puts prometheus and promtool into the cache. Those of this machine are taken; otherwise they come out
# of Debian's packages, and nothing is installed.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"
programs=$lab_cache/files/prometheus

unpack() (
    scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
    cd "$scratch"
    # trixie has promtool in a package of its own.
    packages=(prometheus)
    [ -z "$(apt-cache search --names-only '^promtool$')" ] || packages+=(promtool)
    apt-get download "${packages[@]}" || { as_root apt-get update -qq; apt-get download "${packages[@]}"; }
    for package in ./*.deb; do dpkg -x "$package" unpacked; done
    mkdir -p "$programs"
    mv unpacked/usr/bin/prometheus unpacked/usr/bin/promtool "$programs"
)

exec 9>"$lab_cache/prometheus.lock"
flock 9
[ ! -x "$programs/promtool" ] || exit 0
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
    mkdir -p "$programs"
    ln -sf "$(command -v prometheus)" "$(command -v promtool)" "$programs"
else
    command -v apt-get >/dev/null \
        || die "prometheus and promtool not found: the lab takes them from Debian or Ubuntu, install them and run again"
    run "fetching prometheus and promtool" unpack
fi
