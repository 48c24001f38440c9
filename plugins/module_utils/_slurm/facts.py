# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SLURM's configuration and accounts, and the jobs of services, for playbooks. Private to the collection."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from typing import Any, Callable

from .._node.disposable import Disposable
from .._text import Refusal, printable
from . import accounting, ask, reasons, state
from .state import Known

# A job that ends so is not what was wanted, even if it has served.
OWN = (reasons.CRASHED, reasons.OUT_OF_MEMORY)
# Seconds for a request to be written as the user.
WRITE = 10.0


def become(user: str) -> str:
    """Has root be the user from here on -> the name of the person. Errors: Refusal."""
    person = pwd.getpwuid(os.getuid()).pw_name
    if os.geteuid() == 0:
        person = os.environ.get("SUDO_USER") or person
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            raise Refusal(f"slurm_user: {user} is not known on this host, an account is needed: create it") from None
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    return person


def as_user(user: str, work: Callable[[], Any]) -> Callable[[], Any]:
    """Work of a child process that root starts, done as the user."""

    def done() -> Any:
        try:
            become(user)
            return work()
        except Refusal as refusal:
            raise OSError(0, str(refusal)) from None

    return done


def uid_of(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def queue(user: str) -> tuple[str, list[dict[str, Any]]]:
    """Why SLURM does not respond, or an empty text; the jobs of services."""
    try:
        found = [job for job in ask.jobs(user) if job.alive and job.service]
    except Refusal as refusal:
        return str(refusal), []
    return "", [{"job_id": job.job_id, "service": job.service, "state": job.state} for job in found]


def facts(user: str) -> dict[str, Any]:
    """{config, partitions, nodes, qos, associations: of the user}; each is None if SLURM does not respond."""
    return {
        "config": _or_none(ask.show_config),
        "partitions": _or_none(lambda: ask.show("partition", "PartitionName")),
        "nodes": _or_none(lambda: ask.show("node", "NodeName")),
        "qos": _or_none(accounting.qos),
        "associations": _or_none(lambda: accounting.associations_of(user)),
    }


def has_gres(seen: str, wanted: str) -> bool:
    """gpu:v100s:1(S:0-1),shard:4 has gpu:1 and gpu:v100s:1."""
    name, _colon, count = wanted.rpartition(":")
    total = 0
    for one in re.sub(r"\([^)]*\)", "", seen).split(","):
        words = one.split(":")
        if one.startswith(name + ":") and words[-1].isdigit():
            total += int(words[-1])
    return total >= int(count)


def differences(compared: Mapping[str, Any]) -> dict[str, Any]:
    """Differences of SLURM from the inventory. compared: of the keeper's configuration.

    -> accounting: [{seen, wanted}], of QoS and associations; gres: [{service, place, seen, wanted}]. Errors: Refusal.
    """
    changes = accounting.present(accounting.look(), *accounting.wanted(compared["qos"], compared["associations"]))
    nodes = ask.show("node", "NodeName")
    found = [
        {
            "service": one["service"],
            "place": node,
            "seen": printable(nodes[node].get("Gres", ""), 60),
            "wanted": one["gres"],
        }
        for one in compared["gres"]
        for node in one["nodes"]
        if node in nodes
    ]
    return {
        "accounting": [{"seen": "; ".join(dict.fromkeys(changes.before)), "wanted": "; ".join(changes.after)}]
        if changes.calls
        else [],
        "gres": [one for one in found if not has_gres(one["seen"], one["wanted"])],
    }


def _or_none(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Refusal:
        return None


def mistrust(content: Mapping[str, Any], now: float) -> str:
    """Why state.json is not believed, or an empty text."""
    return "" if content and abs(now - content["at"]) <= state.OLD else "llama-slurm-keeper.service does not run"


def sentences(content: Mapping[str, Any], now: float) -> dict[str, str]:
    """{service: its job in words, with the job that wants its nodes}."""
    away = content["slurm"]["since"] if content else None
    known = state.known_of(content)
    parts = {name: [state.sentence(one, now, away), state.ahead(one, now)] for name, one in known.items()}
    return {name: "; ".join(filter(None, words)) for name, words in parts.items()}


def unsettled(
    wanted: Mapping[str, str], content: Mapping[str, Any], directory: str, configured: float, now: float
) -> list[str]:
    """The services of {service: digest} whose job is not yet as it will stay: it serves, waits for SLURM, or a person
    holds it. configured: when the keeper's configuration was written."""
    known = state.known_of(content) if not mistrust(content, now) and content["at"] >= configured else {}
    return [name for name, digest in sorted(wanted.items()) if not _settled(known.get(name), digest, directory, name)]


def _settled(known: Known | None, digest: str, directory: str, name: str) -> bool:
    if known is None or any(os.path.lexists(os.path.join(directory, f"{name}.{kind}")) for kind in state.REQUESTS):
        return False
    stays = str(known.job_id) not in known.asked
    # SLURM has not looked at a job yet which it gives no reason for.
    waits = known.state == state.PENDING and known.reason not in ("", "None")
    there = waits or (known.state == state.RUNNING and known.serves)
    held = known.held is not None and known.state == state.NONE
    return held or bool(known.yields and known.state == state.NONE) or (there and stays and known.digest == digest)


def ended(wanted: Mapping[str, str], content: Mapping[str, Any], since: float) -> dict[str, str]:
    """{service: why its last job ended}, of those whose job has ended since then by its own fault, or before it served,
    or was refused."""
    known = {name: one for name, one in sorted(state.known_of(content).items()) if name in wanted}
    return {
        name: str(one.last["words"])
        for name, one in known.items()
        if one.last
        and one.last["at"] >= since
        and one.last.get("digest") in (None, "", wanted[name])
        and (one.failures or one.last["code"] in OWN)
    }


def resume(user: str, wanted: Mapping[str, str], directory: str, now: float, check_mode: bool) -> list[str]:
    """Requests that services are resumed which are held or wait after failures -> those. Errors: Refusal."""
    known = state.known_of(state.read(directory))
    late = [name for name, one in known.items() if one.held or (one.next_submit or 0) > now]
    names = sorted(set(late) & set(wanted))
    if names and not check_mode:

        def write() -> None:
            for name in names:
                state.request(directory, name, "resume", "a playbook", now)

        # The directory is the user's.
        error = Disposable(WRITE).run(as_user(user, write)).error
        if error:
            raise Refusal(f"{directory}: {error} seen, a directory of {user} is needed: run site.yml with --tags slurm")
    return names
