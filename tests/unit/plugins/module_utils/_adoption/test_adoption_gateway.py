# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A gateway that operators set up themselves, on a tree that looks like its host, and every step of its adoption."""

import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption import gateway
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption.steps import Adoption
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import give_away

PORTS = [8000, 8080, 8081]
SITE = """include UPSTREAMS/upstream-*.conf;
server { listen 8080; location / { proxy_pass http://fast; } location /reasoning/ { proxy_pass http://reasoning/; } }
server { listen 0.0.0.0:8081 default_server; location / { proxy_pass http://reasoning; } }
"""
OURS = "# Ports, paths and TLS of the gateway; x\nserver { listen 8080; proxy_pass x; }\n"


class Host:
    """A manual gateway; called: calls of systemctl and nginx."""

    def __init__(self, path):
        self.path, self.called, self.active = path, [], True
        self.places = gateway.Places(
            sites=(str(path / "sites-enabled/*"), str(path / "conf.d/*.conf")),
            main=str(path / "nginx.conf"),
            upstreams=str(path / "ai-inference"),
            programs=(str(path / "bin/*"),),
            units=str(path / "system"),
            cron=(str(path / "cron.d/*"),),
            proc=str(path / "proc"),
        )
        self.updater = str(path / "bin/ai-inference-upstream.sh")
        self.write("nginx.conf", "http { include sites-enabled/*; }\n")
        self.write("sites-available/ai-inference", SITE.replace("UPSTREAMS", self.places.upstreams))
        self.write("sites-enabled/default", "server { listen 80 default_server; root /var/www; }\n")
        (path / "sites-enabled/ai-inference").symlink_to("../sites-available/ai-inference")
        self.write("ai-inference/upstream-fast.conf", "upstream fast { server 10.0.0.21:8080; }\n", 0o640)
        self.write("bin/ai-inference-upstream.sh", "#!/bin/sh\nnginx -s reload\n", 0o755)
        self.write("bin/other.sh", "#!/bin/sh\n", 0o755)
        self.write("system/upstream.service", "[Service]\nType=oneshot\nExecStart=%s --once\n" % self.updater)
        self.write("system/wake.timer", "[Timer]\nOnUnitActiveSec=30\nUnit=upstream.service\n")
        self.write("system/other.timer", "[Timer]\nOnUnitActiveSec=30\n")
        (path / "system/timers.target.wants").mkdir()
        (path / "system/timers.target.wants/wake.timer").symlink_to(path / "system/wake.timer")
        self.write("cron.d/other", "# * * * * * root %s\n17 * * * * root run-parts /etc/cron.hourly\n" % self.updater)
        (path / "proc").mkdir()

    def write(self, name, text, mode=0o644):
        (self.path / name).parent.mkdir(exist_ok=True)
        (self.path / name).write_text(text)
        (self.path / name).chmod(mode)
        os.utime(str(self.path / name), ns=(1700000000123456789, 1700000000123456789))

    def show(self, names, _properties=None):
        return "\n\n".join(
            "Id=%s\nFragmentPath=%s/%s\nUnitFileState=enabled\nActiveState=%s"
            % (name, self.places.units, name, "active" if self.active and name.endswith(".timer") else "inactive")
            for name in names
        )

    def find(self):
        return gateway.find_gateway(PORTS, self.places, self.show)

    def adoption(self, check=False):
        return Adoption(
            str(self.path / "state/adopted-gateway"),
            lambda: (self.find().units, self.find().files, self.find().sites),
            check=check,
            unit_dir=self.places.units,
            run=lambda *words: self.called.append(" ".join(words)),
            show=self.show,
            load=lambda: self.called.append("nginx"),
        )

    def run(self, *steps, check=False):
        actions = []
        for step in steps:
            adoption = self.adoption(check)
            getattr(adoption, step)()
            actions += adoption.actions
        return actions

    def files(self):
        found = {}
        for path in sorted(self.path.rglob("*")):
            if "state" in path.parts:
                continue
            if path.is_symlink():
                found[str(path.relative_to(self.path))] = os.readlink(str(path))
            elif path.is_file():
                seen = path.stat()
                found[str(path.relative_to(self.path))] = (path.read_bytes(), seen.st_mode, seen.st_mtime_ns)
        return found


@pytest.fixture(name="host")
def fixture_host(tmp_path):
    return Host(tmp_path)


def test_gateway_is_found_by_place_and_content(host):
    found = host.find()
    assert [os.path.relpath(path, str(host.path)) for path in found.files] == [
        "sites-enabled/ai-inference",
        "sites-available/ai-inference",
        "ai-inference/upstream-fast.conf",
        "bin/ai-inference-upstream.sh",
    ]
    assert [unit["name"] for unit in found.units] == ["wake.timer", "upstream.service"]
    seen = gateway.look(found, [], "/saved")
    assert seen["keyless"] and seen["tailnet"] == []
    assert seen["lines"][0] == "%s: a site of nginx, the managed one takes its place" % (
        host.path / "sites-enabled/ai-inference"
    )


@pytest.mark.parametrize(
    "line",
    ['auth_basic "models";', "auth_request /check;", 'if ($http_authorization != "Bearer x") { return 401; }'],
)
def test_site_that_requires_a_key_is_not_keyless(host, line):
    host.write("sites-available/ai-inference", SITE + "server { listen 8000; %s proxy_pass http://fast; }\n" % line)
    assert not host.find().keyless
    host.write("sites-available/ai-inference", SITE + "# %s\n" % line)
    assert host.find().keyless


