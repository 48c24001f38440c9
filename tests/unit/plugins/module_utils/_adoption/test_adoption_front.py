# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A gateway made by hand on a tree that looks like its host; nginx, systemd and cron are asked for nothing."""

import json
import os
import re

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption import front as fronts
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption import front_steps
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption.front import Places
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption.front_steps import FrontAdoption
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.modules import adoption_gateway
from ansible_collections.thefermisea.llama_cluster.tests.unit.strangers import give_away

PORTS = [8000, 8080, 8081]
SITE = """include UPSTREAMS/upstream-*.conf;
server { listen 8080; location / { proxy_pass http://fast; } location /reasoning/ { proxy_pass http://reasoning/; } }
server { listen 0.0.0.0:8081 default_server; location / { proxy_pass http://reasoning; } }
"""
OTHER_SITE = "server { listen 80 default_server; root /var/www; }\n"
CRON = "MAILTO=root\n* * * * * root UPDATER >/dev/null\n17 * * * * root run-parts /etc/cron.hourly\n"


class Host:
    """What an operator made; called: of systemctl and nginx."""

    def __init__(self, path):
        self.path, self.called, self.crontab, self.active = path, [], "", True
        self.places = Places(
            sites=(str(path / "sites-enabled/*"), str(path / "conf.d/*.conf")),
            main=str(path / "nginx.conf"),
            upstreams=str(path / "ai-inference"),
            programs=(str(path / "bin/*"),),
            units=str(path / "system"),
            cron=(str(path / "crontab"), str(path / "cron.d/*")),
            proc=str(path / "proc"),
            our_site=str(path / "conf.d/llama-cluster.conf"),
        )
        self.updater = str(path / "bin/ai-inference-upstream.sh")
        self.write("nginx.conf", "http { include sites-enabled/*; }\n")
        self.write("sites-available/ai-inference", SITE.replace("UPSTREAMS", self.places.upstreams))
        self.write("sites-enabled/default", OTHER_SITE)
        (path / "sites-enabled/ai-inference").symlink_to("../sites-available/ai-inference")
        self.write("ai-inference/upstream-fast.conf", "upstream fast { server 10.0.0.21:8080; }\n")
        self.write("ai-inference/upstream-reasoning.conf", "upstream reasoning { server 10.0.0.20:8081; }\n", 0o640)
        self.write("bin/ai-inference-upstream.sh", "#!/bin/sh\nnginx -s reload\n", 0o755)
        self.write("bin/other.sh", "#!/bin/sh\n", 0o755)
        self.write("system/upstream.service", "[Service]\nType=oneshot\nExecStart=%s --once\n" % self.updater)
        self.write("system/wake.timer", "[Timer]\nOnUnitActiveSec=30\nUnit=upstream.service\n")
        self.write("system/other.timer", "[Timer]\nOnUnitActiveSec=30\n")
        (path / "system/timers.target.wants").mkdir()
        (path / "system/timers.target.wants/wake.timer").symlink_to(path / "system/wake.timer")
        self.write("cron.d/upstream", CRON.replace("UPDATER", self.updater))
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

    def adoption(self, **options):
        return FrontAdoption(
            str(self.path / "state/adopted-gateway"), PORTS, places=self.places, show=self.show, **options
        )

    def run(self, *steps):
        actions = []
        for step in steps:
            adoption = self.adoption()
            getattr(adoption, step)()
            actions += adoption.actions
        return actions

    def files(self):
        found = {}
        for path in sorted(self.path.rglob("*")):
            if "state" in path.parts or "proc" in path.parts:
                continue
            if path.is_symlink():
                found[str(path.relative_to(self.path))] = os.readlink(str(path))
            elif path.is_file():
                seen = path.stat()
                found[str(path.relative_to(self.path))] = (path.read_bytes(), seen.st_mode, seen.st_mtime_ns)
        return found


@pytest.fixture(name="host")
def fixture_host(tmp_path, monkeypatch):
    made = Host(tmp_path)
    monkeypatch.setattr(fronts, "read_crontab", lambda: made.crontab)
    monkeypatch.setattr(fronts, "write_crontab", lambda text: setattr(made, "crontab", text))
    monkeypatch.setattr(front_steps, "systemctl", lambda *words: made.called.append(" ".join(words)))
    monkeypatch.setattr(front_steps, "reload_nginx", lambda: made.called.append("nginx"))
    return made


