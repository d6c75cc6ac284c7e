# make train        a ps and two workers train a CNN on handwritten digits, on this machine
# make check        lint, and the tests that need no servers and no other processes
# make test         every test, with a covering part of the crossed parameters
# make test-full    every test with every combination of parameters
# make lint         style, types, docstrings and spelling
# make docs         the documentation as a site, docs/_build/index.html
# make bench        step rates, side by side with hand-written TF1
# make experiments  experiments of the literature, each with a verdict; --quick by EXPERIMENT_FLAGS
# make clean        remove what these targets made (not runs/)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Momentum and averaged gradients of two workers: 98 % of the test digits, with room above 97 %.
TRAIN_FLAGS ?= --model=cnn --dataset=digits --update=sync --optimizer=momentum --learning_rate=0.03 --max_steps=1000 --report_secs=1
KINDS ?= light or cluster or process
# Each test file runs in one process. Tests of processes wait for about a third of their time, so four files at a time
# keep two cores busy. Light tests only compute, so two files at a time are enough. A crashed test process ends the run:
# pytest-xdist would start another one, and then wait for ever (its issues 1323 and 1378).
PYTEST_FLAGS ?= --dist loadfile --no-loadscope-reorder --max-worker-restart=0
TEST_WORKERS ?= 4
CHECK_WORKERS ?= 2
# How often a failed test is run again; only `.ci/run` asks for it.
RERUNS ?= 0
EXPERIMENT_FLAGS ?=

# Compiled modules are kept: hundreds of processes of the tests import the package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: train test test-full check lint docs bench experiments clean

train: $(VENV)/.installed
	$(BIN)/ps_trainer local --num_ps=1 --num_workers=2 $(TRAIN_FLAGS)

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(TEST_WORKERS) $(PYTEST_FLAGS) --reruns $(RERUNS) -m '$(KINDS)'

test-full: export PS_TRAINER_FULL_TESTS := true
test-full: test

check: lint
	$(BIN)/python -m pytest -n $(CHECK_WORKERS) $(PYTEST_FLAGS) -m light

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	$(BIN)/python docs/generate_reference.py --check
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.step_rate

experiments: $(VENV)/.installed-plots
	$(BIN)/ps_trainer experiment all $(EXPERIMENT_FLAGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# If an environment's Python is gone (moved, upgraded away), make creates the environment again, and follows setup.py.
$(shell test -x $(BIN)/python || rm -f $(VENV)/.installed*)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit(1)' || { \
	  echo "error: $(PYTHON) is missing or older than 3.10; call make with PYTHON=/path/to/python3.10 or newer" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "error: $(PYTHON) has no venv module; install it (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

$(VENV)/.installed: setup.py pyproject.toml $(BIN)/python
	@echo "installing TensorFlow and ps_trainer into $(VENV), about a minute"
	$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-%: setup.py pyproject.toml $(BIN)/python
	@echo "installing ps_trainer and what $* needs into $(VENV), about a minute the first time"
	$(INSTALL) -e '.[$*]'
	@touch $@
