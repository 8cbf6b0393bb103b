# Each target makes .venv and installs what it needs, once; a changed pyproject.toml installs again.
PYTHON ?= python3
BIN := .venv/bin
export PYTHONDONTWRITEBYTECODE :=

.PHONY: conformance test test-slow test-torch bench networks examples docs lint

conformance: .venv/.base
	$(BIN)/python -m ortops warmup
	$(BIN)/python -m conformance --strict all

test: .venv/.test
	$(BIN)/python -m ortops warmup
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"

# Proofs that take long: every wrong implementation is caught, every operator of a gradient has a gradient, a wheel runs.
test-slow: .venv/.test
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m slow

# The tests of what needs PyTorch, which is large.
test-torch: .venv/.test .venv/.test-torch
	$(BIN)/python -m pytest -n 2 --dist loadfile $(addprefix tests/test_, torch*.py gradient_networks.py gradient_sampling.py docs.py)

bench: .venv/.bench
	@mkdir -p build
	$(BIN)/python -m benchmarks --json build/bench.json --markdown build/bench.md --plot build/bench.png --chart docs/images/speed.svg

networks: .venv/.test-torch
	$(BIN)/python -m benchmarks.networks

examples: .venv/.examples
	$(BIN)/python -m examples.fit_box
	$(BIN)/python -m examples.train_detector

# Writes what docs/ has from the definitions, the pictures included.
docs: .venv/.base
	$(BIN)/python -m docs

lint: .venv/.lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/.base: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[conformance]'
	@touch $@

.venv/.%: pyproject.toml .venv/.base
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@
