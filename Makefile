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
.PHONY: help demo test test-all browser promtool mariadb pgbouncer deploy docs check sbom sim mutants compare soak proof bench format clean

help: ## List the targets
	@echo "Fencepost. Targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "PYTHON=python3.12 chooses the interpreter of a new $(VENV) (make clean first)."

demo: $(VENV)/.demo ## A service of three loses its leader in mid-run (SECONDS=60 ends by itself, KEEP=1 keeps the files)
	@trap : INT; PYTHONPATH=examples/stop_sync $(PY) -m stop_sync.demo \
		$(if $(SECONDS),--seconds $(SECONDS)) $(if $(KEEP),--keep) || test $$? -eq 130 # Ctrl-C is the usual end

test test-all: export PYTEST_DISABLE_PLUGIN_AUTOLOAD := 1

test: export FENCEPOST_COMPARISON_SEEDS := 3
test: $(VENV)/.dev browser promtool mariadb ## Run the quick tests on all cores: every rule on every store, under 8 minutes on 2 cores
	$(PY) -m pytest -n $(CORES) -q -m "timely and not slow"
	$(PY) -m pytest -n $(WORKERS) --dist worksteal -q -m "not timely and not slow and not mutants"

test-all: $(VENV)/.dev browser mariadb pgbouncer ## Run what "make test" leaves out: slow scenes, mutants, more seeds (under 25 minutes)
	FENCEPOST_COMPARISON_SEEDS=20 $(PY) -m pytest -n $(WORKERS) --dist worksteal -q -m "(slow or mutants) and not rare"
	FENCEPOST_COMPARISON_SEEDS=100 $(PY) -m pytest -n $(WORKERS) --dist worksteal -q -m "not slow" -k agrees_with_the_model tests/store

# The widget's tests drive the system's Chromium. Where there is none and we may, Debian's is installed.
browser:
	@test -n "$(CHROMIUM)" || which chromium >/dev/null 2>&1 || which chromium-browser >/dev/null 2>&1 || \
	which google-chrome >/dev/null 2>&1 || { test "$$(id -u)" = 0 && which apt-get >/dev/null 2>&1 && \
		echo "Installing Chromium for the widget's tests ..." && timeout 120 apt-get -qq update && \
		timeout 300 apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null; } || \
	echo "No Chromium: the widget's tests are skipped, or fail where CI=true."

# The alert rules are checked and tested by Prometheus' own tool. Where there is none, Debian's is unpacked here.
promtool:
	@which promtool >/dev/null 2>&1 || test -x $(VENV)/prometheus/usr/bin/promtool || \
	{ which apt-get dpkg >/dev/null 2>&1 && mkdir -p $(VENV)/prometheus && cd $(VENV)/prometheus && \
		echo "Fetching promtool for the tests of the alert rules ..." && \
		timeout 120 apt-get -qq download prometheus 2>/dev/null && dpkg -x prometheus_*.deb . && rm prometheus_*.deb; } || \
	echo "No promtool: the alert rules are read by another parser, and their unit tests are skipped."

# A store behind a pooler is tested with PgBouncer. Debian's is unpacked, not installed.
pgbouncer:
	@which pgbouncer >/dev/null 2>&1 || test -x /usr/sbin/pgbouncer -o -x $(VENV)/pgbouncer/usr/sbin/pgbouncer || \
	{ which apt-get apt-cache dpkg >/dev/null 2>&1 && mkdir -p $(VENV)/pgbouncer && cd $(VENV)/pgbouncer && \
		echo "Fetching PgBouncer for the tests of the PostgreSQL store ..." && \
		timeout 120 apt-get -qq download pgbouncer \
			$$(apt-cache depends pgbouncer | sed -n 's/.*Depends: \(libc-\{0,1\}ares[0-9a-z]*\|libevent-[0-9.a-z-]*\)$$/\1/p') 2>/dev/null && \
		for package in *.deb; do dpkg -x "$$package" . || exit 1; done && rm *.deb; } || \
	echo "No PgBouncer: the tests with a real pooler are skipped."

