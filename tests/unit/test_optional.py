"""A Python module that a state installs is used by the job that is running."""

import sys

import pytest
from saltvirt import optional


def test_a_module_that_was_missing_is_found_once_it_is_there(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = optional.OptionalModule("installed_meanwhile")
    assert optional.is_missing(module)
    with pytest.raises(ModuleNotFoundError, match="installed_meanwhile"):
        str(module.answer)

    (tmp_path / "installed_meanwhile.py").write_text("answer = 42")

    assert not optional.is_missing(module)
    assert module.answer == 42
    del sys.modules["installed_meanwhile"]


def test_a_module_that_was_there_is_itself():
    assert not optional.is_missing(sys)
