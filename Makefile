# `make demo` and `make test` are all a fresh machine needs: each sets up its own .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test test-all check docs bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'expected Python 3.11 or newer, got ' + sys.version)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/pseudocal demo

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check
	$(BIN)/pytest -n 2 --dist worksteal -q

test-all: check
	$(BIN)/pytest -n 2 --dist worksteal -q -m ''

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The docs are in site/index.html"

bench: setup
	$(BIN)/python benchmarks/temperature.py
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/anytime.py
	$(BIN)/python benchmarks/official.py
	$(BIN)/python benchmarks/calibrators.py
	$(BIN)/python benchmarks/synthesis.py
	$(BIN)/python benchmarks/grid.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/clusters.py
	$(BIN)/python benchmarks/segmentation_memory.py

clean:
	rm -rf $(VENV) site demo-output .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