# The MySQL store is tested on the machine's MariaDB, or on Debian's, unpacked here: nothing is installed or started.
MARIADB := mariadb-server mariadb-server-core mariadb-client-core libaio1 libaio1t64 liburing2 libnuma1
mariadb: $(VENV)/.dev
	@which mariadbd >/dev/null 2>&1 || test -x /usr/sbin/mariadbd || test -x $(VENV)/mariadb/usr/sbin/mariadbd || \
	{ which apt-get dpkg >/dev/null 2>&1 && mkdir -p $(VENV)/mariadb && cd $(VENV)/mariadb && \
		echo "Fetching MariaDB for the tests of the MySQL store ..." && \
		{ apt-cache show mariadb-server >/dev/null 2>&1 || { test "$$(id -u)" = 0 && timeout 120 apt-get -qq update; }; \
		for package in $(MARIADB); do timeout 120 apt-get -qq download $$package 2>/dev/null; done; \
		for file in *.deb; do dpkg -x $$file . ; done; rm -f *.deb; test -x usr/sbin/mariadbd; }; } || \
	echo "No MariaDB: the tests of the MySQL store are skipped, or fail where CI=true."

deploy: $(VENV)/.dev ## Write the alert rules and the dashboard of deploy/ anew from the metrics
	$(PY) -m deploy.generate $(ARGS)

check: $(VENV)/.dev $(VENV)/.release ## Lint, check the formatting, the types, the order of the rooms, and the built packages
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-cache
	rm -rf build/dist && $(PY) -m build --quiet --outdir build/dist && $(PY) -m twine check --strict build/dist/*

sbom: check ## What the built wheel brings along, as CycloneDX: build/sbom.cdx.json
	rm -rf build/sbom && $(PY) -m venv --without-pip build/sbom
	$(PY) -m pip --python build/sbom/bin/python install --quiet --disable-pip-version-check build/dist/*.whl
	$(VENV)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file build/sbom.cdx.json build/sbom/bin/python
	$(PY) deploy/release_check.py --sbom build/sbom.cdx.json

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/.docs ## Build the site into build/site; a dead link is an error, as is a question without an answer
	$(PY) -m mkdocs build --strict --quiet
	BUILT_SITE=build/site $(PY) -m pytest -q tests/docs/test_site.py

sim: $(VENV)/.dev ## Simulate faults: SEEDS=500 histories, or SEED=17 for one with its trace (WITH=engine,limits in all)
	$(PY) -m tests.protocol.sim $(if $(SEED),--seed $(SEED) --trace,--seeds $(SEEDS) --jobs $(CORES)) $(if $(WITH),--with $(WITH))

mutants: $(VENV)/.dev ## Break the protocol on purpose; each break must be noticed (ARGS=--markdown for the docs)
	$(PY) -m tests.protocol.mutants --jobs $(CORES) $(ARGS)
	$(PY) -m pytest -n $(CORES) -q -m mutants tests/store

compare: $(VENV)/.dev ## Random operations on every store, each reply compared with the model: SEEDS=500
	FENCEPOST_COMPARISON_SEEDS=$(SEEDS) $(PY) -m pytest -n $(WORKERS) --dist worksteal -q -k agrees_with_the_model tests/store

soak: $(VENV)/.dev ## Real processes under load and faults: STORE=sqlite|file|valkey|postgres|mysql|topologies|all SECONDS=60
	$(PY) -m soak.run --store $(or $(STORE),all) --seconds $(or $(SECONDS),60)

proof: $(VENV)/.dev ## Histories under faults, and the figures of docs/proof.md: SEEDS=100 SECONDS=20 (ARGS="--folder …")
	$(PY) -m proof.run --seeds $(if $(filter file,$(origin SEEDS)),100,$(SEEDS)) --seconds $(or $(SECONDS),20) $(ARGS)

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

$(VENV)/.docs $(VENV)/.release: $(VENV)/.%: $(VENV)/.dev
	@echo "Installing what 'make $*' needs into $(VENV) ..."
	@$(call pip_install,-e '.[$*]')
	@touch $@

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
