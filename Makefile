# Needs only make and Python 3.11 or newer. `make` alone lists the targets.

VENV := .venv
PY := $(VENV)/bin/python
SEEDS ?= 500
CONSTRAINTS := constraints-dev.txt
CORES = $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
# Most tests wait most of the time, and share a core. Those that say how late something may be do not.
WORKERS = $$((3 * $(CORES)))

# The first interpreter that is new enough and can make a virtual environment.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& echo $$python && break; done)

# Hundreds of Python processes are started here. None should compile what the one before it has compiled; nor should
# pip compile what nobody imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-all browser check sim mutants compare soak bench format clean

help: ## List the targets
	@echo "Fencepost. Targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "PYTHON=python3.12 chooses the interpreter of a new $(VENV) (make clean first)."

demo: $(VENV)/.demo ## A service of three loses its leader in mid-run (SECONDS=60 ends by itself, KEEP=1 keeps the files)
	@trap : INT; PYTHONPATH=examples/stop_sync $(PY) -m stop_sync.demo \
		$(if $(SECONDS),--seconds $(SECONDS)) $(if $(KEEP),--keep) || test $$? -eq 130 # Ctrl-C is the usual end

test test-all: export PYTEST_DISABLE_PLUGIN_AUTOLOAD := 1

test: export FENCEPOST_COMPARISON_SEEDS := 6
test: $(VENV)/.dev browser ## Run the quick tests on all cores: every rule on every store, under 8 minutes on 2 cores
	$(PY) -m pytest -n $(CORES) -q -m "timely and not slow"
	$(PY) -m pytest -n $(WORKERS) --dist worksteal -q -m "not timely and not slow and not mutants"

test-all: export FENCEPOST_COMPARISON_SEEDS := 100
test-all: $(VENV)/.dev browser ## Run what "make test" leaves out: slow scenes, mutants, more seeds (under 25 minutes)
	$(PY) -m pytest -n $(WORKERS) --dist worksteal -q -m "slow or mutants"
	$(PY) -m pytest -n $(WORKERS) --dist worksteal -q -m "not slow" -k agrees_with_the_model tests/store

# The widget's tests drive the system's Chromium. Where there is none and we may, Debian's is installed.
browser:
	@test -n "$(CHROMIUM)" || which chromium >/dev/null 2>&1 || which chromium-browser >/dev/null 2>&1 || \
	which google-chrome >/dev/null 2>&1 || { test "$$(id -u)" = 0 && which apt-get >/dev/null 2>&1 && \
		echo "Installing Chromium for the widget's tests ..." && timeout 120 apt-get -qq update && \
		timeout 300 apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null; } || \
	echo "No Chromium: the widget's tests are skipped, or fail where CI=true."

check: $(VENV)/.dev ## Lint, check the formatting, the types and the order of the rooms
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-cache

sim: $(VENV)/.dev ## Simulate faults: SEEDS=500 histories, or SEED=17 for one with its trace
	$(PY) -m tests.protocol.sim $(if $(SEED),--seed $(SEED) --trace,--seeds $(SEEDS) --jobs $(CORES))

mutants: $(VENV)/.dev ## Break the protocol on purpose; each break must be noticed (ARGS=--markdown for the docs)
	$(PY) -m tests.protocol.mutants --jobs $(CORES) $(ARGS)
	$(PY) -m pytest -n $(CORES) -q -m mutants tests/store

compare: $(VENV)/.dev ## Random operations on every store, each reply compared with the model: SEEDS=500
	FENCEPOST_COMPARISON_SEEDS=$(SEEDS) $(PY) -m pytest -n $(WORKERS) --dist worksteal -q -k agrees_with_the_model tests/store

soak: $(VENV)/.dev ## Real processes under load and faults: STORE=sqlite|file|valkey|postgres|all SECONDS=60
	$(PY) -m soak.run --store $(or $(STORE),all) --seconds $(or $(SECONDS),60)

bench: $(VENV)/.dev ## Measure on this machine: rate, lateness, registration, idle (ARGS=--quick is shorter)
	$(PY) -m bench.run $(ARGS)

format: $(VENV)/.dev ## Format the code and fix what can be fixed
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean: ## Remove the virtual environment, caches and build output
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The same environment serves both: .demo has what the demo needs, .dev adds the tools.

$(VENV)/.demo: pyproject.toml $(CONSTRAINTS)
	@$(call make_venv)
	@echo "Installing Fencepost and what the demo needs into $(VENV) ..."
	@$(call pip_install,-e '.[http$(,)web]' jinja2 scipy)
	@touch $@

$(VENV)/.dev: pyproject.toml $(CONSTRAINTS)
	@$(call make_venv)
	@echo "Installing Fencepost and its development tools into $(VENV) (a minute the first time) ..."
	@$(call pip_install,-e '.[dev]')
	@touch $(VENV)/.demo $@

, := ,

define make_venv
$(PY) -m pip --version >/dev/null 2>&1 || { \
	test -n "$(PYTHON)" || { echo "Needs Python 3.11 or newer with venv; name one with PYTHON=..." >&2; exit 1; }; \
	echo "Creating $(VENV) with $(PYTHON) ..."; \
	"$(PYTHON)" -m venv --clear $(VENV); }
endef

define pip_install
$(PY) -m pip install --quiet --disable-pip-version-check --no-compile $(1) -c $(CONSTRAINTS) || { \
	echo "The installation failed; see above. 'make clean' starts afresh." >&2; exit 1; }
endef
