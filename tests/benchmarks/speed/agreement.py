"""Our figures beside those of guidellm, which asks the same paced server in turn with us.

    python tests/benchmarks/speed/agreement.py GUIDELLM [--rounds 3]

GUIDELLM is its program, in a virtual environment of its own. It needs a tokenizer and gets one that is made here, of
words. Compared are the medians of tokens/s of a request after its first token, of the time to first token, and of the
time between tokens. Ends with status 1 where one differs by more than 3 %.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from calibration import ASKED, start, truth

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / ".collections"))
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench.run import Cell, measure  # noqa: E402

STREAMS, REQUESTS, ALLOWED = 8, 24, 0.03
TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = {"[UNK]": 0, **{"w%d" % number: number + 1 for number in range(2000)}}
made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
made.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]").save_pretrained(sys.argv[1])
"""


def guidellm(program, port, folder):
    """-> (tokens/s of a request, time to first token, time between tokens), medians, seconds"""
    tokenizer = folder / "tokenizer"
    if not tokenizer.exists():
        subprocess.run([pathlib.Path(program).parent / "python", "-c", TOKENIZER, tokenizer], check=True)
    file = folder / "guidellm.json"
    given = {
        "backend": "kind=openai_http,target=http://127.0.0.1:%d,model=paced,http2=false" % port,
        "profile": "kind=concurrent,streams=%d" % STREAMS,
        "constraint": "kind=max_requests,count=%d" % REQUESTS,
        "tokenizer": "kind=hf_auto,model=%s" % tokenizer,
        "data": "kind=synthetic_text,prompt_tokens=32,output_tokens=%d" % ASKED.max_tokens,
        "output": "kind=json,path=%s" % file,
    }
    command = [program, "run", "--disable-console", *("--%s=%s" % one for one in given.items())]
    offline = dict(os.environ, HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    subprocess.run([str(one) for one in command], check=True, env=offline, stdout=subprocess.DEVNULL)
    metrics = json.loads(file.read_text())["benchmarks"][0]["metrics"]
    file.unlink()
    first, between = (
        metrics[name]["successful"]["percentiles"]["p50"] / 1000
        for name in ("time_to_first_token_ms", "inter_token_latency_ms")
    )
    return 1 / between, first, between


def ours(port):
    cell = Cell("short", "calibrate", 0, STREAMS, None, REQUESTS, 0)
    figures = measure("http://127.0.0.1:%d" % port, None, cell, ASKED)["figures"]
    names = ("request_tokens_per_second", "time_to_first_token", "inter_token_latency")
    return tuple(figures[name]["p50"] for name in names)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("guidellm")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    process, port = start(0.02, 0.1)
    seen = {"ours": [], "guidellm": []}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(arguments.rounds):
                for who in ("ours", "guidellm") if number % 2 else ("guidellm", "ours"):
                    truth(port)
                    given = ours(port) if who == "ours" else guidellm(arguments.guidellm, port, pathlib.Path(folder))
                    seen[who].append(given)
    finally:
        process.terminate()
        process.wait()
    well = True
    print("| median of %d rounds, %d streams | ours | guidellm | differs by |" % (arguments.rounds, STREAMS))
    print("|---|--:|--:|--:|")
    for number, name in enumerate(("tokens/s of a request", "time to first token, s", "between tokens, s")):
        mine, its = (statistics.median(one[number] for one in seen[who]) for who in ("ours", "guidellm"))
        well = well and abs(mine / its - 1) <= ALLOWED
        print("| %s | %.4f | %.4f | %+.2f %% |" % (name, mine, its, 100 * (mine / its - 1)))
    print("load %.1f" % os.getloadavg()[0])
    return int(not well)


if __name__ == "__main__":
    sys.exit(main())
