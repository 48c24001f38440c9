#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: gguf_fetch
short_description: Fetch a GGUF model, verify it and publish it
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Publishes a complete model. No file has the model's name before size, header and, where one is known,
    sha256 are right.
  - Sources are a repository of a Hugging Face hub or a mirror, or plain URLs. One file, the raw pieces of one file
    (V(m.gguf.part1of2)), and shards written by C(llama-gguf-split) are distinguished by their names. Pieces are joined
    without a second copy; shards stay shards.
  - The header is read first, so that a missing or foreign piece, a web page instead of a model, or too small a disk is
    refused before the large transfer.
  - Whatever interrupts a transfer, the next run continues from C(DEST.partial) and its journal. A file that changed on
    the server in between is not spliced.
  - A manifest beside the model records what was published. While size, time and inode of the model match it, a run
    costs one C(stat) call and no request.
  - The directory, manifest and model must be root's, or of the task's user, and the directory not writable by others;
    they are refused otherwise.
  - A file that is there without a manifest is verified, used and given one; one that is not what was asked for is
    refused, never overwritten.
  - A file that this module has published for the same request, and that is damaged, is fetched again. It is
    replaced once the good one is verified, or removed before if the disk does not hold both.
options:
  dest:
    description:
      - Where the model goes, a name that ends in C(.gguf), or a directory (one that exists or ends in a slash), which
        keeps the source's name. Shards always keep their names and go to the directory of O(dest). The directory must
        exist.
    type: path
  model:
    description:
      - O(dest), O(urls), O(repo), O(files), O(revision) and O(sha256) as one dictionary, such as an entry of
        C(model_items) of role model; other keys and empty values are passed over. Options beside it take precedence.
    type: dict
  urls:
    description:
      - The file, or its pieces or shards in order, as http, https or file URLs. A file URL is a path on the node.
    type: list
    elements: str
  repo:
    description:
      - A repository of the hub. Its sizes and sha256 are used, and the transfer is pinned to one commit.
    type: str
  files:
    description:
      - Files of O(repo) that make one model. The first shard stands for all of them.
    type: list
    elements: str
  revision:
    description:
      - Branch, tag or commit of O(repo).
    type: str
    default: main
  endpoint:
    description:
      - The hub, or a mirror of it.
    type: str
    default: https://huggingface.co
  token_file:
    description:
      - A file on the node that holds the hub's access token, of root or of the task's user, which other users cannot
        read (mode 0600).
      - The token is sent only to the origin (scheme, host and port) of O(endpoint). It goes to none of O(urls)
        elsewhere, to no host that redirects lead to, and over plain http only on the loopback.
    type: path
  sha256:
    description:
      - What the files must have, in hexadecimal. One for each of O(urls) or O(files), or a single one of the joined
        file.
    type: list
    elements: str
  copy_of:
    description:
      - Another node that has the model. Its bytes come from there, and neither O(repo) nor O(urls) is contacted; they
        remain what the model is known by, so a later run with or without O(copy_of) finds it untouched.
      - Every byte is verified on arrival by the digests in O(copy_of.files), so none of these may be null.
      - In check mode that node is not contacted either.
    type: dict
    suboptions:
      url:
        description: Where the node serves the files, RV(thefermisea.llama_cluster.gguf_share#module:url).
        type: str
        required: true
      files:
        description: RV(files) of this module on that node, or the files of its manifest.
        type: list
        elements: dict
        required: true
      commit:
        description: RV(commit) of this module on that node.
        type: str
  adopt:
    description:
      - Files on the node that hold the model or pieces of it. They are used instead of fetching them and are
        B(consumed), removed as soon as their bytes are safe in the new place, so that at most one piece of extra disk
        is needed. Paths that do not exist are passed over.
      - Each has the name and the size of its piece at the source, and its sha256 must be known, from O(repo) or
        O(sha256). Other files are refused, and a link, and a file or directory that is not root's (or of the task's
        user) or that its group or others may write.
    type: list
    elements: path
    default: []
  bundle:
    description:
      - A bundle that C(playbooks/bundle.yml) made, a directory on the controller. The model is then sent from there
        through Ansible's own connection, resumable and verified on arrival, without any other server; O(urls) or
        O(repo) only say which model it is. O(dest) names the file then.
    type: path
  connections:
    description:
      - Parallel connections, 1 to 16.
    type: int
    default: 8
  mode:
    description:
      - The mode of the files, octal or symbolic. Without it new files have what the umask leaves of C(0644).
    type: raw
  reverify:
    description:
      - How a model that has a manifest is checked, by V(stat) or by hashing it in V(full).
    type: str
    choices: [stat, full]
    default: stat
  _bundled:
    description:
      - Set by the action plugin, not for playbooks. The model's entry in the record of O(bundle).
    type: dict
  _job:
    description:
      - Set by the action plugin, not for playbooks. The file in which a job keeps its state.
    type: path
  _ask:
    description:
      - Set by the action plugin, not for playbooks. Only find out whether a job is needed.
    type: bool
    default: false
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
attributes:
  check_mode:
    support: full
    details:
      - Sources are resolved, header and disk are checked, a file that is there is hashed; nothing is transferred.
  diff_mode:
    support: none
  async:
    support: full
    description: Supports being used with the C(async) keyword.
    details:
      - It is not needed, the transfer is a job on the node anyway; whole lines of progress are printed while it runs. A
        job whose controller is gone stops after about a minute, and a run that comes before that follows it to its end.
