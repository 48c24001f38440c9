# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of role drill, its script and its page name the same things."""

import ast
import os
import pwd
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
VARS = yaml.safe_load((ROOT / "roles/drill/vars/main.yml").read_text())
CATALOG = VARS["__drill_catalog"]
SCRIPT = ROOT / "roles/drill/files/break.sh"
GATEWAY = (ROOT / "roles/drill/files/gateway.sh").read_text()
JOB = ROOT / "roles/drill/files/job.sh"
PEERS = (ROOT / "roles/drill/files/peers.sh").read_text()
# As the comment above the catalogue has them.
KEYS = {"where", "action", "kind", "generate", "held", "patience", "restart_head", "says", "needs", "what", "may_fail"}
KEYS |= {"ends", "code"}
# Done from the controller.
ELSEWHERE = {"power"}


def cases(script=SCRIPT):
    """The cases of a script."""
    return [
        case
        for group in re.findall(r"^    ((?:break|seen|undo)/[^)]*)\)", script.read_text(), re.MULTILINE)
        for case in group.split(" | ")
    ]


@pytest.mark.parametrize("name", CATALOG)
def test_a_drill_is_explained_and_can_be_done(name):
    drill = CATALOG[name]
    assert "`%s`" % name in (ROOT / "docs/measuring.md").read_text()
    # Words with a comma end at it in {}, and what follows would be a key.
    assert set(drill) <= KEYS and all(drill.values())
    assert drill["kind"] in ("restart", "start", "away", "firewall", "soak", "gateway", "job")
    assert set(drill.get("needs", [])) <= set(VARS["__drill_needs"])
    if drill["kind"] == "gateway":
        assert drill["where"] == "head" and drill["action"] == "kill" or "    break/%s)" % drill["action"] in GATEWAY
    elif drill["kind"] == "job":
        assert drill["where"] in ("head", "worker", "submits")
        assert {"%s/%s" % (what, drill["action"]) for what in ("break", "seen", "undo")} <= set(cases(JOB))
    elif drill["kind"] != "soak":
        assert drill["where"] in ("head", "worker", "workers", "both")
        assert drill["action"] in ELSEWHERE or {"break/" + drill["action"], "undo/" + drill["action"]} <= set(cases())
    # A fault that stays is waited for on one node, and taken away from there on.
    assert drill.get("held") in (None, "head", "worker")
    assert (drill["kind"] in ("start", "away")) == ("held" in drill)


def test_tasks_need_no_worker_for_delegation():
    """ansible-core 2.19 and newer want the delegate_to of a skipped task, too."""
    delegated = [
        (path.name, line.strip())
        for path in (ROOT / "roles/drill/tasks").glob("*.yml")
        for line in path.read_text().splitlines()
        if "delegate_to:" in line and re.search(r"workers *(\[0\]|\| *first *[}|])", line)
    ]
    assert delegated == []


