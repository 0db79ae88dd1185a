"""A Python module that a state installs is used by the job that is running."""

import sys

import pytest
from saltvirt.core.salt import lazyimport
from saltvirt.libvirt import connect


def test_a_missing_module_is_found_after_its_installation(tmp_path, monkeypatch):
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
    ("import_error", "remedy"),
    [
        ("/lib64/libldap.so.2: undefined symbol: EVP_md2, version OPENSSL_3.0.0", "update Salt"),
        ("libvirt.so.0: cannot open shared object file", "salt-pip install --force-reinstall"),
    ],
)
def test_the_error_of_an_unloadable_libvirt_names_the_reason(
    import_error, remedy, tmp_path, monkeypatch
):
    (tmp_path / "broken_libvirt.py").write_text(f"raise ImportError({import_error!r})")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(connect, "libvirt", lazyimport.OptionalModule("broken_libvirt"))

    message = connect.why_missing()

    assert f"'libvirt' cannot be loaded: {import_error}; " in message
    assert remedy in message and "\n" not in message


def test_an_installed_module_is_the_module_itself():
    assert lazyimport.why_broken(sys) is None
    assert not lazyimport.is_missing(sys)
