"""Writes the site of role gateway as it is deployed, without tiers: render.py FOLDER."""

import pathlib
import runpy
import sys

import jinja2

ROOT = pathlib.Path(__file__).resolve().parents[3]
TEMPLATES = ROOT / "roles/gateway/templates"
PATHS = runpy.run_path(str(ROOT / "plugins/module_utils/_gateway/paths.py"))


def main():
    folder = pathlib.Path(sys.argv[1])
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), trim_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["comment"] = lambda text: "# " + text
    values = {
        "ansible_managed": "benchmark",
        "required": False,
        "addresses": ["127.0.0.1"],
        "port": "@PORT@",
        "tls": None,
        "tiers": {},
        "max_body": "32m",
        "monitors": ["127.0.0.1"],
        "timeout": 7230,
        "reads": PATHS["READ"],
        "posts": [*PATHS["WORK"], *PATHS["COUNT"]],
        "clients": {},
        "keys": {},
    }
    for source, name in (("llama-cluster.conf.j2", "site.conf"), ("nginx-clients.conf.j2", "nginx-clients.conf")):
        text = environment.get_template(source).render(**values)
        for place in ("/run/llama-gateway/", "/etc/llama-cluster/gateway/"):
            text = text.replace(place, "/tmp/bench/")
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
