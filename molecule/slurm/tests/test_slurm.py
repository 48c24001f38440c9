"""Services as jobs of a real SLURM: they share cards with jobs that preempt them, and come back by themselves."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/lab/slurm"))
import slurm_lab  # noqa: E402
from slurm_lab import FAST, REASONING, SCRIPTS, SERVICES, eventually, preempt  # noqa: E402


@pytest.fixture(scope="module")
def slurm():
    return slurm_lab.SlurmLab(int(os.environ.get("LLAMA_LAB_SLOT") or 1))


@pytest.fixture(scope="module")
def gateway(slurm):
    return slurm_lab.Gateway(slurm)


@pytest.fixture(autouse=True)
def fixture_both_serve(slurm, gateway):
    """Each test begins with one running job of each service, which serves."""
    for service in SERVICES:
        eventually(lambda service=service: gateway.ready(service), 60, "%s serves" % service.name)
        assert [state for _number, state, _reason in slurm.jobs(service.job)] == ["RUNNING"]


def ask(gateway, service):
    """-> (status, service that responded, error code)"""
    reply = gateway.chat(service.model)
    body = reply.json()
    return reply.status_code, reply.headers.get("X-Llama-Service"), body.get("error", {}).get("code")


def test_jobs_have_the_names_of_the_notes(slurm):
    for service in SERVICES:
        shown = slurm_lab.fields(slurm.on("ctl", "scontrol --oneliner show job %d" % slurm.job(service)))
        assert shown["UserId"] == "ai(2000)" and shown["QOS"] == "ai_opportunistic" and shown["Partition"] == "gpu_ai"
        assert (
            shown["BatchHost"] == service.nodes[0]
            and shown["Requeue"] == "1"
            and shown["NumNodes"] == str(len(service.nodes))
        )
        assert shown["Command"] == SCRIPTS[service.name]


def test_scripts_are_files_that_sbatch_takes(slurm):
    for service in SERVICES:
        path = SCRIPTS[service.name]
        assert slurm.on("ctl", "stat -c '%%U %%a' %s" % path) == "root 755"
        slurm.on("ctl", "sbatch --test-only %s" % path, user="ai")
        key = slurm.key()
        assert slurm.run("ctl", "grep -F %s %s" % (key, path))[0] == 1


def test_gateway_reaches_both_jobs(gateway):
    for service in SERVICES:
        assert ask(gateway, service) == (200, service.name, None)
        assert gateway.chat("probe", port=service.tier).status_code == 200
        (endpoint,) = [one for one in gateway.service(service)["endpoints"] if one["state"] == "ready"]
        assert endpoint["node"] == service.nodes[0]


def test_heads_reach_their_workers_only(slurm):
    """Server and worker run where the script says, as the job's user."""
    assert any("llama-server" in one for one in slurm.processes("c1"))
    assert any("ggml-rpc-server" in one for one in slurm.processes("c3"))
    assert any("llama-server" in one for one in slurm.processes("c2"))
    for port, node in ((50052, "c3"), (8081, "c1"), (8080, "c2")):
        assert slurm.on(node, "ss -Hltn 'sport = :%d'" % port)
    # Another user of a node cannot use the worker.
    reach = "setpriv --reuid=2001 --clear-groups timeout 3 bash -c 'exec 3<>/dev/tcp/10.214.%d.13/50052'" % slurm.slot
    assert slurm.run("c1", reach)[0] != 0


def refusal(gateway, service):
    """-> the error of a service without a job that serves, with the seconds of Retry-After"""
    reply = gateway.chat(service.model)
    assert reply.status_code == 503, reply.text
    error = reply.json()["error"]
    assert error["code"] == "waiting_for_gpus" and 5 <= int(reply.headers["Retry-After"]) <= 600, error
    return error["message"]


