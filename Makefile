# On a fresh machine each target first makes .venv and installs levelhead into it.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test check docs bench clean

demo: $(INSTALLED)  ## train ERM and DAM on drawn portraits, print the table, save pictures
	$(BIN)/levelhead demo --out demo

test: $(INSTALLED)  ## run the tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(INSTALLED)  ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)  ## simulate the coverage of the intervals (about 5 minutes)
	$(BIN)/python benchmarks/coverage.py

docs: $(INSTALLED)  ## check that links between the pages hold
	$(BIN)/python -m pytest tests/test_docs.py

clean:
	rm -rf .venv demo

# torch first: with it installed, no other package can pull in another build.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@
