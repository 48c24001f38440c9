# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why Ansible cannot work on a node, in one sentence: the way there, root, and its Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...module_utils._text import printable

Variables = Mapping[str, Any]
Result = Mapping[str, Any]
WRAPPED = re.compile(
    r"^(Task failed: |Failed to connect to the host via ssh: |Data could not be sent to remote host \S+ Make sure this "
    r"host can be reached over ssh: )"
)
TOO_OLD = re.compile(r"minimum of Python version ([\d.]+\d)\. Current version: ([\d.]+\d)")


def reach_refusals(
    node: str,
    variables: Variables,
    login: Result | None,
    root: Result | None = None,
    python: Result | None = None,
) -> list[str]:
    """One sentence, or none: what the results of a login without root, of one with root and of a module say. Looked at
    in this order."""
    for result, sentence in ((login, _login), (root, _root), (python, _python)):
        if result and (result.get("unreachable") or result.get("failed")):
            return [printable(sentence(node, variables, result), None)]
    return []


def _reason(result: Result) -> str:
    """The last thing that was said, without what Ansible says around it."""
    lines = [
        line.strip()
        for line in "\n".join(str(result.get(key) or "") for key in ("msg", "stderr", "module_stderr")).splitlines()
        if line.strip()
    ]
    last = lines[-1] if lines else "no reason given"
    while WRAPPED.search(last):
        last = WRAPPED.sub("", last)
    return last


def _login(node: str, variables: Variables, result: Result) -> str:
    """Of ssh's messages those that have another next step than to try it by hand."""
    address, reason = variables.get("ansible_host") or node, _reason(result)
    user = variables.get("ansible_user")
    port = variables.get("ansible_port")
    words = [
        str(variables.get("ansible_ssh_common_args") or ""),
        f"-p {port}" if port else "",
        f"{user}@{address}" if user else address,
    ]
    by_hand = " ".join(word for word in words if word)
    said = str(result.get("msg"))
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in said:
        return (
            "%s: %s has another host key than before, the known one is needed: where the node is new, run "
            "`ssh-keygen -R %s` and `ssh %s`"
        ) % (node, address, address, by_hand)
    if "Host key verification failed" in said:
        return (
            "%s: this machine does not know the host key of %s, or of its jump host, a known one is needed: run `ssh "
            "%s` once" % (node, address, by_hand)
        )
    if "Permission denied" in said:
        return "%s: %s lets nobody in (%s), a login without a password is needed: run `ssh-copy-id %s`" % (
            node,
            address,
            reason,
            by_hand,
        )
    return "%s: no answer from %s over %s (%s), a login is needed: try `ssh %s` on this machine" % (
        node,
        address,
        variables.get("ansible_connection") or "ssh",
        reason,
        by_hand,
    )


def _root(node: str, variables: Variables, result: Result) -> str:
    method, reason = variables.get("ansible_become_method") or "sudo", _reason(result)
    if "Incorrect" in reason or "Sorry, try again" in str(result):
        return (
            "%s: %s does not take the password given for it, the right one is needed: correct ansible_become_password, "
            "or run with -K"
            % (
                node,
                method,
            )
        )
    if "password is required" in str(result) or "Missing" in reason:
        return (
            "%s: %s asks for a password and none was given, one is needed: run with -K, or set ansible_become_password"
            % (node, method)
        )
    return f"{node}: no root by {method} ({reason}), root is needed: correct it there, or set ansible_become_method"


def _python(node: str, variables: Variables, result: Result) -> str:
    """bootstrap.yml installs what ansible_python_interpreter names."""
    seen, said = variables.get("ansible_python_interpreter") or "python3", str(result)
    old = TOO_OLD.search(said)
    step = "set ansible_python_interpreter to one, such as /usr/bin/python3.11, and run bootstrap.yml"
    if old:
        return f"{node}: {seen} is Python {old.group(2)}, this Ansible needs {old.group(1)} or newer: {step}"
    if "not found" in said or "No such file" in said:
        return (
            "%s: ansible_python_interpreter %s is not there, a Python is needed: run bootstrap.yml, which installs it"
            % (node, seen)
        )
    return f"{node}: {seen} runs no module of Ansible ({_reason(result)}), a Python that does is needed: {step}"
