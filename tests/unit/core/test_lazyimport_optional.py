"""A Python module that a state installs is used by the job that is running."""

import sys

import pytest
from saltvirt.core.salt import lazyimport
from saltvirt.libvirt import connect


def test_a_module_that_was_missing_is_found_once_it_is_there(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = lazyimport.OptionalModule("installed_meanwhile")
    assert lazyimport.is_missing(module)
    with pytest.raises(ModuleNotFoundError, match="installed_meanwhile"):
        str(module.answer)

    (tmp_path / "installed_meanwhile.py").write_text("answer = 42")

    assert not lazyimport.is_missing(module)
    assert module.answer == 42
    del sys.modules["installed_meanwhile"]


def test_a_file_of_the_same_name_is_not_the_module(tmp_path, monkeypatch):
    (tmp_path / "named_as_it.py").write_text("answer = 0")
    monkeypatch.syspath_prepend(tmp_path)
    module = lazyimport.OptionalModule("named_as_it", proof="comes_with_it")

    assert lazyimport.is_missing(module)
    with pytest.raises(ModuleNotFoundError, match="comes_with_it"):
        str(module.answer)

    (tmp_path / "comes_with_it.py").write_text("")
    assert not lazyimport.is_missing(module)
    assert module.answer == 0
    for name in ("named_as_it", "comes_with_it"):
        del sys.modules[name]


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("/lib64/libldap.so.2: undefined symbol: EVP_md2, version OPENSSL_3.0.0", "update Salt"),
        ("libvirt.so.0: cannot open shared object file", "salt-pip install --force-reinstall"),
    ],
)
def test_a_libvirt_that_cannot_be_loaded_says_why(said, remedy, tmp_path, monkeypatch):
    (tmp_path / "broken_libvirt.py").write_text(f"raise ImportError({said!r})")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(connect, "libvirt", lazyimport.OptionalModule("broken_libvirt"))

    told = connect.why_missing()

    assert f"'libvirt' cannot be loaded: {said}; " in told
    assert remedy in told and "\n" not in told


def test_a_module_that_was_there_is_itself():
    assert lazyimport.why_broken(sys) is None
    assert not lazyimport.is_missing(sys)
