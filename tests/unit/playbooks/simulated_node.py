# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a playbook's tasks on a node that is a directory: units are files, a running unit is a file, each task that
changes a node is an event.

An action plugin under the name of each module that simulation.py replaces. Builds and snapshots are read and put back
by the collection's own code.
A build that is named *deaf has workers that do not listen, a build or a model that is named *mute has heads that do not
answer.
"""

import base64
import fnmatch
import grp
import hashlib
import json
import os
import pathlib
import pwd
import shutil
import time

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ..module_utils._gateway import draining
from ..module_utils._node import files, snapshot, trials
from ..module_utils._node import units as units_of_node
from ..module_utils._node.build import build_info
from ..plugin_utils._evaluate.suggest import routes_result

NODES = pathlib.Path(os.environ["SIMULATION"], "nodes")
EVENTS = NODES.parent / "events"


FRONT = "/etc/nginx/sites-enabled/ai-inference"


class Node:
    def __init__(self, name):
        self.name = name
        self.root = NODES / name
        self.prefix = self.root / "opt/llama.cpp"
        self.units = self.root / "etc/systemd/system"
        self.running = self.root / "run"
        self.held = self.root / "etc/llama-cluster/held.json"

    def path(self, name):
        return self.root / name.lstrip("/")

    def unit(self, name):
        return json.loads((self.units / name).read_text()) if (self.units / name).exists() else None

    def process(self, name):
        path = self.running / name
        return json.loads(path.read_text()) if path.exists() else None

    def build(self, release=None):
        return build_info(str(self.prefix), release)

    def look(self, name):
        kind, service = units_of_node.unit_kind(name)
        unit, process = self.unit(name), self.process(name)
        service = service or (unit or process or {}).get("service")
        arguments = (unit or {}).get("arguments", [])
        return {
            **units_of_node.where(kind, arguments),
            "name": name,
            "kind": kind,
            "service": service,
            "installed": unit is not None,
            "managed": unit is not None,
            "enabled": (self.units / "multi-user.target.wants" / name).exists(),
            "active_state": "active" if process else "inactive",
            "sub_state": "running" if process else "dead",
            "main_pid": 4711 if process else None,
            "failed_in_a_row": 0,
            "drop_ins": [str(path)[len(str(self.root)) :] for path in self.units.glob(name + ".d/*")],
            "arguments": arguments,
            "wanted_digest": (unit or {}).get("digest"),
            "running_digest": (process or {}).get("digest"),
            "stale": bool(process and unit and process["digest"] != unit["digest"]),
        }


def worker_at(endpoint):
    """The worker that listens at an endpoint, on any node."""
    for path in [*NODES.glob("*/run/llama-rpc*"), *NODES.glob("*/run/llama-tune-rpc*")]:
        process = json.loads(path.read_text())
        arguments = process["arguments"]
        if "%s:%s" % (arguments[arguments.index("--host") + 1], arguments[arguments.index("--port") + 1]) == endpoint:
            return None if "-deaf-" in process["release"] else process
    return None


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        self.node = Node(task_vars["inventory_hostname"])
        self.check = self._task.check_mode
        name = self._task.action.rpartition(".")[2]
        if (self.node.root / "lost").exists():
            raise AnsibleConnectionFailure("%s cannot be reached" % self.node.name)
        if (self.node.root / "rootless").exists():
            return dict(result, failed=True, msg="Missing sudo password")
        answer = getattr(self, "do_" + name)(self._task.args)
        return dict(result, **answer)

    def event(self, text):
        """Records an event of the node before it happens. Here a moment is kept, a node is lost or an event fails, if
        the test asks for it."""
        if self.check:
            return
        text = "%s %s" % (self.node.name, text)
        with open(EVENTS, "a") as stream:
            stream.write(text + "\n")
        moments, loses, fails = (EVENTS.with_name(name) for name in ("moments", "loses", "fails"))
        kept = json.loads(moments.read_text()) if moments.exists() else []
        if kept and fnmatch.fnmatch(text, kept[0][1]):
            shutil.copytree(NODES, EVENTS.with_name("at-" + kept.pop(0)[0]), symlinks=True)
            moments.write_text(json.dumps(kept))
        if loses.exists() and fnmatch.fnmatch(text, loses.read_text()):
            loses.unlink()
            (self.node.root / "lost").touch()
            raise AnsibleConnectionFailure("%s cannot be reached" % self.node.name)

        if fails.exists() and fnmatch.fnmatch(text, fails.read_text()):
            fails.unlink()
            raise AnsibleActionFail("no space left")

    # The roles that simulation.py replaces.

    def do_stage(self, arguments):
        """Builds lie beside the one in use."""
        self.event("stage %s" % " ".join(arguments["builds"]))
        return {"changed": False}

    def do_activate(self, arguments):
        self.event("activate %s" % arguments["build"])
        changed = os.readlink(self.node.prefix / "current") != "releases/" + arguments["build"]
        if not self.check:
            partial = self.node.prefix / "partial"
            partial.symlink_to("releases/" + arguments["build"])
            partial.rename(self.node.prefix / "current")
        return {"changed": changed}

    def do_model(self, arguments):
        self.event("model %s" % arguments["step"])
        return {"changed": False}

    def do_configure(self, arguments):
        """Writes the units of one kind."""
        changed = False
        for one in arguments["instances"]:
            if arguments["only"] and one["service"] not in arguments["only"]:
                continue
            build = self.node.build(one["build"])
            name = units_of_node.unit_name(arguments["kind"], one["service"], bool(one.get("primary")))
            options = [
                "/opt/llama.cpp/releases/%s/bin/server" % one["build"],
                "--host",
                one["address"],
                "--port",
                str(one["port"]),
            ]
            for path in filter(None, one.get("model_paths", ())):
                options += ["--model", path]
            if one.get("rpc_endpoints"):
                options += ["--rpc", ",".join(one["rpc_endpoints"])]
            if one.get("cache"):
                options.append("--cache")
            if arguments["kind"] == "head":
                options += [str(word) for word in one["args"]]
            unit = {"release": build["current_build"], "arguments": options, "settings": one.get("memory_max", "")}
            unit["service"] = one["service"]
            unit["digest"] = hashlib.sha256(json.dumps([unit, build["build_sha256"]]).encode()).hexdigest()[:16]
            link = self.node.units / "multi-user.target.wants" / name
            starts = one["state"] == "started" and not self.node.held.exists()
            if self.node.unit(name) == unit and link.is_symlink() == starts:
                continue
            changed = True
            self.event("configure %s" % name)
            if not self.check:
                link.parent.mkdir(parents=True, exist_ok=True)
                (self.node.units / name).write_text(json.dumps(unit))
                link.unlink(missing_ok=True)
                if starts:
                    link.symlink_to("../" + name)
        return {"changed": changed}

    # Modules of Ansible.

    def do_systemd_service(self, arguments):
        name, state, changed = arguments.get("name", ""), arguments.get("state", ""), False
        self.node = Node(self._task.delegate_to or self.node.name)
        if name.startswith("llama-firewall"):
            return {"changed": False}
        process, unit = self.node.process(name) if name else None, self.node.unit(name) if name else None
        path = self.node.running / name
        if state == "stopped" and process or state in ("restarted", "started") and not (state == "started" and process):
            changed = True
            self.event("%s %s" % (state, name))
            if not self.check:
                if process:
                    path.unlink()
                if state != "stopped":
                    path.write_text(json.dumps(unit))
        if "enabled" in arguments and unit:
            wants = self.node.units / "multi-user.target.wants" / name
            if wants.is_symlink() != bool(arguments["enabled"]):
                changed = True
                self.event("%s %s" % ("enabled" if arguments["enabled"] else "disabled", name))
                if not self.check:
                    wants.symlink_to("../" + name) if arguments["enabled"] else wants.unlink()
        return {"changed": changed}

    def do_copy(self, arguments):
        path = self.node.path(arguments["dest"])
        content = arguments["content"] if isinstance(arguments["content"], str) else json.dumps(arguments["content"])
        if path.exists() and (not arguments.get("force", True) or path.read_text() == content):
            return {"changed": False}
        self.event("copy %s" % arguments["dest"])
        if not self.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return {"changed": True}

    def do_file(self, arguments):
        path = self.node.path(arguments["path"])
        if arguments["state"] != "absent" or not path.exists():
            return {"changed": False}
        self.event("remove %s" % arguments["path"])
        if not self.check:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return {"changed": True}

    def do_node_files(self, arguments):
        """By the collection's own code, below the node's directory."""
        me = {"owner": pwd.getpwuid(os.geteuid()).pw_name, "group": grp.getgrgid(os.getegid()).gr_name}
        unsaid = dict.fromkeys(("content", "mode", "target", "validate", "mark", "hidden", "kept"))
        written = files.Files(self.check)
        for entry in arguments["files"]:
            path = str(self.node.path(entry["path"]))
            written.apply({**unsaid, "state": "file", **entry, **me, "path": path})
        for path in written.paths:
            self.event("write /%s" % os.path.relpath(path, str(self.node.root)))
        return {"changed": bool(written.paths), "diff": written.changes}

    def do_remove_managed(self, arguments):
        """Units; and of the roles' remove.yml, which simulation.py replaces, what they would remove."""
        if "role" in arguments:
            self.event("remove all of %s" % arguments["role"])
        found = [self.node.units / name for name in arguments.get("units", []) if self.node.unit(name)]
        for path in found:
            self.event("remove %s" % path.name)
            if not self.check:
                path.unlink()
        return {"changed": bool(found)}

    def do_adoption(self, arguments):
        """Servers of the operators are a file by-hand, with its kind; their head is a unit that does not respond if its
        node has a file `broken`. A gateway is a file front, whose text is whether it requires a key; step `managed` is
        role gateway."""
        part, step, kind = arguments.get("part", "servers"), arguments["step"], arguments.get("kind")
        by_hand = self.node.root / {"gateway": "front", "jobs": "daemon"}.get(part, "by-hand")
        name = {"gateway": "adopted-gateway", "jobs": "adopted-jobs"}.get(part, "adopted")
        record = self.node.root / "var/lib/llama-cluster" / name / "record.json"
        known = json.loads(record.read_text()) if record.exists() else None
        result = {"changed": False, "actions": [], "recorded": known}
        if step in ("look", "read"):
            found = [by_hand.read_text()] if by_hand.exists() else []
            result["needed"] = bool(found or known and not known["finished"])
            if part == "gateway":
                sites = [FRONT] * len(found)
                lines = ["%s: a site of nginx" % path for path in sites]
                result.update(sites=sites, keyless=found == ["keyless"], tailnet=self._talkers("tailnet"), lines=lines)
            elif part == "jobs":
                running = [{"job_id": 7, "nodes": "node1"}] if (self.node.root / "old-job").exists() else []
                result.update(jobs=running, units=found, lines=["a daemon submits jobs"] * len(found))
            else:
                units = ["llama-%s.service" % one for one in found]
                clients = [{"port": 8080, "address": address} for address in self._talkers()]
                result.update(units=units, pids=[], clients=clients, lines=["manual: %s" % unit for unit in units])
            return result
        if step == "save" and by_hand.exists():
            text = by_hand.read_text()
            heads = [{"name": "old", "url": "http://%s:8080" % self.node.name, "rpc_endpoints": []}]
            known = {
                "created": "2026-10-01T08:00:00Z",
                "finished": False,
                "text": text,
                "heads": heads if text == "head" else [],
            }
        acts = known and kind in (None, known["text"])
        if acts or step == "managed":
            words = {"gateway": "front", "jobs": "daemon"}.get(part, "adoption")
            self.event(" ".join([words, step] + ([kind] if kind else [])))
        if part == "jobs" and step == "stop" and not self.check:
            (self.node.root / "old-job").unlink(missing_ok=True)
        if acts and not self.check:
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(json.dumps(dict(known, finished=known["finished"] or step == "finish")))
            if step == ("stop" if part == "servers" else "put_aside") and by_hand.exists():
                by_hand.unlink()
            elif step == ("start" if part == "servers" else "put_back"):
                by_hand.write_text(known["text"])
            elif step == "forget":
                record.unlink()
        return dict(result, changed=bool(acts), recorded=known)

    def _talkers(self, name="talkers"):
        path = self.node.root / name
        return path.read_text().split() if path.exists() else []

    def do_slurp(self, arguments):
        path = Node(self._task.delegate_to or self.node.name).path(arguments["src"])
        if not path.exists():
            return {"failed": True, "msg": "File not found: %s" % arguments["src"]}
        return {"changed": False, "content": base64.b64encode(path.read_bytes()).decode()}

    def do_command(self, arguments):
        if "argv" in arguments:
            if arguments["argv"][0] == "scontrol":
                return {"changed": False, "rc": 0, "stdout_lines": ["PID JOBID", "99 7"]}
            return self._drilled(*arguments["argv"][3:])
        words = arguments["line"].split()
        assert words[:3] == ["ss", "-Hltn", "src"], words
        return {"changed": False, "rc": 0, "stdout": "LISTEN" if worker_at(words[3]) else ""}

    def _drilled(self, what, action=""):
        """A script of role drill: an event, after which jobs-NAME.json of its name is the host's jobs.json. What it
        prints is in drill.json."""
        host = NODES / (self._task.delegate_to or self.node.name)
        name = "%s %s" % (what, action)
        if what != "look":
            self.event("drill at %s: %s" % (host.name, name.strip()))
        for path in NODES.glob("*/jobs-%s.json" % name.replace(" ", "-")):
            path.rename(path.with_name("jobs.json"))
        printed = json.loads((host / "drill.json").read_text()) if (host / "drill.json").exists() else {}
        lines = printed.get(what, ["1000.0"])
        return {"changed": True, "rc": 0, "stdout_lines": lines, "ansible_job_id": "1"}

    def do_shell(self, arguments):
        assert "ip -oneline route get" in arguments["cmd"], arguments
        return {"changed": False, "rc": 0, "stdout": "10.0.0.1 dev eth0 src %s uid 0" % (NODES / "asker").read_text()}

    # Modules of the collection.

    def do_llama_unit_info(self, arguments):
        node = Node(self._task.delegate_to or self.node.name)
        patterns = arguments.get("units", ["*"])
        folders = [folder for folder in (node.units, node.running) if folder.exists()]
        names = {name for folder in folders for name in os.listdir(folder) if units_of_node.UNIT_NAME.match(name)}
        units = [
            node.look(name) for name in sorted(names) if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
        ]
        return dict(
            node.build(arguments.get("release")),
            changed=False,
            units=units,
            held=units_of_node.held_since(str(node.held)),
            trials=trials.Trials(str(node.root)).report(),
            variants=[
                {"service": path.name[len("llama-tune-head-") : -len(".service")], "until": "2026-11-28T05:00:00Z"}
                for path in sorted(node.running.glob("llama-tune-head-*"))
            ],
        )

    def do_node_facts(self, arguments):
        """Units, a build and interfaces are all that the roles ask for which are not replaced."""
        if arguments.get("forget"):
            return {"changed": False, "ansible_facts": {"llama_node": {}}}
        assert set(arguments) <= {"units", "build", "again", "interfaces", "files", "plans", "gpus"}, arguments
        found = self.do_llama_unit_info({})
        names = arguments.get("build", {}).get("releases", [])
        build = {"of": {name: self.node.build(name or None) for name in names}, "kept": []}
        interfaces = dict.fromkeys(arguments.get("interfaces", []), "2: eth0 inet 10.0.0.1/24")
        facts = {name: found[name] for name in ("units", "held", "trials")}
        files = {
            path: None if (self.node.root / "old-programs").exists() else [1, 1] for path in arguments.get("files", [])
        }
        plans = {service: self._plan(service) for service in arguments.get("plans", [])}
        facts.update(build=build, interfaces=interfaces, files=files, plans=plans)
        cards = self.do_nvidia_smi_facts({})["ansible_facts"] if arguments.get("gpus") else {}
        cards.update({"llama_drm": {"cards": [], "reason": None}} if cards else {})
        return {"changed": False, "ansible_facts": {"llama_node": facts, **cards}}

    def _plan(self, service):
        """No plan, and what was kept of a long prompt."""
        kept = self.node.root / "var/lib/llama-cluster" / ("prompt-%s.json" % service)
        return {"item": service, **({"prompt": kept.read_text()} if kept.exists() else {})}

    def do_model_facts(self, arguments):
        """A model is there, unless the node has a file `unproved`."""
        there = not (self.node.root / "unproved").exists()
        models = [
            {"item": item, "there": there, "size": 37 * 10**8, "files": [{"path": item["dest"]}]}
            for item in arguments["models"]
        ]
        return {"changed": False, "models": models}

    def do_gguf_verify(self, arguments):
        """The models are what was published, unless the node has a file `flipped`."""
        self.event("hashes")
        problem = "%s: bytes 0 to 9 have sha256 a, b recorded: run site.yml --tags model"
        flipped = (self.node.root / "flipped").exists()
        models = [{"path": path, "problem": problem % path if flipped else None} for path in arguments["paths"]]
        (self.node.root / "job.json").write_text(json.dumps({"models": models}))
        return {"changed": False, "ansible_job_id": "1"}

    def do_gguf_share(self, arguments):
        shared = [os.path.basename(path) for path in arguments.get("files", [])]
        self.event("share %s with %s" % (shared, arguments["peers"]) if shared else "stop sharing")
        return {"changed": True, "url": "http://share/"}

    def do_rpc_seed(self, arguments):
        """A cache is a file with what it was seeded with. Of a node with a file `unseeded` the job fails."""
        path = self.node.root / ("cache-" + arguments["service"])
        wanted = json.dumps([arguments[name] for name in ("files", "layers", "output", "program")])
        seeded = path.exists() and path.read_text() == wanted
        if not seeded and not self.check:
            self.event("seed %s layers %s from %s" % (arguments["service"], arguments["layers"], arguments["url"]))
            fails = (self.node.root / "unseeded").exists()
            if not fails:
                path.write_text(wanted)
            job = {"failed": True, "msg": "no room"} if fails else {"changed": True}
            (self.node.root / "job.json").write_text(json.dumps(job))
        return {"changed": not seeded, "seeded": seeded, "ansible_job_id": "1"}

    def do_async_progress(self, arguments):
        job = json.loads((self.node.root / "job.json").read_text())
        return {"changed": False, **job, "job": job}

    def do_llama_trial(self, arguments):
        """Each call of systemctl is an event."""
        here = trials.Trials(str(self.node.root), lambda *words: self.event(" ".join(("systemctl", *words))))
        state, before = arguments["state"], here.report()
        if state == "started":
            texts = [str(arguments[key]) for key in ("service", "quant", "was", "model")]
            changed, record = here.start(*texts, int(arguments["seconds"]), check=self.check)
            return {"changed": changed, "trials": [record]}
        names = here.settle(self.check) if state == "settled" else [arguments["service"]]
        if state == "ended":
            here.end(names[0], self.check)
        found = [one for one in before if one["service"] in names]
        return {"changed": bool(found), "trials": found}

    def do_llama_snapshot(self, arguments):
        self.node = Node(self._task.delegate_to or self.node.name)
        jobs = arguments.get("jobs", False)
        folder = self.node.root / ("var/lib/llama-cluster/rollback" + ("-jobs" if jobs else ""))
        folder.mkdir(parents=True, exist_ok=True)
        snapshots = snapshot.Snapshots(str(folder), str(self.node.prefix), str(self.node.root), jobs)
        state, restored = arguments.get("state", "looked"), []
        if state != "looked":
            self.event("snapshot %s%s" % (state, " of jobs" if jobs else ""))
        if state == "opened":
            snapshots.open(arguments["id"], self.check, arguments.get("releases", []))
        elif state == "restored":
            restored = [path for path, _now, _then in snapshots.restore(arguments["id"], self.check)]
        elif not self.check and state in ("closed", "dropped"):
            (snapshots.close if state == "closed" else snapshots.drop)()
        return dict(snapshots.look(), changed=bool(restored), restored=restored)

    def do_llama_health(self, arguments):
        """health_only is a request from another node: a node with a file `closed` responds only to itself."""
        if arguments.get("health_only"):
            closed = (self.node.root / "closed").exists()
            return {
                "changed": False,
                "state": "down" if closed else "ready",
                "reason": "No route to host" if closed else "it answers /health",
            }
        if "unit" not in arguments and "arguments" not in arguments:
            broken = (self.node.root / "broken").exists()
            return {
                "changed": False,
                "state": "down" if broken else "ready",
                "reason": "no listener" if broken else "it answered 1 token",
            }
        unit = arguments.get("unit", "a job")
        if (self.node.root / "unasked").exists():
            said = (self.node.root / "unasked").read_text() % unit
            return {"changed": False, "failed": True, "msg": "llama_health: " + said}
        self.event("ask %s" % unit)
        # A job's processes are no files: they are well, but for a file `broken`.
        job = None if (self.node.root / "broken").exists() else {"release": "b1", "settings": "", "arguments": []}
        process = self.node.process(unit) if "unit" in arguments else job
        endpoints = arguments.get("rpc_endpoints", [])
        workers = [worker_at(endpoint) if "unit" in arguments else job for endpoint in endpoints]
        state, reason = "ready", "it answered 8 tokens in 0.1 s"
        if not process:
            state, reason = "down", "no listener"
        elif (self.node.root / "busy").exists():
            state, reason = "busy", "1 of 1 slots works"
        elif not all(workers) or {worker["release"] for worker in workers} - {process["release"]}:
            state, reason = "degraded", "a worker of its build is missing"
        elif (
            "-mute-" in process["release"]
            or process["settings"] == "mute"
            or any("-mute.gguf" in word for word in process["arguments"])
        ):
            state, reason = "loading", "it has been loading for ever"
        moved = [{"endpoint": one, "connected": True, "bytes_sent": 9, "bytes_received": 9} for one in endpoints]
        answer = {"changed": False, "state": state, "reason": reason, "answer": "Red.", "workers": moved}
        answer.update(self._speed())
        if "conversation" in arguments:
            model = " for " + arguments["model"] if "model" in arguments else ""
            self.event("talk %s with %s%s" % (arguments["conversation"], unit, model))
            parts = dict.fromkeys(("question", "embedding", "reranking", "tools", "reasoning", "context", "not_held"))
            answer["conversation"] = dict(parts, question="answers", tools="called", reasoning="none")
            broken = self.node.root / "conversation"  # its text is why a conversation fails
            if broken.exists() and state == "ready":
                state, reason = "degraded", broken.read_text()
                answer.update(state=state, reason=reason)
        if state in arguments.get("fail_on", ["loading", "degraded", "down"]):
            answer.update(failed=True, msg="llama_health: %s is %s: %s" % (arguments["url"], state, reason))
        return answer

    def _speed(self):
        """Fixed speeds, or the content of a file health.json."""
        planned = self.node.root / "health.json"
        speed = {"tokens_per_second": 10.0, "prompt_tokens_per_second": 50.0}
        return dict(speed, **(json.loads(planned.read_text()) if planned.exists() else {}))

    def do_llama_plan(self, arguments):
        """No file of a model is there."""
        self.event("header of " + arguments["path"])
        return {"changed": False, "failed": True, "msg": "llama_plan: %s is not there" % arguments["path"]}

    def do_llama_bench(self, arguments):
        """A node with a file `unmeasured` answers no request of it, one with `slow` takes a minute. What listens on
        loopback is twice as fast."""
        if (self.node.root / "slow").exists():
            time.sleep(60)
        refused = self.node.root / "unmeasured"
        if refused.exists():
            return {"changed": False, "failed": True, "msg": "llama_bench: " + refused.read_text()}
        if "model" in arguments:
            self.event("measure %s of %s" % (arguments["model"], arguments["url"]) + self._asker(arguments))
        speed = self._speed()
        server = {name: {"p50": speed[name]} for name in ("tokens_per_second", "prompt_tokens_per_second")}
        figures = {"requests": int(arguments["requests"]), "errors": 0, "reasons": {}, "server": server}
        times = 2 if "//127.0.0.1:" in arguments["url"] else 1
        planted = self.node.root / "planted.json"
        if planted.exists():
            # {argument of a variant: how many times as fast it is}, with a scatter of some percent by its request.
            line = " ".join(self.node.process(arguments["unit"])["arguments"])
            asked = self.node.root / "asked"
            count = len(asked.read_text()) if asked.exists() else 0
            asked.write_text("x" * (count + 1))
            times = 1 + 0.02 * ((count * 7919 % 11) / 11 - 0.5)
            for words, factor in json.loads(planted.read_text()).items():
                times *= factor if words in line else 1
            speed = {name: times * value for name, value in speed.items()}
            server.update({name: {"p50": speed[name]} for name in server})
            times = 1
        figures["request_tokens_per_second"] = {"p50": times * speed["tokens_per_second"]}
        figures.update(time_to_first_token={"p50": 0.5}, queue_seconds={"p50": 0.0})
        figures.update(tokens_per_second=speed["tokens_per_second"], generated_tokens=640, prompt_tokens=100)
        cell = {"depth": 0, "depth_counted": True, "concurrency": 1, "others": 0}
        cell.update(began=1000.0, ended=1003.0, figures=figures)
        several = arguments["concurrency"] if planted.exists() else [1]
        cells = [dict(cell, prompt=one["name"], concurrency=int(n)) for one in arguments["prompts"] for n in several]
        return {"changed": False, "cells": cells, "disturbed": False}

    def _asker(self, arguments):
        """From where, and with which key."""
        there = self._task.delegate_to
        own = " from %s" % there if there and there != self.node.name else ""
        return own + (" with " + arguments["api_key"] if "api_key" in arguments else "")

    def do_llama_ask(self, arguments):
        """A node with a file `silent` answers nothing."""
        about, reason = arguments["about"], ""
        if (Node(self._task.delegate_to).root / "silent").exists():
            reason = "no connection (Connection refused)"
        self.event(
            "ask %s of %s for %s" % (arguments["model"], arguments["url"], about["left"]) + self._asker(arguments)
        )
        asked = 0 if reason else about["left"]
        return {"changed": bool(asked), "asked": asked, "missing": about["left"] - asked, "reason": reason}

    def do_evaluation(self, arguments):
        """The route that it suggests is that of the first model that has answered."""
        if "asked" not in arguments:
            return {"changed": False}
        names = [one["item"]["name"] for one in arguments["asked"] if one["asked"]]
        self.event("judge %s on %s" % (", ".join(names), self._task.delegate_to))
        suggestions = [{"kind": "fix", "model": name, "reason": ""} for name in names[:1]]
        return {
            "changed": bool(names),
            "lines": ["asked %d" % len(names)],
            "refused": [] if names else ["evaluate: no answer seen, one is needed"],
            "routes": routes_result(suggestions, arguments["routes"], arguments["routes_text"]),
        }

    def do_llama_bench_watch(self, arguments):
        """A job with the name of its node, whose sign to end is a file: of a node with a file `unwatched` it fails, of
        one with a file `unreached` it does not even start."""
        node = Node(self._task.delegate_to or self.node.name)
        if self._task.check_mode:
            return {"changed": False, "samples": [], "machine": {"kernel": "kernel of " + node.name}}
        if (node.root / "unreached").exists():
            raise AnsibleConnectionFailure("%s cannot be reached" % node.name)
        self.event("watch %s until %s" % (node.name, os.path.basename(arguments["stop"])))
        return {"changed": False, "ansible_job_id": node.name, "started": 1}

    def do_async_status(self, arguments):
        node = Node(self._task.delegate_to or self.node.name)
        if (node.root / "answers.json").exists():
            return {
                "changed": False,
                "finished": 1,
                "stdout_lines": json.loads((node.root / "answers.json").read_text()),
            }
        if (node.root / "unwatched").exists():
            return {"changed": False, "finished": 1, "failed": True, "msg": "llama_bench_watch: out of memory"}
        sample = {"at": 1001.0, "cpu": 0.5, "rx_bytes": 0, "tx_bytes": 0, "cards": []}
        return {"changed": False, "finished": 1, "samples": [sample], "machine": {"kernel": "6.1"}}

    def do_wait_for(self, arguments):
        return {"changed": False}

    def do_firewalld_rules(self, arguments):
        """The event has the peers that a node lets in; the file access.json what its firewall does."""
        if "access" in arguments:
            (self.node.root / "access.json").write_text(json.dumps(arguments["access"]))
            return {"changed": False}
        there = "%s: %s" % (self._task.delegate_to or self.node.name, " ".join(arguments["peers"]) or "no host")
        self.event("lets in at %s for %s" % (there, arguments["timeout"]))
        return {"changed": False, "calls": [], "left": []}

    def do_link_capacity(self, arguments):
        """A node with a file `unlinked` has no iperf3."""
        node = Node(self._task.delegate_to or self.node.name)
        way = " from %s" % arguments["peer"] if arguments["state"] == "serving" else ""
        way = " %s" % ("back" if arguments["reverse"] else "there") if arguments["state"] == "measured" else way
        self.event("link %s at %s%s" % (arguments["state"], node.name, way))
        if (node.root / "unlinked").exists() and arguments["state"] == "serving":
            return {"changed": False, "failed": True, "msg": "link_capacity: iperf3: not found on " + node.name}
        return {"changed": False, "gbit_per_second": 9.4, "retransmits": 3}

    def do_llama_fabric_facts(self, arguments):
        fabric = {"link_layer": "Ethernet", "rate_gbps": 10.0, "interface": "eth1", "mtu": 1500, "ipoib_mode": None}
        return {"changed": False, "ansible_facts": {"llama_fabric": fabric}}

    def do_node_history(self, arguments):
        """The last manual change was two days ago; a file hand.json overrides the answer."""
        history = {"now": 200000.0, "at": 20000.0, "what": "/etc/llama-cluster changed", "recovered": None}
        planned = self.node.root / "hand.json"
        history.update(restart=dict.fromkeys(arguments["units"], "always"), changed=False)
        return dict(history, **(json.loads(planned.read_text()) if planned.exists() else {}))

    def do_llama_wire(self, arguments):
        """Directories have no connections: nothing is looked at, as of a service that serves others."""
        self.event("wire of %s" % arguments["unit"])
        return {"changed": False, "state": "busy", "reason": "1 of 1 slots work", "decode": None}

    def do_llama_process(self, arguments):
        if arguments["unit"].startswith("llama-tune-"):
            return {"changed": False, "pid": 4711, "resident_mib": 100.0, "cards_mib": None}
        return {"changed": False, "pid": None}

    def do_port_probe(self, arguments):
        return {"changed": False, "answers": dict.fromkeys(arguments["endpoints"], "refused")}

    def do_llama_variant(self, arguments):
        """A process beside the deployed unit, which runs again at the end. A worker on the loopback has no such one."""
        node = Node(self._task.delegate_to or self.node.name)
        service, kind = arguments.get("service", ""), arguments.get("kind")
        if arguments["state"] == "ended":
            ended = sorted(node.running.glob("llama-tune-*-%s.service" % (service or "*")))
            for path in ended:
                deployed = path.name.replace("llama-tune-", "llama-")
                if node.unit(deployed):
                    self.event("deployed %s on %s" % (deployed, node.name))
                    (node.running / deployed).write_text(json.dumps(node.unit(deployed)))
                path.unlink()
            return {"changed": bool(ended), "ended": [path.name for path in ended]}
        kind = kind or "head"
        unit, name = node.unit("llama-%s-%s.service" % (kind, service)), "llama-tune-%s-%s.service" % (kind, service)
        (node.running / ("llama-%s-%s.service" % (kind, service))).unlink(missing_ok=True)
        changed = " ".join(
            word for word in arguments["arguments"] if word not in unit["arguments"] or word.startswith("--no")
        )
        beside, worker = node.running / ("llama-tune-rpc-%s.service" % service), arguments.get("worker") or []
        changed += " beside " + " ".join(worker) if worker else ""
        self.event("variant %s on %s: %s" % (kind, node.name, changed or "as deployed"))
        if kind == "head":
            beside.unlink(missing_ok=True)
        if worker:
            beside.write_text(json.dumps(dict(unit, arguments=worker)))
        (node.running / name).write_text(json.dumps(dict(unit, arguments=arguments["arguments"])))
        return {"changed": True, "unit": name}

    def do_llama_long_prompt(self, arguments):
        self.event("fill %s" % arguments.get("unit", "a job"))
        said = "3686 of the 4096 tokens of a slot read in 15 s"
        return {"changed": False, "said": said, "tokens": 3686, "slot": 4096, "seconds": 14.7}

    def do_llama_drain(self, arguments):
        self.event("drain %s for %s s" % (arguments["unit"], arguments["timeout"]))
        return {"changed": False, "drained": True}

    def do_gateway_endpoints(self, arguments):
        """The engine's host is the node of a gateway's name; who asks whom is an event there."""
        parameters = {"endpoints": None, "reason": "change", "held": [], "timeout": 30, **arguments}
        gateway = NODES / (self._task.delegate_to or self.node.name)
        files = str(gateway / "draining.json"), str(gateway)
        result = draining.apply(parameters, 1.0, self.check, *files, lambda: {"services": {}})
        if result["changed"]:
            there = ["%(service)s on %(node)s for %(reason)s" % one for one in result["endpoints"]]
            self.event("gateway %s: drains %s" % (gateway.name, ", ".join(there) or "nothing"))
        return result

    def do_slurm_jobs(self, arguments):
        """The file jobs.json of the host that submits: its answers one after the other, then the last one."""
        host = NODES / (self._task.delegate_to or self.node.name)
        if (host / "lost").exists():
            raise AnsibleConnectionFailure("%s cannot be reached" % host.name)
        self.event("jobs of %s" % host.name)
        found = json.loads((host / "jobs.json").read_text())
        answer, *later = found if isinstance(found, list) else [found]
        (host / "jobs.json").write_text(json.dumps(later or [answer]))
        return {"at": 1.0, "ended": {}, "unsettled": [], **answer, "changed": False}

    def do_slurm_accounting(self, arguments):
        self.event("accounting %s" % arguments["state"])
        return {"changed": True}

    def do_slurm_node(self, arguments):
        host = NODES / (self._task.delegate_to or self.node.name)
        services = " for " + ", ".join(arguments["services"]) if arguments.get("services") else ""
        self.event("%s in SLURM: %s%s" % (arguments["node"], arguments["state"], services))
        planned = host / "slurm_node.json"
        answer = {"changed": True, "reason": "", "others": [], "left": []}
        return dict(answer, **(json.loads(planned.read_text()) if planned.exists() else {}))

    def do_slurm_reservation(self, arguments):
        """SLURM has cards on all nodes."""
        reserved = arguments.get("reserved") or []
        kept = " and what was" if arguments.get("keep") else ""
        self.event("reserved in SLURM: %s" % ((", ".join(reserved) or "nothing") + kept))
        away = self.node.root / "slurm-away"
        if away.exists() and not reserved:
            return {"changed": False, "scheduled": [], "slurm": away.read_text()}
        return {"changed": bool(reserved), "scheduled": arguments.get("shared") or [], "slurm": ""}

    def do_llama_load_info(self, arguments):
        if "log" in arguments:
            sizes = {"model_mib": 1.0, "kv_mib": 1.0, "compute_mib": 1.0, "layers": 30}
            devices = [dict(sizes, device="RPC0", endpoint="10.0.0.2:50053")]
            return {"changed": False, "reason": None, "devices": devices}
        planned = self.node.root / "load.json"
        if planned.exists():
            return dict(json.loads(planned.read_text()), changed=False)
        unit = self.node.unit(arguments["unit"])["arguments"]
        endpoints = unit[unit.index("--rpc") + 1].split(",") if "--rpc" in unit else [None]
        sizes = {"model_mib": 1.0, "kv_mib": 1.0, "compute_mib": 1.0}
        return {
            "changed": False,
            "reason": None,
            "devices": [dict(sizes, device="RPC0", endpoint=one, layers=30) for one in endpoints],
        }

    def do_nvidia_smi_facts(self, arguments):
        facts = {"available": False, "reason": "no nvidia-smi", "gpus": []}
        return {"changed": False, "ansible_facts": {"nvidia_smi": facts}}
