# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags of llama-server: which ones a build has, by its --help, and which ones extra_args must not
have, because a key or the collection sets them. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .._settings import KEYS
from .drafts import DRAFT_TYPES

# Short forms and aliases of flags that have a key.
SPELLINGS = {
    "-t": "--threads",
    "-tb": "--threads-batch",
    "-c": "--ctx-size",
    "-b": "--batch-size",
    "-ub": "--ubatch-size",
    "-cram": "--cache-ram",
    "-kvu": "--kv-unified",
    "-no-kvu": "--kv-unified",
    "--no-kv-unified": "--kv-unified",
    "-fa": "--flash-attn",
    "-ctk": "--cache-type-k",
    "-ctv": "--cache-type-v",
    "-dio": "--direct-io",
    "-ndio": "--direct-io",
    "-lm": "--load-mode",
    "--temperature": "--temp",
    "-np": "--parallel",
    "-to": "--timeout",
    "-rea": "--reasoning",
    "--embedding": "--embeddings",
    "--rerank": "--reranking",
}
# Keys of flags that the table of settings does not render.
INSTEAD = (
    (
        "model and quant",
        "-m --model -mu --model-url -dr --docker-repo -hf -hfr --hf-repo -hff --hf-file -hft --hf-token "
        "--embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default "
        "--fim-qwen-7b-spec --fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default "
        "--vision-gemma-4b-default --vision-gemma-12b-default",
    ),
    ("aliases of its model", "-a --alias"),
    ("llama_address of its node", "--host"),
    ("port", "--port"),
    ("workers", "--rpc"),
    ("split_mode", "-sm --split-mode"),
    ("tensor_split", "-ts --tensor-split"),
    ("cards", "-dev --device"),
    ("cpu_moe", "-cmoe --cpu-moe -ncmoe --n-cpu-moe"),
    ("numa", "--numa"),
    (
        "draft",
        "-md --model-draft --spec-draft-model --draft --draft-n --draft-max --spec-draft-n-max --draft-min "
        "--draft-n-min --spec-draft-n-min -ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl -devd "
        "--device-draft --spec-draft-device --spec-type --spec-default "
        "--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits --spec-ngram-simple-min-hits "
        + " ".join(flag for kind in DRAFT_TYPES.values() for flag in kind.flags.values()),
    ),
    (
        "mmproj",
        "-mm --mmproj --mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload --no-mmproj-offload -mmdev "
        "--mmproj-device",
    ),
    ("lora", "--lora --lora-scaled"),
    ("n_gpu_layers", "-ngl --gpu-layers --n-gpu-layers"),
    ("chat_template", "--chat-template --chat-template-file"),
    ("llama_api_keys", "--api-key --api-key-file"),
    # The collection's own: where layers go, and how the server is watched, asked and logged.
    (
        "",
        "-fit --fit -fitt --fit-target -fitc --fit-ctx "
        "--metrics --slots --no-slots --api-prefix --reuse-port --ssl-key-file --ssl-cert-file "
        "--models-dir --models-preset --models-max --models-autoload --no-models-autoload -lv --verbosity "
        "--log-verbosity -v --verbose --log-verbose --log-disable --log-file --log-jsonl --no-log-jsonl "
        "--log-prompts-dir --verbose-prompt -h --help --usage --version --license -cl --cache-list "
        "--completion-bash --list-devices --props",
    ),
    # Unverified files, and programs that any client could run.
    (
        "",
        "-mmu --mmproj-url --media-path --lora-init-without-apply "
        "--spec-draft-hf -hfd -hfrd --hf-repo-draft -hfv -hfrv --hf-repo-v --tools --tools-runtime "
        "-ag --agent -no-ag --no-agent --ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy "
        "--mcp-servers-config --mcp-servers-json",
    ),
)
ENTRY = re.compile(r"\n(?= {0,2}-)")
# The flags of an entry end where two spaces or a new line begin the description; values, such as [on|off], stand
# between them.
NAMES = re.compile(r"^((?:-\S+,\s+)*-.*?)(  |\n|\Z)")
FLAG = re.compile(r"(?:^|[\s,])(--?[a-zA-Z][\w.-]*)")
REMOVED = "the argument has been removed"


def known_flags(text: str) -> set[str]:
    """The flags that --help lists."""
    found: set[str] = set()
    for entry in ENTRY.split("\n" + text):
        names = NAMES.match(entry.strip())
        if names and REMOVED not in entry:
            found.update(FLAG.findall(names.group(1)))
    return found


def flags(words: Iterable[str]) -> list[str]:
    """The flags among words of a command line; a number below 0 is a value."""
    return [word for word in words if re.match("--?[A-Za-z]", word)]


def owners() -> dict[str, str]:
    """{flag: its key, empty for flags that only the collection sets}"""
    found = {flag: words for words, spelled in INSTEAD for flag in spelled.split()}
    # A key whose value follows the flag stands for it before one that has words for each of its values.
    for key in sorted(KEYS, key=lambda key: not isinstance(key.flag, str)):
        rendered: list[str] = [key.flag] if isinstance(key.flag, str) else []
        for _first, by_value in key.flag if isinstance(key.flag, tuple) else ():
            rendered += flags(word for given in by_value.values() for word in given)
        for flag in rendered:
            found.setdefault(flag, key.name)
    return dict(found, **{short: found[flag] for short, flag in SPELLINGS.items()})


def owner(word: str) -> str | None:
    """The key of a flag, also as `--flag=value`; None without one."""
    return owners().get(word.partition("=")[0])
