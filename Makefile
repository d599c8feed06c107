# All paths are relative and quoted, so that the folder may have a space in its name. Programs of the environment are
# started as `python -m ...`, since a script's first line cannot hold such a path.
PYTHON ?= python3
PIP_ARGS ?=
LAB_ARGS ?=
TEST_ARGS ?=
REPO ?=
REF ?=

# Names of things whose absence fails a test that would be skipped without them: REQUIRE="browser notebooks".
REQUIRE ?=
export REQUIRE

PY := .venv/bin/python
COLAB := .venv-colab/bin/python
# Jupyter refuses to run as root unless told to; in a container one often is.
ROOT_ARGS := $(if $(filter 0,$(shell id -u)),--allow-root)
# The address that is printed opens the chapter; the search for language servers would only print noise after it.
LAB := --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb --LanguageServerManager.autodetect=False
NBVAL := -p tools.strict_nbval --nbval --nbval-current-env --nbval-cell-timeout=120 --nbval-sanitize-with=tools/nbval-sanitize.cfg
PYTEST := -m pytest -n 2 --dist loadfile $(NBVAL)

.DEFAULT_GOAL := help
.PHONY: help lab environment test test-environment test-colab test-gpu lint format notebooks badges bench clean

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r a b; do printf '%-20s %s\n' "$$a" "$$b"; done

lab: environment ## open the course in JupyterLab (PYTHON=python3.12, PIP_ARGS=..., LAB_ARGS=...)
	@"$(PY)" -m jupyterlab $(LAB) $(ROOT_ARGS) $(LAB_ARGS)

environment: ## make .venv and install requirements.txt into it; quick when that is done
	@"$(PYTHON)" tools/environment.py $(PIP_ARGS)

test-environment:
	@"$(PYTHON)" tools/environment.py --test $(PIP_ARGS)

test: lint ## everything: style, tests, every notebook (TEST_ARGS=... goes to pytest)
	@"$(PY)" $(PYTEST) tests notebooks $(TEST_ARGS)

test-colab: ## the helpers' tests and every notebook again, with the versions that Colab has
	@"$(PYTHON)" tools/environment.py --dir .venv-colab --colab $(PIP_ARGS)
	@PYDEVD_DISABLE_FILE_VALIDATION=1 "$(COLAB)" $(PYTEST) tests notebooks --ignore tests/project --ignore tests/notebooks $(TEST_ARGS)

test-gpu: ## the tests that need a CUDA device, by the interpreter given, which has torch and pytest (PYTHON=..., GPU_TRACES=folder)
	@"$(PYTHON)" -c "import torch, pytest" || { echo "test-gpu installs nothing: PYTHON=... must name an interpreter that has torch and pytest."; exit 1; }
	@"$(PYTHON)" -c "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 'No CUDA device: nothing of this can be tested here.')"
	@REQUIRE="gpu $(REQUIRE)" "$(PYTHON)" -m pytest -m gpu -rA tests/gpu/test_real_gpu.py $(TEST_ARGS)

lint: test-environment ## style of code and notebooks
	@"$(PY)" -m ruff check --quiet .
	@"$(PY)" -m ruff format --quiet --check . || { echo "Not formatted: run 'make format'."; exit 1; }

format: test-environment ## put code into the project's style
	@"$(PY)" -m ruff check --quiet --fix-only .
	@"$(PY)" -m ruff format --quiet .

notebooks: test-environment ## restart, run and normalise every notebook; a second run changes no byte
	@"$(PY)" -m tools.notebooks

badges: test-environment ## point Colab badges and set-up cells at REPO=owner/name REF=v1.0.0
	@"$(PY)" -m tools.stamp "REPO=$(REPO)" "REF=$(REF)"

bench: environment ## tables of times and sizes, on this machine
	@for bench in tests/bench/*.py; do [ -e "$$bench" ] || continue; \
		name=$${bench%.py}; echo; echo "== $$name"; "$(PY)" -m "$$(echo "$$name" | tr / .)" || exit 1; \
	done

clean: ## remove the environments and caches
	rm -rf .venv .venv-colab .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
