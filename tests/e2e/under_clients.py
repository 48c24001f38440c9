# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a command while twenty clients ask a gateway, one request after the other, without a stream.

    under_clients.py http://HOST:PORT/v1 MODEL FOLDER WORDS COMMAND...      LLAMA_KEY has the key
    under_clients.py --table FOLDER

The command's output goes to its own file in FOLDER, and a row to rows.json there: how many requests were sent, which
failed and why, the longest of them, and for how long no client got a whole answer. Ends with 1 where a request failed
or the command did.
"""

import collections
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.parse

CLIENTS, TOKENS, TIMEOUT_S = 20, 8, 300
# How long they ask before the command begins, and after it.
AROUND_S = 3


class Clients:
    """-> `answers`: of each request when it was sent and ended, and why it failed, "" where it was answered whole."""

    def __init__(self, url, model, key):
        self.url, self.over, self.answers = urllib.parse.urlsplit(url), threading.Event(), []
        self.headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
        question = [{"role": "user", "content": "Name a color."}]
        self.body = json.dumps({"model": model, "messages": question, "max_tokens": TOKENS, "temperature": 0})
        self.threads = [threading.Thread(target=self.run, daemon=True) for _one in range(CLIENTS)]

    def run(self):
        while not self.over.is_set():
            sent = time.monotonic()
            try:
                why = self.ask()
            except (OSError, http.client.HTTPException, ValueError) as error:
                why = repr(error)
            self.answers.append((sent, time.monotonic(), why))

    def ask(self):
        """-> why it failed. Each on a connection of its own: what a client sends again by itself would hide a loss."""
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", self.url.path + "/chat/completions", self.body, self.headers)
            reply = connection.getresponse()
            text = reply.read()
            if reply.status != 200:
                return "%d %s" % (reply.status, text[:300].decode("utf-8", "replace"))
            found = json.loads(text)
            # A whole answer says why it ended and how many tokens it has.
            choices, tokens = found.get("choices") or [{}], found.get("usage", {}).get("completion_tokens", 0)
            return "" if choices[0].get("finish_reason") and tokens > 0 else "200 without a whole answer"
        finally:
            connection.close()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        time.sleep(AROUND_S)
        return self

    def __exit__(self, *_exception):
        time.sleep(AROUND_S)
        self.over.set()
        for thread in self.threads:
            thread.join()


def seen(answers):
    """-> figures of the requests: count, failures, longest request, longest silence"""
    whole = sorted(ended for _sent, ended, why in answers if not why)
    moments = [min(sent for sent, _ended, _why in answers), *whole, max(ended for _sent, ended, _why in answers)]
    return {
        "requests": len(answers),
        "failed": dict(collections.Counter(why for _sent, _ended, why in answers if why)),
        "longest_s": max(ended - sent for sent, ended, _why in answers),
        "silence_s": max(after - before for before, after in zip(moments, moments[1:])),
    }


def table(rows):
    head = ("under %d clients" % CLIENTS, "took s", "requests", "failed", "longest s", "silence s", "load")
    lines = ["| %s |" % " | ".join(head), "|---|" + "--:|" * (len(head) - 1)]
    for row in rows:
        failures = "".join("; %d x %s" % (count, why) for why, count in row["failed"].items())
        numbers = ("%.0f" % row["seconds"], str(row["requests"]), "%d%s" % (sum(row["failed"].values()), failures))
        times = tuple("%.1f" % row[name] for name in ("longest_s", "silence_s", "load"))
        lines.append("| %s |" % " | ".join((row["words"], *numbers, *times)))
    return "\n".join(lines)


def main(url, model, folder, words, *command):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / (re.sub(r"\W+", "-", words).strip("-") + ".log")
    with Clients(url, model, os.environ["LLAMA_KEY"]) as clients, log.open("w") as output:
        began = time.monotonic()
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
        seconds, load = time.monotonic() - began, os.getloadavg()[0]
    row = dict(seen(clients.answers), words=words, seconds=seconds, load=load, status=done.returncode)
    rows = folder / "rows.json"
    rows.write_text(json.dumps([*(json.loads(rows.read_text()) if rows.exists() else ()), row], indent=1))
    print(table([row]).splitlines()[-1], flush=True)
    if done.returncode:
        print("%s failed with status %d: its output is %s" % (words, done.returncode, log))
    return bool(row["failed"] or done.returncode)


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        print(table(json.loads((pathlib.Path(sys.argv[2]) / "rows.json").read_text())))
    else:
        sys.exit(main(*sys.argv[1:]))
