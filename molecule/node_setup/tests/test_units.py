"""Every unit that the roles write, as systemd reads it: complete, without a cycle at boot, and with no more than its
own key."""

import base64
import io
import json
import tarfile

import pytest
import rendered

FOLDER = "/run/rendered"
KEYS = "/etc/llama-cluster/keys"
STUBS = ("llama-server", "ggml-rpc-server")
# Order of the network of cloud images: the ordering lines of the distributions' own units (cloud-init 22.4, ifupdown
# 0.8, NetworkManager 1.42 and netplan 0.106 of Debian 12; systemd's own units are the node's). Programs are left
# out.
CLOUD_INIT = {
    "cloud-init-local.service": """
        DefaultDependencies=no
        Wants=network-pre.target
        After=systemd-remount-fs.service
        Before=NetworkManager.service network-pre.target shutdown.target sysinit.target
        Conflicts=shutdown.target
        RequiresMountsFor=/var/lib/cloud""",
    "cloud-init.service": """
        DefaultDependencies=no
        Wants=cloud-init-local.service
        After=cloud-init-local.service systemd-networkd-wait-online.service networking.service
        Before=network-online.target sshd.service sysinit.target shutdown.target systemd-user-sessions.service
        Conflicts=shutdown.target""",
    "cloud-config.service": """
        After=network-online.target cloud-config.target
        Wants=network-online.target cloud-config.target""",
    "cloud-config.target": """
        Wants=cloud-init-local.service cloud-init.service
        After=cloud-init-local.service cloud-init.service""",
    "cloud-final.service": """
        After=network-online.target cloud-config.service multi-user.target
        Wants=network-online.target cloud-config.service""",
    "cloud-init.target": """
        After=multi-user.target
        Wants=cloud-init-local.service cloud-init.service cloud-config.service cloud-final.service""",
}
IFUPDOWN = {
    "networking.service": """
        DefaultDependencies=no
        Wants=network.target
        After=local-fs.target network-pre.target systemd-sysctl.service systemd-modules-load.service
        Before=network.target shutdown.target network-online.target
        Conflicts=shutdown.target""",
    "ifupdown-wait-online.service": """
        DefaultDependencies=no
        Before=network-online.target""",
}
NETWORK_MANAGER = {
    "NetworkManager.service": """
        Wants=network.target
        After=network-pre.target dbus.service
        Before=network.target""",
    "NetworkManager-wait-online.service": """
        Requires=NetworkManager.service
        After=NetworkManager.service
        Before=network-online.target""",
}
# Written by its generator at boot; what it configures, networkd brings up.
NETPLAN = {
    "netplan-ovs-cleanup.service": """
        DefaultDependencies=no
        Before=network.target
        Wants=network.target""",
}
STACKS = {
    "ifupdown": (IFUPDOWN, ("networking.service", "ifupdown-wait-online.service")),
    "networkd": ({}, ("systemd-networkd.service", "systemd-networkd-wait-online.service")),
    "netplan": (
        NETPLAN,
        ("netplan-ovs-cleanup.service", "systemd-networkd.service", "systemd-networkd-wait-online.service"),
    ),
    "NetworkManager": (NETWORK_MANAGER, ("NetworkManager.service", "NetworkManager-wait-online.service")),
}


