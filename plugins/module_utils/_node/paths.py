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
# It submits the jobs of SLURM.
KEEPER_UNIT = UNITS + "/llama-slurm-keeper.service"
NFTABLES_DROP_INS = UNITS + "/nftables.service.d"
NFTABLES_DROP_IN = NFTABLES_DROP_INS + "/llama-cluster.conf"
# Limits of journald that the node has not configured.
JOURNALD_DROP_INS = "/etc/systemd/journald.conf.d"
JOURNALD_DROP_IN = JOURNALD_DROP_INS + "/90-llama-cluster.conf"

# Configuration of the roles.
CONFIGURATION = "/etc/llama-cluster"
FIREWALL_RULES = CONFIGURATION + "/firewall.nft"
GATEWAY = CONFIGURATION + "/gateway"
# Services, models and routes for the gateway's engine.
GATEWAY_CONFIG = GATEWAY + "/gateway.json"
# The keys of its clients, and those that it sends to services.
GATEWAY_KEYS = GATEWAY + "/keys.json"
# A client's key as root has it for curl: on no command line.
GATEWAY_CURL_HEADER = GATEWAY + "/curl-header"
# Keys for nginx, which forwards requests itself while the engine is down.
GATEWAY_NGINX = GATEWAY + "/nginx-*.conf"
# SELinux policy for nginx.
GATEWAY_POLICY = GATEWAY + "/llama_cluster_gateway.cil"
# Configuration of the keeper of SLURM's jobs.
KEEPER_CONFIG = CONFIGURATION + "/jobs.json"
# Since when the node is held for maintenance.
HELD = CONFIGURATION + "/held.json"
# A head reads its API keys in a file of its service's name.
KEYS = CONFIGURATION + "/keys"
# The memory plan by which a head was started.
PLANS = CONFIGURATION + "/plan-*.json"
# The models of a router.
PRESETS = CONFIGURATION + "/preset-*.ini"
# Configuration of the registry's reader and writer.
REGISTRY_READER = CONFIGURATION + "/gateway-registry.json"
REGISTRY = CONFIGURATION + "/registry"
ENDPOINTS = REGISTRY + "/*.json"
# Configuration of Prometheus and of an operator's Grafana, on a monitoring host.
MONITORING = CONFIGURATION + "/monitoring"
MONITORING_FILES = MONITORING + "/*"
# Sources of samples for llama-cluster-monitor.
MONITOR = MONITORING + "/monitor.json"
MONITOR_PROGRAM = "/usr/local/bin/llama-cluster-monitor"
JOBS_PROGRAM = "/usr/local/bin/llama-jobs"
STATUS_PROGRAM = "/usr/local/bin/llama-service-status"
# Configuration of the sampler.
SAMPLER = CONFIGURATION + "/sampler.json"
# The rules of llama-doctor.
DOCTOR = CONFIGURATION + "/doctor.json"
DOCTOR_PROGRAM = "/usr/local/bin/llama-doctor"
# Address of the gateway for llama-model-selector.
SELECTOR = CONFIGURATION + "/selector.json"
SELECTOR_PROGRAM = "/usr/local/bin/llama-model-selector"
# Salt of the digests of API keys.
SALT = CONFIGURATION + "/salt"
# A head reads the chat template of its service there.
TEMPLATES = CONFIGURATION + "/template-*.jinja"
# The watchdog's files, one for each unit.
WATCHED = CONFIGURATION + "/watchdog"
WATCHED_FILES = WATCHED + "/*.json"

# Node programs.
PROGRAMS = "/opt/llama-cluster"
PROGRAM_BIN = PROGRAMS + "/bin"
PROGRAM = PROGRAM_BIN + "/llama-program"
PROGRAM_LIB = PROGRAMS + "/lib"
PROGRAM_PACKAGE = PROGRAM_LIB + "/llama_cluster"
# Started by a trial's timer.
PROGRAM_OF_TRIALS = PROGRAM_PACKAGE + "/programs/trial.py"

# Gone with the next boot.
RUN = "/run/llama-cluster"
# Units of a service that tune.yml measures.
RUN_UNITS = "/run/systemd/system"
# Which run of a playbook changes the node.
RUN_LOCK = RUN + "/run.lock"
# Runs of a unit that failed in a row.
BACKOFF = RUN + "/backoff"
BACKOFF_FILES = BACKOFF + "/llama-*.service"
# Repairs of the watchdog since the boot, by unit.
REPAIRS = RUN + "/repairs"
REPAIRS_FILES = REPAIRS + "/*.json"
# The sampler's samples, for programs of the node.
SAMPLES = RUN + "/samples.prom"
# Digest of each unit's last start; its ExecStartPre writes it.
DIGESTS = RUN + "/digests"
DIGEST_FILES = DIGESTS + "/llama-*.service"
# The runs that have served.
SERVED = RUN + "/served"
SERVED_FILES = SERVED + "/llama-*.service"
# Root's, and always empty: where a router looks for models that its preset does not name.
NO_MODELS = RUN + "/no-models"
# How far the seeding of a tensor cache is.
SEED_LOGS = RUN + "/seed-*.log"
# Ends the sampling of a node during a benchmark.
BENCH_STOP = RUN + "/bench-*.stop"
# systemd holds it, and the gateway's engine answers there.
GATEWAY_SOCKET = "/run/llama-gateway/gateway.sock"
# Copy of the registry for the gateway.
REGISTRY_RUN = "/run/llama-gateway-registry"
REGISTRY_COPY = REGISTRY_RUN + "/registry.json"
SHARE_RULES = "/run/llama-share-rules"
SHARE_LOCK = "/run/llama-share-lock"
# Rules of firewalld while a link is measured.
LINK_RULES = "/run/llama-link-rules"

# State that outlasts a boot.
STATE = "/var/lib/llama-cluster"
# Unmanaged files that were adopted.
ADOPTED = STATE + "/adopted"
ADOPTED_FILES = ADOPTED + "/files"
# The same for a gateway.
ADOPTED_GATEWAY = STATE + "/adopted-gateway"
# The same for jobs of SLURM.
ADOPTED_JOBS = STATE + "/adopted-jobs"
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
# State of the keeper of SLURM's jobs, its user's; and root's record of what role slurm_launcher made.
KEEPER = "/var/lib/llama-cluster-jobs"
KEEPER_MADE = STATE + "/slurm-made.json"
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
# Snapshots of the jobs that this host submits.
JOBS_ROLLBACK = STATE + "/rollback-jobs"
# Handlers that role gateway has set in a tailnet.
TAILSCALE_RECORD = STATE + "/tailscale-serve.json"
# A service that serves another quant for a while.
TRIALS = STATE + "/trial-*.json"
# Where nginx of Debian and of Red Hat reads sites.
NGINX_SITE = "/etc/nginx/conf.d/llama-cluster.conf"
# systemd records the last run of wall-clock timers here.
TIMER_STAMPS = "/var/lib/systemd/timers"
# Page of decisions and measurements; the directory may have unmanaged files.
DOCS = "/opt/docs"
DECISIONS = DOCS + "/architecture-decisions.md"
# Releases of llama.cpp.
BUILDS = "/opt/llama.cpp"
# Tensors that workers keep, a directory each.
TENSORS = "/var/cache/llama-cluster"
# Shaders that drivers of Vulkan have compiled, a directory for each unit.
SHADERS = TENSORS + "/shaders"
# Home and caches of the user of SLURM's jobs, on each node.
JOBS = TENSORS + "/jobs"
