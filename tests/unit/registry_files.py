# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registry file, and the machines that it may name."""

HOSTS = {"vasp-01": "10.0.0.20", "vasp-02": "10.0.0.21"}
RECORD = {
    "version": 1,
    "job_id": 4711,
    "service": "reasoning",
    "model": "or1-behemoth",
    "models": ["or1-behemoth", "OR1-Behemoth"],
    "tier": "reasoning",
    "node": "vasp-01",
    "host": "vasp-01",
    "head_node": "vasp-01",
    "port": 8081,
    "endpoint": "http://10.0.0.66:8081/v1",
    "started_at": "2026-10-01T08:00:00Z",
    "state": "ready",
    "slots": 2,
    "slot_ctx_size": 32768,
    "build": "b11434",
    "quant": "Q8_0",
    "llama_workers": ["vasp-02"],
    "heartbeat": 10,
}
NAME = "4711-72b.json"
