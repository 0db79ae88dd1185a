"""A change to a moving VM is refused, because it would not reach the target."""

import faces
import onrecord
import pytest
from saltvirt.core.errors import LibvirtRefused, VirtError
from saltvirt.core.journal import records
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt import connect, reservations
from saltvirt.libvirt.domains import lifecycle

VM = """<domain type='test'><name>web1</name><memory unit='MiB'>64</memory>
<os><type arch='i686'>hvm</type></os></domain>"""
CALLS = [("setmem", [128]), ("setvcpus", [2]), ("set_autostart", ["on"])]


@pytest.fixture
def conn(fresh_driver):
    """A connection to a host with a VM that is shut off."""
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        lifecycle.define(conn, VM)
        yield conn
        lifecycle.undefine(conn, "web1")


@pytest.fixture
def settings(tmp_path):
    return HostSettings(uri="test:///default", state_dir=str(tmp_path))


@pytest.fixture
def face(settings):
    return faces.load("modules", "virt_update", {"state_dir": settings.state_dir})


def pending_changes(conn):
    """Return what an update would change."""
    return lifecycle.xml(conn, "web1"), "web1" in lifecycle.list_autostarted_domains(conn)


@pytest.mark.parametrize("phase", [moveprotocol.SENDING, moveprotocol.HANDING])
@pytest.mark.parametrize(("function", "args"), CALLS)
def test_a_vm_that_is_being_sent_is_not_changed(conn, settings, face, phase, function, args):
    changes_before, uuid = pending_changes(conn), lifecycle.uuid(conn, "web1")
    with records.hold_record(reservations.folder(settings), "departure", "web1") as record:
        record.begin("t1", phase, **onrecord.departure(uuid=uuid))

    with pytest.raises(VirtError, match="leaving this host|on its way"):
        getattr(face, function)("web1", *args)

    assert pending_changes(conn) == changes_before


@pytest.mark.parametrize(("function", "args"), CALLS)
def test_a_definition_that_was_only_kept_is_not_changed(conn, face, function, args):
    lifecycle.mark_moved(conn, "web1", "hyper2")
    changes_before = pending_changes(conn)

    with pytest.raises(VirtError, match="moved to hyper2"):
        getattr(face, function)("web1", *args)

    assert pending_changes(conn) == changes_before


def test_a_vm_that_stays_is_changed_and_one_that_runs_only_for_its_next_start(conn, face):
    assert face.setmem("web1", 128) and face.setvcpus("web1", 2)
    assert face.set_autostart("web1") is True
    lifecycle.start(conn, "web1")
    try:
        with pytest.raises(LibvirtRefused, match="runs; stop it first, or give config=True"):
            face.setmem("web1", 64)
    finally:
        lifecycle.destroy(conn, "web1")

    assert (
        ">131072</memory>" in pending_changes(conn)[0] and ">2</vcpu>" in pending_changes(conn)[0]
    )


@pytest.fixture
def define(settings):
    return faces.load("modules", "virt_define", {"state_dir": settings.state_dir}).define_xml_str


def test_the_note_that_a_vm_has_moved_is_not_lost_by_defining_it(conn, define):
    text = lifecycle.inactive_xml(conn, "web1")
    lifecycle.mark_moved(conn, "web1", "hyper2")

    with pytest.raises(VirtError, match="moved to hyper2"):
        define(text)

    assert lifecycle.moved_to(conn, "web1") == "hyper2"


@pytest.mark.parametrize("purpose", ["departure", "arrival"])
def test_a_vm_that_is_on_its_way_is_not_defined(conn, settings, define, purpose):
    text = lifecycle.inactive_xml(conn, "web1")
    phase = moveprotocol.SENDING if purpose == "departure" else moveprotocol.PREPARING
    facts = getattr(onrecord, purpose)(uuid=lifecycle.uuid(conn, "web1"))
    with records.hold_record(reservations.folder(settings), purpose, "web1") as record:
        record.begin("t1", phase, **facts)

    with pytest.raises(VirtError, match="this host since"):
        define(text.replace("65536", "131072"))

    assert ">65536</memory>" in lifecycle.xml(conn, "web1")


def test_a_vm_that_stays_and_one_that_is_new_are_defined(conn, define):
    assert define(lifecycle.inactive_xml(conn, "web1").replace("65536", "131072")) is True
    assert ">131072</memory>" in lifecycle.xml(conn, "web1")
    assert define(VM.replace("web1", "db1")) is True
    lifecycle.undefine(conn, "db1")
    with pytest.raises(VirtError):
        define("<domain>")
    with pytest.raises(VirtError):
        define("no XML")
