# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What rules and dashboards may ask for, and what roles bring: for the tests of both."""

import os
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._monitoring import dropped

CACHE = Path(os.environ.get("LLAMA_CLUSTER_CACHE", os.path.expanduser("~/.cache/llama-cluster")))
# Of the sampler, and of the gateway's engine.
SAMPLED = """
    llama_sampler_info llama_sampler_part_up llama_sampler_timestamp_seconds llama_sampler_cards_timestamp_seconds
    llama_sampler_cards_hung llama_sampler_cpu_seconds_total llama_sampler_memory_bytes
    llama_unit_active llama_unit_wanted llama_unit_failed llama_unit_starting llama_unit_restarts_total
    llama_unit_started_seconds
    llama_watchdog_alive llama_watchdog_repairs_total llama_watchdog_last_repair_seconds llama_rpc_fenced
    llama_rpc_link_up llama_rpc_link_received_bytes_total llama_rpc_link_sent_bytes_total llama_rpc_worker_clients
    llama_memory_bytes llama_memory_planned_bytes llama_build_info llama_model_info
    llama_endpoint_state llama_endpoint_ready llama_endpoint_asked_seconds llama_slots llama_slots_busy
    llama_context_slot_tokens llama_context_used_tokens llama_prompt_tokens_total llama_generated_tokens_total
    llama_requests_processing llama_requests_deferred llama_busy_without_tokens_seconds
    llama_generation_tokens_per_second llama_baseline_tokens_per_second
    llama_conversation_ok llama_conversation_timestamp_seconds
    llama_gpu_info llama_gpu_utilization_ratio llama_gpu_memory_used_bytes llama_gpu_memory_total_bytes
    llama_gpu_power_watts llama_gpu_temperature_celsius llama_gpu_throttled llama_gpu_ecc_uncorrected_total
    llama_gpu_xid_total llama_gpu_foreign_processes llama_gpu_foreign_memory_bytes llama_gpu_unit_memory_bytes
    llama_fabric_up llama_fabric_speed_bits llama_fabric_received_bytes_total llama_fabric_sent_bytes_total
    llama_fabric_errors_total llama_disk_free_bytes llama_disk_size_bytes llama_clock_synchronized llama_node_held

    llama_gateway_requests_total llama_gateway_seconds llama_gateway_first_byte_seconds llama_gateway_queue_seconds
    llama_gateway_queued llama_gateway_in_flight llama_gateway_endpoint_state llama_gateway_retries_total
    llama_gateway_fallbacks_total llama_gateway_names_unknown_total llama_gateway_context_refused_total
    llama_gateway_certificate_expires_seconds llama_gateway_read_seconds
"""
METRICS = set(SAMPLED.split())


def promtool():
    found = CACHE / "files/prometheus/promtool"
    if not found.exists():
        pytest.skip("promtool is needed: run tests/lab/prometheus.sh")
    return str(found)


def groups():
    """Groups of rules of all roles."""
    return [group for found in dropped.rules() for group in yaml.safe_load(found.path.read_text())["groups"]]


def alerts():
    """{name: rule}"""
    return {rule["alert"]: rule for group in groups() for rule in group["rules"] if "alert" in rule}


def recorded():
    """Names that recording rules make."""
    return {rule["record"] for group in groups() for rule in group["rules"] if "record" in rule}


# Words of a query that are no metrics. A function is known by its parenthesis.
WORDS = {"and", "or", "unless", "bool", "offset", "by", "on", "without", "ignoring", "group_left", "group_right"}


def named(query):
    """Metrics that a query names, without the suffixes of a histogram. Not what stands in labels, strings, or by()."""
    bare = re.sub(
        r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|\b(by|on|without|ignoring|group_left|group_right) *\([^)]*\)', " ", query
    )
    names = set(re.findall(r"(?<![\w.$])([a-zA-Z_:][\w:]*)(?! *\(|[\w:])", bare)) - WORDS
    return {re.sub(r"_(bucket|sum|count)$", "", name) if name.startswith("llama_") else name for name in names}


def unknown(query):
    """Metrics that a query names and nothing has. Prometheus itself has two."""
    known = METRICS | recorded() | {"up", "ALERTS"}
    return {name for name in named(query) - known if not name.startswith("llamacpp:")}
