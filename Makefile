# `make lab` and `make test` work from a fresh clone. CONTRIBUTING.md says which target to use when.
.PHONY: help lab lab-down check unit golden coverage scenarios gates test bench e2e soak-slurm card
# Images of Python set it: each of thousands of processes would compile Ansible and the collection again.
unexport PYTHONDONTWRITEBYTECODE

help:  ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

lab:  ## three nodes on this machine that answer a prompt
	@tests/lab/up.sh

lab-down:  ## remove them without a trace
	@tests/lab/down.sh

check:  ## before a pull request: linters, types and the unit tests of what changed since main; also a scenario with SCENARIO=gateway
	@tests/lab/venv.sh requirements-dev.txt
	@.venv/bin/python tests/check.py $(SCENARIO)

unit:  ## all unit tests, two at a time
	@tests/lab/venv.sh requirements-dev.txt
	@tests/lab/prometheus.sh
	.venv/bin/pytest tests/unit --numprocesses 2

golden:  ## rewrite what inventories become in tests/golden/expected, for git diff to show
	@tests/lab/venv.sh requirements-dev.txt
	@GOLDEN=write .venv/bin/pytest -q --numprocesses 2 tests/unit/playbooks/test_golden.py

coverage:  ## which lines of plugins/ the unit tests run, as a page in tests/output/coverage
	@tests/lab/venv.sh requirements-dev.txt
	.venv/bin/pytest -q tests/unit --numprocesses 2 --cov=plugins --cov-report=term:skip-covered --cov-report=html:tests/output/coverage

scenarios:  ## molecule scenarios in containers, two at a time; some of them with SCENARIOS="rpc_worker cluster"
	@tests/lab/venv.sh requirements-dev.txt
	@.venv/bin/python tests/scenarios.py $(SCENARIOS)

# FULL=1: also the gates whose inputs have not changed since they passed.
gates:  ## linters, ansible-test, all unit tests, other ansible-core versions, packaging, reference inventories
	@tests/gates/all.sh

# SKIPS=accepted: green although this machine lacks something to test with.
test: gates scenarios  ## everything, as continuous integration does
	@tests/gates/skipped.sh

bench:  ## measure: WHAT=acquisition, card, gateway, memory, plans, recovery, runs, soak, speed, tuning or wire, with ARGS
	@tests/benchmarks/run.sh $(or $(WHAT),acquisition) $(ARGS)

e2e:  ## a long scenario on the lab: WHAT=changes, clients, gateway_host, services or upgrade
	@tests/e2e/$(or $(WHAT),services).sh

soak-slurm:  ## preempt and break jobs of a real SLURM under constant requests, with ARGS="cycles=20 events=100"
	@tests/e2e/slurm.sh $(ARGS)

card:  ## a deployment on this machine's card, with ARGS; WHAT=prepare makes what it needs, on any machine
	@$(if $(filter prepare,$(WHAT)),tests/card/prepare.sh,python3 tests/card/run.py) $(ARGS)
