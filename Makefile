# Everything a person or CI runs. One environment in .venv, pinned by requirements.lock.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := kernels runner webapp tests manage.py

.PHONY: install demo test check format lock

install: $(STAMP)

$(STAMP): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Warpdeck needs Python 3.11 or newer; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@touch $(STAMP)

demo: install
	$(BIN)/python manage.py up --demo

test: install
	$(BIN)/python -m pytest -m "not alone" -n 2 --dist loadfile
	$(BIN)/python -m pytest -m alone

check: install
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

format: install
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

# Resolve pyproject.toml afresh and pin what was found. The local part of a version (+cpu) is dropped:
# the same pin resolves to whichever build of torch the machine's index offers.
lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet "torch==2.13.0" "triton==3.7.1" \
		-e ".[device,dev,postgres]"
	build/lock/bin/python -m pip freeze --exclude-editable --exclude setuptools \
		| sed -E 's/\+cpu//; /^(nvidia|cuda)-/d; s/^triton==.*/& ; platform_system == "Linux"/' > requirements.lock
