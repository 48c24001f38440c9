"""The cost of RPC on one card: a model with the same flags in one process, behind one RPC server on the loopback, and
behind two, in turn.

    python tests/benchmarks/card/run.py PROGRAMS MODEL.gguf [--build 11434] [--rounds 3] [--requests 5] [--tokens 128]
        [--report FILE]

PROGRAMS holds llama-server and ggml-rpc-server of one build for the card, the machine's only one, without other users.
A round starts each variant once, the next round in another order, and measures it with the engine and the prompts of
llama_bench: tokens/s are the geometric mean of the rounds, seconds their median.
Beside its speed: what nvidia-smi says of memory, utilisation and power while it generates, what the plan says of
memory, whether its answer is the one that one process gives, and how soon the card is free after kill -9.
"""

import argparse
import contextlib
import json
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
sys.path[:0] = [str(HERE), str(REPOSITORY / "tests/benchmarks/memory"), str(REPOSITORY / "plugins")]
import oracle  # noqa: E402
from module_utils._bench import machine, run  # noqa: E402
from module_utils._llama.args import head_args  # noqa: E402
from module_utils._model import gguf, memory  # noqa: E402
from module_utils._node import nvidia_smi  # noqa: E402
from module_utils._plan.bandwidths import bandwidth  # noqa: E402
from module_utils._plan.place import settings_for  # noqa: E402
from module_utils._plan.split import with_output  # noqa: E402
from report import VARIANTS, rate, reading, tables  # noqa: E402

MIB = 1 << 20
PROMPTS = {
    name: (REPOSITORY / "roles/acceptance/files/prompts" / (name + ".txt")).read_text() for name in ("short", "long")
}
# Seconds of generation while the card is looked at, and until a server has to serve, or a card to be free.
LOOKED, START, FREE = 10, 300, 60
# MiB by which a look at a free card may differ from the one before, and that a process needs for its context.
NEARLY, CONTEXT = 16, 1024
SERVICE = {"ctx_size": 8192, "parallel": 1, "flash_attn": "on"}
ANSWER = 64


def used():
    """MiB of the card that are in use, None without one."""
    cards = nvidia_smi.collect()["gpus"]
    return cards[0]["memory_used_mib"] if cards else None


def of_processes(pids):
    """MiB of each process, None where the driver does not tell."""
    cards = nvidia_smi.collect()["gpus"]
    used_by = {one["pid"]: one["memory_used_mib"] for one in (cards[0]["processes"] if cards else [])}
    return [used_by.get(pid) for pid in pids]


def spread(layers, servers):
    each = layers // servers
    return [each] * (servers - 1) + [layers - each * (servers - 1)]


class Served:
    """A variant that answers: its server, its RPC servers, and what they took of the card."""

    def __init__(self, programs, model, build, variant, stack):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = "http://127.0.0.1:%d" % port
        self.shape = memory.read_shape(gguf.read_path(str(model)))
        blocks = self.shape.block_count
        self.counts = spread(blocks, variant.servers) if variant.servers else [blocks]
        self.workers = stack.enter_context(oracle.Servers(programs, variant.servers)) if variant.servers else None
        instance = {
            "model_path": str(model),
            "aliases": ["card"],
            "address": "127.0.0.1",
            "port": port,
            "rpc_endpoints": self.workers.endpoints if self.workers else [],
            # The head's own card comes after the RPC devices, with nothing.
            "tensor_split": with_output(self.counts) if self.workers else [],
            "api_key_file": "",
        }
        self.arguments = head_args(instance, SERVICE, "b%d" % build)
        self.log = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
        began = time.monotonic()
        with self.log.open("w") as log:
            self.head = subprocess.Popen(
                [str(programs / "llama-server"), *self.arguments], stdout=log, stderr=subprocess.STDOUT
            )
        stack.callback(self.kill)
        self._wait(began + START)
        self.load = time.monotonic() - began
        settings, placed = settings_for(SERVICE, "b%d" % build), [*self.counts, 0] if self.workers else self.counts
        self.planned = [share.total() / MIB for share in memory.place(self.shape, settings, placed, 1).devices]

    def pids(self):
        """The processes with a context on the card."""
        return [one.pid for one in [self.head, *(self.workers.processes if self.workers else [])]]

    def ceiling(self):
        """Tokens/s if nothing but weights were read; None for a card that is not known."""
        known = [bandwidth(card["name"]) for card in nvidia_smi.collect()["gpus"]][:1]
        read = sum(self.shape.block_bytes) + self.shape.output_bytes
        return known[0] * 1e9 / read if known and known[0] else None

    def _wait(self, deadline):
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(self.url + "/health", timeout=5) as reply:
                if reply.status == 200:
                    return
            if self.head.poll() is not None or time.monotonic() > deadline:
                log = self.log.read_text(errors="replace")[-3000:]
                sys.exit("card: %s does not serve\n%s" % (" ".join(self.head.args), log))
            time.sleep(0.1)

    def kill(self):
        self.head.kill()
        self.head.wait()

    def cell(self, name, requests, tokens, warmup=0):
        cell = run.Cell(name, PROMPTS[name], 0, 1, requests, warmup)
        return run.measure(self.url, None, cell, run.Asked(None, tokens, True, False, 600))["figures"]

    def answer(self):
        asked = {"prompt": PROMPTS["short"], "n_predict": ANSWER, "temperature": 0, "seed": 1, "ignore_eos": True}
        asked.update(cache_prompt=False, return_tokens=True)
        message = urllib.request.Request(self.url + "/completion", json.dumps(asked).encode())
        with urllib.request.urlopen(message, timeout=600) as reply:
            return json.load(reply)["tokens"]


