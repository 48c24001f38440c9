# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A daemon of the operators, its scripts and jobs, and every step of their adoption; rows are squeue's."""

import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._adoption import gateway
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import ask, earlier
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import give_away

ROW = "{job}|RUNNING|None|N/A|1-00:00:00|1790000000|{user}|gpu_ai|normal|c2|(null)|(null)|{name}|{comment}".replace(
    "|", ask.SEPARATOR
)
OURS = "llama_cluster:fast:0123456789abcdef"


class Host:
    def __init__(self, path):
        self.path, self.called, self.active = path, [], True
        self.jobs = [(4, "root", "llama-14b", "(null)"), (5, "ai", "llama-14b", OURS), (6, "ai", "notebook", "(null)")]
        self.scripts = [str(path / "run-14b.slurm"), str(path / "run-72b.slurm")]
        self.places = gateway.Places(units=str(path / "system"))
        (path / "system").mkdir()
        program = path / "daemon.sh"
        program.write_text("#!/bin/sh\nsbatch %s\n" % self.scripts[0])
        (path / "other.sh").write_text("#!/bin/sh\nsbatch analysis.slurm\n")
        self.write("daemon", program)
        self.write("other", path / "other.sh")
        (path / "run-14b.slurm").write_text("#!/bin/bash\n#SBATCH -J llama-14b\n")
        (path / "run-72b.slurm").write_text("export LLAMA_JOB=...\n")

    def write(self, name, program):
        (self.path / "system" / (name + ".service")).write_text("[Service]\nExecStart=/bin/sh %s\n" % program)

    def show(self, names, _properties=None):
        state = "active" if self.active else "inactive"
        form = "Id=%s\nFragmentPath=%s/%s\nUnitFileState=enabled\nActiveState=%s\nUser="
        return "\n\n".join(form % (name, self.places.units, name, state) for name in names)

    def queue(self, user):
        rows = [ROW.format(job=job, user=own, name=name, comment=comment) for job, own, name, comment in self.jobs]
        return [job for job in ask.parse_queue("\n".join(rows) + "\n") if job.user == user]

    def find(self):
        return earlier.find("ai", ["llama-14b", "llama-72b"], self.scripts, self.places, self.show, self.queue)

    def run(self, *words):
        self.called.append(" ".join(words))
        self.active = words[0] == "start" or (self.active and words[0] != "stop")

    def cancel(self, words):
        self.called.append(" ".join(words))
        self.jobs = [job for job in self.jobs if str(job[0]) not in words]

    def steps(self, *steps, check=False):
        adoption = earlier.JobsAdoption(str(self.path / "state/adopted-jobs"), self.find, check, self.cancel)
        adoption.unit_dir, adoption.run, adoption.show = self.places.units, self.run, self.show
        for step in steps:
            getattr(adoption, step)()
        return adoption.actions


@pytest.fixture(name="host")
def fixture_host(tmp_path):
    return Host(tmp_path)


def test_only_own_jobs_and_their_daemon_are_found(host):
    found = host.find()
    assert [unit["name"] for unit in found.units] == ["daemon.service"]
    assert [job.job_id for job in found.jobs] == [4]
    assert found.files == host.scripts[:1]
    assert len(earlier.look(found)["lines"]) == 3


def test_another_users_job_of_that_name_stays(host):
    (host.path / "system/daemon.service").unlink()
    assert host.find().jobs == [] and host.find().units == []


def test_daemon_stops_before_its_jobs_and_comes_back(host):
    assert host.steps("save", "stop", check=True)[-1] == "cancel job 4 of root" and host.called == []
    host.steps("save", "stop", "put_aside", "finish")
    assert host.called[:3] == ["stop daemon.service", "scancel --user=root 4", "daemon-reload"]
    assert not (host.path / "system/daemon.service").exists() and not (host.path / "run-14b.slurm").exists()
    assert (host.path / "system/other.service").exists() and (host.path / "run-72b.slurm").exists()
    host.steps("put_back", "start", "forget")
    assert host.called[-1] == "start --no-block daemon.service"
    assert "llama-14b" in (host.path / "run-14b.slurm").read_text()
    assert not (host.path / "state/adopted-jobs").exists()


def test_gateway_takes_no_daemon_for_its_updater(host):
    (host.path / "ai-inference-daemon.sh").write_text("#!/bin/sh\nsbatch run-14b.slurm\n")
    places = host.places._replace(sites=(), programs=(str(host.path / "*.sh"),), cron=(), proc=str(host.path / "none"))
    (host.path / "none").mkdir()
    assert gateway.find_gateway([8080], places, host.show).files == []


@pytest.mark.parametrize(
    ("line", "run"),
    [
        ("-/opt/daemon --log /home/alice/x", "/opt/daemon"),
        ("/bin/bash -e /opt/daemon.sh /home/alice/x", "/opt/daemon.sh"),
        ("/usr/bin/env A=/home/alice/y python3 -u /opt/daemon.py", "/opt/daemon.py"),
        ("/bin/sh -ec 'exec /opt/daemon.sh; cat /home/alice/x'", "/opt/daemon.sh"),
        ("/usr/bin/python3 -c 'print(1)' /home/alice/x", "print(1)"),
        ("/usr/bin/tail -f /home/alice/x", "/usr/bin/tail"),
        ("/bin/sh", None),
        ("/bin/sh -c", None),
        ("/bin/sh 'x", None),
        ("sh " * 999 + "/opt/daemon.sh", None),
    ],
)
def test_only_program_or_script_of_a_line(line, run):
    (found,) = earlier.EXEC_START.findall("[Service]\nExecStart=%s\n" % line)
    assert earlier.run_by(found) == ([run] if run else [])


def test_file_that_is_an_argument_stops_nothing(host):
    trap = host.path / "alice"
    trap.write_text("sbatch llama-14b\n")
    give_away(trap)
    os.mkfifo(host.path / "fifo")
    (host.path / "zero").symlink_to("/dev/zero")
    unit = host.path / "system/logs.service"
    for name in ("alice", "fifo", "zero"):
        unit.write_text("[Service]\nExecStart=/bin/cat %s\n" % (host.path / name))
        assert [one["name"] for one in host.find().units] == ["daemon.service"]
    for name in ("fifo", "zero"):
        host.write("logs", host.path / name)
        assert [one["name"] for one in host.find().units] == ["daemon.service"]


@pytest.mark.parametrize("name", ["daemon.sh", "run-14b.slurm"])
def test_file_that_others_may_change_is_refused(host, name):
    (host.path / name).chmod(0o666)
    with pytest.raises(Refusal, match="%s: its mode 0666 lets others" % name):
        host.find()
    (host.path / name).chmod(0o644)
    give_away(host.path / name)
    with pytest.raises(Refusal, match="%s: it belongs to user id 4711" % name):
        host.find()
