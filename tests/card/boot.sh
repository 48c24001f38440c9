#!/bin/sh
# boot.sh ROOT: becomes systemd in ROOT. Run as the first process of a PID namespace, with mount, UTS, IPC, network and
# control group namespaces of its own (machine.py). BINDS names a file with lines "SOURCE TARGET": what of this machine
# the node sees, the card's devices and its driver among it; LLAMA_CARD_OF names the test that it belongs to.
set -eu
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mount -t proc -o nosuid,nodev,noexec proc proc
# The machine's own settings are not the node's to change.
mount --bind proc/sys proc/sys
mount -o bind,remount,ro proc/sys
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755,nosuid tmpfs dev
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs run
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs tmp
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for name in null zero full random urandom tty kmsg; do
    if [ -e "/dev/$name" ]; then : >"dev/$name"; mount --bind "/dev/$name" "dev/$name"; fi
done
while read -r source target; do
    case $source in /dev/dri/renderD*)
        # A node of its own, with the group of the same name here: groups of this machine have other numbers.
        mkdir -p dev/dri
        mknod -m 0660 "./$target" c "0x$(stat -c %t "$source")" "0x$(stat -c %T "$source")"
        chroot . chgrp render "/$target"
        continue ;;
    esac
    if [ -d "$source" ]; then mkdir -p "./$target"; else mkdir -p "$(dirname "./$target")"; : >>"./$target"; fi
    mount --bind "$source" "./$target"
done <"$BINDS"
hostname "$(cat etc/hostname)"
mkdir -p .machine
pivot_root . .machine
# shellcheck disable=SC2016  # the shell in ROOT expands it
exec chroot . /bin/sh -c 'umount -l /.machine && rmdir /.machine && ldconfig && exec env -i container=lxc \
    "LLAMA_CARD=$LLAMA_CARD_OF" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd'
