# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keeper as a process of its own, over a fake SLURM."""

import json
import os
import pwd
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._registry import files
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._slurm import ask, logs, state
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import slurm_keeper
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_slurm import FakeSlurm

UTILITIES = Path(slurm_keeper.__file__).resolve().parents[1]
DIGEST, OTHER = "0123456789abcdef", "fedcba9876543210"
RECORD = {
    **{"service": "fast", "host": "vasp-02", "head_node": "vasp-02", "node": "vasp-02", "port": 8080, "models": ["m"]},
    **{"tier": "fast", "slots": 4, "slot_ctx_size": 4096, "build": "b1", "quant": "Q8_0"},
}


# The Python of a test may be closed to other users: here the jobs may be of root.
PROGRAM = (
    "import sys; from llama_cluster._slurm import state; from llama_cluster.programs import slurm_keeper;"
    "state.NOT_OF = (); slurm_keeper.LOOK = 0.5; slurm_keeper.TICK = 0.1;"
    "raise SystemExit(slurm_keeper.main(sys.argv[1:]))"
)


class Keeper:
    """A keeper and its fake SLURM."""

    def __init__(self, folder):
        self.folder = folder
        self.slurm = FakeSlurm.install(folder / "slurm")
        self.directory, self.registry, self.logs = folder / "keeper", folder / "registry", folder / "logs"
        for path in (self.directory, self.registry, self.logs):
            path.mkdir()
        (folder / "llama_cluster").symlink_to(UTILITIES)
        self.user = pwd.getpwuid(os.geteuid())
        self.processes = []
        self.configure()

    def configure(self, digest=DIGEST, **changes):
        script = self.folder / "run-14b.slurm"
        script.write_text(
            "#!/bin/bash\n#SBATCH --job-name=llama-14b\n#SBATCH --comment=llama_cluster:fast:%s\n" % digest
        )
        service = {"wanted": True, "name": "llama-14b", "script": str(script), "digest": digest, "grace": 10}
        service.update(log_dir=str(self.logs), suffix="14b", record=RECORD, nodes=["vasp-02"], partition="", **changes)
        config = {"version": 1, "user": self.user.pw_name, "directory": str(self.directory), "partitions_yield": []}
        config.update(registry_dir=str(self.registry), services={"fast": service})
        self.write(config)

    def write(self, config):
        partial = self.folder / "jobs.partial"
        partial.write_text(json.dumps(config))
        partial.rename(self.folder / "jobs.json")

    def start(self):
        environment = {"PATH": "%s:/usr/bin:/bin" % (self.slurm.folder / "bin"), "PYTHONPATH": str(self.folder)}
        process = subprocess.Popen(
            [sys.executable, "-S", "-B", "-c", PROGRAM, str(self.folder / "jobs.json")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd="/",
        )
        self.processes.append(process)
        return process

    def kill(self):
        self.processes[-1].kill()
        self.processes[-1].wait()

    def flag(self, name, on=True):
        path = self.slurm.folder / name
        path.touch() if on else path.unlink()

    @property
    def known(self):
        return state.known_of(state.read(str(self.directory))).get("fast", state.Known())

    def until(self, check, seconds=20.0):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = check()
            if found:
                return found
            time.sleep(0.05)
        self.end()
        text = "".join(process.stdout.read() for process in self.processes)
        pytest.fail("%s\n%s\n%s" % (text, self.known, json.dumps(self.slurm.queue, indent=1)))

    def job(self, **fields):
        """Waits for the only job, as the keeper shows it."""

        def look():
            alive = self.slurm.alive()
            assert len(alive) <= 1, alive
            return alive and self.known.job_id == alive[0]["id"] and alive[0]["id"]

        return self.until(look)

    def waiting(self):
        path = self.registry / "0-14b.json"
        return json.loads(path.read_text()) if path.exists() else None

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture(name="keeper")
def fixture_keeper(tmp_path):
    keeper = Keeper(tmp_path)
    yield keeper
    keeper.end()


def test_job_from_submission_to_successor(keeper):
    keeper.start()
    job_id = keeper.job()
    record = keeper.until(keeper.waiting)
    assert (record["state"], record["job_id"]) == (files.WAITING, 0)
    assert keeper.until(lambda: "job %d waits (Priority)" % job_id in keeper.waiting()["why"])
    files.parse("0-14b.json", json.dumps(record).encode(), {"vasp-02": "10.0.0.21"})
    keeper.slurm.start(job_id)
    keeper.until(lambda: "job %d runs on " % job_id in keeper.waiting()["why"])
    assert keeper.waiting()["why"].endswith(", and does not serve yet")
    endpoint = keeper.registry / ("%d-14b.json" % job_id)
    endpoint.write_text(json.dumps({"state": files.READY}))
    keeper.until(lambda: keeper.known.serves)
    keeper.until(lambda: keeper.waiting() is None)
    keeper.slurm.end(job_id, "FAILED", ExitCode="1:0")
    (keeper.logs / str(job_id)).mkdir()
    keeper.until(lambda: keeper.known.job_id not in (None, job_id))
    assert (keeper.known.failures, keeper.known.last["code"]) == (1, "crashed")
    assert len(keeper.slurm.calls("sbatch")) == 2
    # The server was killed, and has left it.
    keeper.until(lambda: not endpoint.exists())


def test_crash_is_public_without_lines(keeper):
    process = keeper.start()
    job_id = keeper.job()
    keeper.slurm.start(job_id)
    keeper.until(lambda: keeper.known.state == state.RUNNING)
    (keeper.logs / str(job_id)).mkdir()
    (keeper.logs / str(job_id) / "head-vasp-02.log").write_text("2026-11-27T21:20:03.123Z a client's words\n")
    keeper.slurm.end(job_id, "FAILED", ExitCode="1:0")
    keeper.until(lambda: keeper.known.last)
    assert keeper.known.last["words"] == "crashed (exit code 1)"
    waiting = keeper.until(keeper.waiting)
    assert "client" not in (keeper.directory / "state.json").read_text() + waiting["why"]
    process.terminate()
    # The journal is root's.
    assert f"job {job_id}: crashed (exit code 1)\n  a client's words\n" in process.communicate()[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
@pytest.mark.parametrize("planted", ["record", "directory", "mark", "open directory"])
def test_files_of_others_are_not_believed(tmp_path, planted):
    record, folder = tmp_path / "7-14b.json", tmp_path / "7"
    record.write_text(json.dumps({"state": files.READY}))
    folder.mkdir(0o755)
    for name, text in (("served-0", ""), ("head-vasp-02.log", "2026-11-27T21:20:03.123Z words\n")):
        (folder / name).write_text(text)
    true = {"job_id": 7, "ready": True, "served": (folder / "served-0").stat().st_mtime, "lines": ["words"]}
    assert slurm_keeper.look(7, str(record), str(folder), 1000, True) == true
    if planted == "open directory":
        folder.chmod(0o757)
    else:
        os.chown({"record": record, "directory": folder, "mark": folder / "served-0"}[planted], 4711, 4711)
    found = slurm_keeper.look(7, str(record), str(folder), 1000, True)
    assert found["ready"] == (planted != "record") and (found["served"] is not None) == (planted == "record")
    assert found["lines"] == (["words"] if planted in ("record", "mark") else [])


def test_logs_of_old_jobs_go(keeper):
    """The newest ones stay, and the job that lives."""
    for number in range(1, logs.KEPT + 5):
        folder = keeper.logs / str(number)
        folder.mkdir()
        for name in ("head-vasp-02.log", "served-0"):
            (folder / name).touch()
    # It cannot go, and displaces none, whatever its time.
    (keeper.logs / "2" / "a person's").touch()
    (keeper.logs / "mine").mkdir()
    with keeper.slurm.changing() as queue:
        queue["number"] = 2
    submitted = [str(keeper.slurm.folder / "bin/sbatch"), str(keeper.folder / "run-14b.slurm")]
    assert subprocess.check_output(submitted, text=True) == "3\n"
    keeper.start()
    assert keeper.job() == 3
    keeper.until(lambda: not (keeper.logs / "1").exists())
    keeper.until(lambda: not (keeper.logs / "4").exists())
    left = {path.name for path in keeper.logs.iterdir()}
    assert left == {"mine", "2", "3", *map(str, range(5, logs.KEPT + 5))}
    assert [path.name for path in (keeper.logs / "2").iterdir()] == ["a person's"]


def test_scancel_holds_until_resumed(keeper):
    keeper.start()
    job_id = keeper.job()
    keeper.slurm.end(job_id, "CANCELLED", by="0")
    keeper.until(lambda: keeper.known.held)
    assert keeper.known.held["by"] == "root"
    keeper.until(lambda: "held by root" in keeper.waiting()["why"])
    keeper.kill()
    keeper.start()
    time.sleep(2)
    assert keeper.slurm.alive() == []
    requested(keeper, "resume")
    keeper.job()
    assert not list(keeper.directory.glob("*.resume"))


def requested(keeper, kind):
    """As llama-jobs does it."""
    path = keeper.directory / ("fast." + kind)
    path.write_text(json.dumps({"by": "bob", "at": time.time()}))


def test_hold_ends_the_job(keeper):
    keeper.start()
    keeper.slurm.start(keeper.job())
    keeper.until(lambda: keeper.known.state == state.RUNNING)
    requested(keeper, "hold")
    keeper.until(lambda: not keeper.slurm.alive())
    assert [call[1:] for call in keeper.slurm.calls("scancel")] == [["--signal=USR1", "11"]]
    keeper.until(lambda: keeper.known.last)
    assert keeper.known.last["words"] == "held by bob"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
def test_requests_of_other_users_are_ignored(keeper):
    keeper.start()
    job_id = keeper.job()
    requested(keeper, "hold")
    os.chown(keeper.directory / "fast.hold", 4711, 4711)
    (keeper.directory / "fast.resume").symlink_to("/etc/passwd")
    time.sleep(2)
    assert keeper.known.held is None and keeper.job() == job_id


def test_forged_rows_of_others_do_nothing(keeper):
    """A line feed in a job's name begins a row of squeue."""
    fields = ["PENDING", "x", 4 * 10**9, "1:00", 1, "vasp", "gpu_vasp", "q", "", "vasp-02", "vasp-02", "x", ""]
    forged = "".join("\n" + ask.SEPARATOR.join(map(str, [number, *fields])) for number in ("99", "\u00b2", "9" * 5000))
    with keeper.slurm.changing() as queue:
        queue["jobs"]["5"] = {
            **{"state": "PENDING", "reason": "Priority", "nodes": "", "start": None, "user": "mallory"},
            **{"submitted": 1, "limit": "1:00", "name": "x" + forged, "comment": forged},
        }
    config = json.loads((keeper.folder / "jobs.json").read_text())
    keeper.write({**config, "partitions_yield": ["gpu_vasp"]})
    keeper.start()
    job_id = keeper.until(lambda: keeper.known.job_id)
    keeper.slurm.start(job_id)
    keeper.until(lambda: keeper.known.state == state.RUNNING)
    time.sleep(1)
    assert (keeper.known.yields, keeper.known.window, keeper.slurm.calls("scancel")) == ("", None, [])
    assert keeper.processes[0].poll() is None
    # A real one has its way.
    with keeper.slurm.changing() as queue:
        queue["jobs"]["5"]["partition"] = "gpu_vasp"
    keeper.until(lambda: keeper.known.yields == "gpu_vasp", 30)


def test_absent_controller_changes_nothing(keeper):
    keeper.start()
    job_id = keeper.job()
    keeper.flag("away")
    keeper.until(lambda: state.read(str(keeper.directory))["slurm"]["state"] == state.AWAY)
    keeper.until(lambda: "SLURM has not responded since " in keeper.waiting()["why"])
    keeper.flag("away", on=False)
    keeper.until(lambda: state.read(str(keeper.directory))["slurm"]["state"] == state.OK)
    assert keeper.job() == job_id
    keeper.processes[0].terminate()
    text = keeper.processes[0].communicate()[0]
    assert text.count("Unable to contact") == 1 and "SLURM: recovered" in text
    assert keeper.processes[0].returncode == 0 and keeper.waiting() is None


def test_refused_submission_waits(keeper):
    keeper.flag("refuse")
    keeper.start()
    keeper.until(lambda: keeper.known.last)
    assert keeper.known.last["code"] == "refused" and "Invalid account" in keeper.known.last["words"]
    assert keeper.known.next_submit > time.time() + 20
    # The role resumes it.
    keeper.flag("refuse", on=False)
    requested(keeper, "resume")
    keeper.job()


def test_changed_configuration_replaces_the_job(keeper):
    keeper.start()
    job_id = keeper.job()
    keeper.configure(OTHER)
    keeper.until(lambda: keeper.known.digest == OTHER)
    assert [job["id"] for job in keeper.slurm.alive()] != [job_id]
    assert keeper.known.held is None


def test_unusable_configuration_is_not_read(keeper):
    keeper.start()
    job_id = keeper.job()
    keeper.write({"services": "all"})
    time.sleep(2)
    assert keeper.job() == job_id and keeper.processes[0].poll() is None


def test_configuration_without_services_ends_jobs(keeper):
    keeper.start()
    keeper.job()
    keeper.until(keeper.waiting)
    keeper.write({**json.loads((keeper.folder / "jobs.json").read_text()), "services": {}})
    keeper.until(lambda: not keeper.slurm.alive() and keeper.waiting() is None)


def test_second_keeper_ends(keeper):
    keeper.start()
    keeper.job()
    with pytest.raises(slurm_keeper.Refusal, match="another keeper runs"):
        slurm_keeper.locked(str(keeper.directory), time.monotonic() + 0.5)


def test_hanging_child_lets_the_next_keeper_run(keeper, monkeypatch):
    """A FIFO without a writer blocks its reader, as a share without its server does."""
    monkeypatch.setattr(slurm_keeper, "SHARES", 0.2)
    monkeypatch.setattr(state, "NOT_OF", ())
    os.mkfifo(keeper.folder / "share")
    config = state.configuration(str(keeper.folder / "jobs.json"))
    lock = slurm_keeper.locked(config.directory, 0)
    program = slurm_keeper.Program(str(keeper.folder / "jobs.json"), config, lock)
    assert "no answer" in program._child.run((keeper.folder / "share").read_text).error
    os.close(lock)
    os.close(slurm_keeper.locked(config.directory, 0))


def test_killed_submission_is_found(keeper):
    """Killed while sbatch runs: the next keeper waits for the end of sbatch, then finds the job."""
    keeper.flag("slow")
    keeper.start()
    keeper.until(lambda: keeper.known.submitting)
    keeper.kill()
    keeper.start()
    keeper.job()
    time.sleep(2)
    assert len(keeper.slurm.calls("sbatch")) == 1


def test_kills_at_any_moment_leave_one_job(keeper):
    """Without its notes too."""
    chance = random.Random(16)
    keeper.flag("slow")
    for number in range(12):
        keeper.start()
        time.sleep(chance.uniform(0.05, 2.5))
        keeper.processes[-1].send_signal(signal.SIGKILL)
        keeper.processes[-1].wait()
        if number % 4 == 3:
            (keeper.directory / "state.json").unlink(missing_ok=True)
    keeper.start()
    keeper.job()
    assert len(keeper.slurm.calls("sbatch")) == 1


def test_absent_share_holds_nothing_up(keeper):
    keeper.registry.rmdir()
    keeper.logs.rmdir()
    keeper.start()
    job_id = keeper.job()
    keeper.slurm.start(job_id)
    keeper.until(lambda: keeper.known.state == state.RUNNING)
    keeper.slurm.end(job_id, "FAILED", ExitCode="1:0")
    keeper.until(lambda: keeper.known.job_id not in (None, job_id))


def test_keeper_of_another_user_is_refused(keeper):
    config = json.loads((keeper.folder / "jobs.json").read_text())
    keeper.write({**config, "user": "somebody-else"})
    process = keeper.start()
    text = process.communicate(timeout=20)[0]
    assert f"user {keeper.user.pw_name} seen, somebody-else is needed" in text and process.returncode == 1


def test_usage():
    assert slurm_keeper.main([]).startswith("usage")
