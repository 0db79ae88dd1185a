"""A purge that was interrupted anywhere is finished by the next, and removes nothing of others."""

import os
import signal
import subprocess
import threading
from pathlib import Path

import onrecord
import pytest
from saltvirt.core.errors import NameTaken, NoSuchVm, StorageError, VirtError
from saltvirt.core.journal import records
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import definitionfiles, door
from saltvirt.vm.power.host import startlock
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished
from saltvirt.vm.show.host import inspect

NOTHING = ([], [], [])


def left(hypervisor):
    """Return the files, domains and records that are left."""
    return hypervisor.files(), hypervisor.domains(), hypervisor.open_records()


def purged(hypervisor, name="web1"):
    """Purge a VM, with all that stays known of it."""
    with hypervisor.libvirt() as conn:
        purge.purge(conn, hypervisor.settings, name)


def kill(*_args, **_given):
    """Die as a process does that is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def built(hypervisor):
    """A host with one VM."""
    with hypervisor.libvirt():
        hypervisor.init()
    return hypervisor


def test_a_purge_leaves_nothing(built):
    purged(built)

    assert left(built) == NOTHING
    with pytest.raises(NoSuchVm):
        purged(built)


def test_a_purge_takes_a_token_with_it_that_nobody_used(built):
    token = Path(built.settings.state_dir) / "tokens" / "web1"
    token.parent.mkdir()
    token.write_text("unused")

    purged(built)

    assert not token.exists()


def after_the_first(function):
    """Return a function that works once and kills at its second call."""
    calls = []

    def call(*args):
        if calls:
            kill()
        calls.append(args)
        return function(*args)

    return call


@pytest.mark.parametrize("point", ["purge.before-removing", "purge.removing", "purge.end"])
def test_a_purge_that_was_killed_at_a_phase_boundary_can_be_finished(built, point):
    built.dies(lambda: purged(built), point)

    if point == "purge.end":
        assert left(built) == NOTHING
    else:
        assert built.domains() == ["web1"]
        purged(built)
    assert left(built) == NOTHING


@pytest.mark.parametrize(
    ("part", "name"),
    [(lifecycle, "undefine"), (definitionfiles, "settle_definitions"), (unfinished, "remove")],
)
@pytest.mark.parametrize("by", ["the next purge", "the next command"])
def test_a_purge_that_was_killed_in_between_can_be_finished(built, monkeypatch, part, name, by):
    with monkeypatch.context() as dying:
        dying.setattr(part, name, kill)
        built.dies(lambda: purged(built))
    assert built.open_records() == [("purge", "web1", "removing")]
    was_defined = built.domains() == ["web1"]

    with built.libvirt() as conn:
        assert inspect.host_info(conn, built.settings).unfinished == ["web1"]
        assert inspect.presence(conn, built.settings, "web1").unfinished is True
        if by == "the next command":
            unfinished.settle(conn, built.settings)
    if by == "the next purge" or was_defined:
        # What is defined is never undone; the VM is stopped, and all of it is there.
        assert len(built.files()) == 3
        purged(built)

    assert left(built) == NOTHING


def test_a_purge_that_was_killed_among_the_files_can_be_finished(built, monkeypatch):
    with monkeypatch.context() as dying:
        dying.setattr(door, "remove", after_the_first(door.remove))
        built.dies(lambda: purged(built))
    assert len(built.files()) == 2

    purged(built)

    assert left(built) == NOTHING


def test_a_file_that_cannot_be_removed_is_named_and_the_purge_can_be_repeated(built, monkeypatch):
    def refuse(verdict):
        if verdict.path.endswith("_data.qcow2"):
            raise OSError(1, "Operation not permitted")
        remove(verdict)

    remove = door.remove
    with monkeypatch.context() as failing:
        failing.setattr(door, "remove", refuse)
        with pytest.raises(StorageError, match="the VM is gone, but .*_data.qcow2"):
            purged(built)
    assert built.files() == ["web1_data.qcow2"]

    purged(built)

    assert left(built) == NOTHING


def test_what_another_vm_has_taken_over_meanwhile_stays(built, monkeypatch):
    with monkeypatch.context() as dying:
        dying.setattr(unfinished, "remove", kill)
        built.dies(lambda: purged(built))
    path = f"{built.settings.images}/web1_data.qcow2"
    (built.definitions / "other.xml").write_text(
        f"""<domain type='test'><name>other</name><memory>1024</memory><os><type>hvm</type></os>
        <devices><disk type='file' device='disk'><source file='{path}'/>
        <target dev='vda'/></disk></devices></domain>"""
    )

    purged(built)

    assert (built.files(), built.domains()) == (["web1_data.qcow2"], ["other"])


def test_the_base_of_a_stopped_vms_overlay_stays(built):
    # libvirt does not say what is below the disk of a domain that does not run.
    base = f"{built.settings.images}/web1_data.qcow2"
    disk = {"name": "system", "backing_store_path": base}
    given = {"image": None, "disk": None, "disks": [disk], "seed": False, "start": False}
    trusting = built.settings.__class__(
        **{
            **{name: getattr(built.settings, name) for name in built.settings.__slots__},
            "backing_paths": [built.settings.images],
        }
    )
    built.settings = trusting
    with built.libvirt():
        built.init("web2", **given, pub_key=None, priv_key=None, seed_method=None)

    purged(built)

    assert built.files() == ["web1_data.qcow2", "web2_system.qcow2"]


@pytest.mark.parametrize(
    ("purpose", "phase", "words"),
    [
        ("departure", "sending", "been leaving this host since 20.* .sending.*virt.settle web1"),
        ("arrival", "ready", "been coming to this host since 20.* UTC .ready.*virt.settle web1"),
    ],
)
def test_a_vm_on_its_way_is_not_purged_nor_built(built, purpose, phase, words):
    folder = reservations.folder(built.settings)
    with records.hold_record(folder, purpose, "web1") as held:
        held.begin("t1", phase, **getattr(onrecord, purpose)())

    with pytest.raises(NameTaken, match=words):
        purged(built)
    with built.libvirt(), pytest.raises(NameTaken, match=words):
        built.init()
    assert len(built.files()) == 3


@pytest.mark.parametrize(("purpose", "phase"), [("departure", "handing"), ("arrival", "arrived")])
def test_a_vm_on_its_way_keeps_its_definition(built, purpose, phase):
    with built.libvirt() as conn:
        uuid = lifecycle.uuid(conn, "web1")
        # It has been renamed since.
        with records.hold_record(reservations.folder(built.settings), purpose, "web0") as held:
            held.begin("t1", phase, **getattr(onrecord, purpose)(uuid=uuid))
            with pytest.raises(NameTaken, match=f"'web0'.* .{phase}.*salt-run virt.settle web0"):
                purge.undefine(conn, built.settings, "web1")
            assert built.domains() == ["web1"]
            # A departure stays on record when it is cancelled, as a proof of it.
            held.enter("cancelled")
        purge.undefine(conn, built.settings, "web1")
        with pytest.raises(NoSuchVm):
            purge.undefine(conn, built.settings, "web1")

    assert built.domains() == [] and len(built.files()) == 3


@pytest.mark.parametrize("point", ["purge.removing", "build.complete", "build.before-complete"])
@pytest.mark.parametrize("called", ["web1", "web2"])
def test_what_was_begun_is_settled_before_its_vm_is_undefined(hypervisor, point, called):
    if point.startswith("purge"):
        with hypervisor.libvirt():
            hypervisor.init()
        hypervisor.dies(lambda: purged(hypervisor), point)
    else:
        hypervisor.dies(hypervisor.init, point)
    path = hypervisor.definitions / "web1.xml"
    renamed = path.read_text().replace("<name>web1<", f"<name>{called}<")
    path.rename(path.with_stem(called)).write_text(renamed)

    with hypervisor.libvirt() as conn:
        purge.undefine(conn, hypervisor.settings, called)
        assert hypervisor.open_records() == []
        # Its disks stay, whatever comes by.
        unfinished.settle(conn, hypervisor.settings)

    assert hypervisor.domains() == [] and len(hypervisor.files()) == 3


@pytest.mark.parametrize("purpose", ["build", "purge"])
def test_a_vm_is_not_undefined_while_it_is_built_or_purged(built, purpose):
    with built.libvirt() as conn:
        uuid = lifecycle.uuid(conn, "web1")
        with records.hold_record(reservations.folder(built.settings), purpose, "web1") as held:
            held.begin("t1", "complete", **getattr(onrecord, purpose)(uuid=uuid))
            with pytest.raises(NameTaken, match="'web1' is being built or purged on this host"):
                purge.undefine(conn, built.settings, "web1")

    assert built.domains() == ["web1"] and len(built.files()) == 3


@pytest.mark.slow
def test_a_vm_is_not_started_while_it_is_purged(built, monkeypatch):
    said, threads = [], []

    def start():
        try:
            with startlock.allow_start(conn, built.settings, "web1"):
                lifecycle.start(conn, "web1")
        except VirtError as error:
            said.append(error)

    def starts_meanwhile(*args):
        threads.append(threading.Thread(target=start))
        threads[0].start()
        threads[0].join(0.5)
        assert threads[0].is_alive() or said
        return signatures(*args)

    def remove_log(_name):
        threads[0].join(10)

    signatures = unfinished.signatures
    monkeypatch.setattr(unfinished, "signatures", starts_meanwhile)
    monkeypatch.setattr(unfinished, "remove_log", remove_log)
    with built.libvirt() as conn:
        purge.purge(conn, built.settings, "web1")
        assert not lifecycle.is_defined(conn, "web1")

    (error,) = said
    assert isinstance(error, startlock.BeingPurged), error
    assert left(built) == NOTHING


def ways(conn, built):
    """Return all ways to start the VM, also under another name."""
    xml = lifecycle.migratable_xml(conn, "web1")
    return [
        lambda: startlock.allow_start(conn, built.settings, "web1"),
        lambda: startlock.allow_creation(conn, built.settings, xml),
        lambda: startlock.allow_creation(conn, built.settings, xml.replace(">web1<", ">web2<")),
    ]


def test_a_vm_whose_purge_was_interrupted_before_it_took_anything_is_started(built):
    built.dies(lambda: purged(built), "purge.removing")

    with built.libvirt() as conn:
        for way in ways(conn, built):
            with way():
                pass
        unfinished.settle(conn, built.settings)
        assert built.domains() == ["web1"] and len(built.files()) == 3


def test_a_vm_whose_purge_was_interrupted_later_is_not_made_anew_before_that_is_finished(built):
    built.dies(lambda: purged(built), "purge.removing")

    words = "'web1'.? is being purged since 20.* UTC; .* finish it with virt.purge web"
    with built.libvirt() as conn:
        _starting, *creating = ways(conn, built)
        lifecycle.undefine(conn, "web1")
        for way in creating:
            with pytest.raises(startlock.BeingPurged, match=words), way():
                pytest.fail("it was started")
        unfinished.settle(conn, built.settings)
        with creating[0]():
            pass


def test_a_cancelled_departure_is_no_obstacle(built):
    with records.hold_record(reservations.folder(built.settings), "departure", "web1") as held:
        held.begin("t1", "cancelled", **onrecord.departure())

    purged(built)

    assert built.files() == []


def test_what_a_guest_wrote_into_its_raw_disk_holds_no_file_of_another(built):
    disk = built.root / "guest.raw"
    below = f"{built.settings.images}/web1_data.qcow2"
    qemu_img = ["qemu-img", "create", "-q", "-f", "qcow2", "-u", "-F", "qcow2", "-b", below]
    subprocess.run([*qemu_img, disk, "8M"], check=True)
    (built.definitions / "other.xml").write_text(
        f"""<domain type='test'><name>other</name><memory>1024</memory><os><type>hvm</type></os>
        <devices><disk type='file' device='disk'><driver name='qemu' type='raw'/>
        <source file='{disk}'/><target dev='vda'/></disk></devices></domain>"""
    )

    purged(built)

    assert built.files() == []


def test_a_disk_that_another_vm_has_from_its_next_start_on_stays(built):
    path = f"{built.settings.images}/web1_data.qcow2"
    disk = (
        f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>"
        f"<source file='{path}'/><target dev='vdz' bus='virtio'/></disk>"
    )
    plain = (
        "<domain type='test'><name>db1</name><uuid>4dea22b3-1d52-d8f3-2516-782e98ab3fa7</uuid>"
        "<memory>65536</memory><os><type>hvm</type></os><devices>{}</devices></domain>"
    )
    with built.libvirt() as conn:
        conn.defineXML(plain.format("")).create()
        conn.defineXML(plain.format(disk))
        purge.purge(conn, built.settings, "web1")

    assert built.files() == ["web1_data.qcow2"]


def test_a_file_that_another_vm_has_as_a_volume_stays(built):
    folder, name = built.settings.images, "web1_data.qcow2"
    pool = f"<pool type='dir'><name>vms</name><target><path>{folder}</path></target></pool>"
    volume = (
        f"<volume><name>{name}</name><capacity>1024</capacity>"
        f"<target><path>{folder}/{name}</path></target></volume>"
    )
    other = (
        "<domain type='test'><name>db1</name><uuid>4dea22b3-1d52-d8f3-2516-782e98ab3fa8</uuid>"
        "<memory>65536</memory><os><type>hvm</type></os><devices><disk type='volume'>"
        f"<source pool='vms' volume='{name}'/><target dev='vdz' bus='virtio'/></disk>"
        "</devices></domain>"
    )
    with built.libvirt() as conn:
        conn.storagePoolCreateXML(pool).createXML(volume)
        conn.defineXML(other)
        purge.purge(conn, built.settings, "web1")

    assert built.files() == [name]
