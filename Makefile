# Everything a newcomer types. Packages and Python environments are installed when missing.
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

lab:       ## bring the lab up and leave it up
	tests/lab/lab up --hosts 3

bench:     ## figures beside named rivals, in one run
	tests/env python tests/bench/run.py

docs:      ## the pages and the reference of all functions, in docs/_build/html
	tests/env pytest tests/conventions -k docs
	tests/env sphinx-build -q -W --keep-going docs docs/_build/html

.PHONY: help demo test nightly unit compat lint lab bench docs
