"""Asks a real Prometheus every query of dashboards and rules, over simulated series of a cluster, and says how long
each took. Fails where a panel shows nothing, a query is refused, or one takes a second or longer.

python tests/benchmarks/monitoring/queries.py [--nodes 50] [--hours 3] [--step 5]
"""

import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

import series
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "plugins"))
from plugin_utils._monitoring import dashboards, dropped  # noqa: E402

CACHE = pathlib.Path(os.environ.get("LLAMA_CLUSTER_CACHE", os.path.expanduser("~/.cache/llama-cluster")))
PROGRAMS = CACHE / "files/prometheus"
# A block of Prometheus' storage: one file for promtool each, because it reads its whole file for every block.
BLOCK, DAY = 7200, 86400
# Columns of a panel: Grafana asks for about as many points.
POINTS = 720
ALLOWED, TIMES = 1.0, 3


def load(storage, found, start, end, step):
    """Simulated samples become blocks of the storage. -> how many"""
    count = 0
    for block in range(start // BLOCK * BLOCK, end, BLOCK):
        first, last = max(block, start), min(block + BLOCK, end)
        first += -first % step
        with tempfile.NamedTemporaryFile("w", suffix=".om", dir=str(storage.parent)) as file:
            for text in series.lines(found, first, last, step):
                file.write(text)
            file.flush()
            subprocess.run(
                [
                    str(PROGRAMS / "promtool"),
                    "tsdb",
                    "create-blocks-from",
                    "openmetrics",
                    "-q",
                    file.name,
                    str(storage),
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        count += len(found) * len(range(first, last, step))
    return count


class Prometheus:
    """A server over a storage, on the loopback alone."""

    def __init__(self, storage):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._url = "http://127.0.0.1:%d" % probe.getsockname()[1]
        configuration = storage.parent / "prometheus.yml"
        configuration.write_text("global: {scrape_interval: 1h}\n")
        self._process = subprocess.Popen(
            [
                str(PROGRAMS / "prometheus"),
                "--config.file=%s" % configuration,
                "--storage.tsdb.path=%s" % storage,
                "--storage.tsdb.retention.time=30d",
                "--web.listen-address=%s" % self._url.partition("//")[2],
            ],
            stdout=subprocess.DEVNULL,
            stderr=(storage.parent / "prometheus.log").open("w"),
        )

    def __enter__(self):
        for _try in range(300):
            try:
                urllib.request.urlopen(self._url + "/-/ready", timeout=5).close()
                return self
            except OSError:
                time.sleep(0.2)
        raise SystemExit("queries: Prometheus does not become ready")

    def __exit__(self, *_raised):
        self._process.terminate()
        self._process.wait()

    def ask(self, query, **times):
        """-> (seconds, number of series)"""
        path = "query_range" if "step" in times else "query"
        told = urllib.parse.urlencode(dict(times, query=query)).encode()
        began = time.monotonic()
        try:
            with urllib.request.urlopen("%s/api/v1/%s" % (self._url, path), told, timeout=120) as answer:
                found = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise SystemExit("queries: %s: %s" % (query, error.read().decode())) from error
        return time.monotonic() - began, len(found)


def filled(query, nodes):
    """A query as Grafana sends it: one service of a repeated row, and all where a variable is matched as a pattern."""
    everything = {"service": series.service, "node": series.node}
    for name, make in everything.items():
        query = query.replace('=~"$%s"' % name, '=~"%s"' % "|".join(make(number) for number in range(nodes)))
        query = query.replace("$" + name, make(1))
    query = query.replace("$__rate_interval", "1m")
    assert "$" not in re.sub(r'"[^"]*"', "", query), query
    return query


def asked(arguments, end):
    """[(what asks, query, times)] of all dashboards and rules of the collection in this checkout."""
    found = []
    for name, dashboard in dashboards.dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                start = end - arguments.hours * 3600
                step = max(arguments.step, arguments.hours * 3600 // POINTS)
                times = {"time": end} if target["instant"] else {"start": start, "end": end, "step": step}
                found.append(("%s: %s" % (name, panel["title"]), filled(target["expr"], arguments.nodes), times))
    for one in dropped.rules():
        for group in yaml.safe_load(one.path.read_text())["groups"]:
            for rule in group["rules"]:
                found.append(("rule: " + (rule.get("alert") or rule["record"]), rule["expr"], {"time": end}))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--hours", type=int, default=3, help="how far back panels look")
    parser.add_argument("--step", type=int, default=5, help="seconds between two scrapes")
    arguments = parser.parse_args()
    end = int(time.time()) // 60 * 60
    with tempfile.TemporaryDirectory(prefix="bench-monitoring-") as scratch:
        storage = pathlib.Path(scratch) / "data"
        storage.mkdir()
        began, found = time.monotonic(), list(series.series(arguments.nodes))
        count = load(storage, found, end - arguments.hours * 3600 - 600, end + arguments.step, arguments.step)
        week = list(series.of_a_week(arguments.nodes))
        count += load(storage, week, end - 7 * DAY - 7200, end + 60, 60)
        size = sum(path.stat().st_size for path in storage.rglob("*") if path.is_file())
        print(
            "%d nodes, simulated: %d series, %.1f million samples, %d MB of blocks, written in %d s"
            % (arguments.nodes, len(found) + len(week), count / 1e6, size / 1e6, time.monotonic() - began)
        )
        with Prometheus(storage) as prometheus:
            results = []
            for who, query, times in asked(arguments, end):
                answers = [prometheus.ask(query, **times) for _time in range(TIMES)]
                results.append((max(seconds for seconds, _number in answers), answers[0][1], who, query))
    return report(results, arguments)


def report(results, arguments):
    """Prints the slowest, and what is wrong. -> exit status"""
    results.sort(reverse=True)
    version = subprocess.run(
        [str(PROGRAMS / "promtool"), "--version"], check=True, capture_output=True, text=True
    ).stdout.split()[2]
    print(
        "prometheus %s, %d cores, load %.1f; panels over %d h, the slowest of %d times:"
        % (version, os.cpu_count(), os.getloadavg()[0], arguments.hours, TIMES)
    )
    for seconds, number, who, _query in results[:10]:
        print("%7.3f s  %5d series  %s" % (seconds, number, who))
    panels = [one for one in results if not one[2].startswith("rule: ")]
    empty = [who for _seconds, number, who, _query in panels if not number]
    slow = [who for seconds, _number, who, _query in results if seconds >= ALLOWED]
    print(
        "%d queries of panels, %d of rules; without data: %s; %.1f s or longer: %s"
        % (len(panels), len(results) - len(panels), ", ".join(empty) or "none", ALLOWED, ", ".join(slow) or "none")
    )
    reports = CACHE / "reports/monitoring"
    reports.mkdir(parents=True, exist_ok=True)
    (reports / "queries.json").write_text(json.dumps(results, indent=1))
    return 1 if empty or slow else 0


if __name__ == "__main__":
    sys.exit(main())
