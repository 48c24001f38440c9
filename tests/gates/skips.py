"""Prints the unit tests that were skipped, one a line: test, tabulator, reason. Fails if the
gates could install what is missing.

python tests/gates/skips.py REPORT...      reports in JUnit's format, as pytest writes them
"""

import sys
import xml.etree.ElementTree

# How reasons begin that neither a package of Debian nor one of PyPI can take away; the table of the gates names each
# test that has one.
ALLOWED = {
    "no CPython 3.9 on this machine": "no longer packaged: pyenv builds it",
    "only root ": "make test as another user",
    "no user namespaces": "a container, or a setting of the kernel",
    "no sock_diag here": "a kernel without the module tcp_diag",
    "the text is from a little-endian kernel": "the machine's",
}


def skipped(paths):
    """[(test, reason)]"""
    cases = [case for path in paths for case in xml.etree.ElementTree.parse(path).iter("testcase")]
    if not cases:
        sys.exit("skips: no test in %s, a report of the unit tests is needed" % (", ".join(paths) or "no file"))
    found = [(case, case.find("skipped")) for case in cases]
    return [
        ("%s::%s" % (case.get("classname"), case.get("name")), skip.get("message"))
        for case, skip in found
        if skip is not None
    ]


def main():
    found = skipped(sys.argv[1:])
    for test, reason in found:
        print("%s\t%s" % (test.rpartition("test_plugins.")[2].rpartition("tests.unit.")[2], reason))
    unknown = sorted({reason for _test, reason in found if not reason.startswith(tuple(ALLOWED))})
    if unknown:
        sys.exit(
            "skips: %s: not an allowed reason: install what is missing, or add it to tests/gates/skips.py"
            % "; ".join(unknown)
        )


if __name__ == "__main__":
    main()
