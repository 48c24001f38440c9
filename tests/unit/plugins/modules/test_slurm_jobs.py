# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules slurm_jobs and slurm_accounting, and llama-jobs, over a fake SLURM."""

import json
import os
import pwd
import threading
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import state
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import llama_jobs as program
from ansible_collections.thefermisea.llama_cluster.plugins.modules import slurm_accounting, slurm_jobs
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_slurm import FakeSlurm

DIGEST = "0123456789abcdef"
USER = pwd.getpwuid(os.geteuid()).pw_name


class Host:
    def __init__(self, folder, monkeypatch):
        self.slurm = FakeSlurm.install(folder / "slurm")
        monkeypatch.setenv("PATH", "%s:%s" % (self.slurm.folder / "bin", os.environ["PATH"]))
        monkeypatch.setattr(state, "NOT_OF", ())
        monkeypatch.setattr(slurm_jobs.paths, "KEEPER_CONFIG", str(folder / "jobs.json"))
        monkeypatch.setattr(slurm_jobs.paths, "KEEPER", str(folder))
        self.directory, self.config = folder, folder / "jobs.json"
        service = {"wanted": True, "name": "llama-14b", "script": str(folder / "run"), "digest": DIGEST, "grace": 30}
        service.update(log_dir="/logs", suffix="14b", record={}, nodes=["vasp-02"])
        config = {"user": USER, "directory": str(folder), "partitions_yield": [], "registry_dir": ""}
        self.config.write_text(json.dumps({**config, "services": {"fast": service}}))

    def knows(self, **fields):
        known = state.Known(**{"wanted": True, "digest": DIGEST, **fields})
        state.write(str(self.directory), state.public({"fast": known}, time.time(), None), durable=False)


@pytest.fixture(name="host")
def fixture_host(tmp_path, monkeypatch):
    return Host(tmp_path, monkeypatch)


def test_state_of_jobs(host, run):
    (host.directory / "run").write_text("#SBATCH --job-name=a\n#SBATCH --comment=llama_cluster:fast:%s\n" % DIGEST)
    host.knows(job_id=11, state="pending", reason="Priority")
    os.system("sbatch --parsable %s >/dev/null" % (host.directory / "run"))
    code, result = run(services={"fast": DIGEST})
    assert (code, result["changed"], result["unsettled"], result["keeper"], result["slurm"]) == (0, False, [], "", "")
    assert result["sentences"] == {"fast": "job 11 waits (Priority)"}
    assert result["jobs"] == [{"job_id": 11, "service": "fast", "state": "PENDING"}]
    assert result["services"]["fast"]["state"] == "pending" and "config" not in result


def test_host_without_anything(host, run, monkeypatch):
    host.config.unlink()
    monkeypatch.setenv("PATH", "/nowhere")
    code, result = run(services={"fast": DIGEST}, user="nobody-of-that-name", facts=True)
    assert (code, result["services"], result["unsettled"], result["jobs"]) == (0, {}, ["fast"], [])
    assert result["keeper"] == "llama-slurm-keeper.service does not run" and "squeue" in result["slurm"]
    assert [result[name] for name in ("config", "partitions", "nodes", "qos", "associations", "uid")] == [None] * 6


def test_only_late_services_are_resumed(host, run):
    host.knows(job_id=11, state="running", serves=True)
    assert run(services={"fast": DIGEST}, resume=True)[1]["changed"] is False
    host.knows(held={"by": "bob", "at": 1.0})
    code, result = run(services={"fast": DIGEST}, resume=True, _ansible_check_mode=True)
    assert (code, result["resumed"], list(host.directory.glob("*.resume"))) == (0, ["fast"], [])
    code, result = run(services={"fast": DIGEST}, resume=True)
    # Until the keeper has taken it.
    assert (code, result["changed"], result["unsettled"]) == (0, True, ["fast"])
    assert list(state.requests(str(host.directory), "resume")) == ["fast"]


def test_configuration_of_others_is_refused(host, run):
    host.config.chmod(0o666)
    code, result = run()
    assert (code, "jobs.json" in result["msg"]) == (1, True)


SACCTMGR = r"""#!/bin/sh
echo "$*" >> "$0.calls"
case "$*" in
*"show qos"*) printf 'normal|0|00:00:00||cluster\n';;
*"show account"*) printf 'root\nlab\n';;
*"show assoc"*) printf 'lab|lab|ai||normal\n';;
esac
"""


