#!/usr/bin/env bash
# break.sh break|undo ACTION: runs on the node that a drill breaks, as root. "break" prints the node's time of the break
# as its last line.
# From the environment: UNIT, what is broken; PEERS, fabric addresses of the other nodes, comma-separated; PORT of the
# unit; MODEL of the head;
# HOLD, seconds after which a cut connection comes back by itself; AT, when to break it, for breaks on
# several nodes at once.
# shellcheck disable=SC2153
set -euo pipefail
state=/run/llama-drill
# In /run: a reboot undoes it too.
dropin=/run/systemd/system/$UNIT.d/90-llama-drill.conf

die() { echo "$UNIT: $*" >&2; exit 1; }
stamp() { date +%s.%6N; }
property() { systemctl show --property "$1" --value "$UNIT"; }
main_pid() {
    local pid; pid=$(property MainPID)
    [ "$pid" -gt 0 ] \
        || die "it has no process to break, a running one is needed: start it and wait until its service answers"
    echo "$pid"
}
signal_main() { local pid; pid=$(main_pid); stamp; kill "-$1" "$pid"; }
override() { mkdir -p "${dropin%/*}"; cat >"$dropin"; systemctl daemon-reload; }
no_override() {
    [ -e "$dropin" ] || return 0
    rm -f "$dropin"; rmdir --ignore-fail-on-non-empty "${dropin%/*}"
    systemctl daemon-reload
    systemctl --no-block restart "$UNIT"
}

cut_off() {
    systemd-run --quiet --collect --unit=llama-drill-undo --on-active="$HOLD" --timer-property=AccuracySec=1s \
        nft delete table inet llama_drill
    stamp
    drop_peers
}
reconnect() {
    nft delete table inet llama_drill 2>/dev/null || true
    systemctl stop llama-drill-undo.timer 2>/dev/null || true
}

# Directories the unit needs room in, hidden behind a file system that has none.
full_directories() { [ -n "${FULL:-}" ] && echo "$FULL" | tr , '\n'; }
fill() {
    local directory
    full_directories | while read -r directory; do
        [ -d "$directory" ] || continue
        mount -t tmpfs -o size=4k,nr_inodes=1,mode=1777 llama-drill "$directory"
    done
    signal_main KILL
}
# Only root mounts a tmpfs; others could give a mount of their own this name.
empty() { while umount -l "$(findmnt -rno TARGET -t tmpfs -S llama-drill | head -n 1)" 2>/dev/null; do :; done; }

# The head's own view of the model is a copy of its first MiB; the file itself is not touched.
damage() {
    mkdir -p "$state"; chmod 0755 "$state"; rm -f "$state/damaged.gguf"
    # The directory of models may belong to another user, with a link to a file of root: it is not followed, and only
    # the head may read the copy.
    if ! [ -f "$MODEL" ] \
        || ! (umask 077; dd if="$MODEL" of="$state/damaged.gguf" bs=1M count=1 iflag=nofollow,fullblock status=none)
    then
        die "its model $MODEL is a link or cannot be read, a regular file is needed: look at who made it"
    fi
    chown "$(property User):" "$state/damaged.gguf"
    override <<<"[Service]
BindReadOnlyPaths=$state/damaged.gguf:$MODEL"
    signal_main KILL
}

take_port() {
    local pid python; pid=$(main_pid)
    python=$(command -v python3 || echo /usr/libexec/platform-python)
    mkdir -p "$state"; rm -f "$state/stamp"
    # Kills the server and has its port before systemd starts it again.
    systemd-run --quiet --collect --unit=llama-drill-port "$python" -c "
import os, signal, socket, time
taker = socket.socket()
taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
broken = time.time()
os.kill($pid, signal.SIGKILL)
while True:
    try:
        taker.bind(('$ADDRESS', $PORT))
        break
    except OSError:
        time.sleep(0.005)
taker.listen(1)
with open('$state/stamp.new', 'w') as stream:
    stream.write('%.6f' % broken)
os.rename('$state/stamp.new', '$state/stamp')
time.sleep($HOLD)"
    for _ in $(seq 50); do [ -e "$state/stamp" ] && break; sleep 0.1; done
    cat "$state/stamp" || die "its port could not be taken in 5 s, port $PORT"
}

other_server() {
    local own server
    own=$(property ExecStart | grep -o '/releases/[^/ ]*' | head -n 1)
    # The oldest: two releases that are close speak the same protocol, and look the same over the network.
    server=$(find -H "${RELEASES:?}" -path '*/bin/*rpc-server' ! -path "*$own/*" | sort -V | head -n 1)
    [ -z "$server" ] || { echo "$server"; return; }
    die "$RELEASES holds no other build with an RPC server, a second one is needed: drill this right after an upgrade"
}
wrong_build() {
    local server line; server=$(other_server)
    line=$(sed -n 's/^ExecStart=//p' "$(property FragmentPath)" | sed -E "s#[^ ]+/bin/(ggml-)?rpc-server#$server#")
    override <<<"[Service]
ExecStart=
ExecStart=$line"
    signal_main KILL
}

limit_memory() {
    local kib; kib=$(sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$(main_pid)/status")
    override <<<"[Service]
MemoryMax=$((kib / 2))K
MemorySwapMax=0"
    signal_main KILL
}

lose_firewall() {
    local table
    stamp
    nft list tables inet | sed -n 's/^table inet \(llama_cluster[a-z_]*\)$/\1/p' \
        | while read -r table; do nft delete table inet "$table"; done
}

stop_main() { mkdir -p "$state"; main_pid >"$state/stopped"; signal_main STOP; }
continue_main() { [ ! -e "$state/stopped" ] || kill -CONT "$(cat "$state/stopped")" 2>/dev/null || true; }

if [ -n "${AT:-}" ]; then
    pause=$(awk -v at="$AT" -v now="$(stamp)" 'BEGIN { print (at > now && at < now + 30) ? at - now : 0 }')
    sleep "$pause"
fi
case $1/$2 in
    break/kill) signal_main KILL ;;
    break/stop) stop_main ;;
    undo/stop) continue_main ;;
    break/cut_off) cut_off ;;
    break/gone) cut_off; main_pid | xargs kill -KILL ;;
    undo/cut_off | undo/gone) reconnect ;;
    break/full) fill ;;
    undo/full) empty ;;
    break/damage) damage ;;
    break/wrong_build) wrong_build ;;
    break/limit_memory) limit_memory ;;
    undo/damage | undo/wrong_build | undo/limit_memory) no_override ;;
    break/take_port) take_port ;;
    undo/take_port) systemctl stop llama-drill-port.service 2>/dev/null || true ;;
    break/lose_firewall) lose_firewall ;;
    undo/lose_firewall) systemctl try-reload-or-restart llama-firewall.service ;;
    undo/kill) ;;
    *) die "no action $1/$2" ;;
esac
if [ "$1" = undo ]; then rm -rf "$state"; stamp; fi
