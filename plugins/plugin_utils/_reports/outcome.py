# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a change of services: its state, by facts of the nodes, and the last lines of its playbook. Private to
the collection.

Facts of a node: apply_failure (why something failed there), apply_undo_failure (why it is not restored), apply_undone
(it is restored), and the results of role apply: apply_before, apply_earlier, apply_compared and apply_changes. A node
that is gone counts as failed.

The fact slurm_launcher_outcome of the host that submits jobs: {failure, undo_failure: sentences or empty, done: whether
its part is over, idle, changing, serving: services, sentences: {service: its job in words}}.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...module_utils._node import paths
from ...module_utils._node.units import ANSWERING, units_of
from ...module_utils._settings import is_stopped
from .._access.trials import minute
from .._intent.builds import named
from .._intent.services import managed
from .acceptance import served_lines
from .failures import NO_REASON
from .logs import log_lines
from .speed import speed_lines, unmeasured_lines
from .status import gateway_lines, status_lines

HostVars = Mapping[str, Mapping[str, Any]]
ANSWERS = ("ready", "busy")
DISTURBING = ("heads_down", "unwanted", "workers_restart", "workers_start")


def _noted(hostvars: HostVars, hosts: Sequence[str], fact: str) -> list[Any]:
    """The values of a fact on these nodes."""
    return [hostvars[host][fact] for host in hosts if fact in hostvars[host]]


def switch_state(
    hostvars: HostVars, hosts: Sequence[str], left: Sequence[str], service: str = "", submitters: Sequence[str] = ()
) -> dict[str, Any]:
    """The state of a switch. hosts: of the play; left: reachable ones; service: the only one, empty for all;
    submitters: hosts whose jobs have been switched.

    -> failures: sentences; opened, last: the names of the first snapshot that an earlier run left open and of the last
    closed one, or empty; old_build: the build that served; idle, undone: whether every node has nothing to do, or is
    restored; snapshot: the next state of the open one; retired: the nodes whose old model is removed; jobs: {service:
    its job in words}; serving: the services whose jobs serve.
    """
    nodes = {host: hostvars[host] for host in left}
    # Lost nodes included.
    failures = _noted(hostvars, hosts, "apply_failure")
    # A node that failed with another one has no reason.
    failures.sort(key=lambda reason: reason == NO_REASON)
    jobs = [hostvars[host].get("slurm_launcher_outcome") or {} for host in submitters]
    failures += [one["failure"] for one in jobs if one.get("failure")]
    lost = [host for host, one in zip(submitters, jobs, strict=True) if not one.get("done")]
    failures += [f"{host} cannot be reached any more" for host in hosts if host not in left]
    failures += [f"{host} cannot be reached any more" for host in lost if host not in hosts]
    earlier = _noted(nodes, left, "apply_earlier")
    names = {found[key]["id"] for found in earlier for key in ("open", "last") if found.get(key)}
    # By loops over one host. A run that died before it took the nodes' snapshot has changed nothing.
    of_jobs = [one for found in _noted(nodes, left, "apply_jobs_earlier")[:1] for one in found["results"]]
    earlier += [one for one in of_jobs if not one.get("open") or one["open"]["id"] in names]
    opened = min((found["open"]["id"] for found in earlier if found.get("open")), default="")
    idle = not failures and not opened and all(_is_idle(node) for node in nodes.values())
    idle = idle and all(one["idle"] for one in jobs)
    undone = _noted(nodes, left, "apply_undone") == [True] * len(hosts)
    undone = undone and not lost and not any(one["undo_failure"] for one in jobs)
    undone = undone and not _noted(nodes, left, "apply_undo_failure")
    retiring = {
        host: nodes[host]["apply_model_files"]
        for host in left
        if nodes[host].get("apply_model_files", {}).get("retire", "never") != "never"
    }
    # Without the old model there is no way back.
    forgotten = undone if failures else idle or retiring
    return {
        "failures": failures,
        "opened": opened,
        "last": max((found["last"]["id"] for found in earlier if found.get("last")), default=""),
        "old_build": _builds_before(list(nodes.values()), service),
        "idle": idle,
        "undone": undone,
        "snapshot": "dropped" if forgotten else "opened" if failures else "closed",
        "retired": [host for host, files in retiring.items() if not _is_wanted(files)],
        "jobs": {
            name: words
            for one in jobs
            for name, words in sorted((one.get("sentences") or {}).items())
            if service in ("", name)
        },
        "serving": [name for one in jobs for name in one.get("serving") or []],
    }