def test_site_in_conf_d_is_found_by_ports(host):
    os.unlink(str(host.path / "sites-enabled/ai-inference"))
    host.write("conf.d/models.conf", "server { listen 10.0.0.5:8081; location / { proxy_pass http://10.0.0.20:81; } }")
    host.write("conf.d/llama-cluster.conf", OURS)
    host.write("conf.d/unrelated.conf", "server { listen 9000; location / { proxy_pass http://127.0.0.1:3000; } }")
    assert host.find().sites == [str(host.path / "conf.d/models.conf")]


def test_adopted_gateway_is_restored_byte_for_byte(host):
    before = host.files()
    assert host.run("save", check=True) == host.run("save") != []
    assert host.files() == before
    folder = host.path / "state/adopted-gateway"
    assert [(folder / name).stat().st_mode & 0o777 for name in (".", "record.json")] == [0o700, 0o600]
    assert host.run("stop") == host.called == ["stop wake.timer"]
    host.active = False
    host.run("put_aside", "finish")
    assert set(host.files()) == {
        "bin/other.sh", "cron.d/other", "nginx.conf", "sites-enabled/default", "system/other.timer",
    }  # fmt: skip
    assert host.adoption().summary()["finished"] and host.run("save", "stop", "put_aside", "finish") == []
    host.run("put_back")
    assert "nginx" not in host.called
    host.run("start", "forget")
    assert host.called[-2:] == ["nginx", "start --no-block wake.timer"]
    assert host.files() == before and not folder.exists()
    assert host.run("put_back", "start", "forget") == []


def test_last_files_of_the_updater_are_restored(host):
    host.run("save")
    host.write("ai-inference/upstream-fast.conf", "upstream fast { server 10.0.0.22:8080; }\n")
    with pytest.raises(Refusal, match=r"upstream-fast.conf: it has changed since it was saved: run again"):
        host.run("stop", "put_aside")
    before = host.files()
    host.run("save", "put_aside", "put_back")
    assert host.files() == before


def test_undo_that_died_ignores_later_updates(host):
    host.run("save", "stop", "put_aside", "finish", "put_back", "start")
    host.write("ai-inference/upstream-fast.conf", "upstream fast { server 10.0.0.23:8080; }\n")
    here = host.files()
    host.run("put_back", "start")
    assert host.files() == here
    # The next adoption saves what is there now.
    host.run("save", "put_aside", "put_back")
    assert host.files() == here


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "sites-available/ai-inference",
            SITE + "server { listen 9090; location / { proxy_pass http://127.0.0.1:3000; } }\n",
            r"sites-enabled/ai-inference: it listens on 9090, the gateway will on 8000, 8080, 8081: move",
        ),
        (
            "nginx.conf",
            "http { server { listen 8080; location / { proxy_pass http://fast; } } }\n",
            r"nginx.conf: cannot take over a gateway in nginx's main file: move its servers to /etc/nginx/conf.d",
        ),
        ("conf.d/static.conf", "server { listen 8000; root /srv; }\n", r"static.conf: it listens on port 8000, which"),
        ("cron.d/upstream", "* * * * * root UPDATER\n", r"cron.d/upstream: a line of cron starts .*upstream.sh, only"),
    ],
)
def test_gateway_that_cannot_be_restored_is_refused(host, name, text, sentence):
    host.write(name, text.replace("UPDATER", host.updater))
    before = host.files()
    with pytest.raises(Refusal, match=sentence):
        host.run("save")
    assert host.files() == before


def test_file_that_others_may_change_is_refused(host):
    (host.path / "bin/ai-inference-upstream.sh").chmod(0o777)
    with pytest.raises(Refusal, match=r"ai-inference-upstream.sh: its mode 0777 lets others than its owner write it"):
        host.find()
    (host.path / "bin/ai-inference-upstream.sh").chmod(0o755)
    give_away(host.path / "sites-available/ai-inference")
    with pytest.raises(Refusal, match=r"sites-available/ai-inference: it belongs to user id 4711, 0 is needed"):
        host.find()


def test_updater_outside_of_units_is_refused(host):
    (host.path / "proc/4711").mkdir()
    (host.path / "proc/4711/cmdline").write_bytes(b"/bin/bash\0" + host.updater.encode() + b"\0loop\0")
    (host.path / "proc/4711/cgroup").write_text("0::/user.slice/user-0.slice/session-3.scope\n")
    with pytest.raises(
        Refusal, match=r"upstream.sh: process 4711 runs it, which no unit starts: end it with kill 4711"
    ):
        host.find()
    (host.path / "proc/4711/cgroup").write_text("0::/system.slice/upstream.service\n")
    assert host.find().sites


def test_reload_keeps_our_site_if_nginx_refuses(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(gateway, "systemctl", lambda *words: called.append(words))
    monkeypatch.setattr(gateway, "SEARCHED", str(tmp_path))
    site = tmp_path / "llama-cluster.conf"
    site.write_text(OURS)
    with pytest.raises(Refusal, match=r"nginx: no such program, the saved site needs it"):
        gateway.load_sites(str(site))
    (tmp_path / "nginx").write_text("#!/bin/sh\n[ ! -e %s ] || exit 2\necho emerg: end >&2\nexit 1\n" % site)
    (tmp_path / "nginx").chmod(0o755)
    with pytest.raises(
        Refusal, match=r"^nginx -t: failed \(emerg: end\), nginx keeps its loaded configuration: correct"
    ):
        gateway.load_sites(str(site))
    assert site.read_text() == OURS and called == []
    (tmp_path / "nginx").write_text("#!/bin/sh\n")
    gateway.load_sites(str(site))
    assert not site.exists() and called == [("reload-or-restart", "nginx.service")]
    # Another site of that name stays.
    site.write_text("server { listen 9000; }\n")
    gateway.load_sites(str(site))
    assert site.exists()
