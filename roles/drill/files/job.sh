#!/usr/bin/env bash
# job.sh look|break|seen|undo ACTION: runs as root on a node of a service's job, or on the host that submits. "look"
# prints the job's QoS, jobs of others on its nodes, and whether slurmctld runs here; "break" prints the host's time of
# the break; "seen" succeeds once the break had its effect.
# From the environment: JOB, SERVICE, JOB_USER; PORT of the server; NODES of the job, comma-separated; PREEMPTOR,
# ACCOUNT and QOS of the job that preempts it; PEERS, fabric addresses of other nodes; HOLD, seconds after which this
# host undoes a break by itself.
# shellcheck disable=SC2153
set -euo pipefail
state=/run/llama-drill
# Not in sudo's secure_path of RHEL.
jobs=/usr/local/bin/llama-jobs
# Less memory than any server needs.
little=50M

die() { echo "$SERVICE: $*" >&2; exit 1; }
stamp() { date +%s.%6N; }
# Also if the playbook has died.
later() {
    systemd-run --quiet --collect --unit=llama-drill-undo --on-active="$HOLD" --timer-property=AccuracySec=1s "$@"
}
no_later() { systemctl stop llama-drill-undo.timer 2>/dev/null || true; }
# Fails where SLURM does not respond.
others() {
    local rows
    rows=$(squeue --noheader --nodelist="$NODES" --states=R,CG,S --format='%A of %u') || return
    sed "/^$JOB of /d; /^\$/d" <<<"$rows"
}

no_others() {
    local other
    other=$(others)
    other=${other%%$'\n'*}
    [ -z "$other" ] || die "job $other on its nodes, which could be hit too: wait for its end"
}

# Its number comes from a file that the jobs' user may write.
own() {
    squeue --noheader --user="$JOB_USER" --jobs="$JOB" --format='%A %k' \
        | grep -xE "$JOB llama_cluster:$SERVICE:[0-9a-f]{16}" >/dev/null \
        || die "$JOB is no job of $JOB_USER for it, one is needed: look at llama-jobs list"
}

look() {
    scontrol --oneliner show job "$JOB" | tr ' ' '\n' | sed -n 's/^QOS=/qos /p'
    others | sed 's/^/other /'
    ! systemctl --quiet is-active slurmctld.service || echo slurmctld
}

kill_server() {
    local pid
    pid=$(ss -Hltnp "sport = :$PORT" | sed -n 's/.*[(,]pid=\([0-9]*\).*/\1/p' | head -n 1)
    [ -n "$pid" ] && [ "$(stat -c %U "/proc/$pid")" = "$JOB_USER" ] \
        || die "no server of $JOB_USER on port $PORT, a running one is needed: look at llama-jobs list"
    stamp
    kill -KILL "$pid"
}

# Its nodes, all of them and for nothing else, and not longer than HOLD.
preempt() {
    local partition found job
    no_others
    for partition in $(sinfo --noheader --nodes="$NODES" --format=%R | sort -u); do
        set -- runuser -u "$PREEMPTOR" -- sbatch --parsable --chdir=/ --output=/dev/null --job-name=llama-drill \
            --partition="$partition" --qos="$QOS" --account="$ACCOUNT" --nodelist="$NODES" \
            --nodes="$(awk -F, '{ print NF }' <<<"$NODES")" --exclusive --no-requeue --export=NIL \
            --time="$((HOLD / 60 + 1))" --wrap "sleep $HOLD"
        found=$("$@" --test-only 2>&1) || continue
        stamp
        job=$("$@")
        mkdir -p "$state"; echo "${job%%;*}" >"$state/job"
        return
    done
    die "no partition of its nodes takes a job of $PREEMPTOR (${found:-none seen}): leave job_preempt out of -e drills="
}

# Whether a user's job waits, runs or ends.
queued() {
    local found
    found=$(squeue --noheader --user="$1" --format=%A) || die "SLURM does not respond, the state of job $2 is needed"
    grep -qx "$2" <<<"$found"
}

# Ends the job that a drill has submitted as this user.
end_drills_job() {
    local job
    [ -e "$state/job" ] || return 0
    job=$(cat "$state/job")
    ! queued "$1" "$job" || scancel --user="$1" "$job"
    rm -r "$state"
}

