# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import duration, exact, human, printable


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (77263859712, "77.3 GB"),
        (999_949_999_999, "999.9 GB"),
        (1_000_000_000_000, "1.0 TB"),
        (1_234_500_000_000_000, "1234.5 TB"),
    ],
)
def test_a_count_of_bytes_as_people_say_it(count, text):
    assert human(count) == text


def test_an_exact_count_of_bytes():
    assert exact(98362432) == "98,362,432 bytes"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (0, "0 s"),
        (9, "9 s"),
        (10, "10 s"),
        (59.9, "59 s"),
        (60, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599, "59 min 59 s"),
        (3599.9, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (3659, "1 h 00 min"),
        (7199, "1 h 59 min"),
        (360000, "100 h 00 min"),
    ],
)
def test_a_time_as_people_say_it(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("m.gguf", 200, "m.gguf"),
        ("a\x1b[2J\nb\u202e", 200, "a?[2J?b?"),
        ("a" * 200, 200, "a" * 200),
        ("a" * 201, 200, "a" * 200 + "..."),
        ("a" * 1000, None, "a" * 1000),
        (None, 200, "None"),
    ],
)
def test_one_line_of_a_report(text, most, shown):
    assert printable(text, most) == shown
    assert printable("a" * 201) == "a" * 200 + "..."
