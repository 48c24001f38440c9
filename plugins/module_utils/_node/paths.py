# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every path of the collection on a node, once. Private to the collection.

A * stands for a service, a unit or a file's name. Roles and playbooks write the same paths: tests/unit/test_paths.py
holds them against these.
"""

UNITS = "/etc/systemd/system"
AT_BOOT = UNITS + "/multi-user.target.wants"
UNIT_FILES = UNITS + "/llama-*.service"
WATCHDOG_UNIT = UNITS + "/llama-watchdog.service"
FIREWALL_UNIT = UNITS + "/llama-firewall.service"
NFTABLES_DROP_INS = UNITS + "/nftables.service.d"
NFTABLES_DROP_IN = NFTABLES_DROP_INS + "/llama-cluster.conf"

# What the roles configure.
CONFIGURATION = "/etc/llama-cluster"
FIREWALL_RULES = CONFIGURATION + "/firewall.nft"
# Since when the node is held for maintenance.
HELD = CONFIGURATION + "/held.json"
# A head reads its API keys in a file of its service's name.
KEYS = CONFIGURATION + "/keys"
# The memory plan by which a head was started.
PLANS = CONFIGURATION + "/plan-*.json"
# The models of a router.
PRESETS = CONFIGURATION + "/preset-*.ini"
# Of the digests of API keys.
SALT = CONFIGURATION + "/salt"
# A head reads the chat template of its service there.
TEMPLATES = CONFIGURATION + "/template-*.jinja"
# What the watchdog watches, a file for each unit.
WATCHED = CONFIGURATION + "/watchdog"
WATCHED_FILES = WATCHED + "/*.json"

# Node programs.
PROGRAMS = "/opt/llama-cluster"
PROGRAM_BIN = PROGRAMS + "/bin"
PROGRAM = PROGRAM_BIN + "/llama-program"
PROGRAM_LIB = PROGRAMS + "/lib"
PROGRAM_PACKAGE = PROGRAM_LIB + "/llama_cluster"
# What a trial's timer starts.
PROGRAM_OF_TRIALS = PROGRAM_PACKAGE + "/programs/trial.py"

# Gone with the next boot.
RUN = "/run/llama-cluster"
# Runs of a unit that failed in a row.
BACKOFF = RUN + "/backoff"
BACKOFF_FILES = BACKOFF + "/llama-*.service"
# What each unit was last started with; its ExecStartPre writes it.
DIGESTS = RUN + "/digests"
DIGEST_FILES = DIGESTS + "/llama-*.service"
# The runs that have served.
SERVED = RUN + "/served"
SERVED_FILES = SERVED + "/llama-*.service"
# Root's, and always empty: where a router looks for models that its preset does not name.
NO_MODELS = RUN + "/no-models"
LENDING_RULES = "/run/llama-lending-rules"

# What outlasts a boot and is no configuration.
STATE = "/var/lib/llama-cluster"
# What was made by hand, while ours has its place.
ADOPTED = STATE + "/adopted"
ADOPTED_FILES = ADOPTED + "/files"
# The same for a gateway that was made by hand.
ADOPTED_GATEWAY = STATE + "/adopted-gateway"
BASELINES = STATE + "/baseline-*.json"
# How fast a service read a long prompt.
PROMPTS = STATE + "/prompt-*.json"
# Rules that were added to firewalld.
CLIENT_RULES = STATE + "/client-rules"
RPC_RULES = STATE + "/rpc-rules"
ROLLBACK = STATE + "/rollback"
LAST_SNAPSHOT = ROLLBACK + "/last.json"
OPEN_SNAPSHOT = ROLLBACK + "/open.json"
# What the gateway has in a tailnet.
TAILSCALE_RECORD = STATE + "/tailscale-serve.json"
# A service that serves another quant for a while.
TRIALS = STATE + "/trial-*.json"
# Where systemd notes when a timer of wall-clock time went off last.
TIMER_STAMPS = "/var/lib/systemd/timers"
# Releases of llama.cpp.
BUILDS = "/opt/llama.cpp"
# Where an inventory names no other place: tensors that workers keep.
TENSORS = STATE + "/rpc-cache"
