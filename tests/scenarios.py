"""Runs molecule scenarios, two side by side, and then those with deadlines; prints how long each took.

    python tests/scenarios.py [SCENARIO ...]

Every run takes lab slots of its own (names and subnets), one for each scenario that runs at a time, so two runs on one
machine do not meet, and removes its containers when it ends, however it ends. A scenario's whole output is kept in the
cache's logs; the end of it is shown when it fails.
Seconds also go to the table of .ci/run, the file that MINUTES names.
"""

import concurrent.futures
import fcntl
import os
import pathlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
CACHE = pathlib.Path(
    os.environ.get("LLAMA_CLUSTER_CACHE")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "llama-cluster")
)

# Seconds that a scenario may take on a 2-core machine beside another one, with cached builds and as root, who enters
# nodes faster than other users (tests/lab/callback/entered.py). After those that need no build the longest start first.
BUDGETS = {
    "build": 60,
    "node_setup": 160,
    "vulkan": 240,
    "acceptance": 640,
    "apply": 480,
    "slurm": 480,
    "monitoring": 450,
    "upgrade": 400,
    "cluster": 400,
    "adoption": 300,
    "gateway": 340,
    "drill": 270,
    "head_server": 210,
    "llama_cpp": 150,
    "preflight": 130,
    "jump": 130,
    "model": 130,
    "router_server": 110,
    "rpc_worker": 110,
    "enterprise_linux": 110,
    "bundle": 90,
    "default": 90,
    "recovery": 150,
}
# Run beside the build. Scenario vulkan has builds and shaders of its own, which it compiles where the cache lacks them.
WITHOUT_BUILD = ("node_setup", "vulkan")
# These assert seconds: they run after the others, one at a time.
ALONE = ("recovery",)
# Seconds in which what is interrupted has to end by itself.
PATIENCE = 20
# Two keep two cores busy.
SIDE_BY_SIDE = 2

running = []
stopping = threading.Event()


def call(command, environment, output):
    """Runs a command to its end -> its exit status; stop_running() ends it early, and no other one begins. It is a
    process group of its own, with the playbooks that molecule starts."""
    if stopping.is_set():
        return 1
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    running.append(process)
    status = process.wait()
    running.remove(process)
    return status