def _is_idle(node: Mapping[str, Any]) -> bool:
    if "apply_compared" not in node or "apply_changes" not in node:
        return False
    # Check mode takes no snapshot.
    snapshot = node["apply_compared"].get("open")
    if not snapshot or node["apply_compared"]["differs"]:
        return False
    return bool(node["apply_changes"]["idle"])


def _builds_before(nodes: Sequence[Mapping[str, Any]], service: str) -> str:
    """The builds that served, of one service or all, by their units, else the current ones."""
    seen = [node for node in nodes if "apply_earlier" in node and "apply_before" in node]
    opened = [node["apply_earlier"].get("open") or {} for node in seen]
    found = {release for snapshot in opened for release in snapshot.get("releases", [])}
    found = found or {snapshot["build"] for snapshot in opened if snapshot.get("build")}
    found = found or _named([node["apply_before"].get("units", []) for node in seen], service)
    current = {node["apply_before"]["current_build"] for node in seen}
    return ", ".join(sorted(found or filter(None, current))) or "none"


def _named(units: Sequence[Sequence[Mapping[str, Any]]], service: str = "") -> set[str]:
    some = [unit for of_node in units for unit in of_node if unit["service"] and service in ("", unit["service"])]
    return {os.path.basename(path) for path in named(some, paths.BUILDS)}


def _builds_now(hostvars: HostVars, hosts: Sequence[str], service: str) -> str:
    facts = [hostvars[host].get("ansible_facts", {}).get("llama_node", {}) for host in hosts]
    return ", ".join(sorted(_named([one.get("units", []) for one in facts], service))) or "no build"


def _is_wanted(files: Mapping[str, Any]) -> bool:
    return files["old"] in files["wanted"]


def outcome_lines(
    hostvars: HostVars, ending: str, hosts: Sequence[str], run: Mapping[str, Any] | None = None
) -> list[str]:
    """The last lines of a playbook. hosts: the reachable nodes; run: values of the playbook, see each ending below."""
    return ENDINGS[ending](hostvars, hosts, run or {})


def _first(*rows: tuple[Any, str]) -> str:
    return next(text for applies, text in rows if applies)


def _upgraded(hostvars: HostVars, hosts: Sequence[str], run: Mapping[str, Any]) -> list[str]:
    """run: the state of the switch; services, service: the only one, empty for all, id of the snapshot, check_mode,
    seconds: without an answer."""
    build = _builds_now(hostvars, hosts, run["service"])
    stopped = sorted(name for name, service in run["services"].items() if is_stopped(service))
    jobs = _jobs(run)
    units = sorted(set(run["services"]) - set(stopped) - set(jobs))
    names = ", ".join(units) or "no service"
    went_down = any(changes["heads_down"] for changes in _noted(hostvars, hosts, "apply_changes"))
    end = _first(
        (run["check_mode"], f"check mode, {run['old_build']} serves on; what would change is shown above"),
        (run["idle"], f"nothing to do, {build} serves with the inventory's configuration"),
        (run["opened"], f"{build} serves, which finishes what an earlier run began"),
        (went_down, f"{build} serves, {_outage(hostvars, hosts, run['seconds'])}"),
        (True, f"{build} serves, no head had to restart"),
    )
    first = [f"{names}: {end}"] if units or not jobs else []
    if run["check_mode"]:
        return [*first, *(f"{name}: check mode, its job goes on; what would change is shown above" for name in jobs)]
    first += [f"{name}: {words}" for name, words in jobs.items()]
    if run["idle"]:
        return first
    before = f"{run['old_build']} of {run['id']}" if units or not jobs else f"the job of {run['id']}"
    return [
        *first,
        *(f"{name}: stopped, as the inventory says" for name in stopped),
        *_speed(hostvars, hosts),
        f"rollback.yml puts {before} back",
        "what was given with -e belongs in the inventory, or the next site.yml switches back",
    ]


