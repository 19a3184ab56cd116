# Every target makes .venv and installs what it needs; nothing but Python, git and make is assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Everything is installed; and, which that implies, what `hubbub-simulate` needs (a quarter of it).
READY := $(VENV)/.ready
RUNS := $(VENV)/.runs
# Two more than there are cores: some tests wait.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
# npm in client/javascript, with the Node that .venv has.
NPM := PYTHONPATH=tests $(BIN)/python -m package.npm
NODE_MODULES := client/javascript/node_modules
# Packages whose docstrings name every parameter; the others follow as they are done.
DOCUMENTED := client/hubbub collector/hubbub decoder/hubbub simulations/hubbub
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Programs that compile all they import take twice as long to start, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-watch try docs test test-random test-long test-browser test-package test-lowest test-pgbouncer test-proxies test-alerts lint lint-javascript dist changelog bench engines attacks change suite calibration planning releases paper kills law laws fuzz golden model soak fortnight growth mixing cluster clean
.DEFAULT_GOAL := help

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' Makefile

# With the newest pip: the one of an old Python takes three times as long to see what fits.
define install
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hubbub needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv --upgrade-deps $(VENV)
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[$(1)]'
endef

# Compiled once, and tests by pytest: workers that begin together would each compile all that they import.
$(READY): pyproject.toml constraints.txt
	$(call install,dev)
	-$(BIN)/python -m compileall -qq -j 0 "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" client collector decoder simulations
	-$(BIN)/pytest --collect-only -qq > /dev/null 2>&1
	@touch $(RUNS) $@

$(RUNS): pyproject.toml constraints.txt
	$(call install,simulations)
	@touch $@

demo: $(RUNS)  ## half a million simulated clients, a real collector, a real decoder (about 3 minutes)
	$(BIN)/hubbub-simulate demo --output out/demo

demo-watch: $(RUNS)  ## a month of results of an app whose release breaks one platform; out/demo-watch/results/index.html (about a minute)
	$(BIN)/hubbub-simulate watch --output out/demo-watch

try: $(RUNS)  ## a small service to watch for ten minutes or until Ctrl-C: collector, apps, a report that sharpens
	$(BIN)/hubbub-simulate try --output out/try

docs: $(READY)  ## the documentation as a site in out/site (open out/site/index.html); a dead link is an error
	PYTHONPATH=tests NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test: $(READY)  ## all tests but the long ones
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m 'not long and not nightly'

# Without the option that keeps the files' order; --randomly-seed=N of the head gives one again.
test-random: $(READY)  ## the same in another order each time, to find tests that need one
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m 'not long and not nightly' -o addopts='--import-mode=importlib --strict-markers --strict-config --randomly-dont-reset-seed'

test-long: $(READY)  ## the long ones: calibration by many runs, attacks, weeks of a service, properties by more examples; FULL=1 for three times as many runs
	HUBBUB_FULL=$(FULL) $(BIN)/pytest -n $(WORKERS) --dist worksteal -m 'long or (hypothesis and not nightly)' --hypothesis-profile=thorough

laws: $(READY)  ## the decoder's laws over 200 random settings (ten minutes)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m nightly

test-browser: docs  ## the documentation, results, the admin page and the JavaScript client in Chromium (Debian's package chromium); screenshots in out/test-browser
	$(BIN)/pytest -n 2 --dist loadfile tests/browser

test-package: $(READY)  ## the JavaScript client as npm would publish it (needs npm's registry); tarball in out/package
	$(BIN)/pytest tests/package

test-lowest: $(READY)  ## the lowest versions that pyproject.toml allows, in an environment of their own (out/lowest)
	$(PYTHON) -m venv --clear out/lowest
	PYTHONPATH=tests $(BIN)/python -m shipping.bounds > out/lowest.txt
	out/lowest/bin/pip install --quiet --no-compile --constraint out/lowest.txt --editable '.[test]'
	out/lowest/bin/pytest -n $(WORKERS) --dist worksteal -m 'not long and not nightly' -o filterwarnings=default tests/unit tests/service

test-pgbouncer: $(READY)  ## a store behind PgBouncer (Debian's package pgbouncer)
	$(BIN)/pytest tests/pgbouncer

test-proxies: $(READY)  ## a collector behind the proxies of docs/do/deploy.md (Debian's packages nginx, haproxy and caddy)
	$(BIN)/pytest tests/proxies

test-alerts: $(READY)  ## alert rules in Prometheus' engine (Debian's package prometheus)
	$(BIN)/pytest tests/alerts

lint: $(READY)  ## style (ruff), types (mypy --strict), which way imports go (import-linter), parameters (numpydoc), workflows (zizmor)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/numpydoc lint $$(find $(DOCUMENTED) -name '*.py')
	$(BIN)/zizmor --quiet --offline .github

lint-javascript: $(NODE_MODULES)/.ready  ## style of the JavaScript client, by Biome (needs npm's registry once)
	$(NPM) run lint

$(NODE_MODULES)/.ready: client/javascript/package-lock.json $(READY)
	$(NPM) ci --ignore-scripts
	@touch $@

