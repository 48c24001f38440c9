#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_unit_info
short_description: Compare what llama units should run with what they run
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Lists the node's systemd units of the cluster with state, restarts and the digest of their configuration.
  - The digest is E(LLAMA_CLUSTER_DIGEST) in the unit file (wanted), and what C(/run/llama-cluster/digests/UNIT) holds,
    where root noted it before the process began (running); a unit whose two digests differ is stale and needs a
    restart.
  - Also tells which llama.cpp build is current and whether its files are still the ones its manifest lists.
  - Nothing matching is an empty list, not an error.
options:
  units:
    description:
      - Unit names or globs. Installed unit files and loaded units are both searched, so a unit that systemd has not
        read yet and a process whose unit file is gone are found too.
      - Names with C(*), C(?) or C([) are globs; an alias is reported under the name of its unit.
    type: list
    elements: str
    default:
      - llama-rpc-*.service
      - llama-head-*.service
      - llama-router-*.service
      - llama-rpc.service
      - llama-head.service
  prefix:
    description:
      - Where llama.cpp builds are installed; the link C(current) in it names the build in use.
    type: path
    default: /opt/llama.cpp
  release:
    description:
      - An installed build to look at instead of the one that C(current) names, by its directory name in C(releases).
    type: str
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
  - thefermisea.llama_cluster.attributes.reads
"""

EXAMPLES = r"""
---
- name: Look at all llama units of the node
  thefermisea.llama_cluster.llama_unit_info:
  register: units
  become: true

- name: Stop heads that run an old configuration
  ansible.builtin.systemd_service:
    name: "{{ item }}"
    state: stopped
  loop: "{{ units.units | selectattr('kind', 'eq', 'head') | selectattr('stale') | map(attribute='name') }}"
  become: true

- name: Look at a build that is installed beside the one in use
  thefermisea.llama_cluster.llama_unit_info:
    release: b11434-cpu-5f27b0c4
  register: staged

- name: Refuse a build with changed files
  ansible.builtin.assert:
    that: units.build_intact
    fail_msg: "{{ units.current_build }} has changed files: {{ units.build_broken | join(', ') }}"
"""

RETURN = r"""
units:
  description: Matching units, sorted by name.
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: Unit name.
      type: str
      returned: always
      sample: llama-head-reasoning.service
    kind:
      description: V(rpc), V(head) or V(router); V(null) for another name.
      type: str
      returned: always
      sample: head
    service:
      description: Service the unit belongs to; V(null) when RV(units[].kind) is.
      type: str
      returned: always
      sample: reasoning
    installed:
      description: Whether the unit has a file.
      type: bool
      returned: always
      sample: true
    managed:
      description: Whether the unit is this collection's, by its digest.
      type: bool
      returned: always
      sample: true
    enabled:
      description: Whether the unit starts at boot.
      type: bool
      returned: always
      sample: true
    active_state:
      description: systemd's ActiveState.
      type: str
      returned: always
      sample: active
    sub_state:
      description: systemd's SubState.
      type: str
      returned: always
      sample: running
    result:
      description: systemd's Result of the last run, V(success) when nothing went wrong.
      type: str
      returned: always
      sample: success
    main_pid:
      description: Process id of the main process; V(null) when none runs.
      type: int
      returned: always
      sample: 4711
    since:
      description: When the unit last became active, UTC; V(null) when it never did since boot.
      type: str
      returned: always
      sample: "2026-10-01T08:00:00Z"
    restarts:
      description: Automatic restarts since the last manual start.
      type: int
      returned: always
      sample: 0
    failed_in_a_row:
      description: How many runs of a head ended before they served, while it waits for the next one; 0 when it does
        not.
      type: int
      returned: always
      sample: 0
    exec_path:
      description: Program the unit starts.
      type: str
      returned: always
      sample: /opt/llama.cpp/current/bin/llama-server
    arguments:
      description: The command line it is started with, the program first. Of a unit of this collection it is that of
        its file, which systemd may not have read yet, of another one what systemd shows, split at spaces.
      type: list
      elements: str
      returned: always
      sample: [/opt/llama.cpp/current/bin/llama-server, --port, "8000"]
    url:
      description: Where a head listens, whatever the inventory says by now; V(null) for another unit.
      type: str
      returned: always
      sample: http://10.0.0.31:8000
    endpoint:
      description: Address and port of a worker; V(null) for another unit.
      type: str
      returned: always
      sample: 10.100.0.32:50052
    rpc_endpoints:
      description: The workers of a head, in the order of their devices.
      type: list
      elements: str
      returned: always
      sample: [10.100.0.32:50052]
    wanted_digest:
      description: Digest in the unit file; V(null) without one.
      type: str
      returned: always
      sample: 5c1d1f0c
    running_digest:
      description: Digest that the running process was started with; V(null) when none was noted or nothing runs.
      type: str
      returned: always
      sample: 5c1d1f0c
    drop_ins:
      description: Files below C(/etc) and C(/run) that change the unit, as C(systemctl edit) writes them.
      type: list
      elements: str
      returned: always
      sample: []
    stale:
      description:
        - Whether a process runs with another digest than the unit file's, or with none.
        - V(false) when nothing runs.
      type: bool
      returned: always
      sample: false
held:
  description: Since when the node is held for maintenance, its units stopped and disabled; V(null) when it is not.
  type: str
  returned: success
  sample: "2026-10-01T08:00:00Z"
transfers:
  description: Models that arrive just now, started by anybody who runs as this user.
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: The file.
      type: str
      returned: always
      sample: OR1-Behemoth.Q8_0.gguf
    line:
      description: How far it is.
      type: str
      returned: always
      sample: 34 % (26.3 GB of 77.3 GB), 412.1 MB/s, 2 min 03 s left
variants:
  description: Services of this node that tune.yml measures, C(service) and C(until), UTC.
  type: list
  elements: dict
  returned: success
  sample: [{"service": "chat", "until": "2026-11-24T08:00:00Z"}]
trials:
  description: Services of this node that are on trial with another quant, and those whose trial has ended by itself.
  type: list
  elements: dict
  returned: success
  contains:
    service:
      description: The service.
      type: str
      returned: always
      sample: chat
    quant:
      description: What is, or was, on trial.
      type: str
      returned: always
      sample: Q8_0
    was:
      description: What serves again afterwards.
      type: str
      returned: always
      sample: Q4_K_M
    until:
      description: When the trial ends, UTC.
      type: str
      returned: always
      sample: "2026-11-24T08:00:00Z"
    state:
      description: V(running), V(reverted), or V(failed) where what served before could not be put back.
      type: str
      returned: always
      sample: running
    at:
      description: When it ended, UTC; empty while it runs.
      type: str
      returned: always
      sample: ""
    reason:
      description: Why it failed, or what is to be known of its end; mostly empty.
      type: str
      returned: always
      sample: ""
current_build:
  description: Directory name of the release that O(prefix)C(/current) points to, or O(release); V(null) where there is
    no such directory.
  type: str
  returned: success
  sample: b11434
build_sha256:
  description: sha256 of its C(build.json), equal on nodes that have the identical build; V(null) without that file.
  type: str
  returned: success
  sample: 0f343b0931126a20f133d67c2b018a3b5f2a2bf9e3a1e2a5a5f0f6f7a9a8d7c1
build_identity:
  description: The commit that C(build.json) names, or its version where that is not known; V(null) without that file.
  type: str
  returned: success
  sample: b11434
build_kind:
  description: The architecture and the distribution that C(build.json) names; V(null) without that file.
  type: str
  returned: success
  sample: x86_64 Debian 12
build_intact:
  description: Whether the release holds the files of C(build.json), with the hashes it lists, and no others, and
    only root may change them; V(null) without that file.
  type: bool
  returned: success
  sample: true
build_broken:
  description: Files, relative to the release, that are missing, differ, have special rights, are not listed or
    that others may change; V(null) without C(build.json).
  type: list
  elements: str
  returned: success
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._bench.variant import Variants
from ..module_utils._job import running
from ..module_utils._node.build import build_info
from ..module_utils._node.trials import Trials
from ..module_utils._node.units import SERVICES, held_since, unit_info
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "units": {"type": "list", "elements": "str", "default": list(SERVICES)},
            "prefix": {"type": "path", "default": "/opt/llama.cpp"},
            "release": {"type": "str"},
        },
        supports_check_mode=True,
    )
    try:
        result = build_info(module.params["prefix"], module.params["release"])
        result["units"] = [unit._asdict() for unit in unit_info(module.params["units"])]
        result["held"] = held_since()
        result["trials"] = Trials().report()
        result["variants"] = Variants().report()
        result["transfers"] = running("gguf_fetch")
    except Refusal as error:
        module.fail_json(msg=f"llama_unit_info: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
