# Everything a newcomer types. `make demo` and `make test` need git, make and Python 3.11+, nothing else.
PYTHON ?= python3
BIN := .venv/bin
export DAGSTER_HOME := $(CURDIR)/dagster_home
export UV_SYSTEM_CERTS ?= true

.PHONY: demo test lint lock clean
demo: .venv/installed
	$(BIN)/piqc demo

test: .venv/installed
	$(BIN)/pytest -n 2 --dist loadfile

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q piqc_pipeline_tests/test_architecture.py

# uv installs the lock; its own pinned entry is taken from the lock first. It trusts the certificates that the machine
# trusts, those of a company's proxy among them.
.venv/installed: requirements.lock pyproject.toml
	@echo "installing $$(grep -c == requirements.lock) packages into .venv; two minutes, more over a slow network"
	$(PYTHON) -m venv .venv
	sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > .venv/uv.lock
	$(BIN)/pip install --quiet --require-hashes -r .venv/uv.lock
	UV_PYTHON_DOWNLOADS=never $(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.lock
	UV_PYTHON_DOWNLOADS=never $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	touch $@

# Versions and hashes only: the files that name a package index stay untracked.
lock: .venv/installed
	UV_PYTHON_DOWNLOADS=never $(BIN)/uv lock$(if $(UPGRADE), --upgrade)
	UV_PYTHON_DOWNLOADS=never $(BIN)/uv export --quiet --locked --no-emit-project --all-groups --no-header --no-annotate -o requirements.lock

clean:
	rm -rf .venv piqc-demo