def looked_at(served):
    """-> what the card does while a request generates for some seconds"""
    over = threading.Event()
    samples = []
    watcher = threading.Thread(target=lambda: samples.extend(machine.watch(LOOKED * 10, over.is_set)))
    watcher.start()
    until = time.monotonic() + LOOKED
    try:
        while time.monotonic() < until:
            served.cell("short", 1, 512)
    finally:
        over.set()
        watcher.join()
    # The first and the last look see a card that is not at work the whole time.
    cards = [sample["cards"][0] for sample in samples[2:-1] if sample["cards"]]
    return {
        "utilization": statistics.median(card["utilization"] for card in cards) if cards else None,
        "power_w": statistics.median(card["power_w"] for card in cards) if cards else None,
        "cpu": statistics.median(sample["cpu"] for sample in samples[2:-1]),
        "samples": len(cards),
    }


def freed(before, served):
    """-> seconds from kill -9 of llama-server until the card has back what was loaded; None where that does not come.
    RPC servers live on, and keep their contexts."""
    stays = CONTEXT * len(served.workers.processes) if served.workers else 0
    began = time.monotonic()
    served.kill()
    while used() > before + stays + NEARLY:
        if time.monotonic() - began > FREE:
            return None
        time.sleep(0.1)
    return time.monotonic() - began


def measured(programs, model, build, variant, requests, tokens, look):
    """One start of a variant -> its figures. look: also what the card does."""
    with contextlib.ExitStack() as stack:
        before = used()
        served = Served(programs, model, build, variant, stack)
        found = dict.fromkeys(("loaded_mib", "used_mib", "processes_mib", "freed_s"))
        found |= {"load_s": served.load, "counts": served.counts, "planned_mib": served.planned}
        found |= {"arguments": served.arguments, "ceiling": served.ceiling()}
        loaded = used()
        found["short"] = served.cell("short", requests, tokens, warmup=1)
        found["long"] = served.cell("long", requests, tokens)
        found["answer"] = served.answer()
        if look:
            found["card"] = looked_at(served)
        if loaded is not None:
            # llama.cpp gives nothing back that it has taken for a request: this is the peak as well.
            found.update(
                loaded_mib=loaded - before, used_mib=used() - before, processes_mib=of_processes(served.pids())
            )
            found["freed_s"] = freed(before, served)
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--build", type=int, default=11434)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--report", type=pathlib.Path)
    arguments = parser.parse_args()
    cards = nvidia_smi.collect()
    if len(cards["gpus"]) > 1:
        parser.error("%d cards seen, one is needed: llama.cpp would use them all" % len(cards["gpus"]))
    rounds = []
    for at in range(arguments.rounds):
        rounds.append({})
        for variant in VARIANTS[at % 3 :] + VARIANTS[: at % 3]:
            rounds[-1][variant.name] = measured(
                *(arguments.programs, arguments.model, arguments.build, variant, arguments.requests),
                *(arguments.tokens, at == 0),
            )
            one = rounds[-1][variant.name]
            print(
                "round %d, %s: %.1f tokens/s, %.0f read/s, load %.1f s"
                % (at + 1, variant.name, rate(one, "short"), reading(one, "long"), one["load_s"]),
                flush=True,
            )
            if arguments.report:
                known = {"kernel": platform.release(), "driver": cards["driver"], "cuda": cards["cuda"]}
                known["cards"] = [card["name"] for card in cards["gpus"]]
                arguments.report.write_text(json.dumps({"machine": known, "rounds": rounds}, indent=1))
    print("\n".join(tables(rounds)))


if __name__ == "__main__":
    main()
