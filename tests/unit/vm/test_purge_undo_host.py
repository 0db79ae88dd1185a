"""virt.undo on a host: files, definition, variables and autostart of a purged VM come back."""

from dataclasses import replace
from pathlib import Path

import libvirt
import pytest
from saltvirt.core.errors import LibvirtRefused, NameTaken, StorageError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import door, ownermark, trash
from saltvirt.vm.purge.host import purge, undoing
from saltvirt.xml.edit import devicematch, readdomain
from test_purge_host import after_the_first, kill
from trashkit import DISKS, entry, older


def purged(host, name="web1", **given):
    """Purge a VM; return what is reported of that."""
    with host.libvirt() as conn:
        return purge.purge(conn, host.settings, name, **given)


def undone(host, name="web1", **given):
    """Bring a VM back; return what is reported of that."""
    with host.libvirt() as conn:
        return undoing.undo(conn, host.settings, name, **given)


def add_to_definition(host, old, new, name="web1"):
    """Change a VM's definition as an operator does."""
    with host.libvirt() as conn:
        text = conn.lookupByName(name).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
        assert old in text
        lifecycle.define(conn, text.replace(old, new, 1))


def test_a_purged_vm_comes_back_as_it_was(keeping):
    images = Path(keeping.settings.images)
    inodes = {name: (images / name).stat().st_ino for name in DISKS}
    with keeping.libvirt() as conn:
        uuid = lifecycle.uuid(conn, "web1")
        before = readdomain.domain(lifecycle.inactive_xml(conn, "web1"))
    purged(keeping)

    with keeping.libvirt() as conn:
        back = undoing.undo(conn, keeping.settings, "web1", uuid=uuid)
        after = readdomain.domain(lifecycle.inactive_xml(conn, "web1"))

    assert (back.uuid, back.files) == (uuid, [str(images / name) for name in DISKS])
    assert (keeping.files(), keeping.domains()) == (DISKS, ["web1"])
    assert {name: (images / name).stat().st_ino for name in DISKS} == inodes
    assert readdomain.uuid(after) == uuid and readdomain.notes(after) == readdomain.notes(before)
    assert readdomain.macs(after) == readdomain.macs(before)
    # It is no leftover: the files are the VM's, as before.
    assert {ownermark.read_owner(images / name).uuid for name in DISKS} == {uuid}
    assert trash.list_entries(keeping.settings) == {} and not (images / trash.FOLDER).exists()
    # The seed may have held a key, so it is gone, and the definition does not ask for it.
    assert not any(devicematch.is_seed(disk) for disk in after.iterfind("devices/disk"))
    assert ["its seed is not kept" in sentence for sentence in back.lost] == [True]
    assert purged(keeping).can_undo, "and it can be purged and brought back again"
    assert undone(keeping).files == back.files


@pytest.mark.parametrize("is_on", [True, False])
def test_autostart_comes_back(keeping, monkeypatch, is_on):
    set_to = []
    names = {"web1"} if is_on else set()
    monkeypatch.setattr(lifecycle, "list_autostarted_domains", lambda _conn: names)
    monkeypatch.setattr(lifecycle, "set_autostart", lambda *words: set_to.append(words[1:]))
    purged(keeping)

    assert undone(keeping).autostart is is_on
    assert set_to == [("web1", "on" if is_on else "off")]


def test_variables_and_the_state_of_a_tpm_come_back(keeping, monkeypatch):
    variables, state = keeping.root / "web1_VARS.fd", keeping.root / "swtpm"
    (state / "tpm2").mkdir(parents=True)
    for path in (variables, state / "tpm2/tpm2-00.permall"):
        path.write_text(path.name)
    monkeypatch.setattr(readdomain, "firmware_variables", lambda _root: str(variables))
    monkeypatch.setattr(readdomain, "tpm_state", lambda _root: str(state))
    undefine, kept = lifecycle.undefine, []

    def noted(conn, name, **flags):
        kept.append(flags)
        undefine(conn, name)

    monkeypatch.setattr(lifecycle, "undefine", noted)
    report = purged(keeping)

    assert kept == [{"keep_nvram": True, "keep_tpm": True}]
    assert {str(variables), str(state / "tpm2/tpm2-00.permall")} < {*report.trashed}
    assert not variables.exists()
    undone(keeping)
    assert variables.read_text() == variables.name
    assert [path.name for path in (state / "tpm2").iterdir()] == ["tpm2-00.permall"]

    purged(keeping)
    trash.empty(keeping.settings)
    assert not state.exists(), "the folder goes with the last file"


