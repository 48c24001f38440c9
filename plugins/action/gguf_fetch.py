# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs gguf_fetch as a job on the node and prints how far it is; documented in plugins/modules/gguf_fetch.py.

A model that is there costs one module call. Otherwise the module becomes an asynchronous job that writes its state to a
file (plugins/module_utils/_job.py); one shell command per poll reads it and renews the lease. The state file is named
after the request: a run that finds the job of an interrupted one follows that.

With a bundle the missing files are sent first, in stretches through the connection's standard input: that needs no
program on either side, works wherever Ansible itself does, and continues after the bytes that the node has.
"""

import hashlib
import json
import os
import shlex
import time

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ..module_utils._fetch import bundle
from ..module_utils._job import progress_text
from ..module_utils._text import Refusal, exact
from ..plugin_utils._progress import Progress, async_result

LONGEST = 7 * 86400  # seconds after which the node ends a job
LEASE = 60  # seconds, as in _job.py: a job runs so long without its controller
POLLS = (0.5, 1, 1, 2, 2, 3, 5)  # seconds between polls; the last one from there on
EVERY = 15  # seconds between lines
STRETCH = 32 << 20  # bytes sent at once: what memory holds of a model, and what a lost connection costs
STARTS = 3  # a job that lost its lease while the node could not be reached is started again


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = expanded(self._task.args)
        if arguments.get("bundle"):
            try:
                arguments = dict(arguments, _bundled=bundled(arguments))
            except Refusal as problem:
                raise AnsibleActionFail(f"gguf_fetch: {problem}") from None
        if self._task.check_mode or self._task.async_val:
            return dict(
                result,
                **self._execute_module(module_args=arguments, task_vars=task_vars, wrap_async=self._task.async_val),
            )
        self._vars = task_vars
        asked = dict(arguments, _job=self._state_path(arguments), _ask=True)
        answer = {}
        for _start in range(STARTS):
            answer = self._execute_module(module_args=asked, task_vars=task_vars)
            if not answer.get("wanted"):
                break
            if not answer["live"]:
                # A node gets only the bundle's files of this model.
                wanted = {one["name"]: one for one in answer["send"]}
                for file in arguments["_bundled"]["files"] if wanted else ():
                    if file["name"] in wanted:
                        self._send(os.path.join(arguments["bundle"], "models", file["name"]), file, wanted)
                self._start(arguments, answer["state"])
            answer = self._follow(answer["state"])
            if not answer.get("stopped"):
                break
        return dict(result, **answer)

    def _state_path(self, arguments):
        """The state file of the job for these arguments, beside Ansible's own records; the module expands the ~."""
        public = {name: value for name, value in arguments.items() if name != "_bundled"}
        digest = hashlib.sha256(json.dumps(public, sort_keys=True, default=str).encode()).hexdigest()
        return f"{self.get_shell_option('async_dir', default='~/.ansible_async')}/gguf_fetch-{digest[:24]}.json"

    def _send(self, source, file, wanted):
        """Send the rest of a file of the bundle. wanted: {name: {path, there}}, path: on the node, there: bytes that
        are sent already."""
        size, path, done = file["size"], wanted[file["name"]]["path"], int(wanted[file["name"]]["there"])
        if not os.path.isfile(source) or os.path.getsize(source) != size:
            found = exact(os.path.getsize(source)) if os.path.isfile(source) else "not there"
            raise AnsibleActionFail(
                f"gguf_fetch: bundle: {source} is {found}, {exact(size)} are needed by bundle.json: copy the bundle "
                "again"
            )
        if done > size:
            self._shell(f"rm -f {shlex.quote(path)}")
            done = 0
        progress = Progress(self._vars["inventory_hostname"], file["name"])
        begun, first, shown = time.monotonic(), done, time.monotonic()
        controller = os.getppid()
        with open(source, "rb") as stream:
            while done < size:
                if os.getppid() != controller:
                    raise AnsibleActionFail("gguf_fetch: the controller is gone: run again, it continues")
                stream.seek(done)
                done = self._append(path, done, stream.read(STRETCH))
                now = time.monotonic()
                if now - shown >= EVERY:
                    rate = (done - first) / (now - begun)
                    progress.show(progress_text({"phase": "send", "done": done, "total": size, "rate": rate}))
                    shown = now

    def _append(self, path, start, data):
        """Write a stretch at its place. -> the size of the file on the node, from where it continues."""
        # nonblock: a FIFO without a reader is an error.
        command = (
            "dd of={0} bs=1M seek={1} oflag=seek_bytes,nofollow,nonblock conv=notrunc status=none && stat -c %s {0}"
        ).format(shlex.quote(path), start)
        answer = self._command(command, data)
        reached = answer["stdout"].strip()
        if answer["rc"] or not reached.isdigit() or int(reached) <= start:
            reason = answer["stderr"].strip().rpartition(": ")[2] or "no answer"
            raise AnsibleActionFail(
                f"gguf_fetch: bundle: {path} on the node cannot be written ({reason}): run again, it continues"
            )
        return int(reached)

    def _command(self, command, data=None):
        """Run a shell command that may be repeated; a lost connection is opened again for LEASE seconds."""
        deadline = time.monotonic() + LEASE
        while True:
            try:
                return self._low_level_execute_command(command, in_data=data)
            except AnsibleConnectionFailure:
                if time.monotonic() > deadline:
                    raise
                time.sleep(2)
                self._connection.reset()

    def _shell(self, command):
        return self._command(command)["stdout"]

    def _start(self, arguments, state):
        self._shell(f"touch {shlex.quote(state)}.lease")
        # _execute_module detaches if the task has async; it is reset for later code.
        self._task.async_val = LONGEST
        try:
            started = self._execute_module(
                module_args=dict(arguments, _job=state), task_vars=self._vars, wrap_async=True
            )
        finally:
            self._task.async_val = 0
        # For a later run that follows this job.
        self._shell(f"echo {shlex.quote(started.get('ansible_job_id', 'none'))} >{shlex.quote(state)}.jid")

    def _follow(self, state):
        """Poll until the job has ended. -> its result; the result of async_status when it ended without one."""
        progress = None
        begun = time.monotonic()
        shown, polls = begun - EVERY, 0
        controller = os.getppid()
        while True:
            time.sleep(POLLS[min(polls, len(POLLS) - 1)])
            polls += 1
            if os.getppid() != controller:
                # This worker has outlived ansible-playbook: the result would not be seen, so the lease must run out.
                raise AnsibleActionFail("gguf_fetch: the controller is gone: run again, the job continues")
            seen = self._poll(state)
            now = time.monotonic()
            if seen and "result" in seen:
                self._clean(state)
                return seen["result"]
            if seen and not seen["alive"] or not seen and self._failed_to_begin(state, now - begun):
                return self._ended(state)
            # The first line waits for a rate to tell.
            if seen and seen.get("total") and now - shown >= EVERY and (seen["rate"] or now - begun >= EVERY):
                progress = progress or Progress(self._vars["inventory_hostname"], seen["name"])
                progress.show(progress_text(seen))
                shown = now

    def _poll(self, state):
        """The job's state with `alive` added, or None while it has not written one. Renews the lease."""
        # Whether it lives is asked between two readings: a job that begins after the first is not seen yet, one that
        # ends in between has left its result by the second.
        command = (
            """touch {0}.lease; first=$(cat {0} 2>/dev/null) || exit 0; """
            """test -d /proc/$(printf '%s' "$first" | sed 's/.*"pid": \\([0-9]*\\).*/\\1/') && echo alive; """
            """cat {0} 2>/dev/null"""
        )
        lines = self._shell(command.format(shlex.quote(state))).splitlines()
        for text in lines:
            if text.startswith("{"):
                return dict(json.loads(text), alive="alive" in lines)
        return None

    def _failed_to_begin(self, state, waited):
        jid = self._jid(state) if waited > 5 else None
        return waited > LEASE or bool(jid) and bool(async_result(self, jid, self._vars).get("finished"))

    def _ended(self, state):
        """The job is gone without a result: killed, or failed in a way it could not report itself."""
        jid = self._jid(state)
        answer = async_result(self, jid, self._vars) if jid else {}
        self._clean(state)
        # The module's own message; for a killed job Ansible's record only holds the wrapper's traceback.
        if answer.get("finished") and "Traceback" not in answer.get("msg", "Traceback"):
            return answer
        return {
            "failed": True,
            "msg": "gguf_fetch: the job on the node ended without a result, as when it is killed: run again, it "
            "continues",
            "module_stderr": answer.get("stderr", ""),
        }

    def _jid(self, state):
        return self._shell(f"cat {shlex.quote(state)}.jid 2>/dev/null").strip()

    def _clean(self, state):
        """Remove the job's files, and Ansible's record of it once the wrapper has written that for the last time."""
        record = self._connection._shell.join_path(state.rpartition("/")[0], self._jid(state) or "none")
        command = (
            """for n in 1 2 3 4 5 6 7 8 9 10; do grep -qs '"finished": *[0f]' {1} || break; sleep 0.3; done; """
            """rm -f {0} {0}.lease {0}.jid {1}"""
        )
        self._shell(command.format(shlex.quote(state), shlex.quote(record)))


def expanded(arguments):
    """The arguments with the values of ``model`` added."""
    arguments = dict(arguments)
    model = arguments.pop("model", {})
    names = ("dest", "urls", "repo", "files", "revision", "sha256")
    return dict({name: model[name] for name in names if model.get(name)}, **arguments)


def bundled(arguments):
    """The entry of the bundle's record for these arguments. Raises Refusal."""
    wanted = {name: arguments.get(name) for name in ("urls", "repo", "revision", "files", "sha256")}
    wanted.update(
        (name, [value])
        for name, value in wanted.items()
        if isinstance(value, str) and name in ("urls", "files", "sha256")
    )
    wanted["name"] = os.path.basename(arguments["dest"])
    return bundle.find(bundle.read(arguments["bundle"]), wanted, arguments["bundle"])