def test_it_is_found_by_place_and_content(host):
    front = host.adoption().find()
    names = [os.path.relpath(path, str(host.path)) for path in front.files]
    assert names == [
        "sites-enabled/ai-inference",
        "sites-available/ai-inference",
        "ai-inference/upstream-fast.conf",
        "ai-inference/upstream-reasoning.conf",
        "bin/ai-inference-upstream.sh",
    ]
    assert [unit["name"] for unit in front.units] == ["wake.timer", "upstream.service"]
    assert front.cron == [str(host.path / "cron.d/upstream")]
    assert front.keyless


@pytest.mark.parametrize(
    "line",
    ['auth_basic "models";', "auth_request /check;", 'if ($http_authorization != "Bearer x") { return 401; }'],
)
def test_a_site_that_asks_for_a_key_is_told_apart(host, line):
    host.write("sites-available/ai-inference", SITE + "server { listen 8000; %s proxy_pass http://fast; }\n" % line)
    assert not host.adoption().find().keyless
    host.write("sites-available/ai-inference", SITE + "# %s\n" % line)
    assert host.adoption().find().keyless


def test_a_file_of_conf_d_is_found_by_its_ports_and_ours_never(host):
    os.unlink(str(host.path / "sites-enabled/ai-inference"))
    host.write(
        "conf.d/models.conf", "server { listen 10.0.0.5:8081; location / { proxy_pass http://10.0.0.20:8081; } }"
    )
    host.write(
        "conf.d/llama-cluster.conf", "# Ports, paths and TLS of the gateway; x\nserver { listen 8080; proxy_pass x; }"
    )
    host.write("conf.d/unrelated.conf", "server { listen 9000; location / { proxy_pass http://127.0.0.1:3000; } }")
    assert host.adoption().find().sites == [str(host.path / "conf.d/models.conf")]


def test_taken_over_and_put_back_byte_for_byte(host):
    before = host.files()
    assert host.run("save") != []
    assert host.files() == before
    assert host.run("stop") == ["stop wake.timer", "change %s" % (host.path / "cron.d/upstream")]
    assert host.called == ["stop wake.timer"]
    assert (host.path / "cron.d/upstream").read_text().splitlines()[1].startswith("# llama-cluster adopted: * * * * *")
    host.active = False
    host.run("put_aside", "finish")
    left = set(host.files())
    assert left == {
        "bin/other.sh", "cron.d/upstream", "nginx.conf", "sites-enabled/default", "system/other.timer",
    }  # fmt: skip
    assert "nginx" not in host.called
    # Again: nothing is to do.
    assert not host.adoption().look()["needed"]
    assert host.run("save", "stop", "put_aside", "finish") == []
    host.run("put_back")
    assert "nginx" not in host.called
    host.run("start", "forget")
    assert host.called[-2:] == ["nginx", "start --no-block wake.timer"]
    after = host.files()
    # A line of cron is the host's, and has changed twice.
    assert after.pop("cron.d/upstream")[:2] == before.pop("cron.d/upstream")[:2]
    assert after == before
    assert not (host.path / "state/adopted-gateway").exists()
    assert host.run("put_back", "start", "forget") == []


def test_roots_crontab_is_changed_by_its_program(host):
    host.crontab = "MAILTO=x\n*/1 * * * * %s\n" % host.updater
    before = host.crontab
    assert "root's crontab: a line starts the updater, commented out" in host.adoption().look()["lines"]
    host.run("save", "stop")
    assert host.crontab == "MAILTO=x\n# llama-cluster adopted: */1 * * * * %s\n" % host.updater
    host.run("put_back", "start")
    assert host.crontab == before


def test_the_record_is_for_root_alone(host):
    host.run("save")
    assert (host.path / "state/adopted-gateway").stat().st_mode & 0o777 == 0o700
    assert (host.path / "state/adopted-gateway/record.json").stat().st_mode & 0o777 == 0o600


def test_what_the_updater_wrote_last_is_what_comes_back(host):
    host.run("save")
    host.write("ai-inference/upstream-fast.conf", "upstream fast { server 10.0.0.22:8080; }\n")
    with pytest.raises(Refusal, match=r"upstream-fast.conf: it has changed since it was saved: run again"):
        host.run("stop", "put_aside")
    before = host.files()
    host.active = False
    host.run("save", "put_aside", "put_back")
    assert host.files() == before


