# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services of one node beside real loads: llama-server with the first blocks of real models and the experts of one
token, in main memory, on one device (an RPC server on the loopback) with the experts of none, half and all of the
layers in main memory, and as services of embeddings.

weights, KV: loads whose bytes are the same but for the two decimals of the log; total: error in percent of what the log
says. Over RPC no device works on experts that lie elsewhere, as a card of the head's own does: what that adds is not
seen.

    one_node.py 11434=DIR 7772=DIR        DIR holds llama-server and the RPC server of that build
"""

import argparse
import contextlib
import re
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "plugins"), str(HERE.parents[1])]
import oracle  # noqa: E402
from module_utils._model import gguf, memory  # noqa: E402
from unit import gguf_files as make  # noqa: E402
from unit import model_files  # noqa: E402

MIB = 1 << 20
BLOCKS = 6
SETTINGS = ({"ctx_size": 4096, "parallel": 1}, {"ctx_size": 32768, "parallel": 1}, {"ctx_size": 8192, "parallel": 4})
KINDS = {"model_mib": "weights", "kv_mib": "kv", "compute_mib": "compute"}


def short(model):
    """The first blocks of a model, with the experts of one token: a graph needs the same for any number."""
    used = next((value for name, _kind, value in model.metadata if name.endswith(".expert_used_count")), 0)
    model.key("block_count", BLOCKS)
    for name, kind, value in list(model.metadata):
        if name.endswith(".nextn_predict_layers"):
            model.key("nextn_predict_layers", 0)
        elif name.endswith(".expert_count"):
            model.key("expert_count", used)
        elif kind == make.ARRAY:
            model.key(name.split(".", 1)[1], (value[0], value[1][:BLOCKS]))
    tensors = []
    for name, dims, kind in model.tensors:
        if name.startswith("blk.") and (int(name.split(".")[1]) >= BLOCKS or ".nextn." in name):
            continue
        of_experts = re.search(r"_exps\.|ffn_gate_inp\.|exp_probs_b\.", name)
        tensors.append((name, (*dims[:-1], used) if of_experts else dims, kind))
    model.tensors = tensors
    return model


def encoder(architecture, blocks, n_embd, n_ff, heads, n_vocab, context, gated):
    """A model that reads a text at once."""
    model = model_files.Model(architecture, blocks, n_embd, n_vocab, heads, heads, n_embd // heads, context, tied=True)
    left = ("key_length", "value_length", "layer_norm_rms_epsilon", "head_count_kv")
    model.metadata = [item for item in model.metadata if not item[0].endswith(left)]
    model.tensors = [item for item in model.tensors if item[0] != "output_norm.weight"]
    model.key("attention.layer_norm_epsilon", 1e-12)
    model.key("feed_forward_length", n_ff)
    model.metadata += [
        (architecture + ".attention.causal", make.BOOL, False),
        (architecture + ".pooling_type", make.U32, 1),
        ("tokenizer.ggml.token_type_count", make.U32, 2),
    ]
    model.norm("token_types.weight", n_embd, 2)
    model.norm("token_embd_norm.weight", n_embd)
    model.norm("token_embd_norm.bias", n_embd)
    if not gated:
        model.norm("position_embd.weight", n_embd, context)
    for block in range(blocks):
        for name, dims in (
            [("attn_qkv", (n_embd, 3 * n_embd)), ("ffn_gate", (n_embd, n_ff))]
            if gated
            else [("attn_" + part, (n_embd, n_embd)) for part in "qkv"]
        ) + [("attn_output", (n_embd, n_embd)), ("ffn_up", (n_embd, n_ff)), ("ffn_down", (n_ff, n_embd))]:
            model.tensor("blk.%d.%s.weight" % (block, name), *dims)
            if not gated:
                model.norm("blk.%d.%s.bias" % (block, name), dims[-1])
        for name in ("attn_output_norm", "layer_output_norm"):
            model.norm("blk.%d.%s.weight" % (block, name), n_embd)
            model.norm("blk.%d.%s.bias" % (block, name), n_embd)
    return model


EMBEDDERS = {
    "nomic-embed-text v1.5": lambda: encoder("nomic-bert", 12, 768, 3072, 12, 30522, 2048, True),
    "bge-large": lambda: encoder("bert", 24, 1024, 4096, 16, 30522, 512, False),
    "Qwen3 32B": lambda: short(model_files.qwen3_32b()),
    "Gemma 3 27B": lambda: short(model_files.gemma3_27b()),
}
MIXTURES = [name for name, model in model_files.MODELS.items() if "_exps." in str(model().tensors)]


def load(folder, build, model, settings, endpoint=None, words=()):
    """-> {"device" or "host": {weights, kv, compute}} in MiB, as the log of one load says"""
    place = ["--rpc", endpoint, "-ngl", "999"] if endpoint else ["--device", "none", "-ngl", "0"]
    words = ["-m", str(model), "-b", str(settings.batch_size), "--no-repack", *place, *words]
    found = {place: dict.fromkeys(KINDS.values(), 0.0) for place in ("device", "host")}
    for device in oracle.load(folder, build, settings, words)["devices"]:
        for kind, name in KINDS.items():
            found["device" if device["endpoint"] else "host"][name] += device[kind]
    return found


class Row:
    """One line of the table: the loads of one model in one way."""

    def __init__(self):
        self.equal, self.errors, self.host = [], [], []

    def add(self, share, seen, host=None):
        """host: (our bytes, MiB in the log) of the head's compute buffer."""
        near = [abs(getattr(share, kind) / MIB - seen[kind]) < 0.02 for kind in ("weights", "kv")]
        self.equal.append(near)
        self.errors.append(100 * (share.total() / MIB / sum(seen.values()) - 1))
        self.host += [host[0] / MIB - host[1]] if host else []

    def show(self, *labels):
        equal = [sum(column) for column in zip(*self.equal)]
        host = "%+.1f" % max(self.host, key=abs) if self.host else "-"
        cells = [*labels, len(self.errors), *equal, "%+.3f" % max(self.errors, key=abs), host]
        print("| %s |" % " | ".join(map(str, cells)), flush=True)


