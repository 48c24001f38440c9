#!/usr/bin/env bash
# Makes a container engine answer: uses the one that runs, starts an installed one, installs Debian's where there is
# none.
# Never stops or restarts an engine and never starts a second one.
# shellcheck source=tests/lab/common.sh
. "$(dirname "$0")/common.sh"

install_engine() { apt_install docker.io iptables; }

# Two runs that start at once must not start two engines.
exec 9>"$lab_cache/engine.lock"
flock 9

if ! docker info >/dev/null 2>&1; then
    docker_error=$(docker info 2>&1 || true)
    case $docker_error in
        *"permission denied"*) die \
            "the container engine refuses user $(id -un): add the user to group docker, or run make as root" ;;
    esac
    command -v dockerd >/dev/null || run "installing the container engine" install_engine
    if [ -d /run/systemd/system ]; then
        as_root systemctl start docker
    elif ! pgrep -x dockerd >/dev/null; then
        say "starting the container engine (systemd is not running here)"
        as_root setsid dockerd >"$lab_cache/logs/dockerd.log" 2>&1 </dev/null 9>&- &
    fi
    for _ in $(seq 60); do docker info >/dev/null 2>&1 && break; sleep 1; done
    docker info >/dev/null 2>&1 \
        || die \
            "the container engine does not answer after 60 s: see $lab_cache/logs/dockerd.log or journalctl -u docker"
fi

# Every systemd in a container needs a few inotify instances; 128 (the kernel's default) is enough for about ten
# containers.
if [ "$(cat /proc/sys/fs/inotify/max_user_instances)" -lt 1024 ]; then
    as_root sysctl -qw fs.inotify.max_user_instances=1024
fi
