# A fresh machine needs Python 3.11 or later and a package index; everything else is installed here, into .venv.

PYTHON ?= python3
DURATION ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest -q
# One process for each core, whole files each, so that what a file starts is started once.
JOBS ?= 2

.PHONY: demo demo-llm test check bench profile docs clean help
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(INSTALLED)-dev ## the sidecar before a simulated API; for 20 s, or DURATION=…
	$(BIN)/sidecar demo --duration $(or $(DURATION),20)

demo-llm: $(INSTALLED)-llm ## the sidecar before a real llama.cpp server with a tiny random model; for 10 s, or DURATION=…
	$(BIN)/python -m tests.e2e.demo_llm --duration $(or $(DURATION),10)

test: $(INSTALLED)-llm $(VENV)/.system ## all tests
	$(PYTEST) -n $(JOBS) --dist loadfile

check: $(INSTALLED)-dev ## style, types, import direction, generated pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) tests/unit/test_imports.py
	$(BIN)/python -m sidecar.config.reference | diff -u docs/configuration.md - || { echo "stale: run make docs"; exit 1; }
	$(BIN)/python -m sidecar.metrics.reference | diff -u docs/metrics.md - || { echo "stale: run make docs"; exit 1; }

docs: $(INSTALLED)-dev ## write the generated pages
	$(BIN)/python -m sidecar.config.reference > docs/configuration.md
	$(BIN)/python -m sidecar.metrics.reference > docs/metrics.md

bench: $(INSTALLED)-bench ## against no proxy, nginx and Envoy: some minutes; ARGS="--quick", ARGS="--help"
	$(BIN)/python -m tests.bench $(ARGS)

profile: $(INSTALLED)-dev ## where our time goes; LOAD=sse, ARGS="--profiler py-spy"
	$(BIN)/python -m tests.bench --profile $(or $(LOAD),json) $(ARGS)

clean: ## remove what was built or installed here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed; set PYTHON=…"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "install python3-venv first"; exit 1; }; \
		apt-get update -qq && apt-get install -qq -y python3-venv; }
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of extras, made anew when pyproject.toml changes.
$(INSTALLED)-dev: EXTRAS = dev
$(INSTALLED)-llm: EXTRAS = dev,llm
$(INSTALLED)-bench: EXTRAS = dev,bench
$(INSTALLED)-dev $(INSTALLED)-llm $(INSTALLED)-bench: pyproject.toml | $(BIN)/python
	@# uv is quicker when it is there; pip does the same.
	@set -- -e '.[$(EXTRAS)]'; echo "installing .[$(EXTRAS)]"; \
	if uv --version >/dev/null 2>&1; then uv pip install --quiet --python $(BIN)/python "$$@"; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check "$$@"; fi
	@touch $@

# promtool checks the rules, node runs the JavaScript SDK. Debian has both; without root they are left out, and said.
$(VENV)/.system: Makefile | $(BIN)/python
	@missing=; \
	command -v promtool >/dev/null || missing="prometheus"; \
	command -v npm >/dev/null || missing="$$missing nodejs npm"; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing; \
	else echo "left out, as only root can install it: (Debian) $$missing"; fi
	@touch $@
