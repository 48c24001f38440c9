#!/usr/bin/env bash
# gateway.sh ask|break|undo ACTION: runs on the host of a gateway, as root. "ask" sends small requests, four at a time,
# and prints a line for each: when it ended, its status, and what curl makes of it. "break" prints the host's time of
# the break.
# From the environment: BODY and REQUEST_PATH of a request; SECONDS_LONG, how long to ask; CONFIG of the gateway; also
# CLIENTS, their number, and PAUSE between their requests; URL of a head to ask instead, without a key; ASKING, a file
# whose removal ends it.
set -euo pipefail
CONFIG=${CONFIG:-/etc/llama-cluster/gateway/gateway.json}
header=${CONFIG%/*}/curl-header

ask() {
    local python url end client
    python=$(command -v python3 || echo /usr/libexec/platform-python)
    url=${URL:-$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["base_urls"][0])' "$CONFIG")}
    # The gateway's key is for the gateway only.
    [ -z "${URL:-}" ] && [ -e "$header" ] || header=/dev/null
    work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
    end=$((SECONDS + SECONDS_LONG))
    for client in $(seq "${CLIENTS:-4}"); do
        while [ "$SECONDS" -lt "$end" ] && [ -e "${ASKING:-/}" ]; do
            # The name of the certificate is not what is drilled.
            said=$(curl --silent --insecure --max-time 120 --output "$work/$client" --write-out '%{http_code}' \
                --header "@$header" --header 'Content-Type: application/json' --data "$BODY" "$url$REQUEST_PATH") \
                && code=0 || code=$?
            echo "$(date +%s.%6N) $said $code"
            sleep "${PAUSE:-0.1}"
        done &
    done
    wait
}

case "$1/${2:-}" in
    ask/*) ask ;;
    break/kill_engine) date +%s.%6N; systemctl kill --signal=KILL llama-gateway.service ;;
    break/stop_nginx) date +%s.%6N; systemctl stop nginx.service ;;
    undo/*) systemctl start llama-gateway.socket llama-gateway.service nginx.service ;;
    *) echo "gateway.sh: $* seen, ask, break or undo is needed" >&2; exit 2 ;;
esac
