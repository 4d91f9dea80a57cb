# On a fresh machine each target first makes .venv and installs levelhead into it: `make demo` the runtime alone, the
# others what tests, checks and pages need besides.
PYTHON ?= python3
BIN := .venv/bin
RUNTIME := .venv/.runtime
INSTALLED := .venv/.installed
PYTEST := -m pytest -n 2 --dist worksteal

.PHONY: demo test test-long test-quick coverage fuzz check docs bench bench-quick test-oldest dist release-check clean

demo: $(RUNTIME)  ## compare four methods where it is known why a gap arises; writes a page
	$(BIN)/levelhead demo --out demo

test: $(INSTALLED)  ## run the tests
	$(BIN)/python $(PYTEST)

test-long: $(INSTALLED)  ## run the tests marked long, which `make test` leaves out
	LEVELHEAD_LONG=1 $(BIN)/python $(PYTEST) -m long

test-quick: $(INSTALLED)  ## run the tests without the marker slow: no long trainings, simulations, processes or drawn hostile input
	$(BIN)/python $(PYTEST) -m "not slow"

coverage: $(INSTALLED)  ## run the tests of `make test` and print the share of lines that they run; fails under 92%
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[coverage]"
	rm -f .coverage*
	$(BIN)/coverage run $(PYTEST)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

fuzz: $(INSTALLED)  ## run every case of the tests that draw hostile input; the other targets run a few of them
	LEVELHEAD_FUZZ=full LEVELHEAD_LONG=1 $(BIN)/python $(PYTEST) tests/fuzz

check: $(INSTALLED)  ## lint, formatting, types, and the ceilings of tools/ceilings.toml
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/size.py --check

bench: $(INSTALLED)  ## time, memory and coverage, all that needs no data, into build/measured (about an hour on one core)
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/method_cost.py
	$(BIN)/python benchmarks/coverage.py

bench-quick: $(INSTALLED)  ## time and memory of a training step at smaller sizes (at most 10 minutes)
	$(BIN)/python benchmarks/step.py --quick

docs: $(INSTALLED)  ## build the site of the pages in docs/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The site lies in site/: open site/index.html. Its search works without a server."

# Lowest versions of direct dependencies, with torch of TORCH. PyPI's 2.11 for Linux is the CUDA build, which runs on CPUs.
TORCH ?= 2.11.0
test-oldest:  ## install the lowest versions that pyproject.toml allows, and run the quick tests with them
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet uv
	.venv-oldest/bin/python -m pip install --quiet torch==$(TORCH)
	.venv-oldest/bin/uv pip install --quiet --python .venv-oldest --resolution lowest-direct --editable ".[test]" torch==$(TORCH)
	.venv-oldest/bin/python $(PYTEST) -m "not slow" -W ignore::DeprecationWarning -W ignore::FutureWarning

dist:  ## build the wheel and the source distribution in an environment of nothing else: what a release publishes
	test -x .venv-dist/bin/python || $(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet --constraint constraints.txt build hatchling
	.venv-dist/bin/python -m build --no-isolation --outdir dist .

release-check: $(INSTALLED)  ## build wheel and sdist, install both in empty environments, run the examples (about 15 minutes)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[release]"
	$(BIN)/python tools/release.py

clean:
	rm -rf .venv .venv-oldest .venv-dist demo site

# What levelhead needs to run, and no more. torch first: with it installed, no other package can pull in another build.
$(RUNTIME): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[torch]"
	touch $@

# What its tests, checks and pages need besides.
$(INSTALLED): $(RUNTIME)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@
