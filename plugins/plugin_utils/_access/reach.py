# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sentences about a node on which Ansible does not work: login, root, Python."""

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
    """At most one sentence about the results of a login without root, of one with root, and of a module, in this
    order."""
    for result, sentence in ((login, _login), (root, _root), (python, _python)):
        if result and (result.get("unreachable") or result.get("failed")):
            return [printable(sentence(node, variables, result), None)]
    return []


def _reason(result: Result) -> str:
    """The last line of the messages, without Ansible's prefixes."""
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
    """A sentence for each message of ssh with its own remedy, else for any."""
    address, reason = variables.get("ansible_host") or node, _reason(result)
    user = variables.get("ansible_user")
    port = variables.get("ansible_port")
    words = [
        str(variables.get("ansible_ssh_common_args") or ""),
        f"-p {port}" if port else "",
        f"{user}@{address}" if user else address,
    ]
    command = " ".join(word for word in words if word)
    text = str(result.get("msg"))
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
        return (
            "%s: %s has another host key than before, the known one is needed: if the node is new, run "
            "`ssh-keygen -R %s` and `ssh %s`"
        ) % (node, address, address, command)
    if "Host key verification failed" in text:
        return (
            "%s: this machine does not know the host key of %s, or of its jump host, a known one is needed: run `ssh "
            "%s` once" % (node, address, command)
        )
    if "Permission denied" in text:
        return "%s: %s refuses the login (%s), a login without a password is needed: run `ssh-copy-id %s`" % (
            node,
            address,
            reason,
            command,
        )
    return "%s: no answer from %s over %s (%s), a login is needed: try `ssh %s` on this machine" % (
        node,
        address,
        variables.get("ansible_connection") or "ssh",
        reason,
        command,
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
    """bootstrap.yml installs the Python of ansible_python_interpreter."""
    seen, text = variables.get("ansible_python_interpreter") or "python3", str(result)
    old = TOO_OLD.search(text)
    step = "set ansible_python_interpreter to one, such as /usr/bin/python3.11, and run bootstrap.yml"
    if old:
        return f"{node}: {seen} is Python {old.group(2)}, this Ansible needs {old.group(1)} or newer: {step}"
    if "not found" in text or "No such file" in text:
        return (
            "%s: ansible_python_interpreter %s is not there, a Python is needed: run bootstrap.yml, which installs it"
            % (node, seen)
        )
    return f"{node}: {seen} runs no module of Ansible ({_reason(result)}), a Python that does is needed: {step}"