def plant(lab, texts):
    """Writes units into an empty folder of the node, by one command."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in texts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    encoded = base64.b64encode(packed.getvalue()).decode()
    lab.node1.check_output(
        "rm -rf %s && mkdir %s && echo %s | base64 -d | tar -C %s -xz", FOLDER, FOLDER, encoded, FOLDER
    )


def verify(lab, names):
    """Exit status and output of systemd-analyze for units of that folder."""
    done = lab.node1.run(
        "SYSTEMD_UNIT_PATH=%s: systemd-analyze verify --man=no %s"
        % (FOLDER, " ".join("%s/%s" % (FOLDER, name) for name in names))
    )
    return done.rc, done.stdout + done.stderr


@pytest.fixture(scope="module", autouse=True)
def fixture_programs(lab):
    """The build that the units name; it is not run here."""
    lab.node1.check_output("mkdir -p %s/bin" % rendered.RELEASE)
    for name in STUBS:
        lab.node1.check_output("ln -sf /bin/true %s/bin/%s" % (rendered.RELEASE, name))
    yield
    lab.node1.check_output("rm -rf /opt/llama.cpp %s" % FOLDER)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"memory_max": "1G", "rpc_memory_max": "2G", "rpc_cache": True, "primary": True},
        {"numa": "0"},
        {"rdma": True},
        {"accelerator": "cuda", "numa": "1", "rdma": True},
        {"accelerator": "vulkan", "numa": "1", "rdma": True, "rpc_cache": True},
        {"environment": {"CUDA_VISIBLE_DEVICES": "0,1"}},
    ],
    ids=["least", "limits", "numa", "rdma", "cuda", "vulkan", "environment"],
)
def test_systemd_reads_every_unit(lab, settings):
    texts = rendered.units(**settings)
    plant(lab, texts)
    assert verify(lab, sorted(texts)) == (0, "")


def wanted_at_boot(stack):
    """Units as they are enabled: of a cloud image with that network, and the collection's."""
    network, online = STACKS[stack]
    texts = {}
    for name, lines in {**CLOUD_INIT, **network}.items():
        unit = "[Unit]\n%s\n" % "\n".join(line.strip() for line in lines.splitlines())
        texts[name] = (
            unit
            if name.endswith(".target")
            else unit + "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"
        )
    texts.update(rendered.units())
    wants = " ".join(
        [
            *online,
            "cloud-init.target",
            "llama-firewall.service",
            "llama-watchdog.service",
            "llama-rpc-chat.service",
            "llama-head-chat.service",
        ]
    )
    texts["boot.target"] = (
        "[Unit]\nRequires=basic.target multi-user.target\nAfter=basic.target\nWants=network-online.target %s\n" % wants
    )
    return texts


@pytest.mark.parametrize("stack", STACKS)
def test_the_firewall_makes_no_cycle_at_boot(lab, stack):
    texts = wanted_at_boot(stack)
    plant(lab, texts)
    status, said = verify(lab, ["boot.target"])
    assert "cycle" not in said and status == 0, said
    # The same units with a firewall of default dependencies: this test can see a cycle.
    plant(
        lab,
        dict(
            texts, **{"llama-firewall.service": texts["llama-firewall.service"].replace("DefaultDependencies=no\n", "")}
        ),
    )
    assert "cycle" in verify(lab, ["boot.target"])[1]


def test_the_firewall_comes_before_what_can_listen(lab):
    """sysinit.target comes before every service with default dependencies, and network-pre.target before every
    network."""
    unit = rendered.units()["llama-firewall.service"]
    before = [line for line in unit.splitlines() if line.startswith("Before=")]
    assert before == ["Before=network-pre.target sysinit.target shutdown.target"]
    assert "WantedBy=sysinit.target" in unit


# The columns of docs/operations.md: exposure of head and worker, and what systemd still counts against both.
# Against a head it counts 0.1 more:
# it answers to any address.
NEEDED = {
    "DeviceAllow",
    "IPAddressDeny",
    "PrivateNetwork",
    "RestrictAddressFamilies_AF_INET_INET6",
    "RestrictAddressFamilies_AF_UNIX",
    "RootDirectoryOrRootImage",
}
CUDA = {
    "MemoryDenyWriteExecute",
    "PrivateDevices",
    "PrivateUsers",
    "ProcSubset",
    "ProtectClock",
    "SystemCallFilter_privileged",
    "SystemCallFilter_resources",
}
VULKAN = {
    "MemoryDenyWriteExecute",
    "PrivateDevices",
    "PrivateUsers",
    "ProcSubset",
    "SupplementaryGroups",
    "SystemCallFilter_resources",
}
RDMA = {"PrivateDevices", "RestrictAddressFamilies_AF_NETLINK"}
EXPOSURES = {
    "cpu": ({}, 1.1, set()),
    "numa": ({"numa": "0"}, 1.2, {"SystemCallFilter_resources"}),
    "rdma": ({"rdma": True}, 1.3, RDMA),
    "cuda": ({"accelerator": "cuda"}, 1.8, CUDA),
    "cuda numa": ({"accelerator": "cuda", "numa": "0"}, 1.8, CUDA),
    "cuda rdma": ({"accelerator": "cuda", "rdma": True}, 1.9, CUDA | RDMA),
    "vulkan": ({"accelerator": "vulkan"}, 1.6, VULKAN),
    "vulkan numa": ({"accelerator": "vulkan", "numa": "0"}, 1.6, VULKAN),
    "vulkan rdma": ({"accelerator": "vulkan", "rdma": True}, 1.6, VULKAN | RDMA),
}


