# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations of samplers and Prometheus, and the files of a monitoring host."""

import base64
import json
import re
import subprocess

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter import config
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._monitoring import dropped, scrape
from ansible_collections.thefermisea.llama_cluster.tests.unit import observed

GROUPS = {
    "all": ["node1", "node2", "node3", "ctl", "mon"],
    "llama_nodes": ["node1", "node2", "node3"],
    "llama_gateway": ["ctl"],
    "llama_monitoring": ["mon"],
}
HOSTVARS = {
    "node1": {"ansible_host": "10.0.0.31", "llama_fabric_address": "10.100.0.31"},
    "node2": {"ansible_host": "10.0.0.32", "llama_fabric_address": "10.100.0.32"},
    "node3": {"ansible_host": "bastioned", "llama_address": "10.0.0.33", "monitoring_sampler_port": 9800},
    "ctl": {"ansible_host": "10.0.0.5", "gateway_tls": {"certificate": "/c", "key": "/k"}},
    "mon": {"ansible_host": "10.0.0.6"},
}
MODELS = {
    "big": {"repo": "a/b", "quants": {"Q8_0": {"files": ["b.gguf"], "size": 77 * 10**9}}},
    "small": {"repo": "a/s", "quants": {"Q4_K_M": {"files": ["s.gguf"], "size": 10**9}}},
    "texts": {"repo": "a/t", "embeddings": True, "quants": {"Q8_0": {"files": ["t.gguf"], "size": 10**8}}},
}
SERVICES = {
    "chat": {"model": "big", "quant": "Q8_0", "head": "node1", "workers": "node2", "port": 8000, "rpc_port": 50052},
    "fast": {"kind": "router", "head": "node2,node3", "models": {"small": "Q4_K_M", "texts": "Q8_0"}, "port": 8080},
    "old": {"model": "texts", "quant": "Q8_0", "head": "node3", "port": 8001, "state": "stopped"},
}
TOLD = {"version": "1.2.3", "export": "http", "textfile_dir": "/exported", "port": "9754", "models_dir": "/opt/models"}
TOLD.update({"certificate": ""})
KEYS = {"chat": ["key-of-chat", "second"], "fast": [], "old": ["unused"]}
SETTINGS = {
    "interval": 5,
    "keys": KEYS,
    "group": "prometheus",
    "webhooks": ["https://hooks.example/secret"],
    "prometheus": "http://127.0.0.1:9090",
    "alertmanager": "http://127.0.0.1:9093",
    "textfile": {"node2": 9100},
    "install": True,
}


def sampler(host, groups=None, **changes):
    return scrape.sampler_config(SERVICES, MODELS, groups or GROUPS, HOSTVARS, host, dict(TOLD, **changes))


def made(services=None, groups=None, **changes):
    return scrape.prometheus_config(services or SERVICES, MODELS, groups or GROUPS, HOSTVARS, dict(SETTINGS, **changes))


def jobs(**changes):
    return {one["job_name"]: one for one in made(**changes)["scrape"]}


def files(**changes):
    settings = dict(SETTINGS, **changes)
    return {one["path"][len(scrape.HERE) + 1 :]: one for one in scrape.output_files(made(**changes), settings)}


def secrets(**changes):
    settings = dict(SETTINGS, **changes)
    return {one["path"][len(scrape.HERE) + 1 :]: one for one in scrape.secret_files(made(**changes), settings)}


def test_a_sampler_serves_the_monitoring_hosts():
    said = sampler("node1")
    assert said["http"] == {"address": "10.0.0.31", "port": 9754, "allowed": ["10.0.0.6"]}
    assert said["textfile"] is None
    assert said["models"] == {"chat": {"model": "big", "quant": "Q8_0"}}
    assert said["disks"] == ["/opt/models", "/var/lib/llama-cluster"]
    assert said["fabric_address"] == "10.100.0.31"
    assert "llama-head-old.service" in said["stopped"] and "llama-head-chat.service" not in said["stopped"]


def test_textfile_sampler_opens_no_port():
    said = sampler("node1", export="textfile")
    assert (said["http"], said["textfile"]) == (None, "/exported")


def test_a_host_of_the_gateway_has_no_models():
    said = sampler("ctl", certificate="/c")
    assert (said["models"], said["disks"], said["fabric_address"]) == ({}, ["/var/lib/llama-cluster"], "")
    assert said["certificate"] == "/c"
    assert said["http"]["address"] == "10.0.0.5"


