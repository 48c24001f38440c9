# The front door. `make lab` and `make test` work from a fresh clone; the others are parts of them.
.PHONY: help lab lab-down test lint unit scenarios clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

lab:  ## three nodes on this machine that answer a prompt
	@tests/lab/up.sh

lab-down:  ## remove them without a trace
	@tests/lab/down.sh

test: lint unit scenarios  ## everything: lint, unit tests, scenarios in containers

lint:  ## ansible-lint, yamllint, ruff
	@tests/lab/venv.sh requirements-dev.txt
	.venv/bin/ansible-lint
	.venv/bin/yamllint --strict .
	.venv/bin/ruff check

unit:  ## unit tests
	@tests/lab/venv.sh requirements-dev.txt
	.venv/bin/pytest tests/unit

scenarios:  ## molecule scenarios, two side by side; only some with SCENARIOS="rpc_worker cluster"
	@tests/lab/venv.sh requirements-dev.txt
	@.venv/bin/python tests/scenarios.py $(SCENARIOS)