def test_a_died_run_is_gone_on_with(host):
    before = host.files()
    host.run("save", "stop", "put_aside")
    assert host.adoption().look()["needed"]
    assert host.run("save", "stop", "put_aside") == []
    host.run("put_back", "start")
    # Links, content and times; cron's file was written anew.
    assert {name: seen for name, seen in host.files().items() if "cron" not in name} == {
        name: seen for name, seen in before.items() if "cron" not in name
    }


def test_check_mode_changes_nothing(host):
    before = host.files()
    for step in ("save", "stop", "put_aside", "put_back", "start", "forget", "finish"):
        host.adoption(check=True)
        adoption = host.adoption(check=True)
        getattr(adoption, step)()
        assert step not in ("save", "stop") or adoption.actions
    assert host.files() == before
    assert host.called == []


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "sites-available/ai-inference",
            SITE + "server { listen 9090; location / { proxy_pass http://127.0.0.1:3000; } }\n",
            r"sites-enabled/ai-inference: it listens on 9090, the gateway will on 8000, 8080, 8081: move the servers "
            r"of other ports to a file of their own, or give the gateway these ports",
        ),
        (
            "nginx.conf",
            "http { server { listen 8080; location / { proxy_pass http://fast; } } }\n",
            r"nginx.conf: the gateway made by hand is in nginx's main file, a file of its own is needed: move its "
            r"servers to /etc/nginx/conf.d/ai-inference.conf, then run again",
        ),
        (
            "conf.d/static.conf",
            "server { listen 8000; root /srv; }\n",
            r"static.conf: it listens on port 8000, which the gateway needs, and proxies nothing: give one of them "
            r"another port",
        ),
    ],
)
def test_what_cannot_be_taken_as_a_whole_is_refused(host, name, text, sentence):
    host.write(name, text)
    before = host.files()
    with pytest.raises(Refusal, match=sentence + r"\Z"):
        host.adoption().look()
    assert host.files() == before


def test_what_others_may_write_is_refused(host):
    (host.path / "bin/ai-inference-upstream.sh").chmod(0o777)
    with pytest.raises(Refusal, match=r"ai-inference-upstream.sh: its mode 0777 lets others than its owner write it"):
        host.adoption().look()


def test_a_site_of_somebody_else_is_refused(host):
    give_away(host.path / "sites-available/ai-inference")
    with pytest.raises(Refusal, match=r"sites-available/ai-inference: it belongs to user id 4711, 0 is needed"):
        host.run("save")


def test_a_loop_that_nohup_left_is_named(host):
    (host.path / "proc/4711").mkdir()
    (host.path / "proc/4711/cmdline").write_bytes(b"/bin/bash\0" + host.updater.encode() + b"\0loop\0")
    (host.path / "proc/4711/cgroup").write_text("0::/user.slice/user-0.slice/session-3.scope\n")
    host.run("save")
    with pytest.raises(Refusal) as refused:
        host.run("stop")
    assert str(refused.value) == (
        "%s: process 4711 runs it, which no unit or cron line starts: end it with kill 4711, then run again"
        % host.updater
    )
    # What a unit of the updater runs has ended with it.
    (host.path / "proc/4711/cgroup").write_text("0::/system.slice/upstream.service\n")
    host.run("stop")


def test_a_file_in_the_place_of_a_saved_one_is_refused(host):
    host.run("save", "stop", "put_aside")
    host.write("bin/ai-inference-upstream.sh", "#!/bin/sh\n# another\n", 0o755)
    with pytest.raises(Refusal, match=r"sh: another file has the place of the saved one: move it away, then run again"):
        host.run("put_back")


def test_an_undo_that_died_is_gone_on_with_although_the_updater_writes_again(host):
    host.run("save", "stop", "put_aside", "finish", "put_back", "start")
    host.write("ai-inference/upstream-fast.conf", "upstream fast { server 10.0.0.23:8080; }\n")
    here = host.files()
    host.run("put_back", "start", "forget")
    assert host.files() == here
    assert not (host.path / "state/adopted-gateway").exists()


