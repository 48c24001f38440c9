# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command lines of llama.cpp's programs, rendered from resolved instances (see _intent)."""

# Every layer on a device; llama.cpp clamps it to the model's own number.
ALL_LAYERS = 999

# service key -> flag, in the order they are written.
HEAD_FLAGS = (
    ("ctx_size", "--ctx-size"),
    ("parallel", "--parallel"),
    ("threads", "--threads"),
    ("batch_size", "--batch-size"),
    ("ubatch_size", "--ubatch-size"),
    ("cache_type_k", "--cache-type-k"),
    ("cache_type_v", "--cache-type-v"),
    ("flash_attn", "--flash-attn"),
    ("load_mode", "--load-mode"),
    ("numa", "--numa"),
    ("timeout", "--timeout"),
)


def rpc_args(instance):
    """Arguments of ggml-rpc-server for a worker. --threads is only for CPU devices; 0 leaves llama.cpp's default."""
    args = ["--host", instance["address"], "--port", str(instance["port"])]
    if instance.get("threads"):
        args += ["--threads", str(instance["threads"])]
    return args


def head_args(instance, service):
    """Arguments of llama-server for a head: where it listens and what it uses from the instance, its settings from the service.

    --fit off keeps llama.cpp from changing what the inventory says; verbosity 4 is the lowest that logs how many MiB went to which
    device, which the acceptance check reads; --cache-ram 0 because saving a prompt cache aborts a head with RPC devices.
    """
    args = ["--model", instance["model_path"], "--alias", ",".join(instance["aliases"]), "--host", instance["address"], "--port", str(instance["port"])]
    if instance["rpc_endpoints"]:
        args += ["--rpc", ",".join(instance["rpc_endpoints"]), "--split-mode", "layer", "--cache-ram", "0"]
    args += ["--n-gpu-layers", str(ALL_LAYERS), "--fit", "off"]
    if instance["tensor_split"]:
        args += ["--tensor-split", ",".join(str(count) for count in instance["tensor_split"])]
    for key, flag in HEAD_FLAGS:
        if key in service:
            args += [flag, str(service[key])]
    if instance["api_key_file"]:
        args += ["--api-key-file", instance["api_key_file"]]
    return args + ["--metrics", "--log-verbosity", "4"]
