"""Prints files, accounts, firewall rules and units of a node as JSON. Runs on the node; see
tests/unmanaged.py."""

import grp
import hashlib
import json
import os
import pwd
import stat
import subprocess

# Places that the kernel, systemd, logs and Ansible change.
VOLATILE = (
    "/dev",
    "/proc",
    "/sys",
    "/tmp",
    "/root/.ansible",
    "/run/systemd",
    "/run/udev",
    "/var/cache",
    "/var/lib/systemd",
    "/var/log",
    "/srv/llama-lab",
)
LARGE = 4 << 20


def entry(path):
    seen = os.lstat(path)
    content = None
    if stat.S_ISLNK(seen.st_mode):
        content = os.readlink(path)
    elif stat.S_ISREG(seen.st_mode):
        # For programs and libraries size and time are enough.
        content = "%d %d" % (seen.st_size, seen.st_mtime_ns)
        if seen.st_size < LARGE and not path.startswith("/usr/"):
            with open(path, "rb") as stream:
                content = hashlib.sha256(stream.read()).hexdigest()
    return [stat.filemode(seen.st_mode), seen.st_uid, seen.st_gid, content]


def files():
    found = {}
    for folder, folders, names in os.walk("/"):
        folders[:] = [
            name
            for name in folders
            if os.path.join(folder, name) not in VOLATILE and not name.startswith("systemd-private-")
        ]
        for name in folders + names:
            path = os.path.join(folder, name)
            try:
                found[path] = entry(path)
            except FileNotFoundError:
                continue
    return found


def lines(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout.splitlines()


def units(*filters):
    return lines("systemctl", *filters, "--no-legend", "--no-pager")


found = {
    "files": files(),
    "users": {one.pw_name: list(one[2:]) for one in pwd.getpwall()},
    "groups": {one.gr_name: list(one[2:]) for one in grp.getgrall()},
    "rules": lines("nft", "list", "ruleset"),
    "units": dict(line.split()[:2] for line in units("list-unit-files")),
    "active": [line.split()[0] for line in units("list-units", "--plain", "--type=service", "--state=active")],
}
print(json.dumps(found))