@pytest.mark.parametrize("host", ["node1", "ctl"])
@pytest.mark.parametrize("export", ["http", "textfile"])
def test_sampler_reads_its_configuration(tmp_path, host, export):
    said = sampler(host, export=export)
    path = tmp_path / "sampler.json"
    path.write_text(json.dumps(said))
    read = config.load(str(path))
    assert {**read._asdict(), "http": read.http and read.http._asdict()} == said


def test_planned_memory_is_of_host():
    row = {"weights_mib": 100, "kv_mib": 20, "compute_mib": 3}
    one = {
        "node": "node1",
        "devices": [
            dict(row, node="node1", kind="GPU"),
            dict(row, node="node2", kind="main"),
            dict(row, node="node2", kind="GPU"),
        ],
        "host": {"weights_mib": 1, "kv_mib": 0, "compute_mib": 6},
    }
    plan = {"services": {"chat": [one]}}
    assert sampler("node1", plan=plan)["planned"] == {"llama-head-chat.service": 7 << 20}
    assert sampler("node2", plan=plan)["planned"] == {"llama-rpc-chat.service": 123 << 20}
    assert sampler("node3", plan=plan)["planned"] == sampler("ctl", plan=plan)["planned"] == {}


def test_only_changed_service_is_renewed():
    before = dict(sampler("node2"), planned={"llama-rpc-chat.service": 5, "llama-router-fast.service": 6})
    before.update(models={"chat": {"model": "big", "quant": "Q4"}, "fast": {}}, stopped=["llama-head-gone.service"])
    wanted = dict(sampler("node2", export="textfile"), planned={"llama-rpc-chat.service": 7})
    wanted["models"] = {"chat": {"model": "big", "quant": "Q8_0"}}
    wanted["stopped"] = ["llama-head-chat.service", "llama-head-old.service"]
    assert scrape.renewed(before, wanted, ["chat"]) == dict(
        before,
        planned={"llama-rpc-chat.service": 7, "llama-router-fast.service": 6},
        models={"chat": {"model": "big", "quant": "Q8_0"}, "fast": {}},
        stopped=["llama-head-chat.service", "llama-head-gone.service"],
    )
    # All services as by site.yml, without removed ones. The export of samples stays.
    taken = {name: wanted[name] for name in ("planned", "models", "stopped")}
    assert scrape.renewed(before, wanted, []) == dict(before, **taken)
    # A damaged file says nothing.
    assert sampler("node2", services=["chat"], before=slurp(before)[:200]) == sampler("node2")
    assert sampler("node2", services=["fast"], before=slurp(before))["models"]["chat"] == before["models"]["chat"]


def test_unplanned_memory_is_kept():
    row = {"weights_mib": 100, "kv_mib": 0, "compute_mib": 0, "node": "node2", "kind": "main"}
    one = {"node": "node1", "devices": [row], "host": dict(row, weights_mib=7, node="node1")}
    full = {host: sampler(host, plan={"services": {"chat": [one]}, "unplanned": {}}) for host in ("node1", "node2")}
    assert all(said["planned"] for said in full.values())
    parts = (
        {},
        {"services": {}, "unplanned": {"chat": "node1 is not part of this run"}},
        # The head knows its earlier plan.
        {"services": {"chat": [one]}, "unplanned": {"chat": "node2 is not part of this run"}},
    )
    for host, said in full.items():
        for plan in parts:
            assert sampler(host, plan=plan, before=slurp(said)) == said
        # A new plan replaces the old one, and a damaged file counts as none.
        other = dict(one, devices=[dict(row, kind="GPU")], host=dict(one["host"], weights_mib=0))
        assert sampler(host, plan={"services": {"chat": [other]}}, before=slurp(said))["planned"] == {}
        assert sampler(host, before=slurp(said)[:100])["planned"] == {}


def test_targets_of_left_out_hosts_stay():
    written = slurp(made()["targets"]["samplers.json"])
    asked = {"textfile": {}, "before": written}
    assert made(**asked, left_out=["node2", "node3"])["targets"] == made()["targets"]
    assert made(**asked, left_out=[])["targets"]["samplers.json"][1]["targets"] == ["10.0.0.32:9754"]
    assert made(textfile={}, before=written[:90], left_out=["node2"])["targets"] == made(textfile={})["targets"]


