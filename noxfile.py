"""The suite for those who have nox; ``make`` does the same with nothing installed."""

import nox

nox.options.sessions = ["lint", "unit", "compat", "loading", "docs"]


@nox.session(python=False)
def lint(session):
    """Check style, types and conventions."""
    session.run("tests/env", "ruff", "check", ".", external=True)
    session.run("tests/env", "ruff", "format", "--check", ".", external=True)
    session.run("tests/env", "mypy", external=True)
    session.run("tests/env", "mypy", "--config-file", "tests/worker-mypy.toml", external=True)
    session.run("tests/env", "pytest", "-n", "auto", "tests/conventions", external=True)


@nox.session(python=False)
def unit(session):
    """Run what needs no daemon."""
    parallel = ("-n", "auto", "--dist", "worksteal")
    session.run("tests/env", "pytest", *parallel, "tests/unit", external=True)


@nox.session(python=False)
def compat(session):
    """Call each old function beside that of Salt 3006.25."""
    session.run("tests/env", "pytest", "tests/compat", external=True)


@nox.session(python=False)
def loading(session):
    """Load the bundle in every way, on both lines of Salt."""
    session.run("tests/env", "pytest", "tests/loading", external=True)


@nox.session(python=False)
def docs(session):
    """Check the pages, and make them."""
    session.run("tests/env", "pytest", "tests/conventions", "-k", "docs", external=True)
    pages = ("docs", "docs/_build/html")
    session.run("tests/env", "sphinx-build", "-q", "-W", "--keep-going", *pages, external=True)
