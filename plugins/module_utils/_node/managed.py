# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files and units of a node the collection manages. Private to the collection.

A name is no proof. Units carry a digest, builds and models are listed by a record beside them, and other files have a
mark in their text. Links, FIFOs and directories under the name of such a file are unmanaged.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from typing import Any

from .._files import MOST_TEXT, read_trusted, text_of
from . import paths
from .units import file_digest

# Files of the roles beside units, builds, models and caches, with the mark in their text. Records of rules added to
# firewalld are removed with the last of their rules.
FIREWALL_FILES = (
    (paths.FIREWALL_RULES, r"^table inet llama_cluster \{"),
    (paths.FIREWALL_UNIT, r"^Environment=LLAMA_CLUSTER_DIGEST="),
    (paths.NFTABLES_DROP_IN, r" llama-firewall\.service$"),
)
GATEWAY_FILES = (
    (paths.NGINX_SITE, r"^# Ports, paths and TLS of the gateway; "),
    (paths.GATEWAY_UNITS, r"^Documentation=https://github\.com/thefermisea/ansible-llama-cluster$"),
    (paths.GATEWAY_CONFIG, r'"unknown_model": '),
    (paths.GATEWAY_KEYS, r'\A\{\s*"clients": '),
    (paths.GATEWAY_CURL_HEADER, r"\AAuthorization: Bearer "),
    (paths.GATEWAY_NGINX, r"^(# Whether a request has a key of keys\.json|# The keys of the tiers' services)"),
    (paths.GATEWAY_POLICY, r"^; nginx may connect to a socket"),
    (paths.GATEWAY_DRAINING, r'"endpoints": '),
    (paths.GATEWAY_READ, r"\A\Z"),
    (paths.GATEWAY_NGINX_ON, r"\Anginx\.service was not enabled before\n\Z"),
)
NODE_FILES = (
    (paths.HELD, r'"since": '),
    (paths.PLANS, r'"devices": '),
    (paths.SALT, r"\Allama-cluster [A-Za-z0-9]{32}\Z"),
    (paths.WATCHED_FILES, r'"unit": "llama-(rpc|head|router)[-.]'),
    (paths.PRESETS, r"\A; Written by the collection from llama_services"),
    (paths.WATCHDOG_UNIT, r"^Environment=LLAMA_CLUSTER_DIGEST="),
    (paths.SAMPLER_UNIT, r"^Environment=LLAMA_CLUSTER_DIGEST="),
    (paths.SAMPLER, r'"fabric_address": '),
    (paths.SAMPLES, r"\A# HELP llama_"),
    (paths.REPAIRS_FILES, r'\A\{"count": '),
    (paths.SELECTOR, r'\A\{"base_url": '),
    (paths.SELECTOR_PROGRAM, r"^# llama-model-selector TASK: "),
    (paths.MONITOR_PROGRAM, r"^# llama-cluster-monitor: "),
    (paths.STATUS_PROGRAM, r"^# llama-service-status "),
    (paths.JOBS_PROGRAM, r"^# llama-jobs "),
    (paths.DOCTOR, r'\A\{"rules": '),
    (paths.DOCTOR_PROGRAM, r"^# llama-doctor: "),
    (paths.MONITORING_READ, r"\A\Z"),
    (paths.JOURNALD_DROP_IN, r"^# Limits of the journal that this node does not set; "),
    (paths.PROGRAM, r" -m llama_cluster\."),
    (paths.PROGRAM_PACKAGE + "/__init__.py", r"\A\Z"),
    (paths.PROGRAM_PACKAGE + "/*/__init__.py", r"\A\Z"),
    (paths.PROGRAM_PACKAGE + "/*.py", r"\A# Copyright: The Fermi Sea\n"),
    (paths.PROGRAM_PACKAGE + "/*/*.py", r"\A# Copyright: The Fermi Sea\n"),
    (paths.BACKOFF_FILES, r'"failures": '),
    (paths.DIGEST_FILES, r"\A[0-9a-f]{16}\n\Z"),
    (paths.SERVED_FILES, r"\A\d+ [0-9.]+\n\Z"),
    (paths.SHARE_RULES, r"\A# Rules of firewalld "),
    (paths.LINK_RULES, r"\A# Rules of firewalld "),
    (paths.BASELINES, r'"measured_at": '),
    (paths.PROMPTS, r'"measured_at": '),
    (paths.LAST_SNAPSHOT, r'\A\{"build": '),
    (paths.OPEN_SNAPSHOT, r'\A\{"build": '),
    (paths.TRIALS, r'\A\{"at": '),
    (paths.DECISIONS, r"^<!-- Written by the collection thefermisea\.llama_cluster: "),
)


def record_of(path: str) -> dict[str, Any] | None:
    """The JSON object in a file of root's, or of the current user; None without one."""
    try:
        record = json.loads(read_trusted(path, MOST_TEXT).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def is_managed_unit(path: str) -> bool:
    """Whether a unit file has the collection's digest."""
    return file_digest(text_of(path) or "") is not None


def is_managed_file(path: str, root: str = "/") -> bool:
    """Whether a path (without the root) is a file of the roles and has its mark."""
    marks = [
        mark
        for pattern, mark in FIREWALL_FILES + GATEWAY_FILES + NODE_FILES
        if fnmatch.fnmatchcase("/" + path, pattern)
    ]
    text = text_of(os.path.join(root, path)) if marks else None
    return text is not None and any(re.search(mark, text, re.MULTILINE) for mark in marks)
