"""The number of connections for a VM's memory, and the ciphers of a single one."""

import xml.etree.ElementTree as ET

import libvirt
import pytest
from saltvirt.core.model import Move
from saltvirt.libvirt.domains import migrate, migrateconnections
from saltvirt.migration.host import connections, sending
from saltvirt.xml.domain import tlspriority

PARALLEL = libvirt.VIR_MIGRATE_PARALLEL


def flags(options):
    return migrate.flags(options, copies=(), is_shared=False, is_running=True)


def parameters(options):
    return migrate.parameters(options, address="hyper2", disks=(), is_running=True)


@pytest.mark.parametrize("options", [Move(), Move(live=True), Move(live=False)])
def test_a_running_vm_moves_over_two_connections(options):
    options_to_use = connections.choose(options, is_running=True)

    assert flags(options_to_use) & PARALLEL
    assert parameters(options_to_use)["parallel.connections"] == 2
    assert not connections.is_single(options_to_use)


@pytest.mark.parametrize(
    "options",
    [Move(postcopy=True), Move(compressed=True), Move(tunnel=True), Move(parallel_connections=1)],
)
def test_a_move_that_needs_one_connection_has_one(options):
    options_to_use = connections.choose(options, is_running=True)

    assert options_to_use == options
    assert not flags(options_to_use) & PARALLEL
    assert "parallel.connections" not in parameters(options_to_use)


def test_a_number_of_connections_that_a_call_gives_is_kept():
    options_to_use = connections.choose(Move(parallel_connections=5), is_running=True)

    assert parameters(options_to_use)["parallel.connections"] == 5


def test_a_stopped_vm_has_no_memory_to_send():
    assert connections.choose(Move(), is_running=False) == Move()


class Job:
    """A job that fails at once: the QEMUs of the tests all support several connections."""

    def __init__(self, error):
        self.error = error


class Refused(libvirt.libvirtError):
    """libvirt's refusal of a capability; it checks both QEMUs first."""

    def __init__(self, text="Migration option 'multifd' is not supported by QEMU binary"):
        super().__init__(text)
        self._text = text

    def __str__(self):
        return self._text

    def get_error_code(self):
        return libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED


def begun_moves(monkeypatch, options, *errors):
    """Return the begun moves, if the first of them end with these errors."""
    remaining_errors, moves = list(errors), []

    def begin_move(move):
        moves.append(move)
        return Job(remaining_errors.pop(0) if remaining_errors else None)

    def fail_or_succeed(_context, job, _name, _options):
        if job.error is not None:
            raise migrate.MigrationFailed("it stays")
        return {"memory_bytes": 1}

    monkeypatch.setattr(sending, "watch_transfer", fail_or_succeed)
    try:
        sending._watch_job(None, "web1", options, True, begin_move)
    except migrate.MigrationFailed:
        moves.append("failed")
    return [
        move_or_failure if move_or_failure == "failed" else move_or_failure.parallel_connections
        for move_or_failure in moves
    ]


def test_one_connection_is_used_if_a_qemu_supports_no_others(monkeypatch):
    assert begun_moves(monkeypatch, Move(), Refused()) == [2, None]
    # An explicit number of connections is not changed: the move fails.
    assert begun_moves(monkeypatch, Move(parallel_connections=3), Refused()) == [3, "failed"]


def test_another_failure_is_not_tried_again(monkeypatch):
    other_error = Refused("unsupported argument: flag")

    assert begun_moves(monkeypatch, Move(), other_error) == [2, "failed"]
    assert not migrateconnections.is_refused(None)


DOMAIN = """<domain type='kvm' id='3' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>web1</name>
  <metadata><app:note xmlns:app='urn:app'>a &lt; b</app:note></metadata>
</domain>
"""
ENV = "{http://libvirt.org/schemas/domain/qemu/1.0}env"


class TargetLibvirt:
    """The target's libvirt; the lab's libvirts are older than 11.6."""

    def __init__(self, version):
        self.getLibVersion = lambda: version


@pytest.fixture
def running(monkeypatch):
    monkeypatch.setattr(migrateconnections, "running_xml", lambda _conn, _name: DOMAIN)


@pytest.mark.parametrize("options", [Move(postcopy=True), Move(parallel_connections=1), Move()])
def test_over_one_connection_the_targets_qemu_refuses_aes(running, options):
    xml = connections.parameters(None, "web1", TargetLibvirt(11_005_000), options)[
        "destination_xml"
    ]

    (variable,) = ET.fromstring(xml).iter(ENV)
    assert variable.attrib == {
        "name": "GNUTLS_SYSTEM_PRIORITY_FILE",
        "value": "/etc/pki/qemu/salt-virt-gnutls.conf",
    }
    assert "<app:note xmlns:app='urn:app'>a &lt; b</app:note>" in xml


@pytest.mark.parametrize(
    ("version", "options"),
    [
        (11_006_000, Move(postcopy=True)),
        (9_000_000, Move(parallel_connections=2)),
        (9_000_000, Move(tunnel=True)),
    ],
)
def test_the_definition_is_unchanged_if_libvirt_or_several_connections_avoid_aes(
    running, version, options
):
    assert connections.parameters(None, "web1", TargetLibvirt(version), options) == {}


def test_a_vm_that_has_the_variable_keeps_its_own():
    changed_xml = tlspriority.add_variable(DOMAIN)

    assert tlspriority.add_variable(changed_xml) == changed_xml