def test_idle_service_gives_up_its_card(slurm, gateway):
    before, seen = slurm.job(FAST), []

    def meanwhile():
        # There is no other service in its place. The keeper looks at SLURM each 5 s.
        refusal(gateway, FAST)
        waits = "job %d waits" % before
        eventually(lambda: waits in refusal(gateway, FAST), 10, "the refusal has the reason")
        assert waits in json.dumps(gateway.service(FAST))
        assert waits in slurm.on("ctl", "llama-jobs list")
        seen.append((slurm.jobs(FAST.job), slurm.processes("c2")))

    cycle = preempt(slurm, gateway, FAST, 15, meanwhile=meanwhile)
    print(cycle)
    ((jobs, processes),) = seen
    assert [(number, state) for number, state, _reason in jobs] == [(before, "PENDING")]
    assert processes == []
    assert cycle.gone <= 3 and cycle.running <= 3
    assert cycle.again <= 10
    assert slurm.job(FAST) == before and ask(gateway, FAST) == (200, "fast", None)


def test_service_in_use_finishes_in_time(slurm, gateway):
    """A split service with a request that would last longer than the grace time."""
    with gateway.chat(REASONING.model, tokens=1900, ignore_eos=True, stream=True) as stream:
        # Without a reference to it the connection would be closed.
        lines = stream.iter_lines()
        assert stream.status_code == 200 and next(lines)
        cycle = give_up(slurm, gateway)
        assert 20 < cycle.running <= 35, "it lasted until the end of the grace time"


def give_up(slurm, gateway):
    before, answers = slurm.job(REASONING), []

    def meanwhile():
        answers.append((ask(gateway, REASONING), slurm.processes("c1") + slurm.processes("c3")))

    cycle = preempt(slurm, gateway, REASONING, 12, meanwhile=meanwhile)
    print(cycle)
    assert cycle.gone <= 3 and cycle.running <= 35 and cycle.again <= 10
    # The other service responds in its place.
    assert answers == [((200, "fast", None), [])]
    assert slurm.job(REASONING) == before and ask(gateway, REASONING) == (200, "reasoning", None)
    return cycle


def test_cancelled_job_stays_cancelled_until_resumed(slurm, gateway):
    before = slurm.job(FAST)
    slurm.on("ctl", "scancel %d" % before)
    eventually(lambda: not slurm.jobs(FAST.job), 45, "the job has ended")
    eventually(lambda: "held" in slurm.on("ctl", "llama-jobs list"), 20, "it is held")
    time.sleep(5)
    assert slurm.jobs(FAST.job) == []
    reply = gateway.chat(FAST.model)
    assert reply.status_code == 503 and "Retry-After" in reply.headers
    slurm.on("ctl", "llama-jobs resume fast")
    eventually(lambda: gateway.ready(FAST), 45, "it serves again")
    assert slurm.job(FAST) != before


def test_resume_right_after_scancel_counts(slurm, gateway):
    """The keeper may not have seen the end of the job yet."""
    before = slurm.job(FAST)
    slurm.on("ctl", "scancel %d" % before)
    slurm.on("ctl", "llama-jobs resume fast")
    eventually(lambda: gateway.ready(FAST), 45, "it serves again")
    assert slurm.job(FAST) != before and "held" not in slurm.on("ctl", "llama-jobs list")


def test_script_submitted_by_hand_serves(slurm, gateway):
    number = slurm.by_hand(FAST)
    # The gateway may still show the endpoint of the job before.
    eventually(lambda: ask(gateway, FAST) == (200, "fast", None), 45, "it serves")
    slurm.on("ctl", "llama-jobs resume fast")
    time.sleep(6)
    assert slurm.job(FAST) == number, "it is the service's job from then on"


def test_memory_limit_is_named(slurm, gateway):
    number = slurm.by_hand(FAST, "--mem=50M")
    killed = "job %d: out of memory: " % number
    eventually(lambda: slurm.last(FAST).startswith(killed), 60, "SLURM says why it ended")
    assert slurm.last(FAST).endswith("50M requested")
    slurm.on("ctl", "llama-jobs resume fast")
    eventually(lambda: gateway.ready(FAST), 45, "it serves again")


