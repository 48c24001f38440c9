# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of a service that is a job of SLURM: rows of the table of settings. Private to the collection."""

from ._forms import GRES, SIZE, SLURM_NAME, SLURM_TIME
from ._key import Key

KINDS = ("server", "router")
# Seconds that a job has between SIGTERM and its end: below 10 no request could end in it.
GRACE = (10, 3600)
SLURM = (
    Key("nodes", int, "Its number of nodes; another than head and workers is refused."),
    Key("partition", str, "SLURM's partition.", form=SLURM_NAME),
    Key("qos", str, "SLURM's QoS.", form=SLURM_NAME),
    Key("account", str, "SLURM's account.", form=SLURM_NAME),
    Key("mem", str, "Main memory on each node, `--mem`.", form=SIZE),
    Key("cpus", int, "CPUs on each node, `--cpus-per-task`."),
    Key("time", str, "The time limit, in quotes.", form=SLURM_TIME),
    Key("gres", str, "Cards on each node, `--gres`, such as `gpu:v100s:1`.", form=GRES),
    Key("job_name", str, "The job's name in squeue (`llama-SERVICE`).", form=SLURM_NAME),
    Key(
        "grace",
        int,
        "Seconds from SIGTERM to the end of a preempted job: GraceTime.",
        default=30,
        bounds=GRACE,
    ),
)
SLURM_ROWS = tuple(key._replace(kinds=KINDS) for key in SLURM)