def slurp(configured):
    """A file as ansible.builtin.slurp has it."""
    return base64.b64encode(json.dumps(configured).encode()).decode()


def test_each_host_is_scraped_once():
    assert made()["targets"]["samplers.json"] == [
        {"targets": ["10.0.0.31:9754"], "labels": {"node": "node1"}},
        {"targets": ["10.0.0.32:9100"], "labels": {"node": "node2"}},
        {"targets": ["10.0.0.33:9800"], "labels": {"node": "node3"}},
        {"targets": ["10.0.0.5:9754"], "labels": {"node": "ctl"}},
    ]
    both = dict(GROUPS, llama_gateway=["node1"])
    assert [one["labels"]["node"] for one in made(groups=both)["targets"]["samplers.json"]] == GROUPS["llama_nodes"]


@pytest.mark.parametrize(("interval", "timeout"), [(1, "1s"), (5, "4s"), (15, "4s")])
def test_a_scrape_ends_before_the_next_one(interval, timeout):
    for job in ("llama_sampler", "llama_gateway"):
        found = jobs(interval=interval)[job]
        assert (found["scrape_interval"], found["scrape_timeout"]) == ("%ds" % interval, timeout)


def test_a_gateway_is_asked_by_its_own_scheme():
    assert made()["targets"]["gateways.json"] == [
        {"targets": ["10.0.0.5:443"], "labels": {"node": "ctl", "__scheme__": "https"}}
    ]
    assert made(groups=dict(GROUPS, llama_gateway=[]))["targets"]["gateways.json"] == []


@pytest.mark.parametrize("gateways", [["ctl"], []])
def test_host_that_submits_jobs_is_scraped(gateways):
    found = made(groups=dict(GROUPS, llama_gateway=gateways, llama_slurm=["ctl"]))["targets"]
    assert [one["labels"]["node"] for one in found["samplers.json"]] == [*GROUPS["llama_nodes"], "ctl"]
    assert len(found["gateways.json"]) == len(gateways)


def test_head_is_scraped_with_key():
    found = jobs()["llama_server/chat"]
    assert found["authorization"] == {"type": "Bearer", "credentials_file": scrape.HERE + "/keys/chat"}
    assert made()["targets"]["service-chat.json"] == [
        {"targets": ["10.0.0.31:8000"], "labels": {"node": "node1", "service": "chat"}}
    ]
    assert "authorization" not in jobs()["llama_server/fast"]
    assert "key-of-chat" not in json.dumps([made(), list(files().values())])


def test_heads_of_jobs_are_scraped():
    services = {**SERVICES, "chat": {**SERVICES["chat"], "launcher": "slurm"}}
    found = made(services, keys={})
    assert found["targets"]["service-chat.json"] == made()["targets"]["service-chat.json"]
    assert "llama_server/chat" in [one["job_name"] for one in found["scrape"]]


def test_router_is_scraped_per_model():
    targets = made()["targets"]["service-fast.json"]
    assert [(one["targets"], one["labels"]["__param_model"]) for one in targets] == [
        (["10.0.0.32:8080"], "small"),
        (["10.0.0.32:8080"], "texts"),
        (["10.0.0.33:8080"], "small"),
        (["10.0.0.33:8080"], "texts"),
    ]
    assert {one["labels"]["__param_autoload"] for one in targets} == {"false"}
    assert targets[0]["labels"]["model"] == "small"


def test_what_is_stopped_is_not_asked():
    assert "llama_server/old" not in jobs()
    assert "service-old.json" not in made()["targets"]
    assert made()["keys"] == ["chat"]


def test_what_the_terminal_view_reads():
    assert json.loads(files()["monitor.json"]["content"]) == {
        "nodes": {
            "node1": "http://10.0.0.31:9754/metrics",
            "node2": "http://10.0.0.32:9100/metrics",
            "node3": "http://10.0.0.33:9800/metrics",
            "ctl": "http://10.0.0.5:9754/metrics",
        },
        "gateway": {"ctl": "https://10.0.0.5:443/metrics"},
        "prometheus": "http://127.0.0.1:9090",
        "alerts": "http://127.0.0.1:9090",
    }
    assert json.loads(files(alertmanager="", install=False)["monitor.json"]["content"])["alerts"] is None


