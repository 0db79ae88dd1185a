"""Tests that look at many cases: at some of them always, at all of them in make nightly."""

import pytest


def sizes(quick, full):
    """Return the mark of a test of ``size`` cases."""
    return pytest.mark.parametrize("size", [quick, pytest.param(full, marks=pytest.mark.nightly)])
