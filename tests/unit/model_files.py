# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Model files that are all header: the shapes of real models, grown sparsely to the size that their tensors need.

The dimensions come from the published config.json of each model, the tensor names from what convert_hf_to_gguf.py
gives. There is no vocabulary: the memory does not depend on it, and a header stays below 0.2 MB.
"""

from . import gguf_files as make

F32, Q8_0, Q4_K, Q6_K, MXFP4 = 0, 8, 12, 14, 39


class Model(object):
    """Collects the keys and tensors of one model."""

    def __init__(
        self, architecture, blocks, n_embd, n_vocab, n_head, n_head_kv, head, context, weight=Q8_0, tied=False
    ):
        self.architecture, self.blocks, self.n_embd, self.n_vocab = architecture, blocks, n_embd, n_vocab
        self.n_head, self.n_head_kv, self.head, self.weight, self.tied = n_head, n_head_kv, head, weight, tied
        self.metadata, self.tensors = [("general.architecture", make.STRING, architecture)], []
        self.key("block_count", blocks)
        self.key("context_length", context)
        self.key("embedding_length", n_embd)
        self.key("attention.head_count", n_head)
        self.key("attention.head_count_kv", n_head_kv)
        self.key("attention.key_length", head)
        self.key("attention.value_length", head)
        self.key("attention.layer_norm_rms_epsilon", 1e-6)
        self.key("vocab_size", n_vocab)
        self.metadata.append(("tokenizer.ggml.model", make.STRING, "no_vocab"))
        self.tensor("token_embd.weight", n_embd, n_vocab, kind=weight)
        self.norm("output_norm.weight", n_embd)
        if not tied:
            self.tensor("output.weight", n_embd, n_vocab, kind=Q6_K if weight == Q4_K else weight)

    def key(self, name, value):
        full = "%s.%s" % (self.architecture, name)
        kind = make.F32 if isinstance(value, float) else make.ARRAY if isinstance(value, tuple) else make.U32
        self.metadata = [item for item in self.metadata if item[0] != full] + [(full, kind, value)]

    def tensor(self, name, *dims, kind=None):
        self.tensors.append((name, dims, self.weight if kind is None else kind))

    def norm(self, name, *dims):
        self.tensor(name, *dims, kind=F32)

    def attention(self, block, bias=False, qk_norm=False, out_bias=False):
        query, cached = self.n_head * self.head, self.n_head_kv * self.head
        self.norm("blk.%d.attn_norm.weight" % block, self.n_embd)
        for part, width in (("q", query), ("k", cached), ("v", cached)):
            self.tensor("blk.%d.attn_%s.weight" % (block, part), self.n_embd, width)
            if bias:
                self.norm("blk.%d.attn_%s.bias" % (block, part), width)
        self.tensor("blk.%d.attn_output.weight" % block, query, self.n_embd)
        if out_bias:
            self.norm("blk.%d.attn_output.bias" % block, self.n_embd)
        if qk_norm:
            self.norm("blk.%d.attn_q_norm.weight" % block, self.head)
            self.norm("blk.%d.attn_k_norm.weight" % block, self.head)

    def feed_forward(self, block, n_ff, normed=True):
        if normed:
            self.norm("blk.%d.ffn_norm.weight" % block, self.n_embd)
        self.tensor("blk.%d.ffn_gate.weight" % block, self.n_embd, n_ff)
        self.tensor("blk.%d.ffn_up.weight" % block, self.n_embd, n_ff)
        self.tensor(
            "blk.%d.ffn_down.weight" % block,
            n_ff,
            self.n_embd,
            kind=Q6_K if self.weight == Q4_K and block % 2 else None,
        )

    def experts(self, block, count, n_ff, kind=None):
        self.norm("blk.%d.ffn_gate_inp.weight" % block, self.n_embd, count)
        self.tensor("blk.%d.ffn_gate_exps.weight" % block, self.n_embd, n_ff, count, kind=kind)
        self.tensor("blk.%d.ffn_up_exps.weight" % block, self.n_embd, n_ff, count, kind=kind)
        self.tensor("blk.%d.ffn_down_exps.weight" % block, n_ff, self.n_embd, count, kind=kind)

    def shared_expert(self, block, n_ff):
        self.tensor("blk.%d.ffn_gate_shexp.weight" % block, self.n_embd, n_ff)
        self.tensor("blk.%d.ffn_up_shexp.weight" % block, self.n_embd, n_ff)
        self.tensor("blk.%d.ffn_down_shexp.weight" % block, n_ff, self.n_embd)

    def header(self):
        return make.header_bytes(self.metadata, self.tensors)

    def write(self, path):
        """-> bytes of the whole (sparse) file"""
        header = self.header()
        size = len(header) + -len(header) % 32
        for _name, dims, kind in self.tensors:
            bytes_ = make.tensor_bytes(dims, kind)
            size += bytes_ + -bytes_ % 32
        with open(path, "wb") as stream:
            stream.write(header)
            stream.truncate(size)
        return size


def _dense(architecture, n_ff, blocks, *shape, bias=False, qk_norm=False, **more):
    model = Model(architecture, blocks, *shape, **more)
    model.key("feed_forward_length", n_ff)
    for block in range(blocks):
        model.attention(block, bias, qk_norm)
        model.feed_forward(block, n_ff)
    return model


def qwen2_72b():
    return _dense("qwen2", 29568, 80, 8192, 152064, 64, 8, 128, 32768, bias=True)


def qwen3_32b():
    return _dense("qwen3", 25600, 64, 5120, 151936, 64, 8, 128, 40960, qk_norm=True, weight=Q4_K)


def llama_70b():
    model = _dense("llama", 28672, 80, 8192, 128256, 64, 8, 128, 131072, weight=Q4_K)
    model.key("rope.dimension_count", 128)
    model.norm("rope_freqs.weight", 64)
    return model


def mistral_24b():
    model = _dense("llama", 32768, 40, 5120, 131072, 32, 8, 128, 32768, weight=Q4_K)
    model.key("rope.dimension_count", 128)
    return model


def gemma3_27b():
    model = Model("gemma3", 62, 5376, 262208, 32, 16, 128, 131072, tied=True)
    model.key("feed_forward_length", 21504)
    model.key("attention.sliding_window", 1024)
    for block in range(62):
        model.attention(block, qk_norm=True)
        model.norm("blk.%d.post_attention_norm.weight" % block, 5376)
        model.feed_forward(block, 21504)
        model.norm("blk.%d.post_ffw_norm.weight" % block, 5376)
    return model


def phi4_14b():
    model = Model("phi3", 40, 5120, 100352, 40, 10, 128, 16384, weight=Q4_K)
    model.key("feed_forward_length", 17920)
    model.key("rope.dimension_count", 128)
    model.key("rope.scaling.original_context_length", 16384)
    for block in range(40):
        model.norm("blk.%d.attn_norm.weight" % block, 5120)
        model.tensor("blk.%d.attn_qkv.weight" % block, 5120, 5120 + 2 * 1280)
        model.tensor("blk.%d.attn_output.weight" % block, 5120, 5120)
        model.norm("blk.%d.ffn_norm.weight" % block, 5120)
        model.tensor("blk.%d.ffn_up.weight" % block, 5120, 2 * 17920)
        model.tensor("blk.%d.ffn_down.weight" % block, 17920, 5120)
    return model


def _qwen3_moe(blocks, n_embd, n_head, n_ff, n_ff_exp):
    model = Model("qwen3moe", blocks, n_embd, 151936, n_head, 4, 128, 40960, weight=Q4_K)
    model.key("feed_forward_length", n_ff)
    model.key("expert_count", 128)
    model.key("expert_used_count", 8)
    model.key("expert_feed_forward_length", n_ff_exp)
    for block in range(blocks):
        model.attention(block, qk_norm=True)
        model.norm("blk.%d.ffn_norm.weight" % block, n_embd)
        model.experts(block, 128, n_ff_exp)
    return model


def qwen3_30b():
    return _qwen3_moe(48, 2048, 32, 6144, 768)


def qwen3_235b():
    return _qwen3_moe(94, 4096, 64, 12288, 1536)


def mixtral_8x7b():
    model = Model("llama", 32, 4096, 32000, 32, 8, 128, 32768, weight=Q4_K)
    model.key("feed_forward_length", 14336)
    model.key("rope.dimension_count", 128)
    model.key("expert_count", 8)
    model.key("expert_used_count", 2)
    for block in range(32):
        model.attention(block)
        model.norm("blk.%d.ffn_norm.weight" % block, 4096)
        model.experts(block, 8, 14336)
    return model


def gpt_oss_120b():
    model = Model("gpt-oss", 36, 2880, 201088, 64, 8, 64, 131072)
    model.key("feed_forward_length", 2880)
    model.key("expert_count", 128)
    model.key("expert_used_count", 4)
    model.key("expert_feed_forward_length", 2880)
    model.key("attention.sliding_window", 128)
    for block in range(36):
        model.attention(block, bias=True, out_bias=True)
        model.norm("blk.%d.post_attention_norm.weight" % block, 2880)
        model.norm("blk.%d.attn_sinks.weight" % block, 64)
        model.experts(block, 128, 2880, kind=MXFP4)
        model.norm("blk.%d.ffn_gate_inp.bias" % block, 128)
        for part in ("gate", "up", "down"):
            model.norm("blk.%d.ffn_%s_exps.bias" % (block, part), 2880, 128)
    return model


def deepseek_v3():
    model = Model("deepseek2", 61, 7168, 129280, 128, 1, 576, 163840, weight=Q4_K)
    for name, value in (
        ("attention.value_length", 512), ("attention.key_length_mla", 192), ("attention.value_length_mla", 128),
        ("attention.q_lora_rank", 1536),
        ("attention.kv_lora_rank", 512), ("rope.dimension_count", 64), ("feed_forward_length", 18432),
        ("leading_dense_block_count", 3),
        ("expert_count", 256), ("expert_used_count", 8), ("expert_shared_count", 1),
        ("expert_feed_forward_length", 2048),
        ("expert_gating_func", 2), ("expert_weights_scale", 2.5),
    ):  # fmt: skip
        model.key(name, value)
    for block in range(61):
        model.norm("blk.%d.attn_norm.weight" % block, 7168)
        model.tensor("blk.%d.attn_q_a.weight" % block, 7168, 1536)
        model.norm("blk.%d.attn_q_a_norm.weight" % block, 1536)
        model.tensor("blk.%d.attn_q_b.weight" % block, 1536, 128 * 192)
        model.tensor("blk.%d.attn_kv_a_mqa.weight" % block, 7168, 576)
        model.norm("blk.%d.attn_kv_a_norm.weight" % block, 512)
        model.tensor("blk.%d.attn_k_b.weight" % block, 128, 512, 128, kind=Q8_0)
        model.tensor("blk.%d.attn_v_b.weight" % block, 512, 128, 128)
        model.tensor("blk.%d.attn_output.weight" % block, 128 * 128, 7168)
        if block < 3:
            model.feed_forward(block, 18432)
            continue
        model.norm("blk.%d.ffn_norm.weight" % block, 7168)
        model.experts(block, 256, 2048)
        model.norm("blk.%d.exp_probs_b.bias" % block, 256)
        model.shared_expert(block, 2048)
    return model


def glm_45_air():
    """Its last block predicts further tokens: llama.cpp counts it, and loads nothing of it."""
    model = Model("glm4moe", 47, 4096, 151552, 96, 8, 128, 131072)
    for name, value in (
        ("feed_forward_length", 10944), ("expert_weights_scale", 1.0), ("rope.dimension_count", 64),
        ("leading_dense_block_count", 1),
        ("nextn_predict_layers", 1),
        ("expert_count", 128), ("expert_used_count", 8), ("expert_shared_count", 1),
        ("expert_feed_forward_length", 1408),
    ):  # fmt: skip
        model.key(name, value)
    for block in range(47):
        model.attention(block, bias=True)
        model.norm("blk.%d.post_attention_norm.weight" % block, 4096)
        if block < 1:
            model.feed_forward(block, 10944, normed=False)
            continue
        model.experts(block, 128, 1408)
        model.norm("blk.%d.exp_probs_b.bias" % block, 128)
        model.shared_expert(block, 1408)
    for name, dims in (
        ("eh_proj", (8192, 4096)),
        ("enorm", (4096,)),
        ("hnorm", (4096,)),
        ("shared_head_norm", (4096,)),
    ):
        model.tensor("blk.46.nextn.%s.weight" % name, *dims, kind=F32 if len(dims) == 1 else None)
    return model


def granite_4_small():
    """36 of its 40 blocks keep a constant state (Mamba 2) and no cache."""
    attends, inner, state, heads = (5, 15, 25, 35), 8192, 128, 128
    model = Model("granitehybrid", 40, 4096, 100352, 32, 8, 128, 131072, weight=Q4_K, tied=True)
    model.key("attention.head_count_kv", (make.I32, [8 if block in attends else 0 for block in range(40)]))
    for name, value in (
        ("feed_forward_length", 768), ("ssm.conv_kernel", 4), ("ssm.inner_size", inner), ("ssm.state_size", state),
        ("ssm.group_count", 1),
        ("ssm.time_step_rank", heads), ("expert_count", 72), ("expert_used_count", 10),
        ("expert_shared_feed_forward_length", 1536),
        ("logit_scale", 16.0), ("residual_scale", 0.22), ("embedding_scale", 12.0), ("rope.dimension_count", 128),
    ):  # fmt: skip
        model.key(name, value)
    for block in range(40):
        if block in attends:
            model.attention(block)
        else:
            model.norm("blk.%d.attn_norm.weight" % block, 4096)
            model.tensor("blk.%d.ssm_in.weight" % block, 4096, 2 * inner + 2 * state + heads)
            model.norm("blk.%d.ssm_conv1d.weight" % block, 4, inner + 2 * state)
            model.norm("blk.%d.ssm_conv1d.bias" % block, inner + 2 * state)
            model.norm("blk.%d.ssm_dt.bias" % block, heads)
            model.norm("blk.%d.ssm_a" % block, 1, heads)
            model.norm("blk.%d.ssm_d" % block, 1, heads)
            model.norm("blk.%d.ssm_norm.weight" % block, inner, 1)
            model.tensor("blk.%d.ssm_out.weight" % block, inner, 4096)
        model.norm("blk.%d.ffn_norm.weight" % block, 4096)
        model.experts(block, 72, 768)
        model.shared_expert(block, 1536)
    return model


def gemma4_31b():
    """Layers with a window have other heads than those without, whose values are their keys."""
    sliding = [block % 6 != 5 for block in range(60)]
    model = Model("gemma4", 60, 5376, 262144, 32, 16, 512, 262144, weight=Q4_K, tied=True)
    model.key("attention.head_count_kv", (make.I32, [16 if slides else 4 for slides in sliding]))
    model.key("attention.sliding_window_pattern", (make.BOOL, sliding))
    for name, value in (
        ("feed_forward_length", 21504), ("attention.sliding_window", 1024), ("attention.shared_kv_layers", 0),
        ("attention.key_length_swa", 256), ("attention.value_length_swa", 256), ("rope.dimension_count", 512),
        ("rope.dimension_count_swa", 256), ("embedding_length_per_layer_input", 0),
    ):  # fmt: skip
        model.key(name, value)
    model.norm("rope_freqs.weight", 256)
    for block, slides in enumerate(sliding):
        head, cached = (256, 16) if slides else (512, 4)
        model.norm("blk.%d.attn_norm.weight" % block, 5376)
        model.tensor("blk.%d.attn_q.weight" % block, 5376, 32 * head)
        model.tensor("blk.%d.attn_k.weight" % block, 5376, cached * head)
        if slides:
            model.tensor("blk.%d.attn_v.weight" % block, 5376, cached * head)
        model.tensor("blk.%d.attn_output.weight" % block, 32 * head, 5376)
        model.norm("blk.%d.attn_q_norm.weight" % block, head)
        model.norm("blk.%d.attn_k_norm.weight" % block, head)
        model.norm("blk.%d.post_attention_norm.weight" % block, 5376)
        model.feed_forward(block, 21504)
        model.norm("blk.%d.post_ffw_norm.weight" % block, 5376)
    return model


def qwen36_35b():
    """Three of four blocks keep a constant state (gated delta net) and no cache."""
    inner, state, groups = 4096, 128, 16
    model = Model("qwen35moe", 40, 2048, 248320, 16, 2, 256, 262144, weight=Q4_K)
    model.key("rope.dimension_sections", (make.I32, [11, 11, 10, 0]))
    for name, value in (
        ("expert_count", 256), ("expert_used_count", 8), ("expert_feed_forward_length", 512),
        ("expert_shared_feed_forward_length", 512), ("full_attention_interval", 4), ("ssm.conv_kernel", 4),
        ("ssm.state_size", state), ("ssm.group_count", groups), ("ssm.inner_size", inner), ("ssm.time_step_rank", 32),
        ("rope.dimension_count", 64),
    ):  # fmt: skip
        model.key(name, value)
    for block in range(40):
        model.norm("blk.%d.attn_norm.weight" % block, 2048)
        model.norm("blk.%d.post_attention_norm.weight" % block, 2048)
        if block % 4 == 3:
            for part, width in (("q", 2 * inner), ("k", 512), ("v", 512)):
                model.tensor("blk.%d.attn_%s.weight" % (block, part), 2048, width)
            model.tensor("blk.%d.attn_output.weight" % block, inner, 2048)
            model.norm("blk.%d.attn_q_norm.weight" % block, 256)
            model.norm("blk.%d.attn_k_norm.weight" % block, 256)
        else:
            model.tensor("blk.%d.attn_qkv.weight" % block, 2048, inner + 2 * groups * state)
            model.tensor("blk.%d.attn_gate.weight" % block, 2048, inner)
            model.norm("blk.%d.ssm_conv1d.weight" % block, 4, inner + 2 * groups * state)
            model.norm("blk.%d.ssm_dt.bias" % block, 32)
            model.norm("blk.%d.ssm_a" % block, 32)
            model.tensor("blk.%d.ssm_alpha.weight" % block, 2048, 32)
            model.tensor("blk.%d.ssm_beta.weight" % block, 2048, 32)
            model.norm("blk.%d.ssm_norm.weight" % block, state)
            model.tensor("blk.%d.ssm_out.weight" % block, inner, 2048)
        model.experts(block, 256, 512)
        model.norm("blk.%d.ffn_gate_inp_shexp.weight" % block, 2048)
        model.shared_expert(block, 512)
    return model


# Known to both tested builds.
MODELS = {
    "Qwen2 72B": qwen2_72b,
    "Qwen3 32B": qwen3_32b,
    "Qwen3 30B-A3B": qwen3_30b,
    "Qwen3 235B-A22B": qwen3_235b,
    "Llama 3 70B": llama_70b,
    "Gemma 3 27B": gemma3_27b,
    "DeepSeek V3 671B": deepseek_v3,
    "gpt-oss-120b": gpt_oss_120b,
    "Mistral Small 24B": mistral_24b,
    "Mixtral 8x7B": mixtral_8x7b,
    "Phi-4 14B": phi4_14b,
    "GLM-4.5-Air": glm_45_air,
    "Granite 4 Small": granite_4_small,
}