"""

EXAMPLES = r"""
---
- name: One file from a web server, verified by its sha256
  thefermisea.llama_cluster.gguf_fetch:
    urls: [https://models.example.org/SmolLM2-135M-Instruct.Q4_1.gguf]
    sha256: [b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53]
    dest: /opt/models/
    mode: "0644"

- name: The Q8_0 of a repository, published there in two raw pieces
  thefermisea.llama_cluster.gguf_fetch:
    repo: mradermacher/OR1-Behemoth-GGUF
    files: [OR1-Behemoth.Q8_0.gguf.part1of2, OR1-Behemoth.Q8_0.gguf.part2of2]
    dest: /opt/models/OR1-Behemoth.Q8_0.gguf
    token_file: /etc/llama-cluster-hub-token
  register: first

- name: The same model from the node that has it and runs gguf_share
  thefermisea.llama_cluster.gguf_fetch:
    repo: mradermacher/OR1-Behemoth-GGUF
    files: [OR1-Behemoth.Q8_0.gguf.part1of2, OR1-Behemoth.Q8_0.gguf.part2of2]
    copy_of:
      url: http://10.100.0.31:50099/
      files: "{{ first.files }}"
      commit: "{{ first.commit }}"
    dest: /opt/models/OR1-Behemoth.Q8_0.gguf

- name: The same model at a site without a network
  thefermisea.llama_cluster.gguf_fetch:
    repo: mradermacher/OR1-Behemoth-GGUF
    files: [OR1-Behemoth.Q8_0.gguf.part1of2, OR1-Behemoth.Q8_0.gguf.part2of2]
    bundle: /media/disk/llama-bundle
    dest: /opt/models/OR1-Behemoth.Q8_0.gguf

- name: Downloaded pieces become the model
  thefermisea.llama_cluster.gguf_fetch:
    repo: mradermacher/OR1-Behemoth-GGUF
    files: [OR1-Behemoth.Q8_0.gguf.part1of2, OR1-Behemoth.Q8_0.gguf.part2of2]
    adopt: [/opt/models/OR1-Behemoth.Q8_0.gguf.part1of2, /opt/models/OR1-Behemoth.Q8_0.gguf.part2of2]
    dest: /opt/models/OR1-Behemoth.Q8_0.gguf
"""

RETURN = r"""
msg:
  description: The outcome, or the reason of a failure, in one sentence.
  type: str
  returned: always
  sample: "/opt/models/OR1-Behemoth.Q8_0.gguf: 77.3 GB fetched, 0 bytes resumed, 0 bytes adopted in 812 s"
there:
  description: Whether everything was as it is wanted before this run. In check mode the answer to whether a run is
    needed, whatever C(changed_when) returns.
  type: bool
  returned: success
  sample: false
dest:
  description: The model as llama.cpp opens it, for shards the first one.
  type: str
  returned: success
  sample: /opt/models/OR1-Behemoth.Q8_0.gguf
files:
  description: The published files, in order.
  type: list
  elements: dict
  returned: success
  contains:
    path:
      description: The file.
      type: str
      sample: /opt/models/OR1-Behemoth.Q8_0.gguf
    size:
      description: Its bytes.
      type: int
      sample: 77263859712
    pieces:
      description: Size and sha256 of its consecutive stretches as they were verified; the sha256 is null where it is
        not known.
      type: list
      elements: dict
      sample: [{size: 98362432, sha256: b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53}]
size:
  description: Bytes of all files.
  type: int
  returned: success
  sample: 77263859712
sha256:
  description: The digest of the model where it is one file hashed in one piece, else null.
  type: str
  returned: success
  sample: b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
verified:
  description: How the model was verified, V(sha256) or V(size and header).
  type: str
  returned: success
  sample: sha256
commit:
  description: The commit of the repository, null for O(urls).
  type: str
  returned: success
  sample: 4b1d2a7ce2c84c0f4b6b4d3b4f7f2cbf0d1f3f2e
gguf:
  description: The facts of the header, with the keys that M(thefermisea.llama_cluster.gguf_verify) returns; empty for
    O(copy_of) in check mode.
  type: dict
  returned: success
  sample:
    architecture: llama
    quantization: Q4_1
    parameters: 134515008
    block_count: 30
    context_length: 8192
    expected_size: 98362432
transferred:
  description: Bytes fetched by this run.
  type: int
  returned: success
  sample: 77263859712
resumed:
  description: Bytes that an earlier run had fetched.
  type: int
  returned: success
  sample: 0
adopted:
  description: Bytes taken from O(adopt).
  type: int
  returned: success
  sample: 0
disk:
  description: The C(folder) whose disk is too small, its C(free) bytes, and the C(missing) bytes that have to be free.
  type: dict
  returned: when the disk is too small
  sample: {folder: /opt/models, free: 45097156608, missing: 64424509440}
seconds:
  description: How long it took.
  type: float
  returned: success
  sample: 812.4
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._fetch.errors import DiskTooSmall, Stopped
from ..module_utils._fetch.existing import unchanged
from ..module_utils._fetch.fetch import acquire, awaited
from ..module_utils._fetch.hub import DEFAULT_ENDPOINT, read_token
from ..module_utils._fetch.request import Request, Watch
from ..module_utils._job import Job, claim, is_live
from ..module_utils._text import Refusal

OPTIONS = {
    "dest": {"type": "path"},
    "model": {"type": "dict"},
    "urls": {"type": "list", "elements": "str"},
    "repo": {"type": "str"},
    "files": {"type": "list", "elements": "str"},
    "revision": {"type": "str", "default": "main"},
    "endpoint": {"type": "str", "default": DEFAULT_ENDPOINT},
    "token_file": {"type": "path", "no_log": False},
    "sha256": {"type": "list", "elements": "str"},
    "copy_of": {
        "type": "dict",
        "options": {
            "url": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "dict", "required": True},
            "commit": {"type": "str"},
        },
    },
    "adopt": {"type": "list", "elements": "path", "default": []},
    "mode": {"type": "raw"},
    "bundle": {"type": "path"},
    "connections": {"type": "int", "default": 8},
    "reverify": {"type": "str", "choices": ["stat", "full"], "default": "stat"},
    "_bundled": {"type": "dict"},
    "_job": {"type": "path"},
    "_ask": {"type": "bool", "default": False},
}