def _jobs(run: Mapping[str, Any]) -> dict[str, str]:
    """{service: its job in words}; one that waits has proved nothing."""
    named = [name for name, one in run["services"].items() if one.get("launcher") == "slurm" and not is_stopped(one)]
    words = {name: run["jobs"].get(name, "its keeper does not know it") for name in sorted(named)}
    return {name: one if name in run["serving"] else f"not proved: {one}" for name, one in words.items()}


def _outage(hostvars: HostVars, hosts: Sequence[str], seconds: Any) -> str:
    if any(len(waves) > 1 for waves in _noted(hostvars, hosts, "apply_waves")):
        return f"restarted node after node behind the gateway in {seconds} s"
    return f"nothing served for {seconds} s"


def _speed(hostvars: HostVars, hosts: Sequence[str]) -> list[str]:
    """The speed of each service before and after; a replica is named with its node."""
    facts = ("upgrade_measured", "upgrade_baseline", "upgrade_unmeasured")
    noted = {(host, name) for host in hosts for fact in facts for name in hostvars[host].get(fact, {})}
    nodes = Counter(name for _host, name in noted)
    measured, baseline, unmeasured = (
        {
            name if nodes[name] == 1 else f"{name} on {host}": hostvars[host][fact][name]
            for host, name in sorted(noted)
            if name in hostvars[host].get(fact, {})
        }
        for fact in facts
    )
    return [*speed_lines(measured, baseline), *unmeasured_lines(unmeasured)]


def _upgrade_failed(hostvars: HostVars, hosts: Sequence[str], run: Mapping[str, Any]) -> list[str]:
    """run: the state of the switch; services; check_mode, seconds: since heads went down, or empty."""
    jobs = _jobs(run)
    again = f", {run['old_build']} serves again" if len(jobs) < len(run["services"]) else ""
    now = "".join(f"; {name}: {words}" for name, words in jobs.items()) if run["jobs"] else ""
    after = f", {run['seconds']} s after the switch began" if run["seconds"] != "" else ""
    way_back = _way_back(hostvars, hosts)
    end = _first(
        (run["undone"], f"rolled back{again}{after}{now}"),
        (run["check_mode"], "nothing was changed, this is check mode"),
        (True, f"the old one is not back either ({way_back}), correct this and run rollback.yml"),
    )
    return [f"upgrade: {run['failures'][0]}: {end}"]


def _way_back(hostvars: HostVars, hosts: Sequence[str]) -> str:
    jobs = [
        one["undo_failure"] for one in _noted(hostvars, list(hostvars), "slurm_launcher_outcome") if one["undo_failure"]
    ]
    return "; ".join(dict.fromkeys(_noted(hostvars, hosts, "apply_undo_failure") + jobs)) or "see above"


def _rolled_back(hostvars: HostVars, hosts: Sequence[str], run: Mapping[str, Any]) -> list[str]:
    """run: id of the snapshot, seconds: without an answer."""
    opened = [files["open"] for files in _noted(hostvars, hosts, "apply_restored")]
    builds = {release for one in opened for release in one.get("releases", [])}
    build = ", ".join(sorted(builds or {one["build"] for one in opened if one["build"]})) or "none"
    answers = [answer for asked in _noted(hostvars, hosts, "apply_answers") for answer in asked["results"]]
    changed = any(changes[step] for changes in _noted(hostvars, hosts, "apply_changes") for step in DISTURBING)
    outage = _outage(hostvars, hosts, run["seconds"]) if changed else "nothing had to restart"
    services = ", ".join(dict.fromkeys(answer["item"]["service"] for answer in answers)) or "no service"
    reasons = ", ".join(answer["reason"] for answer in answers) or "none runs"
    units = [f"{services}: as of {run['id']}, {build} serves ({reasons}), {outage}"]
    return [
        *(units if any(one.get("units") for one in opened) else []),
        "the inventory may still say what was rolled back: set llama_builds (%s) and the services as they were "
        "there, or the next site.yml switches again" % build,
    ]