@pytest.mark.parametrize("column", EXPOSURES)
def test_what_systemd_counts_against_a_unit(lab, column):
    settings, exposure, more = EXPOSURES[column]
    texts = rendered.units(**settings)
    plant(lab, texts)
    for name, level in (("llama-head-chat.service", exposure), ("llama-rpc-chat.service", exposure - 0.1)):
        analyze = "systemd-analyze security --offline=true --no-pager %s " + "%s/%s" % (FOLDER, name)
        checks = json.loads(lab.node1.check_output(analyze, "--json=short"))
        assert {check["json_field"] for check in checks if float(check["exposure"] or 0)} == NEEDED | more, name
        assert (
            "exposure level for %s: %.1f " % (name, level)
            in lab.node1.check_output(analyze, "--json=off").splitlines()[-1]
        )


# Every service: restarted without a limit, with a start without a timeout, and the words of the page.
SHOWN = {
    "StartLimitIntervalUSec": "0",
    "TimeoutStartUSec": "infinity",
    "Restart": "always",
    "RestartUSec": "200ms",
    "IgnoreSIGPIPE": "yes",
    "LimitNOFILE": "65535",
    "LimitMEMLOCK": "infinity",
    "LimitCORE": "0",
    "TasksMax": "4096",
}


def test_the_limits_of_units(lab):
    texts = rendered.units(memory_max="1G", rpc_memory_max="2G")
    plant(lab, {"limits-" + name: text for name, text in texts.items()})
    lab.node1.check_output("ln -sf %s/limits-* /run/systemd/system/ && systemctl daemon-reload", FOLDER)
    try:
        names = ",".join([*SHOWN, "MemoryMax", "Environment", "ProtectSystem", "CapabilityBoundingSet"])
        shown = {}
        for name in texts:
            lines = lab.node1.check_output("systemctl show --property=%s %s", names, "limits-" + name).splitlines()
            shown[name] = dict(line.split("=", 1) for line in lines)
    finally:
        lab.node1.check_output("rm -f /run/systemd/system/limits-* && systemctl daemon-reload")
    for name, memory in (("llama-head-chat.service", 1 << 30), ("llama-rpc-chat.service", 2 << 30)):
        assert {key: shown[name][key] for key in SHOWN} == SHOWN, name
        assert shown[name]["MemoryMax"] == str(memory)
        assert "GGML_NO_BACKTRACE=1" in shown[name]["Environment"].split()
    watchdog = shown["llama-watchdog.service"]
    wanted = {
        "StartLimitIntervalUSec": "0",
        "Restart": "always",
        "MemoryMax": "268435456",
        "LimitCORE": "0",
        "ProtectSystem": "strict",
    }
    assert {key: watchdog[key] for key in wanted} == wanted
    assert watchdog["CapabilityBoundingSet"].split() == ["cap_dac_read_search", "cap_net_admin"]
    # systemd shows it of a process that runs.
    running = lab.node1.check_output("systemctl show --property=ActiveState,WatchdogUSec llama-watchdog.service")
    assert sorted(running.split()) == ["ActiveState=active", "WatchdogUSec=1min"]


def test_failed_worker_restarts_every_five_seconds(lab):
    """And one that crashed at once."""
    (command,) = [
        line.split("=-", 1)[1]
        for line in rendered.units()["llama-rpc-chat.service"].splitlines()
        if line.startswith("ExecStopPost=")
    ]
    plant(lab, {"sleep": "#!/bin/sh\necho slept $1\n", "command.sh": command.replace("$$", "$")})
    # Nothing is executed below /run.
    lab.node1.check_output("install -D -m 755 %s/sleep /opt/llama.cpp/stub/sleep", FOLDER)
    for code, slept in (("exited", "slept 5"), ("", "slept 5"), ("killed", ""), ("dumped", "")):
        run = "EXIT_CODE=%s PATH=/opt/llama.cpp/stub:$PATH sh %s/command.sh"
        assert lab.node1.check_output(run, code, FOLDER) == slept, code


# Actions of a compromised service.
CANARY = """
for file in %s/*; do [ -r "$file" ] && echo "key $(cat "$file")"; done
touch /var/lib/llama-cluster/canary %s/canary 2>/dev/null && echo wrote
timeout 2 bash -c "exec 3<>/dev/tcp/127.0.0.1/9998" 2>/dev/null && echo connected
for socket in /run/dbus/system_bus_socket; do [ -e $socket ] && echo bus; done
true
""" % (KEYS, KEYS)
# The program and what starts it again; the rest of a unit stays as it is.
STARTS = ("Exec", "Type=", "Restart", "NotifyAccess=", "After=", "Wants=")