# The service's own script with too little memory. SLURM lowers the limit of no job that runs, and a step beside the
# server's is killed by itself.
memory_kill() {
    local script job
    own
    script=$(scontrol --oneliner show job "$JOB" | tr ' ' '\n' | sed -n 's/^Command=//p' | head -n 1)
    later sh -c "xargs -r -a $state/job scancel --user=$JOB_USER; $jobs resume $SERVICE"
    stamp
    "$jobs" hold "$SERVICE" >&2
    # Beside it the keeper would cancel the other one as a duplicate.
    for _ in $(seq 300); do queued "$JOB_USER" "$JOB" || break; sleep 1; done
    ! queued "$JOB_USER" "$JOB" || die "job $JOB still runs after 300 s, its end is needed: look at llama-jobs list"
    # The keeper looks each few seconds, and has to see it before it ends.
    job=$(cd / && runuser -u "$JOB_USER" -- sbatch --parsable --begin=now+15 --mem="$little" "$script")
    mkdir -p "$state"; echo "${job%%;*}" >"$state/job"
}

# Without slurmd the job's processes are lost to SLURM, and without a last packet to the other nodes.
node_gone() {
    local path pids=
    systemctl --quiet is-active slurmd.service || die "slurmd.service does not run here, it is needed: start it"
    for path in /proc/[0-9]*; do
        [ "$(stat -c %U "$path" 2>/dev/null)" = "$JOB_USER" ] \
            && grep -qzxF "SLURM_JOB_ID=$JOB" "$path/environ" 2>/dev/null && pids+=" ${path#/proc/}"
    done
    [ -n "$pids" ] || die "no process of job $JOB here, one is needed: look at llama-jobs list"
    later sh -c 'nft delete table inet llama_drill; systemctl start slurmd.service'
    stamp
    drop_peers
    systemctl kill --kill-who=main --signal=KILL slurmd.service
    systemctl stop slurmd.service
    # The end of either may have ended the other.
    pkill -KILL -f "^slurmstepd: \[$JOB\." || true
    # shellcheck disable=SC2086
    kill -KILL $pids 2>/dev/null || true
}

case $1/${2:-} in
    look/*) look ;;
    break/kill_server) kill_server ;;
    break/scancel) own; later "$jobs" resume "$SERVICE"; stamp; scancel --user="$JOB_USER" "$JOB" ;;
    seen/scancel) "$jobs" list | grep "^$SERVICE: held by " >/dev/null ;;
    undo/scancel) "$jobs" resume "$SERVICE"; no_later ;;
    break/preempt) preempt ;;
    # Its keeper has seen it by then, and can name it.
    seen/preempt) [ "$(squeue --noheader --jobs="$(cat "$state/job")" --format=%T)" = RUNNING ] && sleep 10 ;;
    undo/preempt) end_drills_job "$PREEMPTOR" ;;
    break/memory_kill) memory_kill ;;
    seen/memory_kill) ! queued "$JOB_USER" "$(cat "$state/job")" ;;
    undo/memory_kill) end_drills_job "$JOB_USER"; "$jobs" resume "$SERVICE"; no_later ;;
    break/kill_keeper) stamp; systemctl kill --kill-who=all --signal=KILL llama-slurm-keeper.service ;;
    undo/kill_keeper) systemctl start llama-slurm-keeper.service ;;
    break/kill_slurmctld)
        later systemctl start slurmctld.service
        stamp; systemctl kill --signal=KILL slurmctld.service ;;
    undo/kill_slurmctld) no_later; systemctl start slurmctld.service ;;
    seen/kill_keeper | seen/kill_slurmctld) sleep 10 ;;
    break/node_gone) own; no_others; node_gone ;;
    seen/node_gone) sleep 30 ;;
    undo/node_gone)
        no_later
        # Its timer may have deleted it.
        nft delete table inet llama_drill 2>/dev/null || true
        systemctl start slurmd.service ;;
    seen/kill_server | undo/kill_server) ;;
    *) die "no action $1/${2:-}" ;;
esac
