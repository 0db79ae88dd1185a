# Everything a newcomer types. Packages and Python environments are installed when missing.
PYTHON = python3
# The tests that need neither root nor libvirt; test_nightly.py runs tests/env.
PURE = tests/conventions --ignore=tests/conventions/test_nightly.py
PURE += tests/unit/placement tests/unit/xml tests/unit/core/protocol

help:      ## these lines
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:[^#]*##/\t/'

demo:      ## a cloud of 3 hypervisors on this machine: deploy, show, move, remove
	tests/demo

test: lint unit docs  ## the whole test suite, fast tests first
	tests/together

nightly:   ## the tests that take minutes each, with the machine to themselves
	tests/nightly

unit:      ## no daemon; a minute (root, as all of it, for the tests' own Debian)
	tests/env pytest -n auto --dist worksteal tests/unit -m "not nightly and not slow"

compat:    ## each old function beside that of Salt 3006.25: a minute or two
	tests/env pytest tests/compat

lint:      ## style, types and conventions
	tests/env ruff check .
	tests/env ruff format --check .
	tests/env mypy
	tests/env mypy --config-file tests/worker-mypy.toml
	tests/env pytest -n auto tests/conventions

check:     .venv/made  ## style, types, conventions, pure unit tests; no root, in .venv
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/mypy --config-file tests/worker-mypy.toml
	.venv/bin/pytest -q -n auto -m "not (libvirt or slow or nightly)" $(PURE)

.venv/made: pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -q -e '.[tests]'
	touch $@

lab:       ## bring the lab up and leave it up
	tests/lab/lab up --hosts 3

bench:     ## figures beside named rivals, in one run
	tests/env python tests/bench/run.py

docs:      ## the pages and the reference of all functions, in docs/_build/html
	tests/env pytest tests/conventions -k docs
	tests/env sphinx-build -q -W --keep-going docs docs/_build/html

.PHONY: help demo test nightly unit compat lint check lab bench docs
