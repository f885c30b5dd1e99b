# Two commands: `make up` and `make test`. Both set up everything they need in .venv.
# uv is used where it is installed, venv + pip otherwise; versions come from requirements/*.txt, by hash.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)

.PHONY: up test compiled engines check lint types contracts size bench lock clean

up: $(VENV)/.run
	$(BIN)/divvy up --sample

test: $(VENV)/.dev
	$(BIN)/python -m pytest

compiled: $(VENV)/.dev  ## the planner compiled, beside the source: .compiled/divvy (needs a C compiler; 90 s)
	$(BIN)/python .ci/compile.py .compiled

engines: $(VENV)/.engines  ## Ray, NIXL and Mooncake, for the tests that need them (700 MB); without them those tests skip

check: lint types contracts size  ## everything CI checks besides the tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

contracts: $(VENV)/.dev
	$(BIN)/lint-imports

size: $(VENV)/.dev
	$(BIN)/python .ci/size_budget.py

lock:  ## rewrite requirements/*.txt from pyproject.toml (needs uv)
	sh requirements/lock.sh

clean:
	rm -rf $(VENV) .compiled .compiled.new

$(BIN)/python:
	@echo "Installing into $(VENV): a minute or two, once"
ifdef UV
	uv venv --python $(PYTHON) $(VENV)
else
	$(PYTHON) -m venv $(VENV)
endif

$(VENV)/.run: $(BIN)/python requirements/run.txt pyproject.toml
ifdef UV
	uv pip install --python $(BIN)/python --require-hashes -r requirements/run.txt
	uv pip install --python $(BIN)/python --no-deps --no-build-isolation -e .
else
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements/run.txt
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
endif
	touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
ifdef UV
	uv pip install --python $(BIN)/python --require-hashes -r requirements/dev.txt
else
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements/dev.txt
endif
	touch $@

$(VENV)/.engines: $(VENV)/.dev requirements/engines.txt requirements/bare.txt
ifdef UV
	uv pip install --python $(BIN)/python --require-hashes -r requirements/engines.txt
	uv pip install --python $(BIN)/python --require-hashes --no-deps -r requirements/bare.txt
else
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements/engines.txt
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes --no-deps -r requirements/bare.txt
endif
	touch $@
