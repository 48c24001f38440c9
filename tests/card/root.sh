#!/usr/bin/env bash
# root.sh TARGET 12|13: makes the root of the card test's nodes and of its controller, this Debian with systemd and
# everything that site.yml would install, as an archive without what neither of them opens. 13 has Mesa's drivers for
# Vulkan.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/../lab/common.sh"
target=$1 suite=bookworm

# node_setup's packages and numactl, Ansible's Python on both sides, gzip and xz for builds and models.
packages=systemd,systemd-sysv,dbus,python3,iproute2,procps,nftables,kmod,sudo,netbase,libgomp1,numactl,xz-utils
packages+=,ca-certificates,curl,iputils-ping
if [ "$2" = 13 ]; then
    suite=trixie
    packages+=,libvulkan1,mesa-vulkan-drivers
fi

# No login prompts, no timers that wake up in the middle of a test, and nothing that would set a clock or an address of
# the machine's. Debian's C.UTF-8 stays, and all of Python but what is for those who develop it.
slim() {
    cd "$1"
    chroot . systemctl mask getty.target console-getty.service apt-daily.timer apt-daily-upgrade.timer \
        dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-timesyncd.service systemd-networkd.service \
        systemd-resolved.service systemd-logind.service || true
    chroot . systemctl disable nftables.service || true
    rm -rf usr/share/doc usr/share/man usr/share/info usr/share/locale usr/share/zoneinfo usr/share/i18n \
        usr/share/bash-completion usr/share/zsh usr/share/lintian usr/share/bug usr/share/common-licenses \
        usr/share/pixmaps usr/share/icons usr/share/applications usr/share/polkit-1 usr/share/gdb \
        usr/lib/x86_64-linux-gnu/gconv usr/lib/udev/hwdb.d usr/lib/udev/hwdb.bin etc/udev/hwdb.bin \
        usr/lib/systemd/catalog var/lib/systemd/catalog usr/lib/valgrind \
        usr/lib/python3.1?/{test,idlelib,lib2to3,tkinter,turtledemo,ensurepip,pydoc_data} \
        usr/bin/perl* usr/lib/x86_64-linux-gnu/perl* usr/share/perl* usr/lib/apt usr/bin/apt* usr/share/debconf \
        var/lib/apt/lists var/cache/apt var/cache/debconf var/log/apt var/log/*.log var/lib/dpkg/*-old \
        var/cache/ldconfig
    # dpkg-query reads the status only, not the file lists and scripts of installed packages.
    find var/lib/dpkg/info -type f ! -name '*.list' -delete
    find var/lib/dpkg/info -name '*.list' -size +0 -exec truncate -s 0 {} +
    find usr -name __pycache__ -type d -prune -exec rm -rf {} +
    mkdir -p usr/share/locale usr/share/zoneinfo var/lib/apt/lists/partial var/cache/apt/archives/partial
    rm -f etc/machine-id var/lib/dbus/machine-id etc/hostname etc/resolv.conf
    : >etc/machine-id
}

make_root() (
    command -v debootstrap >/dev/null || apt_install debootstrap
    command -v xz >/dev/null || apt_install xz-utils
    scratch=$(mktemp -d); trap 'as_root rm -rf "$scratch"' EXIT
    chmod 0755 "$scratch"
    as_root debootstrap --variant=minbase --include="$packages" "$suite" "$scratch/root"
    as_root bash -euc "$(declare -f slim); slim '$scratch/root'"
    # The programs that controller and nodes need still run.
    # shellcheck disable=SC2016  # its own shell expands it
    as_root chroot "$scratch/root" sh -ec 'python3 -c "import ctypes, json, lzma, sqlite3, ssl, venv, xml.dom"
        for one in nft ip xz sudo curl systemctl; do "$one" -V || "$one" --version; done; ldconfig
        dpkg-query -W nftables iproute2 libgomp1 ca-certificates numactl'
    as_root tar -C "$scratch/root" --sort=name --numeric-owner --one-file-system -c . | xz -T0 -6 >"$target.partial"
    mv "$target.partial" "$target"
)

[ -f "$target" ] || run "making the nodes' root with debootstrap" make_root
