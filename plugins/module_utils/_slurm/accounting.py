# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Has the QoS and associations of an inventory in SLURM's accounting, and leaves all others. Private to the
collection.

A QoS gets the values that are named; of an association the named QoS are added to those that it has. Only the cluster
of this host is changed: slurmdbd may have several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._text import Refusal, printable
from . import ask
from .job import NAME

MODES = ("cancel", "cluster", "off", "requeue", "suspend", "within")
FORMS = "priority and grace_time as numbers, preempt as a list of QoS, preempt_mode as requeue or cancel"
# (key, word of sacctmgr).
QOS_KEYS = (
    ("priority", "Priority"),
    ("grace_time", "GraceTime"),
    ("preempt", "Preempt"),
    ("preempt_mode", "PreemptMode"),
)


class Association(NamedTuple):
    user: str
    account: str
    qos: tuple[str, ...] = ()


class Found(NamedTuple):
    """Entries that an inventory may name. qos: {name: {priority, grace_time: seconds, preempt: names, preempt_mode}};
    associations of users with the names of their QoS."""

    cluster: str
    qos: dict[str, dict[str, Any]]
    accounts: frozenset[str]
    associations: tuple[Association, ...]


class Changes(NamedTuple):
    """calls: commands; lines: before and after, as a diff shows them; created: what did not exist before."""

    calls: list[list[str]]
    before: list[str]
    after: list[str]
    created: dict[str, list[Any]]


def look() -> Found:
    """Errors: Refusal."""
    cluster = ask.show_config().get("ClusterName", "")
    return Found(
        cluster=cluster,
        qos=qos(),
        accounts=frozenset(line for line in _show("account", "Account").split("\n") if line),
        associations=parse_associations(_show("assoc", "Cluster,Account,User,Partition,QOS"), cluster),
    )


def qos() -> dict[str, dict[str, Any]]:
    """Errors: Refusal."""
    return parse_qos(_show("qos", "Name,Priority,GraceTime,Preempt,PreemptMode"))


def associations_of(user: str) -> list[dict[str, Any]]:
    """[{user, account, partition, qos}] of a user in the cluster of this host. Errors: Refusal."""
    cluster = ask.show_config().get("ClusterName", "")
    return [
        {"user": one.user, "account": one.account, "partition": partition, "qos": list(one.qos)}
        for one, partition in _associations(_show("assoc", "Cluster,Account,User,Partition,QOS"), cluster)
        if one.user == user
    ]


def _show(what: str, fields: str) -> str:
    return ask.run(["sacctmgr", "-n", "-P", "show", what, "format=" + fields])


def parse_qos(text: str) -> dict[str, dict[str, Any]]:
    found = {}
    for row in (line.split("|") for line in text.split("\n")):
        if len(row) == 5:
            name, priority, grace, preempt, mode = row
            found[name] = {
                "priority": ask.moment(priority) or 0,
                "grace_time": ask.period(grace),
                "preempt": sorted(filter(None, preempt.split(","))),
                "preempt_mode": mode.lower(),
            }
    return found


def parse_associations(text: str, cluster: str) -> tuple[Association, ...]:
    """The associations of users in a cluster, without those that hold for one partition."""
    return tuple(one for one, partition in _associations(text, cluster) if not partition)


def _associations(text: str, cluster: str) -> Iterator[tuple[Association, str]]:
    """With the partition, empty for all of them."""
    for row in (line.split("|") for line in text.split("\n")):
        if len(row) == 5 and row[2] and row[0] in (cluster, ""):
            yield Association(row[2], row[1], tuple(sorted(filter(None, row[4].split(","))))), row[3]


def wanted(
    qos: Mapping[str, Any], associations: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, dict[str, Any]], list[Association]]:
    """The entries of an inventory, checked. Errors: Refusal."""
    checked = {}
    for name, given in qos.items():
        values = dict(given) if isinstance(given, Mapping) else None
        for key, value in {} if values is None else values.items():
            if not _sound(key, value):
                shown = printable(value, 60)
                raise Refusal(f"slurm_qos.{printable(name, 60)}.{printable(key, 60)}: {shown} seen, {FORMS} is needed")
        if values is None or not NAME.match(name):
            raise Refusal(f"slurm_qos.{printable(name, 60)}: a map of a name is needed, {FORMS}: correct it")
        checked[name] = values
    found = [Association(one["user"], one["account"], tuple(one.get("qos") or ())) for one in associations]
    for one in found:
        if not all(NAME.match(word) for word in (one.user, one.account, *one.qos)):
            raise Refusal(f"slurm_associations: {printable(one)} seen, names of SLURM's are needed: correct it")
    return checked, found


