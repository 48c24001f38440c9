"""Plants unmanaged files in every directory that the collection uses, and finds out whether they have changed. Used by
test_cluster.py."""

import json
import pathlib

INVENTORY = (pathlib.Path(__file__).resolve().parents[1] / "inventory_of_node.py").read_text()
FOLDERS = (
    "/etc/llama-cluster /etc/llama-cluster/keys /etc/llama-cluster/watchdog /etc/systemd/system "
    "/etc/systemd/system/nftables.service.d /opt/llama-cluster /opt/llama-cluster/bin /opt/llama-cluster/lib "
    "/opt/llama-cluster/lib/llama_cluster /opt/llama.cpp /opt/llama.cpp/releases /opt/models /run/llama-cluster "
    "/run/llama-cluster/backoff /run/llama-cluster/digests /run/llama-cluster/served /var/lib/llama-cluster "
    "/var/cache/llama-cluster"
)
# A file, a directory with a file, a link and a FIFO in each directory.
FILL = """
for folder in %s; do
    [ -d "$folder" ] || continue
    echo theirs > "$folder/notes.txt"
    mkdir "$folder/theirs"
    echo theirs > "$folder/theirs/data"
    ln -s notes.txt "$folder/link"
    mkfifo "$folder/pipe"
    chown -R alice "$folder/notes.txt" "$folder/theirs"
done
"""
# Then unmanaged files with managed names.
PLANT = (
    """
set -eu
useradd --system --no-create-home alice
%s
mkdir -p /var/cache/llama-cluster/alice/datasets
echo theirs > /etc/llama-cluster/keys/by-hand
echo theirs > /etc/llama-cluster/plan-notes.json
echo '{"unit": "by-hand.service"}' > /etc/llama-cluster/watchdog/rpc-by-hand.json
ln -s notes.txt /etc/llama-cluster/watchdog/rpc-link.json
mkdir -p /opt/llama.cpp/releases/by-hand/bin
echo theirs > /opt/llama.cpp/releases/by-hand/bin/llama-server
echo theirs > /opt/llama-cluster/lib/llama_cluster/theirs.py
echo weights > /opt/models/Theirs.gguf
echo weights > /opt/models/SmolLM2-135M-Instruct.Q4_1-0.6B.gguf
ln -s Theirs.gguf /opt/models/link.gguf
echo '{}' > /opt/models/Theirs.gguf.manifest.json
mkfifo /opt/models/pipe.gguf.partial.journal
cat > /etc/systemd/system/llama-rpc-by-hand.service <<'UNIT'
[Service]
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
UNIT
cp /etc/systemd/system/llama-rpc-by-hand.service /etc/systemd/system/llama-head-by-hand.service
[ -e /etc/systemd/system/llama-head.service ] || ln -s llama-head-by-hand.service /etc/systemd/system/llama-head.service
[ -e /etc/systemd/system/llama-rpc.service ] || ln -s llama-rpc-by-hand.service /etc/systemd/system/llama-rpc.service
systemctl daemon-reload
systemctl -q enable --now llama-rpc-by-hand llama-head-by-hand
nft add table inet theirs
"""
    % FILL
    % FOLDERS
)
# Paths that may go: everything else below them is managed.
MANAGED = (
    "/etc/llama-cluster",
    "/etc/systemd/system/llama-",
    "/etc/systemd/system/multi-user.target.wants/llama-",
    "/etc/systemd/system/sysinit.target.wants/llama-",
    "/etc/systemd/system/nftables.service.d",
    "/opt/llama-cluster",
    "/opt/llama.cpp",
    "/opt/models",
    "/run/llama-cluster",
    "/var/lib/llama-cluster",
)
# Rewritten with each account that goes; their content is compared as users and groups.
ACCOUNTS = ("/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/subuid", "/etc/subgid")


def inventory(node):
    return json.loads(node.check_output("python3 -c %s", INVENTORY))


def plant(node):
    """Plants on a node -> the state that must stay: {files, units, active}."""
    before = inventory(node)
    node.check_output("bash -c %s", PLANT)
    after = inventory(node)
    planted = {
        path: seen
        for path, seen in after["files"].items()
        if before["files"].get(path) != seen and not path.startswith(ACCOUNTS)
    }
    return dict(after, planted=planted)


def plant_in_builds(node, then):
    """Plants in the directories of programs, later: a build with files that its manifest does not list never starts."""
    node.check_output("bash -c %s", FILL % "/opt/llama.cpp/releases/*/bin")
    now = inventory(node)["files"]
    then["planted"].update(
        {
            path: seen
            for path, seen in now.items()
            if path.startswith("/opt/llama.cpp/releases/") and path not in then["files"]
        }
    )


def differences(node, then):
    """Sentences about unmanaged files, accounts, units and rules that have changed."""
    now = inventory(node)
    found = [
        "%s: %s, now %s" % (path, seen, now["files"].get(path))
        for path, seen in then["planted"].items()
        if now["files"].get(path) != seen
    ]
    for path in set(then["files"]) | set(now["files"]):
        if not path.startswith(MANAGED + ACCOUNTS) and then["files"].get(path) != now["files"].get(path):
            found.append("%s: %s, now %s" % (path, then["files"].get(path), now["files"].get(path)))
    for kind in ("users", "groups", "units"):
        for name, seen in then[kind].items():
            managed = name in ("llama", "llama-rpc") or (name.startswith("llama-") and "by-hand" not in name)
            if now[kind].get(name) != seen and not managed:
                found.append("%s %s: %s, now %s" % (kind, name, seen, now[kind].get(name)))
    found.extend("rule %s is gone" % line for line in then["rules"] if "theirs" in line and line not in now["rules"])
    found.extend(
        "%s does not run any more" % unit for unit in then["active"] if "by-hand" in unit and unit not in now["active"]
    )
    return sorted(found)


def left(node, then):
    """Managed files that are left: paths below MANAGED that were not planted, and hold nothing planted."""
    now = inventory(node)["files"]
    kept = [path for path in then["planted"] if path in now]
    return sorted(
        path for path in now if path.startswith(MANAGED) and not any((one + "/").startswith(path + "/") for one in kept)
    )