def test_an_adoption_after_an_undo_that_died_can_be_undone_too(host):
    host.run("save", "stop", "put_aside", "put_back", "start")
    host.run("save", "stop", "put_aside")
    assert not (host.path / "ai-inference/upstream-fast.conf").exists()
    host.run("put_back")
    assert (host.path / "ai-inference/upstream-fast.conf").exists()


def test_a_gateway_made_anew_after_an_adoption_is_refused(host):
    host.run("save", "stop", "put_aside", "finish")
    host.write("bin/ai-inference-upstream.sh", "#!/bin/sh\n# another\n", 0o755)
    with pytest.raises(
        Refusal, match=r"it differs from the one that was saved at \S+ in \S+: undo that adoption first"
    ):
        host.run("save")


def test_nginx_is_not_reloaded_with_what_it_refuses(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(front_steps, "systemctl", lambda *words: called.append(words))
    monkeypatch.setattr(fronts, "SEARCHED", str(tmp_path))
    with pytest.raises(
        Refusal, match=r"nginx: no such program, the saved site needs it: install nginx, then run again"
    ):
        front_steps.reload_nginx()
    (tmp_path / "nginx").write_text("#!/bin/sh\necho emerg: unexpected end >&2\nexit 1\n")
    (tmp_path / "nginx").chmod(0o755)
    with pytest.raises(Refusal) as refused:
        front_steps.reload_nginx()
    assert str(refused.value) == (
        "nginx -t: failed (emerg: unexpected end), so nginx goes on with what it has: correct that, then run again"
    )
    assert called == []
    (tmp_path / "nginx").write_text("#!/bin/sh\n")
    front_steps.reload_nginx()
    assert called == [("reload-or-restart", "nginx.service")]


def test_ours_makes_room_for_what_comes_back_unless_nginx_refuses_that(host, monkeypatch):
    host.run("save", "stop", "put_aside", "finish", "put_back")
    ours = host.path / "conf.d/llama-cluster.conf"
    host.write("conf.d/llama-cluster.conf", "# Ports, paths and TLS of the gateway; x\nserver { listen 8080; }\n")

    def refuse():
        assert not ours.exists()
        raise Refusal("nginx -t: failed")

    with monkeypatch.context() as patch, pytest.raises(Refusal, match=r"nginx -t: failed"):
        patch.setattr(front_steps, "reload_nginx", refuse)
        host.run("start")
    assert ours.read_text().endswith("server { listen 8080; }\n")
    host.run("start")
    assert not ours.exists()
    # Somebody else's of that name stays.
    host.write("conf.d/llama-cluster.conf", "server { listen 9000; }\n")
    host.run("start")
    assert ours.exists()


def test_crontab_is_asked_as_root_and_its_refusal_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(fronts, "SEARCHED", str(tmp_path))
    assert fronts.read_crontab() == ""
    (tmp_path / "crontab").write_text(
        '#!/bin/sh\necho "$@" >>%s/calls\n[ "$3" = -l ] && echo line || exit 1\n' % tmp_path
    )
    (tmp_path / "crontab").chmod(0o755)
    assert fronts.read_crontab() == "line\n"
    with pytest.raises(Refusal, match=r"crontab -u root: failed \(\): see crontab -l on the host"):
        fronts.write_crontab("x\n")
    assert (tmp_path / "calls").read_text() == "-u root -l\n-u root -\n"


def test_the_module_tells_what_there_is(host, monkeypatch, capsys):
    monkeypatch.setattr(adoption_gateway.FrontAdoption.__init__, "__defaults__", ((), False, host.places, host.show))

    def run(step, check=False):
        arguments = {"step": step, "ports": PORTS, "directory": str(host.path / "state/adopted-gateway")}
        with patch_module_args(dict(arguments, _ansible_check_mode=check)), pytest.raises(SystemExit):
            adoption_gateway.main()
        return json.loads(capsys.readouterr().out)

    looked = run("look")
    assert not looked["changed"] and looked["needed"] and looked["keyless"] and looked["recorded"] is None
    assert looked["lines"][0] == "%s: a site of nginx, ours takes its place" % (
        host.path / "sites-enabled/ai-inference"
    )
    assert run("save", check=True)["changed"] and not (host.path / "state").exists()
    assert run("save")["changed"] and not run("save")["changed"]
    assert re.match(r"20\d\d-", run("look")["recorded"]["created"])
    host.write("nginx.conf", "http { server { listen 8080; } }\n")
    assert run("look")["failed"]
