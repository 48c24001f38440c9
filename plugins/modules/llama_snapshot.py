#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_snapshot
short_description: "Internal: keep a node's configuration of services, and put it back"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Keeps the unit files of heads, workers and routers with the links that start them, and everything below
  C(/etc/llama-cluster), in one file that only root can read.
options:
  state:
    description: V(looked) tells which snapshots there are.
    type: str
    default: looked
    choices: [looked, opened, restored, closed, dropped]
  id: {description: "Name of the snapshot, the same on all nodes.", type: str}
  prefix:
    description: Where llama.cpp builds are installed; the build that C(current) names is recorded.
    type: path
    default: /opt/llama.cpp
  jobs:
    description: >-
      Whether to keep the scripts of the jobs that this host submits, and the configuration of their keeper, in a
      snapshot of their own, instead of the node's configuration.
    type: bool
    default: false
  releases:
    description: "Builds that the snapshot needs beside those that its files name, for O(state=opened)."
    type: list
    elements: str
    default: []
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: full}}
"""

EXAMPLES = r"""
---
- name: Before a switch
  thefermisea.llama_cluster.llama_snapshot:
    state: opened
    id: "2026-11-21T20:00:00Z"
  become: true
"""

RETURN = r"""
---
open: {description: The snapshot of a switch under way; V(null) without one., type: dict, returned: always}
last:
  description: "The snapshot before the last switch, as C(open); V(null) without one."
  type: dict
  returned: always
differs: {description: Paths that are not as in the open snapshot., type: list, returned: always, elements: str}
scripts: {description: "The scripts of the jobs by service, with O(jobs).", type: dict, returned: always}
restored: {description: Paths that O(state=restored) changed., type: list, returned: always, elements: str}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node import paths
from ..module_utils._node.disposable import Disposable
from ..module_utils._node.snapshot import Snapshots, text_of
from ..module_utils._text import Refusal

# Seconds for the scripts of jobs.
SHARE = 30.0


def on_share(work):
    """work() in a child process: scripts of jobs are on a share, which may hang."""
    outcome = Disposable(SHARE).run(work)
    return outcome.value or {
        "msg": f"llama_snapshot: {outcome.error} seen from slurm_script_dir, a share that responds is needed: look at "
        "its server, then run the same again"
    }


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "choices": ["looked", "opened", "restored", "closed", "dropped"],
                "default": "looked",
            },
            "id": {"type": "str"},
            "prefix": {"type": "path", "default": paths.BUILDS},
            "jobs": {"type": "bool", "default": False},
            "releases": {"type": "list", "elements": "str", "default": []},
        },
        required_if=[("state", "opened", ["id"]), ("state", "restored", ["id"])],
        supports_check_mode=True,
    )
    state, name, jobs = module.params["state"], module.params["id"], module.params["jobs"]
    folder = paths.JOBS_ROLLBACK if jobs else paths.ROLLBACK
    snapshots = Snapshots(folder, module.params["prefix"], jobs=jobs)

    def work():
        changed, changes = False, []
        try:
            if state == "opened":
                changed = snapshots.open(name, module.check_mode, module.params["releases"])
            elif state == "restored":
                changes = snapshots.restore(name, module.check_mode)
                changed = bool(changes)
            elif state == "closed":
                changed = bool(snapshots.look()["open"]) if module.check_mode else snapshots.close()
            elif state == "dropped":
                changed = bool(snapshots.look()["open"]) if module.check_mode else snapshots.drop()
            result = snapshots.look()
        except Refusal as error:
            return {"msg": f"llama_snapshot: {error}"}
        except OSError as error:
            return {"msg": f"llama_snapshot: {error.filename}: {error.strerror}: root and a writable disk are needed"}
        diff = [
            {"before_header": path, "after_header": path, "before": text_of(now), "after": text_of(then)}
            for path, now, then in changes
        ]
        return dict(result, changed=changed, restored=[path for path, _now, _then in changes], diff=diff)

    found = on_share(work) if jobs else work()
    if "msg" in found:
        module.fail_json(**found)
    module.exit_json(**found)


if __name__ == "__main__":
    main()