def canaries(lab, units):
    """Runs the canary in the place of each unit's program -> {name: what it could do}."""
    texts = {"canary.sh": CANARY}
    for name, text in units.items():
        kept = "\n".join(line for line in text.splitlines() if not line.startswith(STARTS))
        program = "[Service]\nType=oneshot\nExecStart=/bin/bash %s/canary.sh\nStandardOutput=file:%s/%s.out" % (
            FOLDER,
            FOLDER,
            name,
        )
        texts["canary-%s.service" % name] = kept.replace("[Service]", program)
    plant(lab, texts)
    lab.node1.check_output("ln -sf %s/canary-*.service /run/systemd/system/ && systemctl daemon-reload" % FOLDER)
    lab.node1.check_output("systemctl start %s" % " ".join("canary-%s.service" % name for name in units))
    said = {name: lab.node1.check_output("cat %s/%s.out", FOLDER, name).splitlines() for name in units}
    lab.node1.check_output("rm -f /run/systemd/system/canary-* && systemctl daemon-reload")
    return said


def test_service_reads_only_its_own_key(lab):
    lab.node1.check_output(
        "for name in chat other; do echo $name > %s/$name && chown root:llama %s/$name && chmod 0640 %s/$name; done",
        KEYS,
        KEYS,
        KEYS,
    )
    lab.node1.check_output(
        "python3 -m http.server 9998 --bind 127.0.0.1 >/dev/null 2>&1 & echo $! > /run/listener.pid; sleep 1"
    )
    keyed, keyless = rendered.units(api_key_file=KEYS + "/chat"), rendered.units()
    # Under the account that may read the keys: what keeps them from it is the unit.
    worker = keyless["llama-rpc-chat.service"].replace("llama-rpc\n", "llama\n")
    loose = "\n".join(
        line
        for line in worker.splitlines()
        if not line.startswith(("IPAddress", "TemporaryFileSystem=", "InaccessiblePaths="))
    )
    try:
        assert canaries(
            lab,
            {
                "keyed": keyed["llama-head-chat.service"],
                "keyless": keyless["llama-head-chat.service"],
                "worker": worker,
                "loose": loose,
            },
        ) == {
            "keyed": ["key chat", "connected", "bus"],
            "keyless": ["connected", "bus"],
            "worker": [],
            "loose": ["key chat", "key other", "connected", "bus"],
        }
    finally:
        lab.node1.run("kill $(cat /run/listener.pid); rm -f /run/listener.pid %s/chat %s/other", KEYS, KEYS)


# The server closes first, so what is left of the connection keeps its end.
LEFT = """
import socket
with socket.create_server(("127.0.0.1", 8000)) as server, socket.create_connection(("127.0.0.1", 8000)) as client:
    server.accept()[0].close()
    client.recv(1)
"""


@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0"])
def test_head_removes_connections_of_the_last_run(lab, listen):
    """A connection to a server on every address has an address of its own."""
    unit = rendered.units(listen=listen)["llama-head-chat.service"]
    (command,) = [line.split("=-+", 1)[1] for line in unit.splitlines() if "--kill" in line]
    left = "ss -Htn state time-wait sport = :8000"
    plant(lab, {"left.py": LEFT, "command.sh": command})
    lab.node1.check_output("python3 %s/left.py", FOLDER)
    assert lab.node1.check_output(left) != ""
    lab.node1.check_output("sh %s/command.sh", FOLDER)
    assert lab.node1.check_output(left) == ""


def test_failing_worker_is_not_restarted_at_once(lab):
    """By the real back-off and systemd: the program crashes each time."""
    name = "llama-rpc-canary.service"
    unit = rendered.units()["llama-rpc-chat.service"].replace(rendered.RELEASE, FOLDER)
    unit = "\n".join(line for line in unit.splitlines() if "nft list" not in line)
    plant(lab, {name: unit})
    lab.node1.check_output(
        "mkdir %s/bin && printf '#!/bin/sh\\nkill -ILL $$\\n' > %s/bin/ggml-rpc-server && chmod 755 %s/bin/*",
        FOLDER,
        FOLDER,
        FOLDER,
    )
    lab.node1.check_output(
        "ln -sf %s/%s /run/systemd/system/%s && systemctl daemon-reload && systemctl start --no-block %s",
        FOLDER,
        name,
        name,
        name,
    )
    try:
        status = "systemctl show --property=StatusText --value %s"
        lab.eventually(
            lambda: "2 runs in a row ended" in lab.node1.check_output(status, name),
            60,
            "the unit waits after the third run",
        )
        assert lab.node1.check_output("systemctl show --property=NRestarts --value %s", name) == "3"
    finally:
        lab.node1.check_output("systemctl stop %s; rm /run/systemd/system/%s; systemctl daemon-reload", name, name)
