# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks that models are evaluated by: directories ROOT/KIND/NAME, as docs/evaluation.md has them. Private to the
collection."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

from ...module_utils._judge.harness import cases_of
from ...module_utils._judge.judge import RUST
from ...module_utils._text import Refusal
from .._intent.values import did_you_mean

Map = Mapping[str, Any]
# Tasks at most, bytes of each of their files, and files of a task.
MOST, LARGEST, FILES = 1000, 64 << 10, 100
TOKENS, DEFAULT_TOKENS = (1, 32768), 1024
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
KEYS = {"summary", "judge", "max_tokens", "checklist"}
CHECKLIST = "checklist"


def load(directories: Sequence[str]) -> list[dict[str, Any]]:
    """The tasks below directories, by kind and name: {name: KIND/NAME, kind, summary, prompt, max_tokens, judge: rust,
    checklist or the words of a command, tests and refused: texts or None, checklist or None, dir: of a command's task
    or None, digest: sha256 of the question and all that judges}. Errors: Refusal."""
    found: dict[str, dict[str, Any]] = {}
    for root in directories:
        for kind in _names(root):
            for name in _names(os.path.join(root, kind)):
                task = _task(os.path.join(root, kind, name), kind, name)
                if found.setdefault(task["name"], task) is not task:
                    raise Refusal(f"{root}: {task['name']} seen twice, one is needed: rename it")
                if len(found) > MOST:
                    raise Refusal(f"{root}: more than {MOST} tasks seen, at most {MOST} are allowed: divide them")
    if not found:
        raise Refusal(f"{', '.join(directories)}: no KIND/NAME/task.yml seen, one is needed: correct -e task_dir=")
    return [found[name] for name in sorted(found)]


def chosen(tasks: Sequence[Map], words: Sequence[str] = (), limit: int = 0) -> list[Map]:
    """The tasks that words name, KIND or KIND/NAME, all without one; limit: of each kind the first ones, 0 for all.
    Errors: Refusal for a word that names no task."""
    known = dict.fromkeys([*(one["kind"] for one in tasks), *(one["name"] for one in tasks)])
    for word in words:
        if word not in known:
            kinds = ", ".join(dict.fromkeys(one["kind"] for one in tasks))
            step = did_you_mean(word, known) or ": correct -e tasks="
            raise Refusal(f"evaluate: task {word} seen, one of {kinds} or KIND/NAME is needed{step}")
    found: dict[str, list[Map]] = {}
    for one in tasks:
        own = found.setdefault(one["kind"], [])
        if (not words or one["kind"] in words or one["name"] in words) and not (limit and len(own) >= limit):
            own.append(one)
    return [one for own in found.values() for one in own]


def _names(folder: str) -> list[str]:
    """The directories in one, but for those with a dot in front."""
    try:
        with os.scandir(folder) as entries:
            found = [one.name for one in entries if not one.name.startswith(".") and not one.is_file()]
    except OSError as error:
        raise Refusal(
            f"{folder}: no directory that can be read seen ({error.strerror}), one is needed: correct -e task_dir="
        ) from None
    for name in found:
        if os.path.islink(os.path.join(folder, name)):
            raise Refusal(f"{os.path.join(folder, name)}: a symbolic link seen, a directory is needed: copy it")
        if not NAME.match(name) or name == "all":
            raise Refusal(
                f"{os.path.join(folder, name)}: a name seen that is all, or not of a-z, 0-9, - and _, another is "
                "needed: rename it"
            )
    if len(found) > MOST:
        raise Refusal(f"{folder}: {len(found)} directories seen, at most {MOST} are allowed: divide them")
    return sorted(found)