def test_without_a_trash_libvirt_removes_variables_and_nothing_comes_back(keeping):
    keeping.settings = replace(keeping.settings, trash_days=0)

    report = purged(keeping)

    assert (report.entry, report.until, report.can_undo) == (None, None, False)
    assert {Path(path).name for path in report.removed} > {*DISKS} and report.trashed == []
    with pytest.raises(StorageError, match="the trash of this host has no purged VM called 'web1'"):
        undone(keeping)


def test_a_purge_reports_what_is_in_the_trash_and_what_stays(keeping):
    medium = keeping.root / "debian.iso"
    medium.write_text("medium")
    add_to_definition(
        keeping,
        "</devices>",
        f"<disk type='file' device='cdrom'><source file='{medium}'/>"
        "<target dev='sdz' bus='sata'/></disk></devices>",
    )

    report = purged(keeping)

    images = Path(keeping.settings.images)
    assert sorted(report.trashed) == [str(images / name) for name in DISKS]
    assert report.left == {str(medium): "it is a cdrom or floppy image"}
    assert [Path(path).name for path in report.removed] == ["web1_seed.iso.qcow2"]
    assert (report.entry, report.can_undo) == (entry(keeping), True)
    (row,) = trash.list_entries(keeping.settings).values()
    assert (row["until"], row["is_purged"]) == (report.until, True)


def test_a_dry_run_changes_nothing(keeping):
    purged(keeping)

    assert undone(keeping, is_dry=True).files

    assert (keeping.files(), keeping.domains()) == ([], [])
    assert entry(keeping)


def test_nothing_comes_back_if_a_file_is_gone(keeping):
    purged(keeping)
    (row,) = trash.list_entries(keeping.settings).values()
    place = next(Path(keeping.settings.images).rglob("web1_data.qcow2"))
    place.unlink()

    with pytest.raises(StorageError, match=r"web1_data.qcow2 is not in the trash any more"):
        undone(keeping)

    assert (keeping.files(), keeping.domains()) == ([], []) and row["files"]


def test_nothing_comes_back_over_a_file(keeping):
    purged(keeping)
    mine = Path(keeping.settings.images) / DISKS[0]
    mine.write_text("mine")

    with pytest.raises(StorageError, match="is there already"):
        undone(keeping)

    assert (mine.read_text(), keeping.domains()) == ("mine", [])


def test_nothing_comes_back_if_a_base_is_gone(keeping):
    purged(keeping)
    (image,) = (Path(keeping.settings.images) / "base").glob("*.qcow2")
    image.rename(keeping.root / "away")

    with pytest.raises(StorageError, match="which .*web1_system.qcow2 is based on, is gone"):
        undone(keeping)

    (keeping.root / "away").rename(image)
    assert undone(keeping).files


def test_nothing_comes_back_if_a_disk_beside_the_trash_is_gone(keeping):
    device = keeping.root / "sdx"
    device.write_text("a device that this host had")
    add_to_definition(
        keeping,
        "</devices>",
        f"<disk type='block' device='disk'><source dev='{device}'/>"
        "<target dev='vdz' bus='virtio'/></disk></devices>",
    )
    report = purged(keeping)
    assert list(report.left) == [f"dev={device}"]
    device.unlink()

    with pytest.raises(StorageError, match="its disk .*/sdx is gone; to have its files alone"):
        undone(keeping)


def test_nothing_comes_back_if_a_volume_was_removed_for_good(keeping):
    with keeping.libvirt():
        purged(keeping)
    name = entry(keeping)
    with trash.reservations.open_record(keeping.settings, trash.PURPOSE, name, "") as record:
        record.note(gone=["lvm/web1"])

    with pytest.raises(StorageError, match="volume lvm/web1 was removed for good"):
        undone(keeping)


