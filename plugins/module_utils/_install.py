# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts the node programs, and what they import of this package, on a node. Private to the collection.

A program is a module of the room programs. It reaches the node the way every module does, as an import of the module
that runs there: so what is installed is what was imported, and nothing has to be listed twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Iterable
from typing import Any

from . import _files
from ._files import text_of
from ._text import Refusal

PACKAGE = "llama_cluster"
# The first line of each source of the collection.
FIRST_LINE = "# Copyright: The Fermi Sea\n"
# The first is there on Enterprise Linux 8, whose python3 is 3.6, after bootstrap.yml.
PYTHONS = ("/usr/bin/python3.11", "/usr/bin/python3")
# From /, because "-m" searches the working directory first; without site, which runs what it finds beside the
# libraries; without bytecode, so that the directory holds what was installed and no more.
WRAPPER = """\
#!/bin/sh
# llama-program NAME [ARGUMENT...]: runs one of the cluster's node programs.
name=$1
shift
cd / && PYTHONPATH=%s exec %s -S -B -m %s.programs."$name" "$@"
"""


def loaded_sources(package: str | None = None) -> dict[str, str]:
    """{file name: text} of what is imported of the package, but for this module."""
    prefix = (package or __name__.rpartition(".")[0]) + "."
    sources = {"__init__.py": ""}
    for name, module in sorted(sys.modules.items()):
        if name.startswith(prefix) and module is not None and name != __name__:
            path = name[len(prefix) :].replace(".", "/")
            if hasattr(module, "__path__"):
                # The text of a package's __init__ is for readers, and not every loader has it.
                sources[path + "/__init__.py"] = ""
                continue
            loader: Any = module.__loader__
            source = loader.get_source(name)
            # The loader of ansible-test gives bytes.
            sources[path + ".py"] = source.decode("utf-8") if isinstance(source, bytes) else source
    return sources


def choose_python(candidates: Iterable[str]) -> str:
    """The first Python that only root can exchange: units run the programs as root. Errors: Refusal."""
    seen = []
    for path in candidates:
        try:
            _files.check_program(path)
        except FileNotFoundError:
            continue
        except Refusal as error:
            seen.append(str(error))
            continue
        return path
    raise Refusal(
        "no Python that only root can change, one of %s is needed%s: install the distribution's python3"
        % (" or ".join(PYTHONS), " (%s)" % "; ".join(seen) if seen else "")
    )


def install(prefix: str, sources: dict[str, str], python: str, check: bool = False) -> tuple[list[dict[str, str]], str]:
    """Install exactly these sources in PREFIX/lib/llama_cluster, and PREFIX/bin/llama-program, which runs them.

    Returns (changes as [{before, after, before_header, after_header}], digest of it all). Refusal, or OSError when a
    file cannot be written.
    """
    folder = os.path.join(prefix, "lib", PACKAGE)
    wrapper = os.path.join(prefix, "bin", "llama-program")
    wanted = {os.path.join(folder, name): (text, 0o644) for name, text in sources.items()}
    wanted[wrapper] = (WRAPPER % (os.path.dirname(folder), python, PACKAGE), 0o755)
    changes = []
    for room in sorted({os.path.dirname(path) for path in wanted}):
        # Checked even if nothing differs: another user might exchange a directory later.
        with contextlib.suppress(FileNotFoundError), _files.directory(room, make=None if check else 0o755):
            pass
    for path in sorted(wanted):
        text, mode = wanted[path]
        if _seen(path) == (text, mode):
            continue
        changes.append(_change(path, text_of(path), text))
        if not check:
            _files.write_atomically(path, text.encode("utf-8"), mode)
    stale = _stale(folder, wanted)
    for path in stale:
        changes.append(_change(path, text_of(path), None))
        if not check:
            with _files.directory(os.path.dirname(path)) as room_descriptor:
                os.unlink(os.path.basename(path), dir_fd=room_descriptor)
    for room in {os.path.dirname(path) for path in stale} if not check else ():
        with contextlib.suppress(OSError):  # not empty
            os.rmdir(room)
    digest = hashlib.sha256(repr(sorted(wanted.items())).encode("utf-8")).hexdigest()[:16]
    return changes, digest


def _stale(folder: str, wanted: Iterable[str]) -> list[str]:
    """Modules that the collection no longer has, of an older layout too. Files with another text, or in a directory of
    other users, are kept."""
    found = []
    for where, folders, names in os.walk(folder):
        try:
            with _files.directory(where):
                found += [os.path.join(where, name) for name in names]
        except (OSError, Refusal):
            del folders[:]
    texts = {path: text_of(path) for path in sorted(found) if path not in wanted}
    return [
        path
        for path, text in texts.items()
        if text is not None and (text.startswith(FIRST_LINE) or not text and path.endswith("/__init__.py"))
    ]


def _seen(path: str) -> tuple[str, int] | None:
    """Text and mode of what is installed; None for a file that others may change: it is written anew."""
    try:
        with os.fdopen(_files.open_file(path), "rb") as stream:
            return stream.read().decode("utf-8", "replace"), stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
    except (OSError, Refusal):
        return None


def _change(path: str, before: str | None, after: str | None) -> dict[str, str]:
    return {
        "before_header": path if before is not None else path + " (absent)",
        "after_header": path if after is not None else path + " (absent)",
        "before": before or "",
        "after": after or "",
    }