def signalled(group, number):
    """Sends a signal to a process group -> whether there is one."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def stop_running():
    """Ends what still runs and waits for it, so that nothing makes containers behind the back of the clean-up."""
    stopping.set()
    groups = [process.pid for process in running]
    for group in groups:
        signalled(group, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while any(signalled(group, 0) for group in groups) and time.monotonic() < deadline:
        time.sleep(0.1)
    for group in groups:
        signalled(group, signal.SIGKILL)


def take_slots():
    """Locks free lab slots for as long as this process lives -> (first slot, the open lock). Slots 0 and 1 are for labs
    that are made manually."""
    (CACHE / "locks").mkdir(parents=True, exist_ok=True)
    for first in range(SIDE_BY_SIDE, 240, SIDE_BY_SIDE):
        lock = open(CACHE / "locks" / ("slots-%d" % first), "w")  # noqa: SIM115 - held until the run ends
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        return first, lock
    sys.exit("scenarios: no free lab slots under %s/locks, another test run must end first" % CACHE)


def clear(slot):
    """The command that removes the containers of a lab slot: molecule would load Ansible for it."""
    return [REPOSITORY / "tests/lab/down.sh", "llama-cluster.lab=llama-lab%d" % slot]


def run_scenario(name, environment, slots):
    """In a slot that no other scenario has meanwhile -> (name, passed, seconds); the output goes to a log."""
    log = CACHE / "logs" / ("scenario-%s-%s.log" % (environment["LLAMA_LAB_RUN"], name))
    slot = slots.get()
    started = time.monotonic()
    print("%s scenario %s started, log %s" % (time.strftime("[%H:%M:%S]"), name, log), flush=True)
    try:
        with open(log, "w") as output, tempfile.TemporaryDirectory(prefix="molecule-") as folder:
            mine = dict(environment, LLAMA_LAB_SLOT=str(slot), MOLECULE_EPHEMERAL_DIRECTORY=folder)
            # Containers of a run that was killed.
            status = call(clear(slot), mine, output)
            status = status or call(["molecule", "test", "-s", name, "--destroy", "never"], mine, output)
            call(clear(slot), mine, output)
    finally:
        slots.put(slot)
    seconds = time.monotonic() - started
    print(
        "%s scenario %s %s in %d s" % (time.strftime("[%H:%M:%S]"), name, "failed" if status else "passed", seconds),
        flush=True,
    )
    if status:
        print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-60:]), flush=True)
    return name, status == 0, seconds


def build(environment, slots):
    """Has llama.cpp compiled once, where the cache lacks it, before scenarios that would each compile it -> as
    run_scenario."""
    log = CACHE / "logs" / ("scenario-%s-build.log" % environment["LLAMA_LAB_RUN"])
    slot = slots.get()
    started = time.monotonic()
    print("%s llama.cpp, compiled where the cache lacks it, log %s" % (time.strftime("[%H:%M:%S]"), log), flush=True)
    status = 0
    try:
        with open(log, "w") as output:
            for arguments in (
                ["shared/create.yml"],
                ["shared/prepare_node.yml", "--limit", "node1"],
            ):
                command = ["ansible-playbook", "molecule/" + arguments[0], "-i", "inventories/lab", *arguments[1:]]
                status = status or call(command, dict(environment, LLAMA_LAB_SLOT=str(slot)), output)
            call(clear(slot), environment, output)
    finally:
        slots.put(slot)
    if status:
        print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-60:]), flush=True)
    return "build", status == 0, time.monotonic() - started


def table(results):
    """The time table; the last line is read by machines too."""
    print("\n%-14s %8s %8s" % ("scenario", "seconds", "budget"))
    for name, passed, seconds in results:
        notes = ("" if passed else "  FAILED") + ("  over budget" if seconds > BUDGETS[name] else "")
        print("%-14s %8d %8d%s" % (name, seconds, BUDGETS[name], notes))
    failed = sum(1 for _name, passed, seconds in results if not passed)
    print("scenarios: %d passed, %d failed" % (len(results) - failed, failed))
    return failed


def note_minutes(parts):
    """[(name, seconds)] for the table of .ci/run, where it asks for them."""
    if os.environ.get("MINUTES"):
        with open(os.environ["MINUTES"], "a") as stream:
            stream.writelines("%s\t%d\n" % part for part in parts)


def main():
    began = time.monotonic()
    wanted = sys.argv[1:] or [name for name in BUDGETS if name != "build"]
    for name in wanted:
        if name not in BUDGETS:
            sys.exit("scenarios: %s is no scenario, one of %s is needed" % (name, ", ".join(BUDGETS)))
    for script, *words in (["engine.sh"], ["artifacts.sh", *["gemma"] * ("gateway" in wanted)], ["image.sh"]):
        subprocess.check_call([REPOSITORY / "tests/lab" / script, *words])
    prepared = time.monotonic()
    first, lock = take_slots()
    slots = queue.SimpleQueue()
    for slot in range(first, first + SIDE_BY_SIDE):
        slots.put(slot)
    label = "llama-cluster.run=run-%d" % first
    environment = dict(
        os.environ,
        PATH=os.pathsep.join([str(REPOSITORY / "tests/lab/bin"), str(REPOSITORY / ".venv/bin"), os.environ["PATH"]]),
        LLAMA_LAB_RUN="run-%d" % first,
        LLAMA_CLUSTER_CACHE=str(CACHE),
        MOLECULE_GLOB="molecule/*/molecule.yml",
        ANSIBLE_FORCE_COLOR="0",
        ANSIBLE_STDOUT_CALLBACK="default",
        ANSIBLE_CALLBACKS_ENABLED="thefermisea.llama_cluster.warm,compiled_once,entered,one_process",
        ANSIBLE_CALLBACK_PLUGINS=str(REPOSITORY / "tests/lab/callback"),
    )
    # Ctrl-C and kill end the run like success: with the clean-up.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = []
    pool = concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE)
    try:
        built = pool.submit(build, environment, slots)

        def after_build(name):
            if name not in WITHOUT_BUILD:
                built.result()
            return run_scenario(name, environment, slots)

        results += list(pool.map(after_build, [name for name in wanted if name not in ALONE]))
        results.insert(0, built.result())
        results += [run_scenario(name, environment, slots) for name in wanted if name in ALONE]
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        print("interrupted: ending what runs and removing its containers", flush=True)
        stop_running()
        raise
    finally:
        ended = time.monotonic()
        subprocess.call([REPOSITORY / "tests/lab/down.sh", label])
        lock.close()
        now = time.monotonic()
        parts = [
            ("engine, model and image", prepared - began),
            *((name, seconds) for name, _passed, seconds in results),
            ("teardown", now - ended),
        ]
        note_minutes([("scenarios", now - began), *(("  " + name, seconds) for name, seconds in parts)])
    return table(results)


if __name__ == "__main__":
    sys.exit(main())