def test_nothing_comes_back_to_a_host_without_room(keeping):
    purged(keeping)
    keeping.settings = replace(keeping.settings, capacity={"memory_mib": 8})

    with pytest.raises(StorageError, match=r"not brought back: 64 MiB of memory wanted, 8 MiB fr"):
        undone(keeping)

    assert keeping.domains() == []


def test_what_libvirt_refuses_changes_nothing(keeping, monkeypatch):
    purged(keeping)

    def refuse(*_words):
        raise LibvirtRefused("unsupported machine type")

    monkeypatch.setattr(lifecycle, "define", refuse)
    with pytest.raises(LibvirtRefused, match="unsupported"):
        undone(keeping)
    monkeypatch.undo()

    assert keeping.files() == [] and trash.list_entries(keeping.settings)


def test_another_vm_of_the_name_or_the_uuid_is_refused(keeping):
    purged(keeping)
    with keeping.libvirt() as conn:
        keeping.init()
        with pytest.raises(NameTaken, match="this host has another VM called 'web1'"):
            undoing.undo(conn, keeping.settings, "web1")


@pytest.mark.parametrize("point", ["define", "bring_back", "a file", "forget"])
def test_an_undo_that_was_killed_is_finished_by_the_next(keeping, monkeypatch, point):
    purged(keeping)
    part, name = {
        "define": (lifecycle, "define"),
        "bring_back": (door, "bring_back"),
        "a file": (door, "bring_back"),
        "forget": (trash, "_forget"),
    }[point]
    with monkeypatch.context() as dying:
        call = after_the_first(getattr(part, name)) if point == "a file" else kill
        dying.setattr(part, name, call)
        keeping.dies(lambda: undone(keeping))
    # The trash does not end meanwhile.
    older(keeping, 400)
    trash.sweep(keeping.settings)
    older(keeping, 2)
    trash.sweep(keeping.settings)

    undone(keeping)

    assert (keeping.files(), keeping.domains()) == (DISKS, ["web1"])
    assert trash.list_entries(keeping.settings) == {}


def test_an_undo_that_had_done_all_is_no_error(keeping):
    with keeping.libvirt() as conn:
        uuid = lifecycle.uuid(conn, "web1")

    assert undone(keeping, uuid=uuid).files == []
    with pytest.raises(StorageError, match="has no purged VM"):
        undone(keeping)


@pytest.mark.parametrize("point", [(door, "put_away"), (trash.TrashFiller, "begin")])
def test_the_vm_of_a_purge_that_was_killed_comes_back(keeping, monkeypatch, point):
    with monkeypatch.context() as dying:
        part, name = point
        call = after_the_first(getattr(part, name)) if name == "put_away" else kill
        dying.setattr(part, name, call)
        keeping.dies(lambda: purged(keeping))

    undone(keeping)

    assert (keeping.files(), keeping.domains()) == (DISKS, ["web1"])


def test_the_password_of_a_display_is_said_not_to_come_back(keeping, monkeypatch):
    display = "<graphics type='vnc' port='-1' passwd='secret'/></devices>"
    secure_xml = lifecycle.secure_xml
    monkeypatch.setattr(
        lifecycle,
        "secure_xml",
        lambda conn, name: secure_xml(conn, name).replace("</devices>", display),
    )

    report = purged(keeping)

    assert report.lost == ["the password of its display is not kept"]
    assert "secret" not in str(trash.list_entries(keeping.settings))
    assert undone(keeping).lost[0] == report.lost[0]


def test_the_last_of_two_purged_vms_comes_back_first(keeping):
    purged(keeping)
    with keeping.libvirt() as conn:
        keeping.init()
        uuid = lifecycle.uuid(conn, "web1")
    older(keeping, 1)
    purged(keeping)

    assert undone(keeping).uuid == uuid
    (row,) = trash.list_entries(keeping.settings).values()
    assert row["uuid"] != uuid