def test_promtool_validates_rules():
    found = files()
    rules = [name for name in found if name.startswith("rules/")]
    assert rules == ["rules/" + one.name for one in dropped.rules()]
    assert {tuple(found[name]["validate"]) for name in rules} == {("promtool", "check", "rules", "%s")}
    assert list(found)[-1] == "prometheus.yml", "it names what is written before"
    assert found["prometheus.yml"]["validate"] == ["promtool", "check", "config", "%s"]
    assert {"dashboards/cluster.json", "dashboards/gateway.json"} <= set(found)


def test_prometheus_takes_the_configuration(tmp_path, monkeypatch):
    """Its own tool looks for the files that are named."""
    monkeypatch.setattr(scrape, "HERE", str(tmp_path))
    written = scrape.secret_files(made(), SETTINGS) + scrape.output_files(made(), SETTINGS)
    for one in written:
        path = tmp_path / one["path"][len(str(tmp_path)) + 1 :]
        path.parent.mkdir(parents=True, exist_ok=True)
        if one.get("state") == "directory":
            path.mkdir(exist_ok=True)
        else:
            path.write_text(one["content"])
    command = [observed.promtool(), "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "keys/chat").unlink()
    assert subprocess.run(command, check=False, capture_output=True).returncode != 0


def test_existing_prometheus_gets_scrape_file():
    found = files(install=False, alertmanager="")
    assert "prometheus.yml" not in found
    assert json.loads(found["scrape.yml"]["content"]) == {"scrape_configs": made()["scrape"]}
    assert not [one for one in found.values() if "validate" in one], "promtool may not be there"
    assert set(secrets(install=False, group="monitors")) == {"keys", "keys/chat"}
    assert secrets(install=False, group="monitors")["keys/chat"]["group"] == "monitors"
    assert secrets(install=False, keys={}) == {}


def test_only_root_and_prometheus_read_secrets():
    found = secrets()
    assert list(found) == ["keys", "keys/chat", "alertmanager.yml"]
    assert (found["keys"]["group"], found["keys"]["mode"]) == ("prometheus", "0750")
    for name in ("keys/chat", "alertmanager.yml"):
        assert (found[name]["group"], found[name]["mode"], found[name]["hidden"]) == ("prometheus", "0640", True)
    assert found["keys/chat"]["content"] == "key-of-chat\n"
    assert found["alertmanager.yml"]["validate"] == ["amtool", "check-config", "%s"]


def test_alertmanager_requires_password():
    (asked,) = json.loads(files()["prometheus.yml"]["content"])["alerting"]["alertmanagers"]
    assert asked["basic_auth"] == {"username": "llama", "password_file": scrape.HERE + "/alertmanager-password"}


def test_alerts_go_to_webhooks():
    alertmanager = json.loads(secrets()["alertmanager.yml"]["content"])
    assert alertmanager["receivers"] == [
        {"name": "all", "webhook_configs": [{"url": "https://hooks.example/secret", "send_resolved": True}]}
    ]
    assert json.loads(secrets(webhooks=[])["alertmanager.yml"]["content"])["receivers"][0]["webhook_configs"] == []
    (quiet,) = alertmanager["inhibit_rules"]
    # Labels that are missing would be alike.
    some = 'service=~".+"'
    assert quiet["source_matchers"] == ['severity="page"', some]
    assert quiet["target_matchers"] == ['severity="notice"', some]
    assert quiet["equal"] == ["service", "node"]


def test_scraped_pages_are_bounded():
    names = {
        "llama_sampler": ("llama_unit_up", "node_load1"),
        "llama_gateway": ("llama_gateway_requests_total", "llama_endpoint_ready"),
        "llama_server/chat": ("llamacpp:tokens_predicted_total", "llama_gateway_requests_total"),
    }
    found = jobs()
    assert set(names) <= set(found)
    for job in found.values():
        assert 0 < job["sample_limit"] <= 50000 and job["label_limit"] and job["label_value_length_limit"]
    for name, (own, other) in names.items():
        (keep,) = found[name]["metric_relabel_configs"]
        # Prometheus looks at the whole name.
        assert (keep["action"], keep["source_labels"]) == ("keep", ["__name__"])
        assert re.fullmatch(keep["regex"], own) and not re.fullmatch(keep["regex"], other)
