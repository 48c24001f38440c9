# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gguf-parser-go (github.com/gpustack/gguf-parser-go) would say, for comparison.

Its formulas as its sources state them in file_estimate__llamacpp.go (commit 02c89bf) and file_architecture.go, for a
model whose layers are all on RPC devices with flash attention, written anew; the layers go to the same devices as in
the case it is compared with.
"""

F32, F16 = 4, 2
PATTERNS = {"llama4": 4, "gemma2": 2, "gemma3": 6, "cohere2": 4}
HYBRID = ("jamba", "falcon-h1", "granitehybrid")


def _first(value):
    return value[0] if isinstance(value, list) else value


def estimate(header, row_bytes, settings, counts):
    """-> [(weights, KV cache, the rest)] in bytes per device; row_bytes(cache type, weights) -> bytes."""
    architecture = header.metadata["general.architecture"]

    def key(name, default=0):
        return _first(header.metadata.get("%s.%s" % (architecture, name), default))

    blocks, n_embd, n_head = key("block_count"), key("embedding_length"), key("attention.head_count")
    n_kv = settings.ctx_size + -settings.ctx_size % 256
    tokens = min(n_kv, settings.ubatch_size)
    heads_kv = key("attention.head_count_kv", n_head)
    head_k, head_v = key("attention.key_length", n_embd // n_head), key("attention.value_length", n_embd // n_head)
    wide_k, wide_v = head_k, head_v
    if key("attention.key_length_mla") and key("attention.value_length_mla"):
        wide_k, wide_v = key("attention.key_length_mla"), key("attention.value_length_mla")
    named = {tensor.name: tensor for tensor in header.tensors}

    def cache(cells, per_key, per_value):
        return row_bytes(settings.cache_type_k, per_key * heads_kv * cells) + row_bytes(
            settings.cache_type_v, per_value * heads_kv * cells
        )

    pattern = PATTERNS.get(architecture, 1)
    window = key("attention.sliding_window") * settings.parallel + settings.batch_size
    full, sliding = cache(n_kv, wide_k, wide_v), cache(min(n_kv, window + -window % 256), wide_k, wide_v)
    state = 0
    if architecture in HYBRID:
        inner, size, groups = key("ssm.inner_size"), key("ssm.state_size"), key("ssm.group_count")
        state = F32 * settings.parallel * ((key("ssm.conv_kernel") - 1) * (inner + 2 * groups * size) + size * inner)

    last = "blk.%d." % (blocks - 1)
    attention = F16 * n_kv * tokens + cache(n_kv, head_k, head_v)
    feed_forward = 0
    for name in ("attn_norm", "ffn_norm", "ffn_gate", "ffn_up"):
        tensor = named.get(last + name + ".weight")
        feed_forward += F32 * tokens * tensor.dims[-1] if tensor else 0
    if last + "attn_norm.weight" in named:
        attention += F32 * tokens * named[last + "attn_norm.weight"].dims[-1]
    attention += sum(
        named[last + name].nbytes
        for name in ("attn_q.weight", "attn_qkv.weight", "attn_q_b.weight")
        if last + name in named
    )
    experts, used = key("expert_count"), key("expert_used_count")
    if experts or used:
        feed_forward += F32 * (experts * n_embd + experts * tokens + n_embd * used * tokens)
    n_vocab = named.get("output.weight", named["token_embd.weight"]).dims[-1]
    entry = F32 * (n_embd + 1 + n_kv) * tokens
    output = F32 * tokens * (n_embd + n_vocab)

    block_bytes, output_bytes = [0] * blocks, 0
    for name, tensor in named.items():
        if name.startswith("blk."):
            block_bytes[int(name.split(".")[1])] += tensor.nbytes
        elif name.startswith("output") or (name.startswith("token_") and "output.weight" not in named):
            output_bytes += tensor.nbytes
    devices, begin = [], 0
    for count in counts:
        mine = range(begin, begin + count)
        begin += count
        holds_output = begin == blocks
        rest = (
            entry
            + max(attention, feed_forward, output if holds_output else 0)
            + (F32 * tokens * (n_embd + n_vocab) if holds_output else 0)
        )
        kv = sum(state + (full if pattern == 1 or block % pattern == 0 else sliding) for block in mine)
        devices.append((sum(block_bytes[block] for block in mine) + (output_bytes if holds_output else 0), kv, rest))
    return devices
