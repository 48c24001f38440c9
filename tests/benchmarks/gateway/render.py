"""Writes the site of role gateway as it is deployed, for one tier and the benchmark's ports: render.py FOLDER."""

import pathlib
import runpy
import sys

import jinja2

ROOT = pathlib.Path(__file__).resolve().parents[3]
TEMPLATES = ROOT / "roles/gateway/templates"
PATHS = runpy.run_path(str(ROOT / "plugins/module_utils/_gateway/paths.py"))
PORT, TIER_PORT = "@PORT@", "@TIER_PORT@"
# Each service of candidates.SERVICES that is a tier: its endpoints, for when the engine is gone.
TIERS = {"fast": {"port": TIER_PORT, "service": "chat", "endpoints": [{"address": "127.0.0.1", "port": 24001}]}}


def main():
    folder = pathlib.Path(sys.argv[1])
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), trim_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["comment"] = lambda text: "# " + text
    values = {
        "ansible_managed": "benchmark",
        "engine": True,
        "required": False,
        "addresses": ["127.0.0.1"],
        "port": PORT,
        "tls": None,
        "tiers": TIERS,
        "max_body": "32m",
        "monitors": ["127.0.0.1"],
        "timeout": 7230,
        "reads": PATHS["READ"],
        "posts": [*PATHS["WORK"], *PATHS["COUNT"]],
        "clients": {},
        "keys": {},
    }
    for source, name in (
        ("llama-cluster.conf.j2", "site.conf"),
        ("nginx-clients.conf.j2", "nginx-clients.conf"),
        ("nginx-services.conf.j2", "nginx-services.conf"),
    ):
        (folder / name).write_text(environment.get_template(source).render(**values))


if __name__ == "__main__":
    main()