def accounting(host):
    commands = host.slurm.folder / "bin"
    (commands / "sacctmgr").write_text(SACCTMGR)
    (commands / "sacctmgr").chmod(0o755)
    (commands / "scontrol").write_text("#!/bin/sh\necho 'ClusterName             = lab'\n")
    return commands / "sacctmgr.calls"


def test_accounting_in_check_mode(host, run):
    calls = accounting(host)
    given = {"qos": {"ai": {"priority": 100}}, "associations": [{"user": "ai", "account": "lab", "qos": ["ai"]}]}
    code, checked = run(slurm_accounting, _ansible_check_mode=True, _ansible_diff=True, **given)
    assert (code, checked["changed"]) == (0, True) and "add" not in calls.read_text()
    assert checked["diff"]["before"] == "qos ai: absent\nuser ai of account lab: QOS=normal\n"
    assert checked["diff"]["after"] == "qos ai: Priority=100\nuser ai of account lab: QOS=ai,normal\n"
    code, result = run(slurm_accounting, **given)
    assert (code, result["calls"], result["created"]) == (0, checked["calls"], checked["created"])
    assert result["created"] == {"qos": ["ai"], "associations": []}
    made = [line for line in calls.read_text().splitlines() if line.startswith("-i")]
    assert ["sacctmgr " + line for line in made] == result["calls"]


def test_refused_accounting_names_its_command(host, run):
    accounting(host)
    path = host.slurm.folder / "bin/sacctmgr"
    path.write_text(SACCTMGR + 'case "$*" in *"add qos"*) echo "sacctmgr: error: No permission" >&2; exit 1;; esac\n')
    code, result = run(slurm_accounting, qos={"ai": {}})
    assert code == 1 and result["msg"].startswith("slurm_accounting: sacctmgr -i add qos ai: sacctmgr: SLURM reports")


def test_list_of_services(host, capsys):
    assert program.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("the keeper does not run") and lines[1] == "fast: not known"
    last = {"job_id": 9, "code": "preempted", "words": "preempted by job 90 of vasp", "at": time.time()}
    host.knows(job_id=11, state="running", nodes="vasp-02", serves=True, last=last)
    assert program.main(["list"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("fast: job 11 runs on vasp-02, and serves; the run before: preempted by job 90 of vasp, ")


def test_list_shows_the_last_lines_of_a_crash(host, capsys):
    (host.directory / "9").mkdir(0o750)
    text = "".join("2026-11-27T21:20:03.123Z line %d\x1b[0m\n" % number for number in range(9))
    (host.directory / "9" / "head-vasp-02.log").write_text(text)
    config = json.loads(host.config.read_text())
    config["services"]["fast"]["log_dir"] = str(host.directory)
    host.config.write_text(json.dumps(config))
    last = {"job_id": 9, "code": "crashed", "words": "crashed (exit code 1)", "at": time.time()}
    host.knows(failures=1, last=last)
    assert program.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("(the last one: crashed (exit code 1))")
    assert lines[1:] == ["  line %d?[0m" % number for number in range(4, 9)]


def test_hold_waits_for_the_keeper(host, capsys, monkeypatch):
    host.knows()
    monkeypatch.setenv("SUDO_USER", "bob")

    def take():
        while not state.requests(str(host.directory), "hold"):
            time.sleep(0.05)
        seen.update(state.requests(str(host.directory), "hold"))
        state.withdraw(str(host.directory), "fast", "hold")

    seen = {}
    keeper = threading.Thread(target=take, daemon=True)
    keeper.start()
    assert program.main(["hold", "fast"]) == 0
    keeper.join()
    assert capsys.readouterr().out == "fast: held\n"
    assert seen["fast"]["by"] == ("bob" if os.geteuid() == 0 else USER)


def test_request_without_a_keeper_says_so(host, monkeypatch):
    monkeypatch.setattr(program, "TAKEN", 0.1)
    assert "the keeper has not taken the request" in program.main(["resume", "fast"])
    monkeypatch.setattr(program.facts, "uid_of", lambda _user: 4711)
    assert "root or " in program.main(["hold", "fast"])
    assert "no service by SLURM" in program.main(["hold", "chat"])
    assert "--since" in program.main(["report", "--since", "x"])
