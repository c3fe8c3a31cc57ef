# `make demo` and `make test` are all a fresh machine needs: each sets up its own .venv first.
PYTHON ?= python3
VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
READY := $(VENV)/.ready
DEMO := $(VENV)/.demo
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# The library alone, with the oldest NumPy and SciPy that pyproject.toml allows ("numpy>=2.0" becomes "numpy==2.0.*").
CORE := .venv-core
CORE_READY := $(CORE)/.ready
LIBRARY := .venv-library
OLDEST := sed -n '/^dependencies = /{s/.*\[//;s/\].*//;s/[",]//g;s/>=\([0-9.]*\)/==\1.*/g;p}' pyproject.toml
CORE_TESTS := $(wildcard tests/test_*.py) $(addprefix tests/,calibrators metrics predictors scaling mixup)
CORE_EXAMPLES := $(wildcard src/pseudocal/*.py) $(addprefix src/pseudocal/,calibrators metrics predictors scaling mixup)

# What Python compiles is kept, whatever the shell says: the tests start many processes, and each would compile it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-all test-core test-library check docs docs-numbers bench release test-oldest clean

setup: $(READY)

$(BIN)/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'expected Python 3.11 or newer, got ' + sys.version)"
	$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	touch $@ $(DEMO)

$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[demo]'
	touch $@

$(CORE_READY): pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13) and 'expected Python 3.11 or 3.12, for which the oldest NumPy and SciPy were built, got ' + sys.version)"
	$(PYTHON) -m venv --clear $(CORE)
	grep -vE '^(numpy|scipy)==' constraints.txt > $(CORE)/constraints.txt
	$(CORE)/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check -c $(CORE)/constraints.txt \
		-e . $$($(OLDEST)) hypothesis pytest pytest-xdist
	touch $@

demo: $(DEMO)
	$(BIN)/pseudocal demo

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two workers on two cores: with two threads of BLAS in each of them they would wait for each other.
test test-all test-core test-library: export OMP_NUM_THREADS := 1

test: check
	$(BIN)/pytest -n 2 --dist worksteal -q -r fEs --cov --cov-report=
	@$(BIN)/python .ci/package_coverage.py

# CatBoost has 97 MB, so its tests run here only, and those with polars frames.
test-all: check
	$(INSTALL) -e '.[catboost]' polars
	$(BIN)/pytest -n 2 --dist worksteal -q -m ''

# Tests and examples that need an optional package are skipped; importance.py adapts scikit-learn.
define TEST_LIBRARY
	$(1)/python -c "import numpy, scipy; print('NumPy', numpy.__version__, 'SciPy', scipy.__version__)"
	$(1)/pytest -n 2 --dist worksteal -q --doctest-ignore-import-errors \
		--ignore-glob '*/importance.py' $(CORE_TESTS) $(CORE_EXAMPLES)
endef

test-core: $(CORE_READY)
	$(call TEST_LIBRARY,$(CORE)/$(SCRIPTS))

# The library alone, with the newest NumPy and SciPy that this Python has, on any system.
test-library:
	$(PYTHON) -m venv --clear $(LIBRARY)
	$(LIBRARY)/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check \
		-e . hypothesis pytest pytest-xdist
	$(call TEST_LIBRARY,$(LIBRARY)/$(SCRIPTS))

docs: setup
	$(BIN)/python benchmarks/gallery.py docs/howto/gallery
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The docs are in site/index.html"

# Numbers in README and docs that disagree with the stored results.
docs-numbers: setup
	$(BIN)/pytest -q --no-header --tb=short tests/test_numbers.py

bench: setup
	$(BIN)/python benchmarks/temperature.py
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/anytime.py
	$(BIN)/python benchmarks/official.py
	$(BIN)/python benchmarks/calibrators.py
	$(BIN)/python benchmarks/mixup_variants.py
	$(BIN)/python benchmarks/grid.py
	$(BIN)/python benchmarks/loader.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/clusters.py
	$(BIN)/python benchmarks/segmentation_memory.py
	$(BIN)/python benchmarks/surrogates.py
	$(BIN)/python benchmarks/packages.py cli,onnx

# Put what commands and code print into the pages that show it, and draw their images again.
.PHONY: docs-outputs
docs-outputs: setup
	$(BIN)/python .ci/run_pages.py --write
	$(BIN)/python .ci/run_notebook.py --write
	$(BIN)/python benchmarks/start_images.py
	$(BIN)/python benchmarks/howto_pictures.py docs/images

# Build what would be published and try it: metadata, the wheel with each extra, the tests of the sdist.
release:
	$(PYTHON) .ci/release.py

# The wheel with each extra again, with the oldest dependencies that pyproject.toml allows.
test-oldest:
	$(PYTHON) .ci/release.py --oldest

clean:
	rm -rf $(VENV) $(CORE) $(LIBRARY) site docs/howto/gallery demo-output .coverage .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