def _read(path: str, needed: bool = True) -> str | None:
    """The text of a file; None for a missing one that is not needed. Errors: Refusal."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        if not needed:
            return None
        raise Refusal(f"{path}: no file seen, one is needed: write it") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refusal(f"{path}: a symbolic link seen, a file is needed: copy it") from None
        raise Refusal(f"{path}: no file that can be read seen ({error.strerror}), one is needed: correct it") from None
    # open() raises for a directory, and leaves the descriptor open.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refusal(f"{path}: no regular file seen, one is needed: write it")
    with open(descriptor, "rb") as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        most = f"{LARGEST >> 10} KiB"
        raise Refusal(f"{path}: more than {most} seen, a file of at most {most} is needed: shorten it")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refusal(f"{path}: other bytes than UTF-8 seen, text is needed: correct it") from None


def _task(folder: str, kind: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, "task.yml")
    given = _settings(path)
    judge = given["judge"]
    prompt = _read(os.path.join(folder, "prompt.md")) or ""
    if not prompt.strip():
        raise Refusal(f"{folder}/prompt.md: no text seen, the whole message is needed: write it")
    if judge == CHECKLIST:
        _check_facts(path, given.get("checklist"))
    judged = [_read(os.path.join(folder, file), needed=False) for file in ("tests.rs", "refused.rs")]
    if judge == RUST and not judged[0]:
        raise Refusal(f"{folder}/tests.rs: no test seen, one is needed: write it, or another judge into task.yml")
    tests, refused = judged if judge == RUST else (None, None)
    if tests:
        cases_of(f"{kind}/{name}", tests)
    checklist = given.get("checklist") if judge == CHECKLIST else None
    files = _files(folder) if isinstance(judge, list) else {}
    if isinstance(judge, list):
        _check_command(folder, judge[0])
    tokens = given.get("max_tokens", DEFAULT_TOKENS)
    by = json.dumps([prompt, tokens, judge, tests, refused, checklist, files], sort_keys=True, ensure_ascii=False)
    return {
        "name": f"{kind}/{name}",
        "kind": kind,
        "summary": given["summary"],
        "prompt": prompt,
        "max_tokens": tokens,
        "judge": judge,
        "tests": tests,
        "refused": refused,
        "checklist": checklist,
        "dir": os.path.abspath(folder) if isinstance(judge, list) else None,
        "digest": hashlib.sha256(by.encode()).hexdigest(),
    }


def _files(folder: str) -> dict[str, str | None]:
    """{path below a directory: text} of a command's files."""
    found: dict[str, str | None] = {}
    for where, _folders, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            found[os.path.relpath(path, folder)] = _read(path)
            if len(found) > FILES:
                raise Refusal(f"{folder}: more than {FILES} files seen, at most {FILES} are allowed: divide it")
    return found


def _check_command(folder: str, word: str) -> None:
    """Errors: Refusal for a file of the task that the sandbox's user cannot run."""
    path = os.path.normpath(os.path.join(folder, word))
    if "/" not in word:
        if os.path.exists(path):
            raise Refusal(
                f"{folder}/task.yml: judge {word} seen, ./{word} is needed for a file of the task: correct it"
            )
        return
    if word.startswith("/"):
        return
    _read(path)
    for needed in (folder, path):
        mode = stat.S_IMODE(os.stat(needed).st_mode)
        if mode & 0o005 != 0o005:
            raise Refusal(
                f"{needed}: mode {mode:04o} seen, one that lets every user run {word} is needed: chmod 755 it"
            )


def _settings(path: str) -> dict[str, Any]:
    """The settings in task.yml. Errors: Refusal."""
    try:
        given = yaml_load(_read(path) or "")
    except Refusal:
        raise
    except Exception as problem:  # of YAML's readers, which Ansible chooses
        mark, what = getattr(problem, "problem_mark", None), getattr(problem, "problem", None)
        where = f"line {mark.line + 1}: {what}" if mark and what else str(problem).splitlines()[0]
        raise Refusal(f"{path}: no YAML seen ({where}): correct it") from problem
    if not isinstance(given, dict):
        raise Refusal(f"{path}: no map seen, summary: and judge: are needed: write them")
    other = sorted(map(str, set(given) - KEYS))
    if other:
        step = did_you_mean(other[0], KEYS) or ": correct it"
        raise Refusal(f"{path}: {', '.join(other)} seen, {', '.join(sorted(KEYS))} are known{step}")
    judge, tokens = given.get("judge"), given.get("max_tokens", DEFAULT_TOKENS)
    words = isinstance(judge, list) and judge and all(isinstance(word, str) and word for word in judge)
    if judge not in (RUST, CHECKLIST) and not words:
        seen = "no judge" if judge is None else f"judge {judge}"
        raise Refusal(f"{path}: {seen} seen, {RUST}, {CHECKLIST} or a list of words is needed: correct it")
    if not isinstance(given.get("summary"), str):
        raise Refusal(f"{path}: no text in summary seen, one line is needed: write it, a number in quotes")
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not TOKENS[0] <= tokens <= TOKENS[1]:
        raise Refusal("%s: max_tokens %r seen, a number from %d to %d is needed: correct it" % (path, tokens, *TOKENS))
    return given


def _check_facts(path: str, checklist: Any) -> None:
    form = "{fact: TEXT, any: [PATTERN]}"
    if not isinstance(checklist, list) or not checklist:
        raise Refusal(f"{path}: no list in checklist seen, one of {form} is needed: write it")
    for number, one in enumerate(checklist, 1):
        patterns = one.get("any") if isinstance(one, dict) and set(one) == {"fact", "any"} else None
        texts = [one["fact"], *patterns] if isinstance(patterns, list) and patterns else [None]
        if not all(isinstance(text, str) and text for text in texts):
            raise Refusal(
                f"{path}: entry {number} of checklist in another form seen, {form} is needed: correct it, numbers in "
                "quotes"
            )
        for pattern in patterns or ():
            if "\b" in pattern:
                raise Refusal(
                    f"{path}: entry {number} of checklist with a backspace seen, which \\b is in double quotes, a "
                    "regular expression is needed: put it in single quotes"
                )
            try:
                re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise Refusal(f"{path}: {pattern} seen ({error}), a regular expression is needed: correct it") from None
