# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import json

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.status import gateway_lines

UNITS = [
    {"name": "llama-gateway.service", "active_state": "active"},
    {"name": "nginx.service", "active_state": "failed"},
]
STATUS = {
    "base_urls": ["http://10.0.0.5:8000"],
    "services": {
        "chat": {
            "state": "ready",
            "queue": 3,
            "endpoints": [
                {"node": "gpu1", "state": "ready", "slots": 4, "free": 1},
                {"node": "gpu2", "state": "down", "slots": 4, "free": 0},
            ],
        }
    },
}


def test_where_it_is_and_what_it_knows():
    assert gateway_lines("front", UNITS, {"stdout": json.dumps(STATUS)}) == [
        "gateway on front: http://10.0.0.5:8000, engine active, nginx failed",
        "  chat: ready, 1 of 4 slots free, 3 waiting, gpu2 down",
    ]


def test_an_engine_that_says_nothing_is_said():
    for asked in ({"stdout": "", "stderr": "curl: (7) no\x1b socket"}, {"stdout": "[]"}, {"stdout": "{}"}):
        (line,) = gateway_lines("front", UNITS[:1], asked)
        assert line.startswith("gateway on front: engine active, nginx absent, which does not say what it knows (")
        assert "\x1b" not in line


def test_serving_services_are_verbose():
    sound = {"state": "ready", "queue": 0, "endpoints": [{"node": "gpu1", "state": "ready", "slots": 4, "free": 1}]}
    said = {"stdout": json.dumps(dict(STATUS, services={"chat": sound}))}
    assert len(gateway_lines("front", UNITS, said)) == 1
    assert gateway_lines("front", UNITS, said, True)[1:] == ["  chat: ready, 1 of 4 slots free, 0 waiting"]
