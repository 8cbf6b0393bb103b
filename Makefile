# Each target makes .venv and installs what it needs, once; a changed pyproject.toml installs again. Those that call kernels
# build the library, or what of it has changed. zig links it where this machine's C compiler cannot.
PYTHON ?= python3
BIN := .venv/bin
COMPILER = $(shell cc -shared -fPIC -x c /dev/null -o /dev/null 2>/dev/null && echo compile || echo library)
export PYTHONDONTWRITEBYTECODE :=

.PHONY: conformance test test-slow test-weekly test-torch bench examples docs frozen library release site lint

conformance: .venv/.base library
	$(BIN)/python -m conformance --level strict

TESTS = not slow and not weekly
# Tests that take long: the suite's default run, a wheel.
test-slow: TESTS = slow and not weekly
# Breadth: rows of which the other targets run a few.
test-weekly: TESTS = weekly

test test-slow test-weekly: .venv/.test library
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "$(TESTS)"

# The tests that need PyTorch, which is large. Where it is installed, the targets above run them, too, and take longer.
test-torch: .venv/.test .venv/.test-torch library
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "torch and not weekly" \
		$(addprefix tests/test_, torch*.py gradient_layers.py docs.py)

# Measures speed, draws the README's picture and writes the tables of docs/performance.md.
bench: .venv/.bench library
	$(BIN)/python -m benchmarks --picture docs/images/speed.svg --write docs/performance.md
	$(BIN)/python -m benchmarks custom-calls --write docs/custom_operators.md

examples: .venv/.examples library
	$(BIN)/python -m examples.fit_box
	$(BIN)/python -m examples.train_detector
	$(BIN)/python -m examples.attribution

# Writes the generated parts of docs/ and its pictures. REPORTS are files that the suite wrote with `--json`: docs/findings.md
# counts them.
docs: .venv/.base library
	$(BIN)/python -m docs $(REPORTS)

# Writes the data that tests compare with: the list of the suite's cases, a case that each mutant fails, the kernels'
# bits, the digests of the corpus.
frozen: .venv/.test library
	$(BIN)/python -m conformance.cases.frozen
	$(BIN)/python tests/catching_cases.py
	$(BIN)/python tests/test_bits.py
	$(BIN)/python tests/test_corpus.py

library: .venv/.base
	$(BIN)/python -m ortops.build

# Builds what a release has, from a clone of the last commit, and tries each file in an environment that has nothing else.
release: .venv/.release
	rm -rf build/release
	$(BIN)/python -m release --clone build/release

# Writes build/site, which a browser shows: the documents, and the docstrings of all public names. A warning is an error.
site: .venv/.site
	$(BIN)/python -m release.site
	$(BIN)/zensical build --clean --strict

lint: .venv/.lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/.base: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[conformance,$(COMPILER)]'
	@touch $@

.venv/.%: pyproject.toml .venv/.base
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@