def test_killed_keeper_submits_no_second_job(slurm):
    """By drill.yml, whose client loses no request."""
    before = [slurm.job(service) for service in SERVICES]
    sources = (ROOT / "inventories/lab/containers.yml", ROOT / "molecule/slurm/inventory")
    words = [str(pathlib.Path(sys.executable).with_name("ansible-playbook")), str(ROOT / "playbooks/drill.yml")]
    words += [word for source in sources for word in ("-i", str(source))]
    words += ["-e", "service=fast", "-e", "drills=job_keeper_kill"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    recovered = r"^job_keeper_kill .* recovered: 0 of \d+ requests failed$"
    assert re.search(recovered, done.stdout, re.MULTILINE), done.stdout + done.stderr
    assert [slurm.job(service) for service in SERVICES] == before


class Run(NamedTuple):
    """A run of a job, by sacct. lost: one of its steps ended because a worker was lost."""

    job: str
    name: str
    user: str
    state: str
    submitted: int
    start: int
    end: int
    lost: bool = False


def runs(slurm, now):
    """-> the runs of all jobs of a day that have started; times that are not known are now"""
    found = []
    fields = "JobIDRaw,JobName,User,State,ExitCode,Submit,Start,End"
    text = slurm.on("ctl", "SLURM_TIME_FORMAT=%%s sacct -n -P -D -a -S now-1days --format=%s" % fields)
    for job, name, user, state, code, *times in (row.split("|") for row in text.splitlines()):
        number, _dot, step = job.partition(".")
        if not step:
            found.append(Run(number, name, user, state, *(int(one) if one.isdigit() else now for one in times)))
        elif found[-1].job == number and step != "batch" and code.startswith("75:"):
            found[-1] = found[-1]._replace(lost=True)
    return [run for run in found if run.start != now]


def test_report_agrees_with_the_accounts(slurm):
    """Seconds that jobs ran, preemptions, and the seconds for which each preempting job waited."""
    shown = slurm.on("ctl", "llama-jobs report --since 1d")
    now = int(slurm.on("ctl", "date +%s"))
    rows = runs(slurm, now)
    for service in SERVICES:
        seconds, number, preemptions, *longest = (
            int(one or 0)
            for one in re.search(
                r"^%s: ran [0-9.]+ h \((\d+) s\) in (\d+) runs, (\d+) preemptions(?:, longest wait (\d+) s)?$"
                % service.name,
                shown,
                re.MULTILINE,
            ).groups()
        )
        own = [run for run in rows if run.name == service.job]
        assert abs(seconds - sum(run.end - run.start for run in own)) <= 3, (shown, rows)
        # A job is also requeued after the loss of a worker or a node, which is no preemption.
        gave_up = [run for run in own if run.state in ("REQUEUED", "PREEMPTED") and not run.lost]
        taken = {run: [one for one in rows if one.user == "vasp" and 0 <= one.start - run.end <= 2] for run in gave_up}
        assert (number, preemptions) == (len(own), sum(map(bool, taken.values()))), (shown, rows)
        waits = [one.start - one.submitted for found in taken.values() for one in found]
        assert longest == [max(waits, default=0)]


def test_teardown_leaves_slurm_as_it_was(slurm, lab):
    """The last test, on the controller only: jobs end, then what they need goes. Logs, accounts and SLURM stay."""
    logs = slurm.on("ctl", "ls /cluster/shared/ai/logs")
    made = json.loads(slurm.on("ctl", "cat /var/lib/llama-cluster/slurm-made.json"))["qos"]
    words = ("-i", "molecule/slurm/inventory", "--limit", "llama_slurm,localhost")
    status, output = lab.playbook("teardown", *words, inventory="inventories/lab/containers.yml")
    assert status == 0, output
    for service in SERVICES:
        assert slurm.jobs(service.job) == []
        assert slurm.run("ctl", "ls %s" % SCRIPTS[service.name])[0] != 0
    for node in slurm_lab.NODES:
        assert slurm.processes(node) == []
    assert slurm.run("ctl", "systemctl cat llama-slurm-keeper.service")[0] != 0
    gone = "/usr/local/bin/llama-jobs /var/lib/llama-cluster-jobs /etc/llama-cluster/jobs.json"
    assert slurm.on("ctl", "ls -d %s 2>/dev/null || true" % gone) == ""
    assert slurm.on("ctl", "ls -A /cluster/shared/ai/endpoints") == ""
    assert slurm.on("ctl", "ls /cluster/shared/ai/logs") == logs
    assert not set(made) & set(slurm.on("ctl", "sacctmgr -n -P show qos format=Name").split())
    command = "timeout 60 sbatch --wait --chdir=/tmp --output=/dev/null --partition=gpu_vasp --wrap true"
    slurm.on("ctl", command, user="vasp")
