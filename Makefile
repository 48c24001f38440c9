# The front door. `make lab` and `make test` work from a fresh clone; the others are parts of them.
.PHONY: help lab lab-down test gates unit golden scenarios plans bench bench-memory bench-runs bench-recovery bench-gateway bench-monitoring bench-speed bench-wire bench-card card-prepare card-test soak upgrade-test services-test clients-test changes-test gateway-host-test

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

lab:  ## three nodes on this machine that answer a prompt
	@tests/lab/up.sh

lab-down:  ## remove them without a trace
	@tests/lab/down.sh

# make test SKIPS=accepted: green although this machine lacks something to test with.
test: gates scenarios  ## everything: gates, among them the unit tests, and scenarios in containers
	@tests/gates/skipped.sh

gates:  ## lint, ansible-test with the unit tests, other ansible-core versions, packaging, plans of the reference inventories
	@tests/gates/all.sh

unit:  ## unit tests alone, two side by side
	@tests/lab/venv.sh requirements-dev.txt
	@tests/lab/prometheus.sh
	.venv/bin/pytest tests/unit --numprocesses 2

golden:  ## write anew what inventories become, tests/golden/expected: git diff then shows what a change has changed
	@tests/lab/venv.sh requirements-dev.txt
	@GOLDEN=write .venv/bin/pytest -q --numprocesses 2 tests/unit/playbooks/test_golden.py

scenarios:  ## molecule scenarios, two side by side; only some with SCENARIOS="rpc_worker cluster"
	@tests/lab/venv.sh requirements-dev.txt
	@.venv/bin/python tests/scenarios.py $(SCENARIOS)

plans:  ## the memory plans of the reference inventories, the tables of docs/plan.md
	@tests/lab/venv.sh requirements-dev.txt
	@.venv/bin/python tests/benchmarks/plan_tables.py

bench:  ## acquisition beside wget, aria2c and get_url (about half an hour, needs both programs and 12 GB of disk)
	@tests/lab/venv.sh requirements-dev.txt
	@.venv/bin/python tests/benchmarks/acquisition/header.py
	@.venv/bin/python tests/benchmarks/acquisition/run.py $(BENCH)

# BUILDS says which builds, and where their programs lie: make bench-memory BUILDS="11434=DIR 7772=DIR" MODELS="FILE
# FILE". MODELS are really loaded.
bench-memory:  ## the memory formulas beside llama-fit-params, and beside real loads of MODELS (about half an hour)
	@tests/lab/venv.sh requirements-dev.txt
	@.venv/bin/python tests/benchmarks/memory/run.py $(BUILDS)
	@.venv/bin/python tests/benchmarks/memory/experts.py $(BUILDS)
	@$(if $(MODELS),.venv/bin/python tests/benchmarks/memory/loads.py $(BUILDS) $(MODELS:%=--model %))

bench-runs:  ## what a site.yml that changes nothing costs, with three nodes and with ten (about ten minutes)
	@tests/lab/venv.sh requirements-dev.txt
	@tests/lab/engine.sh
	@tests/lab/artifacts.sh
	@.venv/bin/python tests/benchmarks/runs/run.py

bench-recovery: lab  ## the drill table of docs/drills.md, with the lab's load and with one of a minute (about half an hour)
	@.venv/bin/python tests/benchmarks/recovery/table.py

# make bench-gateway PARTS=overhead: one of overhead and loss, each some minutes.
bench-gateway:  ## what the gateway costs, and what is lost when something dies (about six minutes)
	@tests/lab/venv.sh requirements-dev.txt
	@for part in $(or $(PARTS),overhead loss); do tests/benchmarks/gateway/inside.sh $$part.py || exit 1; done

# make bench-monitoring NODES=200: a larger cluster.
bench-monitoring:  ## every query of dashboards and rules, asked of a real Prometheus over simulated series of 50 nodes (two minutes)
	@tests/lab/venv.sh requirements-dev.txt
	@tests/lab/prometheus.sh
	@.venv/bin/python tests/benchmarks/monitoring/queries.py --nodes $(or $(NODES),50)

bench-speed:  ## how true llama_bench's figures are, beside a server that writes down what it does (a minute)
	@tests/lab/venv.sh requirements-dev.txt
	@.venv/bin/python tests/benchmarks/speed/calibration.py

# make bench-wire GOOD=3: looks at the good deployment less often.
bench-wire: lab  ## whether verify.yml calls the good deployment true and five sabotaged ones by their name (about half an hour)
	@.venv/bin/python tests/benchmarks/wire/run.py --good $(or $(GOOD),20)

# make bench-card PROGRAMS=DIR MODEL=FILE BENCH="--rounds 1": on a machine with one card, DIR holds a build for it. Models
# of any size are made with tests/benchmarks/random_model.py.
bench-card:  ## what RPC costs on one card, in time and in memory (some minutes, needs a card)
	@tests/lab/venv.sh requirements-dev.txt
	@.venv/bin/python tests/benchmarks/card/run.py $(PROGRAMS) $(MODEL) $(BENCH)

# make card-prepare CARD=--cpu: for a test without a card.
card-prepare:  ## what make card-test needs, made on a machine without a card, in .card to be copied with the checkout
	@tests/card/prepare.sh $(CARD)

# As root. make card-test CARD=--cpu: without a card. CARD="--only plan,kills --keep": these parts, of nodes that stay.
# docs/hardware.md explains it.
card-test:  ## a deployment on this machine's card, in namespaces, after make card-prepare (some minutes, needs a card)
	@python3 tests/card/run.py $(CARD)

# make soak CYCLES=20 SEED=7: fewer cycles, and those of an earlier run.
soak: lab  ## random kill -9 of the lab's workers and heads, and what stays behind (about half an hour)
	@.venv/bin/python tests/benchmarks/recovery/soak.py --cycles $(or $(CYCLES),100) $(if $(SEED),--seed $(SEED))

upgrade-test:  ## a real upgrade, b7772 to b11434, and back (compiles b7772 once, about ten minutes)
	@tests/e2e/upgrade.sh

services-test:  ## a service of every shape on one lab, proved, killed and proved again (about six minutes)
	@tests/e2e/services.sh

changes-test:  ## twenty clients at a gateway while playbooks change what serves: none may lose a request (about ten minutes)
	@tests/e2e/changes.sh

gateway-host-test:  ## a gateway on a host that is no node, with a registry on a share (about five minutes)
	@tests/e2e/gateway_host.sh

# At a deployed gateway: make clients-test with LLAMA_GATEWAY and what tests/e2e/gateway_clients.py names beside it.
clients-test:  ## the openai SDK, litellm, TensorZero and curl at a gateway of its own (about a minute)
	@tests/e2e/clients.sh