def _model_switched(hostvars: HostVars, hosts: Sequence[str], run: Mapping[str, Any]) -> list[str]:
    """hosts: of its heads; run: the state of the switch; service, quant, was: the quant of the inventory, services:
    its entry, park: the node that has the old model, check_mode; trial: its duration, or empty; submitters: of
    its job."""
    files = hostvars[hosts[0]]["apply_model_files"]
    old, new = (os.path.basename(files[key]) for key in ("old", "new"))
    job = _jobs(run).get(run["service"])
    if run["check_mode"] and job:
        return [f"{run['service']}: check mode, its job goes on; what would change is shown above"]
    if run["check_mode"]:
        return [f"{run['service']}: check mode, {old} serves on; what would change is shown above"]
    stays = not _is_wanted(files) and files["retire"] == "never"
    kept = f", {files['old']} stays on {run['park'] or ', '.join(hosts)}" if stays else ""
    speed = _speed(hostvars, hosts)
    if run.get("trial"):
        until = minute(hostvars[hosts[0]]["switch_model_trial"]["trials"][0]["until"])
        return [
            f"{run['service']}: {new} serves on trial until {until}{kept}",
            *speed,
            "then %s is back by itself, unless switch_model.yml -e service=%s -e keep=true%s is run before that"
            % (run["was"], run["service"], " -e evaluation=true" if run.get("evaluation") else ""),
            f"the inventory goes on saying {run['was']}, and site.yml and others refuse to run until then",
        ]
    lines = [f"{run['service']}: {new}{': ' + job if job else ' serves'}{kept}", *speed]
    if run["was"] != run["quant"]:
        lines.append(_to_write(run["service"], run["quant"], run["was"]))
    return lines


def _to_write(service: str, quant: str, was: str) -> str:
    """The next step after a permanent switch."""
    step = f"set the quant of llama_services.{service} to {quant} there, or the next site.yml switches back"
    return f"the inventory says {was}: {step}"


def _model_kept(hostvars: HostVars, hosts: Sequence[str], run: Mapping[str, Any]) -> list[str]:
    """run: service, was: the quant of the inventory, check_mode."""
    kept = [one for asked in _noted(hostvars, hosts, "switch_model_kept") for one in asked.get("trials", [])]
    if not kept:
        return [f"{run['service']}: not on trial, nothing is to be kept"]
    quant = kept[0]["quant"]
    if run["check_mode"]:
        return [f"{run['service']}: check mode, {quant} stays on trial"]
    lines = [f"{run['service']}: {quant} is kept, its trial is over"]
    return lines + ([_to_write(run["service"], quant, run["was"])] if run["was"] != quant else [])


def _model_switch_failed(hostvars: HostVars, hosts: Sequence[str], run: Mapping[str, Any]) -> list[str]:
    """run: as of _model_switched()."""
    old = os.path.basename(hostvars[hosts[0]].get("apply_model_files", {}).get("old", ""))
    jobs = _jobs(run)
    end = _first(
        (run["check_mode"], "nothing was changed, this is check mode"),
        (not run["undone"], f"the old one does not answer either ({_way_back(hostvars, list(hostvars))})"),
        (run["park"], f"{old} is back from {run['park']} and serves again"),
        (bool(jobs), "rolled back" + "".join(f"; {words}" for words in jobs.values() if run["jobs"])),
        (True, "the old one serves again"),
    )
    log = f"journalctl -t llama-head-{run['service']} on {', '.join(hosts)}"
    words = (run["service"], run["failures"][0], end, f"llama-jobs list on {run['submitters'][0]}" if jobs else log)
    return ["llama_services.%s: the new model does not serve (%s), %s: see %s" % words]