def test_every_fault_is_made_and_taken_away():
    """By break.sh on a unit of its own, or in a complete drill: docs/measuring.md says which."""
    page = " ".join((ROOT / "docs/measuring.md").read_text().split())
    (said,) = re.findall(
        r"`make test` runs (.*?) completely, .*? `make bench WHAT=recovery` runs the others completely", page
    )
    program = ast.parse((ROOT / "molecule/drill/tests/test_drill.py").read_text())
    (whole,) = [
        ast.literal_eval(node.value)
        for node in program.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "WHOLE"
    ]
    assert re.findall("`([a-z_]+)`", said) == whole
    done = {"%s/%s" % (what, CATALOG[name]["action"]) for name in whole for what in ("break", "undo")}
    for node in ast.walk(ast.parse((ROOT / "molecule/node_setup/tests/test_break.py").read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "script":
            what, action = (getattr(argument, "value", None) for argument in node.args)
            # Without a constant it is the parameter of its test.
            done.update("%s/%s" % (what, one) for one in ([action] if action else ["cut_off", "gone"]))
    assert done == set(cases())


def test_the_script_refuses_what_it_does_not_know():
    done = subprocess.run(
        ["bash", str(SCRIPT), "break", "hearts"],
        env={"PATH": "/usr/bin:/bin", "UNIT": "x.service"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "x.service: no action break/hearts\n")


SQUEUE = """#!/bin/sh
if [ -e %(folder)s/away ]; then
    echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2
    exit 1
fi
case $* in *--user=vasp*) echo 12; exit ;; esac
echo '4711 of ai'
[ ! -e %(folder)s/others ] || cat %(folder)s/others
"""
SBATCH = """#!/bin/sh
echo "$*" >>%(folder)s/asked
case $* in
    *--test-only) case $* in *=gpu_ai*) echo 'not allowed' >&2; exit 1;; esac ;;
    *) echo '12;lab' ;;
esac
"""


def test_preempting_job_has_only_free_nodes(tmp_path):
    """job.sh with stand-ins of SLURM's commands, which print what theirs do."""
    (tmp_path / "job.sh").write_text(JOB.read_text().replace("=/run/", "=%s/" % tmp_path))
    stubs = {"squeue": SQUEUE, "sbatch": SBATCH, "sinfo": "#!/bin/sh\necho gpu_vasp; echo gpu_ai; echo gpu_vasp\n"}
    stubs.update(runuser='#!/bin/sh\nshift 3; exec "$@"\n', scancel="#!/bin/sh\necho scancel $* >>%(folder)s/asked\n")
    for name, text in stubs.items():
        (tmp_path / name).write_text(text % {"folder": tmp_path} if "%(" in text else text)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": "%s:/usr/bin:/bin" % tmp_path, "SERVICE": "deep", "JOB": "4711", "NODES": "c1,c3"}
    environment.update(PREEMPTOR="vasp", ACCOUNT="lab", QOS="high", HOLD="600")

    def script(what):
        words = ["bash", str(tmp_path / "job.sh"), what, "preempt"]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    (tmp_path / "others").write_text("7 of bob\n")
    assert "deep: job 7 of bob on its nodes" in script("break").stderr and not (tmp_path / "asked").exists()
    (tmp_path / "others").unlink()
    # Without SLURM the nodes are not taken for free.
    (tmp_path / "away").touch()
    done = script("break")
    assert done.returncode != 0 and "slurm_load_jobs error" in done.stderr and not (tmp_path / "asked").exists()
    assert script("look").returncode != 0
    (tmp_path / "away").unlink()
    done = script("break")
    assert done.returncode == 0 and re.fullmatch(r"[0-9.]+\n", done.stdout), done
    asked = (tmp_path / "asked").read_text().splitlines()
    assert ["--partition=gpu_vasp" in line and "--test-only" in line for line in asked] == [False, True, False]
    assert "--qos=high --account=lab --nodelist=c1,c3 --nodes=2 --exclusive" in asked[-1] and "sleep 600" in asked[-1]
    assert script("undo").returncode == script("undo").returncode == 0
    assert (tmp_path / "asked").read_text().splitlines()[3:] == ["scancel --user=vasp 12"]


# Each prints what SLURM's does; llama-jobs is at its absolute path only, and systemd-run keeps what it is to run.
COMMANDS = {
    "squeue": 'cat %(folder)s/row; echo "squeue $*" >>%(folder)s/asked',
    "scancel": 'echo "scancel $*" >>%(folder)s/asked',
    "systemd-run": 'echo "timer" >>%(folder)s/asked',
    "systemctl": 'echo "systemctl $*" >>%(folder)s/asked',
    "bin/llama-jobs": 'echo "deep: held by ai"; echo "jobs $*" >>%(folder)s/asked; [ ! -e %(folder)s/busy ]',
}
OWN = "4711 llama_cluster:deep:0123456789abcdef"


@pytest.fixture(name="cancelling")
def fixture_cancelling(tmp_path):
    """(what) -> what job.sh did, and the commands that it ran."""
    (tmp_path / "job.sh").write_text(JOB.read_text().replace("=/usr/local/bin/", "=%s/bin/" % tmp_path))
    (tmp_path / "bin").mkdir()
    for name, text in COMMANDS.items():
        (tmp_path / name).write_text("#!/bin/sh\n" + text % {"folder": tmp_path} + "\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": "%s:/usr/bin:/bin" % tmp_path, "SERVICE": "deep", "JOB": "4711", "JOB_USER": "ai"}

    def script(what):
        (tmp_path / "asked").write_text("")
        words = ["bash", str(tmp_path / "job.sh"), what, "scancel"]
        done = subprocess.run(words, env={**environment, "HOLD": "9"}, capture_output=True, text=True, check=False)
        return done, (tmp_path / "asked").read_text().splitlines()

    return script


@pytest.mark.parametrize("row", ["", "4711 (null)", "4711 llama_cluster:fast:0123456789abcdef", "7" + OWN])
def test_drill_cancels_only_its_service(cancelling, tmp_path, row):
    (tmp_path / "row").write_text(row + "\n")
    done, asked = cancelling("break")
    assert done.returncode == 1 and "deep: 4711 is no job of ai" in done.stderr
    assert asked == ["squeue --noheader --user=ai --jobs=4711 --format=%A %k"]


def test_cancelled_job_resumes_or_its_timer_does(cancelling, tmp_path):
    (tmp_path / "row").write_text(OWN + "\n")
    done, asked = cancelling("break")
    assert re.fullmatch(r"[0-9.]+\n", done.stdout) and asked[1:] == ["timer", "scancel --user=ai 4711"]
    assert cancelling("seen")[0].returncode == 0
    (tmp_path / "busy").touch()
    assert cancelling("undo")[1] == ["jobs resume deep"], "the timer stays"
    (tmp_path / "busy").unlink()
    assert cancelling("undo")[1] == ["jobs resume deep", "systemctl stop llama-drill-undo.timer"]


# The service's job is in the queue until it has been seen twice, then that of the drill, for one look.
MEMORY = {
    "squeue": """case $* in
    *--jobs=*) echo "4711 llama_cluster:deep:0123456789abcdef" ;;
    *) line=$(head -n 1 %(folder)s/queue); sed -i 1d %(folder)s/queue; echo "$line" ;;
esac""",
    "scontrol": 'echo "JobId=4711 JobName=deep Command=/srv/deep.slurm WorkDir=/"',
    "runuser": 'shift 3; exec "$@"',
    "sbatch": 'echo "sbatch $*" >>%(folder)s/asked; echo "12;lab"',
    "scancel": 'echo "scancel $*" >>%(folder)s/asked',
    "systemd-run": 'echo "timer ${*##*sh -c}" >>%(folder)s/asked',
    "systemctl": 'echo "systemctl $*" >>%(folder)s/asked',
    "sleep": ":",
    "bin/llama-jobs": 'echo "jobs $*" >>%(folder)s/asked; echo held',
}


def test_memory_kill_has_its_own_job(tmp_path):
    text = JOB.read_text().replace("=/usr/local/bin/", "=%s/bin/" % tmp_path).replace("=/run/", "=%s/" % tmp_path)
    (tmp_path / "job.sh").write_text(text)
    (tmp_path / "bin").mkdir()
    for name, words in MEMORY.items():
        (tmp_path / name).write_text("#!/bin/sh\n" + words % {"folder": tmp_path} + "\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": "%s:/usr/bin:/bin" % tmp_path, "SERVICE": "deep", "JOB": "4711", "JOB_USER": "ai"}

    def script(what, *queue):
        (tmp_path / "queue").write_text("".join("%s\n" % one for one in queue))
        (tmp_path / "asked").write_text("")
        words = ["bash", str(tmp_path / "job.sh"), what, "memory_kill"]
        done = subprocess.run(words, env={**environment, "HOLD": "9"}, capture_output=True, text=True, check=False)
        return done, (tmp_path / "asked").read_text().splitlines()

    done, asked = script("break", "4711", "4711")
    # The timer that undoes it comes first; only the time of the break is printed.
    assert re.fullmatch(r"[0-9.]+\n", done.stdout) and asked[0].startswith("timer ")
    assert asked[1:] == ["jobs hold deep", "sbatch --parsable --begin=now+15 --mem=50M /srv/deep.slurm"]
    assert script("seen", "12")[0].returncode != 0 and script("seen")[0].returncode == 0
    resumed = ["jobs resume deep", "systemctl stop llama-drill-undo.timer"]
    assert script("undo", "12")[1] == ["scancel --user=ai 12", *resumed], "it still runs"
    assert script("undo")[1] == resumed


@pytest.mark.parametrize("linked", [False, True])
def test_damaged_copy_reads_no_other_file(tmp_path, linked):
    """The script with stubs for systemd, below a directory of the test's."""
    script = tmp_path / "break.sh"
    script.write_text(SCRIPT.read_text().replace("=/run/", "=%s/run/" % tmp_path))
    stub = tmp_path / "systemctl"
    stub.write_text("#!/bin/sh\ncase $* in *MainPID*) exec sleep 0;; esac\n")
    stub.chmod(0o755)
    (tmp_path / "secret").write_text("precious")
    (tmp_path / "m.gguf").symlink_to("secret") if linked else (tmp_path / "m.gguf").write_text("weights")
    environment = {"PATH": "%s:/usr/bin:/bin" % tmp_path, "UNIT": "x.service", "MODEL": str(tmp_path / "m.gguf")}
    done = subprocess.run(
        ["bash", str(script), "break", "damage"], env=environment, capture_output=True, text=True, check=False
    )
    copy = tmp_path / "run/llama-drill/damaged.gguf"
    if linked:
        assert "is a link or cannot be read" in done.stderr and not copy.exists()
    else:
        assert (copy.read_text(), copy.stat().st_mode & 0o777) == ("weights", 0o600), done.stderr


# squeue, with the jobs of others on its nodes.
QUEUE_BESIDE = """#!/bin/sh
case $* in *--nodelist=c1,c3*) %s ;; *) echo '%s llama_cluster:deep:0123456789abcdef' ;; esac
"""


def test_node_of_a_job_vanishes_and_returns(tmp_path):
    """job.sh ends real processes, of the job only; nft, pkill, squeue and systemd's commands are stand-ins."""
    for name in ("nft", "pkill", "systemctl", "systemd-run"):
        (tmp_path / name).write_text('#!/bin/sh\necho "%s $*" >>%s/asked\n' % (name, tmp_path))
        (tmp_path / name).chmod(0o755)
    # No other test's processes, which it would end.
    job = "88%d" % os.getpid()
    user = pwd.getpwuid(os.geteuid()).pw_name
    environment = {"PATH": "%s:/usr/bin:/bin" % tmp_path, "SERVICE": "deep", "JOB": job, "JOB_USER": user}
    environment.update(PEERS="10.0.0.1, 10.0.0.3", HOLD="600", PORT="1", NODES="c1,c3")
    queue = tmp_path / "squeue"
    queue.write_text("#!/bin/sh\necho '%s (null)'\n" % job)
    queue.chmod(0o755)

    def script(what):
        (tmp_path / "asked").write_text("")
        words = ["bash", "-s", "--", what, "node_gone"]
        text = PEERS + JOB.read_text()
        done = subprocess.run(words, env=environment, input=text, capture_output=True, text=True, check=False)
        return done, (tmp_path / "asked").read_text().splitlines()

    done, asked = script("break")
    assert "deep: %s is no job of %s for it" % (job, user) in done.stderr and asked == []
    queue.write_text(QUEUE_BESIDE % ("echo '7 of bob'", job))
    done, asked = script("break")
    assert "deep: job 7 of bob on its nodes, which could be hit too: wait for its end" in done.stderr
    assert asked == []
    queue.write_text(QUEUE_BESIDE % (":", job))
    done, asked = script("break")
    assert "deep: no process of job %s here, one is needed" % job in done.stderr and len(asked) == 1
    mine, other = (subprocess.Popen(["sleep", "60"], env={"SLURM_JOB_ID": number}) for number in (job, job + "0"))
    try:
        done, asked = script("break")
        assert done.returncode == 0 and re.fullmatch(r"[0-9.]+\n", done.stdout), done
        assert mine.wait(10) == -9 and other.poll() is None
    finally:
        mine.kill()
        other.kill()
    # First what undoes it if the playbook dies.
    assert asked[1].startswith("systemd-run ") and "--on-active=600" in asked[1] and "start slurmd" in asked[1]
    assert asked[2:] == [
        "nft -f -",
        "systemctl kill --kill-who=main --signal=KILL slurmd.service",
        "systemctl stop slurmd.service",
        "pkill -KILL -f ^slurmstepd: \\[%s\\." % job,
    ]
    done, asked = script("undo")
    assert done.returncode == 0 and asked[1:] == ["nft delete table inet llama_drill", "systemctl start slurmd.service"]
