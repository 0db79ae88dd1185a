"""Which libvirt is used if the options name none, and which drivers are refused."""

import os

import pytest
from saltvirt.core.errors import BadConfig, HostUnreachable
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect


@pytest.fixture
def conf(tmp_path, monkeypatch):
    """The path of a host's libvirt.conf, which does not exist yet."""
    monkeypatch.setattr(connect, "_SYSTEM", tmp_path)
    monkeypatch.delenv("LIBVIRT_DEFAULT_URI", raising=False)
    (tmp_path / "libvirt").mkdir()
    return tmp_path / "libvirt/libvirt.conf"


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        (None, "qemu:///system"),
        ("", "qemu:///system"),
        ('#uri_default = "qemu:///session"\n', "qemu:///system"),
        ('uri_default = ""\n', "qemu:///system"),
        ('uri_aliases = [ "a=qemu:///b" ]\n  uri_default="test:///default"\n', "test:///default"),
    ],
)
def test_libvirts_own_configuration_names_the_uri(conf, text, uri):
    if text is not None:
        conf.write_text(text)

    assert connect.default_uri() == uri


def test_a_file_that_is_changed_is_read_again(conf):
    for uri in ("test:///default", "qemu:///session", "test:///another"):
        conf.write_text(f'uri_default = "{uri}"\n')
        assert connect.default_uri() == uri
    conf.unlink()
    assert connect.default_uri() == "qemu:///system"


def test_its_variable_wins_over_its_file(conf, monkeypatch):
    conf.write_text('uri_default = "qemu:///session"\n')
    monkeypatch.setenv("LIBVIRT_DEFAULT_URI", "test:///default")

    assert connect.default_uri() == "test:///default"
    with connect.open_connection(HostSettings()) as conn:
        assert conn.getType() == "TEST"


def test_an_option_wins_over_both(conf, monkeypatch):
    monkeypatch.setenv("LIBVIRT_DEFAULT_URI", "xen:///system")

    with connect.open_connection(HostSettings(uri="test:///default")) as conn:
        assert conn.getType() == "TEST"


def test_the_file_of_another_user_is_that_users(conf, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    conf.write_text('uri_default = "qemu:///session"\n')

    assert connect.default_uri() == "qemu:///session"


def test_a_file_that_cannot_be_read_is_an_error(conf):
    conf.mkdir()

    with pytest.raises(HostUnreachable, match="uri_default of .*libvirt.conf: Is a directory"):
        connect.default_uri()


@pytest.mark.parametrize(
    "uri", ["xen:///system", "xen+ssh://host/", "esx://host/", "bhyve:///system", "vpx://h/dc"]
)
def test_other_drivers_are_refused_in_one_line(uri):
    with pytest.raises(BadConfig) as excinfo, connect.open_connection(HostSettings(uri=uri)):
        pass

    driver = uri.partition(":")[0].partition("+")[0]
    assert str(excinfo.value) == (
        f"libvirt's driver {driver!r} is not supported, only QEMU's is; set virt:connection:uri to "
        "qemu:///system"
    )


@pytest.mark.parametrize(
    "uri", ["qemu:///system", "qemu+tls://h/system", "test:///default", "ours"]
)
def test_qemus_driver_and_aliases_are_accepted(uri):
    connect.refuse_other_drivers(uri)