def _silent(hostvars: HostVars, hosts: Sequence[str], run: Mapping[str, Any]) -> list[str]:
    """The restored manual heads that do not answer, each with the reason."""
    asked = [
        answer
        for health in _noted(hostvars, hosts, "adoption_answers")
        for answer in health.get("results", [])
        if "state" in answer
    ]
    return [f"{answer['item']['name']} {answer['reason']}" for answer in asked if answer["state"] not in ANSWERS]


def _held(hostvars: HostVars, hosts: Sequence[str], run: Mapping[str, Any]) -> list[str]:
    """run: node, services; jobs: the services whose jobs need the node."""
    started = [name for name, service in run["services"].items() if not is_stopped(service)]
    seen = {host: hostvars[host]["ansible_facts"]["llama_node"] for host in {*hosts, run["node"]}}
    mine = units_of(seen[run["node"]]["units"])
    # The other replicas keep answering.
    replicas = {
        unit.service: [host for host in hosts if host != run["node"] and _answers(seen[host], unit.name)]
        for unit in mine
        if unit.kind in ANSWERING
    }
    parts = [name for name in started if name in [*(unit.service for unit in mine), *run.get("jobs", ())]]
    waiting = ", ".join(name for name in parts if not replicas.get(name))
    words = waiting + " cannot answer until it returns" if waiting else "no service waits for it"
    going = [f"; {name} answers on {', '.join(replicas[name])}" for name in parts if replicas.get(name)]
    return [
        f"maintenance: {run['node']} is held, {words}{''.join(going)}",
        f"patch and reboot {run['node']}, then run maintenance.yml -e node={run['node']} -e state=return",
    ]


def _answers(node: Mapping[str, Any], name: str) -> bool:
    return any(unit.name == name and unit.active_state == "active" for unit in units_of(node["units"]))


def _status(hostvars: HostVars, hosts: Sequence[str], run: Mapping[str, Any]) -> list[str]:
    """run: nodes, all that should have been asked; services, groups; verbose, with -v; jobs: rows of
    jobs_seen()."""
    asked = [answer for heads in _noted(hostvars, hosts, "status_heads") for answer in heads["results"]]
    nodes = {host: hostvars[host]["status_node"] for host in hosts}
    facts = {host: hostvars[host].get("ansible_facts", {}).get("llama_node", {}) for host in hosts}
    parts = managed(run["services"], run["groups"])
    silent = {
        node: [one.name for one in parts if node in [*one.heads, *one.workers]]
        for node in run["nodes"]
        if node not in hosts
    }
    verbose = bool(run["verbose"])
    lines = status_lines(
        nodes,
        [(answer["item"], answer) for answer in asked],
        {host: one.get("plans", {}) for host, one in facts.items()},
        silent,
        verbose,
        run.get("jobs", ()),
    )
    for host in [host for host in hostvars if "gateway_status" in hostvars[host]]:
        lines += gateway_lines(
            host, hostvars[host]["gateway_units"]["units"], hostvars[host]["gateway_status"], verbose
        )
    return lines


def _served(hostvars: HostVars, hosts: Sequence[str], run: Mapping[str, Any]) -> list[str]:
    """run: idle, behind: see served_lines()."""
    shown = {label: row for noted in _noted(hostvars, hosts, "acceptance_shown") for label, row in noted.items()}
    return served_lines(dict(sorted(shown.items())), bool(run["idle"]), bool(run["behind"]))


def _logs(hostvars: HostVars, hosts: Sequence[str], run: Mapping[str, Any]) -> list[str]:
    """run: nodes, all that should have been asked."""
    return log_lines(hostvars, run["nodes"], hosts)


ENDINGS: dict[str, Callable[[HostVars, Sequence[str], Mapping[str, Any]], list[str]]] = {
    "upgraded": _upgraded,
    "upgrade_failed": _upgrade_failed,
    "rolled_back": _rolled_back,
    "model_kept": _model_kept,
    "model_switched": _model_switched,
    "model_switch_failed": _model_switch_failed,
    "silent": _silent,
    "held": _held,
    "served": _served,
    "status": _status,
    "logs": _logs,
}
