# shellcheck shell=bash
# In front of break.sh and job.sh, which run on a node as root. PEERS: fabric addresses of the other nodes,
# comma-separated.

# No connection is closed: nothing arrives any more, as if the other side had lost power.
drop_peers() {
    nft -f - <<RULES
table inet llama_drill {
  chain input { type filter hook input priority -300; policy accept; ip saddr { $PEERS } drop; }
  chain output { type filter hook output priority -300; policy accept; ip daddr { $PEERS } drop; }
}
RULES
}

