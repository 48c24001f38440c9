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
SAMPLER_UNIT = UNITS + "/llama-sampler.service"
FIREWALL_UNIT = UNITS + "/llama-firewall.service"
# The gateway's engine, its socket, what starts it again, and what has nginx read a renewed certificate.
GATEWAY_UNITS = UNITS + "/llama-gateway*"
# With a registry of endpoints: its reader on the gateway, and on nodes what writes the file of a head or router.
REGISTRY_UNIT = UNITS + "/llama-registry.service"
ENDPOINT_UNITS = UNITS + "/llama-endpoint-*.service"
NFTABLES_DROP_INS = UNITS + "/nftables.service.d"
NFTABLES_DROP_IN = NFTABLES_DROP_INS + "/llama-cluster.conf"
# What journald is told that nobody else has told it.
JOURNALD_DROP_INS = "/etc/systemd/journald.conf.d"
JOURNALD_DROP_IN = JOURNALD_DROP_INS + "/90-llama-cluster.conf"

# What the roles configure.
CONFIGURATION = "/etc/llama-cluster"
FIREWALL_RULES = CONFIGURATION + "/firewall.nft"
GATEWAY = CONFIGURATION + "/gateway"
# What the gateway's engine is told of services, models and routes.
GATEWAY_CONFIG = GATEWAY + "/gateway.json"
# The keys of its clients, and those that it sends to services.
GATEWAY_KEYS = GATEWAY + "/keys.json"
# A client's key as root has it for curl: on no command line.
GATEWAY_CURL_HEADER = GATEWAY + "/curl-header"
# What nginx reads of keys where it sends requests itself, because the engine is gone.
GATEWAY_NGINX = GATEWAY + "/nginx-*.conf"
# What SELinux has to allow nginx.
GATEWAY_POLICY = GATEWAY + "/llama_cluster_gateway.cil"
# Since when the node is held for maintenance.
HELD = CONFIGURATION + "/held.json"
# A head reads its API keys in a file of its service's name.
KEYS = CONFIGURATION + "/keys"
# The memory plan by which a head was started.
PLANS = CONFIGURATION + "/plan-*.json"
# The models of a router.
PRESETS = CONFIGURATION + "/preset-*.ini"
# Of the registry's reader, and of what writes an endpoint's file.
REGISTRY_READER = CONFIGURATION + "/gateway-registry.json"
REGISTRY = CONFIGURATION + "/registry"
ENDPOINTS = REGISTRY + "/*.json"
# What Prometheus and an operator's Grafana are told, on a monitoring host.
MONITORING = CONFIGURATION + "/monitoring"
MONITORING_FILES = MONITORING + "/*"
# Where llama-cluster-monitor finds the samples of all nodes.
MONITOR = MONITORING + "/monitor.json"
MONITOR_PROGRAM = "/usr/local/bin/llama-cluster-monitor"
STATUS_PROGRAM = "/usr/local/bin/llama-service-status"
# For Grafana Alloy: the journal of the services.
# What the sampler is told of its node.
SAMPLER = CONFIGURATION + "/sampler.json"
# The rules of llama-doctor.
DOCTOR = CONFIGURATION + "/doctor.json"
DOCTOR_PROGRAM = "/usr/local/bin/llama-doctor"
# Where llama-model-selector finds the gateway.
SELECTOR = CONFIGURATION + "/selector.json"
SELECTOR_PROGRAM = "/usr/local/bin/llama-model-selector"
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
# Which run of a playbook changes the node.
RUN_LOCK = RUN + "/run.lock"
# Runs of a unit that failed in a row.
BACKOFF = RUN + "/backoff"
BACKOFF_FILES = BACKOFF + "/llama-*.service"
# What the watchdog has repaired since the boot, by unit.
REPAIRS = RUN + "/repairs"
REPAIRS_FILES = REPAIRS + "/*.json"
# What the sampler sees, for those who look on the node itself.
SAMPLES = RUN + "/samples.prom"
# What each unit was last started with; its ExecStartPre writes it.
DIGESTS = RUN + "/digests"
DIGEST_FILES = DIGESTS + "/llama-*.service"
# The runs that have served.
SERVED = RUN + "/served"
SERVED_FILES = SERVED + "/llama-*.service"
# Root's, and always empty: where a router looks for models that its preset does not name.
NO_MODELS = RUN + "/no-models"
# What ends the watching of a node whose service is measured.
BENCH_STOP = RUN + "/bench-*.stop"
# systemd holds it, and the gateway's engine answers there.
GATEWAY_SOCKET = "/run/llama-gateway/gateway.sock"
# What the registry's reader has for the gateway.
REGISTRY_RUN = "/run/llama-gateway-registry"
REGISTRY_COPY = REGISTRY_RUN + "/registry.json"
SHARE_RULES = "/run/llama-share-rules"
SHARE_LOCK = "/run/llama-share-lock"
# Who was let in to measure a link.
LINK_RULES = "/run/llama-link-rules"

# What outlasts a boot and is no configuration.
STATE = "/var/lib/llama-cluster"
# What was made by hand, while ours has its place.
ADOPTED = STATE + "/adopted"
ADOPTED_FILES = ADOPTED + "/files"
# The same for a gateway that was made by hand.
ADOPTED_GATEWAY = STATE + "/adopted-gateway"
ADOPTED_GATEWAY_RECORD = ADOPTED_GATEWAY + "/record.json"
# Endpoints that get no new requests from the gateway.
GATEWAY_DRAINING = STATE + "/draining.json"
# Younger than the configuration that the gateway's engine and nginx have read last.
GATEWAY_READ = STATE + "/gateway-read"
# Rules that were added to firewalld for the gateway's clients.
GATEWAY_RULES = STATE + "/gateway-rules"
# There where the role has switched nginx on.
GATEWAY_NGINX_ON = STATE + "/nginx-switched-on"
# Younger than the configuration that Prometheus and alertmanager have read last.
MONITORING_READ = STATE + "/monitoring-read"
BASELINES = STATE + "/baseline-*.json"
# How fast a service read a long prompt.
PROMPTS = STATE + "/prompt-*.json"
# Rules that were added to firewalld.
CLIENT_RULES = STATE + "/client-rules"
RPC_RULES = STATE + "/rpc-rules"
SAMPLER_RULES = STATE + "/sampler-rules"
ROLLBACK = STATE + "/rollback"
LAST_SNAPSHOT = ROLLBACK + "/last.json"
OPEN_SNAPSHOT = ROLLBACK + "/open.json"
# What the gateway has in a tailnet, as role gateway has set it.
TAILSCALE_RECORD = STATE + "/tailscale-serve.json"
# A service that serves another quant for a while.
TRIALS = STATE + "/trial-*.json"
# What the engine keeps: StateDirectory of its unit.
# Where nginx of Debian and of Red Hat reads sites.
NGINX_SITE = "/etc/nginx/conf.d/llama-cluster.conf"
# Where systemd notes when a timer of wall-clock time went off last.
TIMER_STAMPS = "/var/lib/systemd/timers"
# What was decided and what benchmarks say of it, for people; the directory may have files of others.
DOCS = "/opt/docs"
DECISIONS = DOCS + "/architecture-decisions.md"
# Releases of llama.cpp.
BUILDS = "/opt/llama.cpp"
# Tensors that workers keep, a directory each.
TENSORS = "/var/cache/llama-cluster"
