"""The stand-in for libvirt says what libvirt says; tests/cloud asks a real libvirtd the same."""

import itertools

import contract
import libvirt
import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import lifecycle, migrate, query
from swarmkit.standin import connection, refusals

HOST = "<node><cpu><arch>x86_64</arch></cpu></node>"


@pytest.fixture
def standin(tmp_path):
    """A host of the swarm's, without a swarm."""
    return connection.Connection(tmp_path, readonly=False)


@pytest.fixture
def driver(tmp_path):
    """The test driver of libvirt itself, without domains."""
    path = tmp_path / "host.xml"
    path.write_text(HOST)
    conn = libvirt.open(f"test://{path}")
    yield conn
    conn.close()


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_the_stand_in_keeps_the_contract(standin, check):
    check(standin)


@pytest.mark.parametrize(
    "check",
    [one for one in contract.CHECKS if one not in contract.NOT_OF_TEST],
    ids=lambda check: check.__name__,
)
def test_libvirts_test_driver_keeps_the_contract(driver, check):
    check(driver)


@pytest.mark.parametrize("check", contract.MOVES, ids=lambda check: check.__name__)
def test_the_stand_in_keeps_the_contract_of_moves(tmp_path, check):
    conns = [tmp_path / host / "libvirt" for host in ("a", "b")]
    for folder in conns:
        folder.mkdir(parents=True)

    check(*(connection.Connection(it, readonly=False) for it in conns), "qemu+tls://b/system")


def test_domains_outlive_connections_and_processes(tmp_path):
    first = connection.Connection(tmp_path, readonly=False)
    first.defineXML(contract.xml(first)).create()
    first.close()
    connection._store.cache_clear()

    later = connection.Connection(tmp_path, readonly=True)

    assert later.lookupByName(contract.NAME).isActive()


def test_who_only_reads_changes_nothing(standin, tmp_path):
    dom = standin.defineXML(contract.xml(standin))
    reader = connection.Connection(tmp_path, readonly=True)
    same = reader.lookupByName(dom.name())

    for call in (same.create, same.undefine, lambda: reader.defineXML(contract.xml(reader))):
        with pytest.raises(libvirt.libvirtError) as raised:
            call()
        assert raised.value.get_error_code() == libvirt.VIR_ERR_OPERATION_DENIED


def test_what_it_does_not_know_it_refuses_as_a_driver_does(standin):
    dom = standin.defineXML(contract.xml(standin))

    for call in (dom.blockCommit, standin.getCPUMap):
        with pytest.raises(libvirt.libvirtError) as raised:
            call()
        assert raised.value.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT


def test_a_planted_error_is_libvirts_and_changes_nothing(standin):
    dom = standin.defineXML(contract.xml(standin))

    with refusals.planted({"create": "no room"}), pytest.raises(libvirt.libvirtError) as raised:
        dom.create()

    assert "no room" in str(raised.value)
    assert not dom.isActive()
    dom.create()
    assert dom.isActive()


def test_unknown_flags_are_refused(standin):
    standin.defineXML(contract.xml(standin))

    with pytest.raises(libvirt.libvirtError) as raised:
        standin.listAllDomains(1 << 20)

    assert raised.value.get_error_code() == libvirt.VIR_ERR_INVALID_ARG


def test_our_library_works_on_it(tmp_path, monkeypatch):
    monkeypatch.setattr(connect, "_open", connect._open)
    monkeypatch.setattr(migrate, "target", migrate.target)
    connection.stand_in(connect, migrate)
    settings = HostSettings(uri=f"{connection.SCHEME}{tmp_path}")
    # As libvirt itself has it: so many runs, so many numbers.
    with connect.open_connection(settings, readonly=False) as conn:
        lifecycle.define(conn, contract.xml(conn))
        for _ in itertools.repeat(None, 2):
            lifecycle.start(conn, contract.NAME)
            lifecycle.destroy(conn, contract.NAME)
        lifecycle.start(conn, contract.NAME)

    with connect.open_connection(settings) as conn:
        assert query.states(conn) == {contract.NAME: "running"}
        assert conn.lookupByName(contract.NAME).ID() == 3