REQUESTED = ("dest", "urls", "repo", "files", "revision", "endpoint", "sha256", "adopt", "copy_of", "connections")


def published(module, request, job):
    """-> the module's result for the model; with _ask, the work of a job."""
    watch = Watch(job.write, job.abandoned) if job else None
    if module.params["_ask"]:
        live = is_live(module.params["_job"])
        earlier = None if live else claim(module.params["_job"])
        done = None if live else unchanged(request, Watch(), hashing=False)
        if done is None:
            send = [] if live else awaited(request)
            return {"changed": False, "wanted": True, "live": live, "state": module.params["_job"], "send": send}
        # A change made by a job whose controller was interrupted has not been reported yet.
        done = earlier if earlier and earlier["changed"] else done
    else:
        done = acquire(request, module.check_mode, watch)
    for entry in done["files"]:
        if not (module.check_mode and not os.path.lexists(entry["path"])):
            done["changed"] = module.set_mode_if_different(entry["path"], module.params["mode"], done["changed"])
    done["there"] = not done["changed"]
    return done


def run(module):
    """-> the module's result."""
    job = None
    failed = {"failed": True, "changed": False}
    try:
        if module.params["_job"] and not module.params["_ask"]:
            job = Job(module.params["_job"])
        wanted = {name: module.params[name] for name in REQUESTED if module.params[name] is not None}
        request = Request(
            token=read_token(module.params["token_file"]),
            full=module.params["reverify"] == "full",
            bundle=module.params["_bundled"],
            **wanted,
        )
        done = published(module, request, job)
        if done.get("wanted"):
            return done
    except Refusal as error:
        done = dict(failed, msg=f"gguf_fetch: {error}")
        if isinstance(error, DiskTooSmall):
            done["disk"] = error.disk
    except BlockingIOError:
        done = dict(failed, msg=f"gguf_fetch: {module.params['dest']}: another job is fetching it: wait for that one")
    except Stopped as error:
        done = dict(failed, stopped=True, msg=f"gguf_fetch: {module.params['dest']}: stopped, {error}")
    if job:
        job.finish(done)
    return done


def main():
    module = AnsibleModule(
        argument_spec=OPTIONS,
        required_one_of=[("dest", "model"), ("urls", "repo", "model")],
        mutually_exclusive=[("urls", "repo"), ("urls", "files"), ("bundle", "adopt")],
        supports_check_mode=True,
    )
    done = run(module)
    if done.get("failed"):
        module.fail_json(**done)
    module.exit_json(**done)


if __name__ == "__main__":
    main()
