# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-playbook as often as it is asked for, each time in a new process that begins where Ansible and the filters
are loaded: half of what a small run costs.

Reads a request a line, and answers with a line that is the exit status. Of simulated nodes, or of a lab's
(molecule/conftest.py).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from ansible import constants
from ansible.cli import playbook
from ansible.plugins.loader import (
    action_loader,
    become_loader,
    callback_loader,
    connection_loader,
    init_plugin_loader,
    shell_loader,
    strategy_loader,
)

LONGEST = 180  # seconds
ACTIONS = ("assert", "debug", "fail", "gather_facts", "include_vars", "normal", "set_fact", "template")


# It runs a module in a fifth of the time that Python takes.
CLIENT = Path(__file__).resolve().parents[2] / "lab/modules/client.py"


def load() -> None:
    init_plugin_loader()
    from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._warm import (  # noqa: PLC0415 - by Ansible
        warm,
    )

    warm()
    # A run's callbacks come after its playbook is parsed.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab/callback"))
    import compiled_once  # noqa: PLC0415 - it needs the loader

    if compiled_once.CORE == "2.19":
        compiled_once.keep()
    # Each run begins with these.
    for loader in (connection_loader, shell_loader, become_loader, callback_loader):
        list(loader.all(class_only=True))
    for name in (constants.DEFAULT_STDOUT_CALLBACK, *constants.CALLBACKS_ENABLED):
        callback_loader.get(name, class_only=True)
    for name in ACTIONS:
        action_loader.get("ansible.builtin." + name, class_only=True)
    strategy_loader.get("ansible.builtin.linear", class_only=True)
    # The run says so of the loader that is there already.
    warnings.filterwarnings("ignore", "AnsibleCollectionFinder has already been configured")


def modules_by_server() -> None:
    """Has modules on this machine run by tests/lab/modules."""
    plugin = connection_loader.get("ansible.builtin.local", class_only=True)
    execute = plugin.exec_command
    starts, sent = sys.executable + " && sleep 0'", "%s -I -S %s'" % (sys.executable, CLIENT)

    def execute_by_server(self, cmd, in_data=None, sudoable=True):
        if in_data and cmd.endswith(starts):
            cmd = cmd.removesuffix(starts) + sent
        return execute(self, cmd, in_data, sudoable)

    plugin.exec_command = execute_by_server


def packed() -> str:
    """The directory of packed modules, as long as this server lives."""
    return constants.DEFAULT_LOCAL_TMP + "-packed"


def run(arguments: list[str], environment: dict[str, str], output: str, simulated: bool = True) -> None:
    os.environ.clear()
    os.environ.update(environment)
    source, target = os.open(os.devnull, os.O_RDONLY), os.open(output, os.O_WRONLY)
    for descriptor, where in enumerate((source, target, target)):
        os.dup2(where, descriptor)
    # The run before has removed it.
    os.makedirs(constants.DEFAULT_LOCAL_TMP, mode=0o700, exist_ok=True)
    if not simulated:
        # Modules are packed once for all runs.
        os.makedirs(packed(), mode=0o700, exist_ok=True)
        link = os.path.join(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache")
        # A killed run leaves it.
        if not os.path.lexists(link):
            os.symlink(packed(), link)
    if simulated:
        modules_by_server()
        from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import (  # noqa: PLC0415 - by Ansible
            paths,
        )

        # The nodes of a run are this machine, and tests run side by side.
        paths.RUN_LOCK = os.path.join(environment.get("ANSIBLE_HOME", ""), "run.lock")
        # Seconds, in which nothing has to be given back.
        gc.disable()
    playbook.main(["ansible-playbook", *arguments])


def run_and_write(request: dict[str, Any], used: BinaryIO) -> NoReturn:
    """Runs a request, and writes what it has used of what another run may use as well."""
    compiled_once = sys.modules["compiled_once"]
    for counter in compiled_once.used:
        counter.clear()
    try:
        run(**request)
    finally:
        pickle.dump([dict(counter) for counter in compiled_once.used], used)
        used.flush()


def prepare(used: BinaryIO) -> None:
    """Has the next run find what the last one has used, so that it is read once for all runs."""
    used.seek(0)
    # A killed run has written nothing, or not all.
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        sys.modules["compiled_once"].prepare(*pickle.load(used))


def main() -> None:
    load()
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile() as used:
            child = os.fork()
            if not child:
                run_and_write(request, used)
            # Here, not in the run: the alarm of a run is that of tasks with a timeout.
            signal.signal(signal.SIGALRM, lambda *_, child=child: os.kill(child, signal.SIGKILL))
            signal.alarm(LONGEST if request.get("simulated", True) else 0)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            signal.alarm(0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            prepare(used)
    shutil.rmtree(packed(), ignore_errors=True)


if __name__ == "__main__":
    main()