def one_way(folder, build, path, endpoint=None, cpu_moe=0, embeddings=False):
    """-> Row"""
    shape, row = memory.read_shape(gguf.read_path(str(path))), Row()
    for given in SETTINGS:
        settings = memory.settings_of(build=build, embeddings=embeddings, **given)
        settings = settings._replace(ctx_size=min(settings.ctx_size, shape.context_length))
        # A text is embedded in one piece.
        settings = settings._replace(batch_size=settings.ubatch_size) if embeddings else settings
        words = ["--embeddings", "--pooling", "mean"] if embeddings else []
        words += ["--n-cpu-moe", str(cpu_moe)] if cpu_moe else []
        seen = load(folder, build, path, settings, endpoint, words)
        placed = memory.place(shape.keeping(cpu_moe), settings, [shape.block_count], main=not endpoint)
        host = (placed.host.compute, seen["host"]["compute"]) if endpoint else None
        row.add(placed.devices[0], seen["device" if endpoint else "host"], host)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", nargs="+", metavar="BUILD=DIR")
    options = parser.parse_args()
    print("| build | model | where | loads | weights equal | KV equal | total: worst % | head's compute, MiB |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        path = Path(scratch) / "m.gguf"
        for one in options.builds:
            build, folder = int(one.split("=")[0]), one.split("=", 1)[1]
            (endpoint,) = stack.enter_context(oracle.Servers(folder, 1)).endpoints
            for name, model in model_files.MODELS.items():
                short(model()).write(path)
                one_way(folder, build, path).show("b%d" % build, name, "main memory")
            for name in MIXTURES:
                short(model_files.MODELS[name]()).write(path)
                for kept in (0, BLOCKS // 2, BLOCKS):
                    where = "device, experts of %d of %d elsewhere" % (kept, BLOCKS)
                    one_way(folder, build, path, endpoint, kept).show("b%d" % build, name, where)
            for name, model in EMBEDDERS.items():
                model().write(path)
                for where, target in (("main memory", None), ("device", endpoint)):
                    one_way(folder, build, path, target, embeddings=True).show(
                        "b%d" % build, name, "embeddings, " + where
                    )


if __name__ == "__main__":
    main()
