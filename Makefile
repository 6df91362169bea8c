# Everything runs in .venv; `make setup` makes it. A torch that is already importable there is kept,
# so GPU users create .venv and install their torch build first.
VENV := .venv
PY := $(VENV)/bin/python
export HF_HUB_OFFLINE := 1
export LITELLM_LOCAL_MODEL_COST_MAP := True

.PHONY: setup demo test check lint types tests test-wheel test-agents format train bench clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -c 'import torch' 2>/dev/null || $(PY) -m pip install -q -c constraints.txt torch
	grep -v '^torch==' constraints.txt > $(VENV)/constraints.txt
	$(PY) -m pip install -q -c $(VENV)/constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(VENV)/bin/clover-agent demo

test: lint types tests

check: test

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: setup
	$(VENV)/bin/mypy

tests: setup
	$(PY) -m pytest -q

# A wheel in a clean environment, as a user gets it.
test-wheel: setup
	scripts/test-wheel $(PY)

# Real agents from npm and PyPI, one after the other: about two and a half minutes, 950 MB in .agents/.
test-agents: setup
	scripts/install-agents
	$(PY) -m pytest -q tests/agents

format: setup
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