def _sound(key: str, value: Any) -> bool:
    if key in ("priority", "grace_time"):
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    if key == "preempt":
        return isinstance(value, (list, tuple)) and all(isinstance(one, str) and NAME.match(one) for one in value)
    return key == "preempt_mode" and value in MODES


def present(found: Found, qos: Mapping[str, Mapping[str, Any]], associations: Iterable[Association]) -> Changes:
    """The changes that have all that is named, and what it was."""
    changes = Changes([], [], [], {"qos": [], "associations": []})
    # A QoS may preempt one that follows: first all of them, then what they have.
    for name in [name for name in qos if name not in found.qos]:
        changes.calls.append(["sacctmgr", "-i", "add", "qos", name])
        changes.created["qos"].append(name)
    for name, wanted in qos.items():
        _qos(changes, name, wanted, found.qos.get(name))
    accounts = set(found.accounts)
    for one in associations:
        if one.account not in accounts:
            accounts.add(one.account)
            changes.calls.append(["sacctmgr", "-i", "add", "account", one.account, "Cluster=" + found.cluster])
        _association(changes, found, one)
    return changes


def _qos(changes: Changes, name: str, wanted: Mapping[str, Any], has: Mapping[str, Any] | None) -> None:
    # slurmdbd's defaults.
    before = has or {"priority": 0, "grace_time": 0, "preempt": [], "preempt_mode": "cluster"}
    words = []
    for key, word in QOS_KEYS:
        if wanted.get(key) is None:
            continue
        value = sorted(wanted[key]) if key == "preempt" else wanted[key]
        if value != before[key]:
            shown = ",".join(value) if isinstance(value, list) else value
            words.append(f"{word}={shown}")
            changes.before.extend([f"qos {name}: {word}={_text(before[key])}"] if has else [])
            changes.after.append(f"qos {name}: {word}={_text(value)}")
    if words:
        changes.calls.append(["sacctmgr", "-i", "modify", "qos", "where", "Name=" + name, "set", *words])
    if not has:
        changes.before.append(f"qos {name}: absent")
        changes.after.extend([] if words else [f"qos {name}: present"])


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


def _association(changes: Changes, found: Found, wanted: Association) -> None:
    has = [one for one in found.associations if (one.user, one.account) == (wanted.user, wanted.account)]
    where = [f"Account={wanted.account}", "Cluster=" + found.cluster]
    title = f"user {wanted.user} of account {wanted.account}"
    if not has:
        qos = ["QOS=" + ",".join(wanted.qos)] if wanted.qos else []
        changes.calls.append(["sacctmgr", "-i", "add", "user", wanted.user, *where, *qos])
        changes.created["associations"].append({"user": wanted.user, "account": wanted.account})
        changes.before.append(f"{title}: absent")
        changes.after.append(f"{title}: QOS={','.join(sorted(wanted.qos))}")
        return
    missing = sorted(set(wanted.qos) - set(has[0].qos))
    if missing:
        whole = ["sacctmgr", "-i", "modify", "user", "where", "Name=" + wanted.user, *where]
        changes.calls.append([*whole, "set", "QOS+=" + ",".join(missing)])
        changes.before.append(f"{title}: QOS={','.join(has[0].qos)}")
        changes.after.append(f"{title}: QOS={','.join(sorted({*has[0].qos, *missing}))}")


def absent(found: Found, qos: Iterable[str], associations: Iterable[Association]) -> Changes:
    """The changes that remove what is named, as far as it is there; accounts stay."""
    changes = Changes([], [], [], {"qos": [], "associations": []})
    for one in associations:
        if any((has.user, has.account) == (one.user, one.account) for has in found.associations):
            where = ["Name=" + one.user, f"Account={one.account}", "Cluster=" + found.cluster]
            changes.calls.append(["sacctmgr", "-i", "delete", "user", "where", *where])
            changes.before.append(f"user {one.user} of account {one.account}")
    for name in qos:
        if name in found.qos:
            changes.calls.append(["sacctmgr", "-i", "delete", "qos", "where", "Name=" + name])
            changes.before.append(f"qos {name}")
    return changes


def apply(calls: Sequence[Sequence[str]]) -> None:
    """Errors: Refusal."""
    for call in calls:
        try:
            ask.run(call)
        except Refusal as refusal:
            words = printable(" ".join(call))
            raise Refusal(f"{words}: {refusal}", refusal.code) from None
