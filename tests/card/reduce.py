# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""reduce.py SOURCE TARGET: llama.cpp's source archive without what a llama model with heads of 128, in Q8_0 or Q4_0,
never calls on a card, so that two cores compile it for CUDA in minutes.

What they had is undefined when it is linked, which the build allows (build.yml), and a call of it ends the process. The
archive is the same for the same source and script, so its sha256 names the build.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
import tarfile
from pathlib import Path

CUDA = "ggml/src/ggml-cuda/"
INSTANCES = CUDA + "template-instances/"
QUANTS = ("Q4_0", "Q8_0")
# Instances of attention: without grouped queries, used for an odd context, and with four queries to a key.
MMA = {"%d-ncols2_%d" % (columns // group, group) for group in (1, 4) for columns in (8, 16, 32, 64)}
HEAD = re.compile(r"DECL_FATTN_(MMA_F16|VEC)_CASE\(\s*(\d+)")
# Operations of other kinds of models, of images, of sound, of training and of experts, and attention for cards that are
# older. Each is called only where it is computed; the code that asks for the card's abilities is elsewhere.
OPERATIONS = (
    *(
        "acc",
        "arange",
        "argsort",
        "col2im-1d",
        "conv-transpose-1d",
        "conv2d",
        "conv2d-dw",
        "conv2d-transpose",
        "conv3d",
    ),
    *("count-equal", "cross-entropy-loss", "cumsum", "diag", "diagmask", "dsv4-hc", "fattn-tile", "gated_delta_net"),
    *("gla", "im2col", "moe-weighted-reduction", "opt-step-adamw", "opt-step-sgd", "out-prod", "pad_reflect_1d"),
    *("pool1d", "pool2d", "roll", "snake", "solve_tri", "ssm-conv", "ssm-scan", "top-k", "topk-moe", "tri", "tsembd"),
    *("upscale", "wkv"),
)
LISTED = (INSTANCES + "fattn-vec-", "tools/mtmd/models/")
# Programs and accelerators that are not compiled.
NOT_COMPILED = ("tests/", "examples/", "gguf-py/", "ggml/src/ggml-vulkan/", "ggml/src/ggml-sycl/")
# In the switch over the types of a matrix that is multiplied with one vector, the slowest file of all.
VECTOR_CASE = re.compile(
    r"        case GGML_TYPE_(\w+):\n            mul_mat_vec_q_switch_ncols_dst<GGML_TYPE_\1>\n(?:.*\n){3}"
    r"            break;\n"
)


def wanted(name: str) -> bool:
    """Whether a source, by its path in llama.cpp, goes along as it is or in part."""
    folder, _unused, base = name.rpartition("/")
    folder, stem = folder + "/", base.rpartition(".")[0]
    if folder == INSTANCES and base.endswith(".cu"):
        kind, _unused, of = stem.partition("-instance-")
        if kind == "mmq":
            return of.upper() in QUANTS
        if kind == "fattn-vec":
            return of == "f16-f16"
        return kind == "fattn-mma-f16" and of.removeprefix("ncols1_") in MMA
    if folder == CUDA and base.endswith(".cu"):
        return stem not in OPERATIONS
    # A class for each kind of model, which is made when a file of that kind is loaded.
    if folder in ("src/models/", "tools/mtmd/models/") and base.endswith(".cpp"):
        return name == "src/models/llama.cpp"
    return True


def reduced(name: str, content: bytes) -> bytes | None:
    """A source, by its path in llama.cpp, without what is not called; None where it is left out."""
    if name.startswith(NOT_COMPILED) and not name.endswith("CMakeLists.txt"):
        return None
    if not wanted(name):
        # CMake compiles what it finds, but for those that it has by their names.
        return b"// left empty, see tests/card/reduce.py\n" if name.startswith(LISTED) else None
    if name.startswith(INSTANCES + "fattn-"):
        lines = content.decode().splitlines(keepends=True)
        heads = [HEAD.match(line) for line in lines]
        if "128" not in [head[2] for head in heads if head]:
            raise SystemExit("%s: has no head of 128, this source is not the one that was reduced before" % name)
        return "".join(line for line, head in zip(lines, heads, strict=True) if not head or head[2] == "128").encode()
    if name == CUDA + "mmvq.cu":
        text = content.decode()
        if {found[1] for found in VECTOR_CASE.finditer(text)} <= set(QUANTS):
            raise SystemExit("%s: its switch over types looks otherwise, adapt tests/card/reduce.py" % name)
        return VECTOR_CASE.sub(lambda found: found[0] if found[1] in QUANTS else "", text).encode()
    return content


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    missing = {CUDA + one + ".cu" for one in OPERATIONS}
    partial = target.with_name(target.name + ".partial")
    with tarfile.open(source) as old:
        # Read in the archive's own order: to go back in it is to unpack it again from its beginning.
        members = [(one, old.extractfile(one).read() if one.isfile() else b"") for one in old if not one.isdir()]
    with partial.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as out:  # noqa: SIM117
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as new:
            for member, content in sorted(members, key=lambda one: one[0].name):
                name = member.name.partition("/")[2]
                missing.discard(name)
                kept_content = reduced(name, content) if member.isfile() else b""
                if kept_content is None:
                    continue
                kept = tarfile.TarInfo(member.name)
                kept.type, kept.linkname = member.type, member.linkname
                kept.mode = 0o755 if member.mode & 0o100 else 0o644
                kept.size = len(kept_content)
                new.addfile(kept, io.BytesIO(kept_content))
    if missing:
        raise SystemExit("%s: %s missing, adapt tests/card/reduce.py" % (source, ", ".join(sorted(missing))))
    partial.rename(target)


if __name__ == "__main__":
    main()
