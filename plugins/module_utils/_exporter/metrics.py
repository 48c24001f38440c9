# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of the sampler: {name: (kind, meaning)}. Private to the collection."""

from __future__ import annotations

from typing import Any

from .exposition import Family

METRICS: dict[str, tuple[str, str]] = {
    "llama_baseline_tokens_per_second": ("gauge", "Speed measured by upgrade.yml."),
    "llama_build_info": ("gauge", "The release of llama.cpp that the unit names."),
    "llama_busy_without_tokens_seconds": ("gauge", "Seconds without progress of running requests."),
    "llama_clock_synchronized": ("gauge", "Whether the clock is synchronized."),
    "llama_context_slot_tokens": ("gauge", "Context of a slot."),
    "llama_context_used_tokens": ("gauge", "Tokens in the fullest slot at work."),
    "llama_disk_free_bytes": ("gauge", "Free bytes for users other than root."),
    "llama_disk_size_bytes": ("gauge", "Size of the file system."),
    "llama_endpoint_asked_seconds": ("gauge", "When the endpoint was probed, since 1970."),
    "llama_endpoint_ready": ("gauge", "Whether the endpoint answers."),
    "llama_endpoint_state": ("gauge", "The state that holds."),
    "llama_fabric_errors_total": ("counter", "Errors and drops of interface and port."),
    "llama_fabric_received_bytes_total": ("counter", "Bytes received."),
    "llama_fabric_sent_bytes_total": ("counter", "Bytes sent."),
    "llama_fabric_speed_bits": ("gauge", "Its rate, bits per second."),
    "llama_fabric_up": ("gauge", "Whether the interface of the fabric address is up."),
    "llama_gateway_certificate_expires_seconds": ("gauge", "When the certificate ends, since 1970."),
    "llama_generated_tokens_total": ("counter", "Tokens that were generated."),
    "llama_generation_tokens_per_second": ("gauge", "Speed of the last answers, by the server."),
    "llama_gpu_ecc_uncorrected_total": ("counter", "Memory errors that could not be corrected."),
    "llama_gpu_foreign_memory_bytes": ("gauge", "Memory of these processes."),
    "llama_gpu_foreign_processes": ("gauge", "Processes that are neither of services nor of their jobs."),
    "llama_gpu_info": ("gauge", "The card."),
    "llama_gpu_memory_total_bytes": ("gauge", "Memory of the card."),
    "llama_gpu_memory_used_bytes": ("gauge", "Memory in use."),
    "llama_gpu_power_watts": ("gauge", "Power that it draws."),
    "llama_gpu_resets_total": ("counter", "Hangs, resets and failed resets in the kernel's log, not of NVIDIA."),
    "llama_gpu_temperature_celsius": ("gauge", "Temperature of the chip."),
    "llama_gpu_throttled": ("gauge", "Why its clock is held down."),
    "llama_gpu_utilization_ratio": ("gauge", "How much of the time a kernel ran on it."),
    "llama_gpu_xid_total": ("counter", "Xid errors in the kernel's log."),
    "llama_job_failures": ("gauge", "Jobs in a row that did not serve a minute."),
    "llama_job_serves": ("gauge", "Whether the service's job serves."),
    "llama_job_state": ("gauge", "The state that holds: pending, running, completing, none or held."),
    "llama_keeper_alive": ("gauge", "Whether the keeper of jobs runs."),
    "llama_memory_bytes": ("gauge", "Memory of the unit's control group."),
    "llama_memory_planned_bytes": ("gauge", "Main memory that the plan gives the unit."),
    "llama_model_info": ("gauge", "What the service serves."),
    "llama_node_held": ("gauge", "Whether the node is held for maintenance."),
    "llama_prompt_tokens_total": ("counter", "Tokens of prompts that were read."),
    "llama_requests_deferred": ("gauge", "Requests that wait for a slot."),
    "llama_requests_processing": ("gauge", "Requests at work."),
    "llama_rpc_fenced": ("gauge", "Whether the kernel's rules admit only the head."),
    "llama_rpc_link_received_bytes_total": ("counter", "Bytes from the worker."),
    "llama_rpc_link_sent_bytes_total": ("counter", "Bytes to the worker that it has confirmed."),
    "llama_rpc_link_up": ("gauge", "Whether the head's connection to a worker stands."),
    "llama_sampler_cards_hung": ("gauge", "Whether nvidia-smi or a graphics driver gave no answer in its time."),
    "llama_sampler_cards_timestamp_seconds": ("gauge", "When the cards were last seen, since 1970."),
    "llama_sampler_cpu_seconds_total": ("counter", "Processor time, with child processes."),
    "llama_sampler_info": ("gauge", "The collection that installed it."),
    "llama_sampler_part_up": ("gauge", "Whether this part of the sampler has looked lately."),
    "llama_sampler_timestamp_seconds": ("gauge", "When this was written, since 1970."),
    "llama_slots": ("gauge", "Slots of the server."),
    "llama_slots_busy": ("gauge", "Slots at work."),
    "llama_unit_active": ("gauge", "Whether the unit runs."),
    "llama_unit_restarts_total": ("counter", "Starts by systemd after a run had ended."),
    "llama_unit_started_seconds": ("gauge", "When its process began, since 1970."),
    "llama_unit_starting": ("gauge", "Whether it starts: a head may wait for its workers."),
    "llama_unit_wanted": (
        "gauge",
        "Whether it should run: enabled, not held, not stopped, not measured.",
    ),
    "llama_watchdog_alive": ("gauge", "Whether the watchdog runs."),
    "llama_watchdog_last_repair_seconds": ("gauge", "Time of the last repair, since 1970, and its reason."),
    "llama_watchdog_repairs_total": ("counter", "Repairs by the watchdog since the node booted."),
}


class Families:
    """The samples of one look."""

    def __init__(self) -> None:
        self._by_name: dict[str, Family] = {}

    def add(self, metric: str, value: Any, /, **labels: Any) -> None:
        """Adds a sample, unless the value is None."""
        self._by_name.setdefault(metric, Family(metric, *METRICS[metric])).add(value, **labels)

    def all(self) -> list[Family]:
        return list(self._by_name.values())