# The day of the last change, so that the same commit gives the same bytes.
dist: $(NODE_MODULES)/.ready  ## wheel, sdist, npm tarball and their SBOMs in dist/, each tried in empty environments (needs npm's registry)
	rm -rf dist
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dist]'
	$(PYTHON) -m venv --clear out/build
	out/build/bin/pip install --quiet --require-hashes --only-binary :all: --requirement build-requirements.txt
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) out/build/bin/python -m hatchling build -d dist
	$(NPM) pack --pack-destination ../../dist
	$(BIN)/pytest tests/shipping

changelog: $(READY)  ## the section that changelog.d becomes; RELEASE=yes writes it into CHANGELOG.md, under the version's heading
	$(BIN)/towncrier build --version $$($(BIN)/python -c 'from hubbub.client import __version__; print(__version__)') $(if $(RELEASE),--yes,--draft)

bench: $(READY)  ## speed, as ratios to baselines timed in the same run
	PYTHONPATH=tests $(BIN)/python -m evaluation.benchmarks

engines: $(READY)  ## reports counted by local threads and Dask: CPU seconds and ratios
	PYTHONPATH=tests $(BIN)/python -m evaluation.ways count

attacks: $(READY)  ## attack what is claimed: what is measured beside what is promised; fails if a claim is broken (some minutes)
	PYTHONPATH=tests $(BIN)/python -m evaluation.attacks

change: $(READY)  ## what linked reports tell of changing values, against what is stated (a minute)
	PYTHONPATH=tests $(BIN)/python -m evaluation.studies change

suite: $(READY)  ## a quick look at the decoder's error rates: 8 cases of listed strings; fails if a bound is broken
	PYTHONPATH=tests $(BIN)/python -m evaluation.suite --quick

calibration: $(READY)  ## the decoder's error rates over all cases, methods and types (long)
	PYTHONPATH=tests $(BIN)/python -m evaluation.suite --seeds 20 --output out/suite.md --output out/suite.json
	PYTHONPATH=tests $(BIN)/python -m evaluation.studies likelihood
	PYTHONPATH=tests $(BIN)/python -m evaluation.studies categories
	PYTHONPATH=tests $(BIN)/python -m evaluation.studies joint

planning: $(READY)  ## the planner's theory against simulation (some minutes)
	PYTHONPATH=tests $(BIN)/python -m evaluation.studies planned-power
	PYTHONPATH=tests $(BIN)/python -m evaluation.studies planned-open
	PYTHONPATH=tests $(BIN)/python -m evaluation.studies planned-joint

releases: $(READY)  ## errors of the central mechanisms beside their formulas and textbooks' (a few minutes)
	PYTHONPATH=tests $(BIN)/python -m evaluation.studies releases

paper: $(READY)  ## the RAPPOR paper's experiments and headline numbers beside ours (some minutes)
	PYTHONPATH=tests $(BIN)/python -m evaluation.paper --output out/paper.md

kills: $(READY)  ## kill apps, collectors and spenders of a ledger at random moments and look for what is lost, doubled or unpaid
	HUBBUB_KILLS=50 $(BIN)/pytest -v tests/service/test_client_crashes.py tests/service/test_faults_kills.py
	HUBBUB_KILLS=100 $(BIN)/pytest -v tests/unit/release/test_ledger.py

law: $(READY)  ## the JavaScript client's probabilities from five times as many clients (some minutes)
	HUBBUB_CLIENTS=500000 $(BIN)/pytest -v tests/statistical/test_javascript_law.py

fuzz: $(READY)  ## a million malformed requests to a collector (some minutes)
	HUBBUB_FUZZ=1000000 $(BIN)/pytest -v tests/service/test_fuzzing.py

golden: $(READY)  ## write the golden files of all commands' outputs anew; say in the commit why they changed
	PYTHONPATH=tests $(BIN)/python -m golden --update

model: $(READY)  ## a collector against a dictionary, over hundreds of random histories (some minutes)
	HUBBUB_MODEL_EXAMPLES=200 $(BIN)/pytest -v tests/service/test_model.py

soak: $(READY)  ## a collector at full load for five minutes: memory, speed, latency
	PYTHONPATH=tests $(BIN)/python -m evaluation.loadtest soak --minutes 5

fortnight: $(READY)  ## seven weeks of a service under a clock that runs fast: ids, reports, disk and memory level off (8 minutes)
	PYTHONPATH=tests $(BIN)/python -m evaluation.loadtest fortnight --store sqlite
	PYTHONPATH=tests $(BIN)/python -m evaluation.loadtest fortnight --store postgresql

growth: $(READY)  ## ingest and upkeep with ten million batch ids, beside a thousand (some minutes)
	PYTHONPATH=tests $(BIN)/python -m evaluation.loadtest growth --store postgresql
	PYTHONPATH=tests $(BIN)/python -m evaluation.loadtest growth --store sqlite

mixing: $(READY)  ## what it costs to mix a day that is over, and what ingest notices of it
	PYTHONPATH=tests $(BIN)/python -m evaluation.loadtest mixing --store postgresql --reports 10000000
	PYTHONPATH=tests $(BIN)/python -m evaluation.loadtest mixing --store sqlite --reports 10000000

cluster: $(READY)  ## a whole service on one machine, of which one of each process is killed (10 minutes)
	PYTHONPATH=tests $(BIN)/python -m evaluation.cluster

clean:  ## remove .venv and everything that was made
	rm -rf $(VENV) out dist build .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
