"""For the Python of the lab's image: what Ansible sends in zip files is compiled once for each content, not once for
each module call.

A quarter of what a module call costs its node is that compilation, and Python keeps no compiled code of zip files. The
cache is one for all containers.
"""

import _frozen_importlib_external
import _imp
import marshal
import os
import zipimport

CACHE = "/var/cache/ansible-code"
compile_source = zipimport._compile_source


def compile_once(path, source):
    """As zipimport._compile_source; the file name in tracebacks is that of the first call."""
    name = os.path.join(CACHE, _imp.source_hash(_frozen_importlib_external._RAW_MAGIC_NUMBER, source).hex())
    try:
        with open(name, "rb") as stream:
            return marshal.load(stream)
    except (OSError, EOFError, ValueError, TypeError):
        return keep(name, compile_source(path, source))


def keep(name, code):
    """Writes it for the next call -> code."""
    if os.access(CACHE, os.W_OK):
        # Two containers may have processes of one number.
        with open("%s.%s" % (name, os.urandom(8).hex()), "wb") as stream:
            marshal.dump(code, stream)
        os.replace(stream.name, name)
    return code


zipimport._compile_source = compile_once
