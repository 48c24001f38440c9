"""What overhead.yml measures of a deployed service, and that it leaves the service as it was."""

import json


def test_each_variant_is_served_and_the_service_is_back(lab):
    small = ("-e", "requests=1", "-e", "max_tokens=8")
    status, output = lab.playbook("overhead", "-e", "service=chat", "-e", "interrupt=true", *small)
    assert status == 0, output
    assert lab.changed(output) == 0
    kept = json.loads((lab.reports / "overhead/latest-chat.json").read_text())
    assert [(one["name"], one["why"]) for one in kept["variants"]] == [
        ("all", ""),
        ("local", ""),
        ("loopback", ""),
        ("one", ""),
    ]
    for one in kept["variants"]:
        figures = {cell["prompt"]: cell["figures"] for cell in one["cells"]}
        assert [(name, found["errors"], found["generated_tokens"]) for name, found in figures.items()] == [
            ("short", 0, 8),
            ("long", 0, 8),
        ]
    assert kept["verdict"] in output and kept["verdict"].startswith("chat: the split ")
    # With its workers, as the run has waited for; and nothing of the variants is left.
    assert lab.node1.run("systemctl is-active llama-head-chat").rc == 0
    assert lab.node1.run("ls /run/systemd/system | grep -E 'overhead|loopback'").rc != 0
    assert lab.node1.run("nft list table inet llama_overhead").rc != 0
