"""Services as jobs of a real SLURM: they share cards with jobs that preempt them, and come back by themselves."""

import json
import os
import pathlib
import sys
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/lab/slurm"))
import slurm_lab  # noqa: E402
from slurm_lab import FAST, REASONING, SERVICES, eventually, preempt  # noqa: E402

SCRIPTS = "/cluster/shared/scripts/llama-cpp"
FILES = {"reasoning": "run-72b-distributed.slurm", "fast": "run-14b.slurm"}


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
        assert shown["Command"].split("/")[-1] == FILES[service.name]


def test_scripts_are_files_that_sbatch_takes(slurm):
    for service in SERVICES:
        path = "%s/%s" % (SCRIPTS, FILES[service.name])
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


def test_idle_service_gives_up_its_card(slurm, gateway):
    seen = []

    def meanwhile():
        # Its endpoint waits for the job, and there is no other service in its place.
        reply = gateway.chat(FAST.model)
        seen.append((reply, gateway.service(FAST), slurm.jobs(FAST.job), slurm.processes("c2")))

    before = slurm.job(FAST)
    cycle = preempt(slurm, gateway, FAST, 12, meanwhile=meanwhile)
    print(cycle)
    ((reply, shown, jobs, processes),) = seen
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "waiting_for_gpus")
    assert 5 <= int(reply.headers["Retry-After"]) <= 600
    assert "job %d waits" % before in reply.json()["error"]["message"]
    assert "job %d waits" % before in json.dumps(shown)
    assert [(number, state) for number, state, _reason in jobs] == [(before, "PENDING")]
    assert processes == []
    assert cycle.gone <= 3 and cycle.running <= 3
    assert cycle.again <= 10
    assert slurm.job(FAST) == before and ask(gateway, FAST) == (200, "fast", None)


def test_service_in_use_finishes_in_time(slurm, gateway):
    """A split service with a request that would last longer than the grace time."""
    replies = []

    def long_request():
        replies.append(gateway.chat(REASONING.model, tokens=1900, ignore_eos=True, stream=True))
        replies.append(sum(1 for _line in replies[0].iter_lines()))

    thread = threading.Thread(target=long_request, daemon=True)
    thread.start()
    eventually(lambda: replies, 20, "the stream has begun")
    before, answers = slurm.job(REASONING), []

    def meanwhile():
        answers.append((ask(gateway, REASONING), slurm.processes("c1") + slurm.processes("c3")))

    cycle = preempt(slurm, gateway, REASONING, 12, meanwhile=meanwhile)
    print(cycle, replies)
    assert cycle.gone <= 3 and cycle.running <= 35 and cycle.again <= 10
    # The other service responds in its place.
    assert answers == [((200, "fast", None), [])]
    assert slurm.job(REASONING) == before and ask(gateway, REASONING) == (200, "reasoning", None)
    thread.join(10)


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


def test_killed_keeper_submits_no_second_job(slurm):
    before = [slurm.job(service) for service in SERVICES]
    slurm.on("ctl", "systemctl kill --kill-who=all --signal=KILL llama-slurm-keeper.service")
    eventually(
        lambda: slurm.on("ctl", "systemctl is-active llama-slurm-keeper.service || true") == "active", 20, "it runs"
    )
    time.sleep(5)
    assert [slurm.job(service) for service in SERVICES] == before


def test_report_agrees_with_the_accounts(slurm):
    report = slurm.on("ctl", "llama-jobs report --since 1d")
    rows = slurm.on(
        "ctl",
        "sacct --noheader --parsable2 --duplicates --allocations --starttime=now-1days --user=ai "
        "--format=JobName,State,ElapsedRaw",
    ).splitlines()
    requeued = [row for row in rows if "|REQUEUED|" in row or "|PREEMPTED|" in row]
    assert len(requeued) == 2, rows
    print(report)
    assert "llama-72b" in report or "reasoning" in report
