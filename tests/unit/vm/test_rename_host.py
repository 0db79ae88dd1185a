"""A host renames a stopped VM: the guest first, then the domain, then what is named after it."""

from types import SimpleNamespace
from xml.etree.ElementTree import canonicalize

import pytest
from clonekit import disk
from saltvirt.core.errors import BadArgument, SeedError, StorageError
from saltvirt.libvirt.domains import lifecycle, naming, snapshots
from saltvirt.seeding import write
from saltvirt.seeding.offline import appliance
from saltvirt.seeding.offline.appliance import DiskRefused
from saltvirt.storage import ownermark
from saltvirt.vm.clone.host import clonesource
from saltvirt.vm.purge.host import purge
from saltvirt.vm.rename.host import renaming, secondname
from saltvirt.vm.rename.host.renaming import RenameRefused
from saltvirt.vm.update.host import apply
from saltvirt.vm.update.host import request as update_request
from saltvirt.xml.edit import readdomain
from test_update_calls import DEFAULTS
from updatekit import IDLE


@pytest.fixture
def guest(monkeypatch):
    """The ids that a guest's minion was given, and errors that the next attempts meet."""
    guest = SimpleNamespace(given=[], errors=[])

    def rename_minion(_context, _path, _fmt, former_id, minion_id, **_more):
        if guest.errors:
            raise guest.errors.pop(0)
        guest.given.append((former_id, minion_id))

    monkeypatch.setattr(write, "rename_minion", rename_minion)
    monkeypatch.setattr(appliance, "why_missing", lambda _python: None)
    return guest


@pytest.fixture
def logs(monkeypatch, tmp_path):
    """The folder of the console logs."""
    monkeypatch.setattr(renaming, "console_log", lambda name: str(tmp_path / f"{name}-console.log"))
    return tmp_path


def rename(hypervisor, conn, name="web1", new_name="db1", *, seed=True, is_dry=False):
    """Rename a VM as its host does."""
    uuid = lifecycle.uuid_if_defined(conn, name) or lifecycle.uuid_if_defined(conn, new_name)
    request = renaming.parse(name, new_name, uuid, seed, "a key")
    return renaming.rename(hypervisor.context, request, is_dry=is_dry)


def names(conn):
    """Return which of the two names are defined."""
    return [name for name in ("web1", "db1") if lifecycle.is_defined(conn, name)]


def notes(conn, name):
    """Return the notes of a VM."""
    return readdomain.notes(readdomain.domain(lifecycle.inactive_xml(conn, name)))


def content(conn):
    """Return the definition of web1, without blanks between its elements."""
    return canonicalize(lifecycle.secure_xml(conn, "web1"), strip_text=True)


def test_the_domain_the_guest_and_the_marks_get_the_name_and_files_keep_theirs(
    hypervisor, stopped, guest, logs
):
    uuid, files = lifecycle.uuid(stopped, "web1"), hypervisor.files()
    (logs / "web1-console.log").write_text("booted")

    answer = rename(hypervisor, stopped)

    assert answer == {"seeded_by": "guestfs"}
    assert (names(stopped), lifecycle.uuid(stopped, "db1")) == (["db1"], uuid)
    assert guest.given == [("web1", "db1")]
    assert hypervisor.files() == files and "web1_system.qcow2" in files
    owner = ownermark.read_owner(disk(hypervisor, "web1_system.qcow2"))
    assert (owner.vm, owner.uuid) == ("db1", uuid)
    assert notes(stopped, "db1").former == ("web1",)
    assert notes(stopped, "db1").seed.endswith("web1_seed.iso.qcow2")
    assert (logs / "db1-console.log").read_text() == "booted"


def test_the_same_call_again_does_nothing_new_and_the_exchanged_one_undoes_it(
    hypervisor, stopped, guest, logs
):
    before = content(stopped)
    for _again in range(2):
        rename(hypervisor, stopped)
    assert names(stopped) == ["db1"]

    rename(hypervisor, stopped, "db1", "web1")

    assert content(stopped) == before
    assert guest.given == [("web1", "db1")] * 2 + [("db1", "web1")]
    assert ownermark.read_owner(disk(hypervisor, "web1_system.qcow2")).vm == "web1"


def test_without_its_guest_only_the_vm_is_renamed(hypervisor, stopped, guest, logs):
    assert rename(hypervisor, stopped, seed=False) == {"seeded_by": None}
    assert (names(stopped), guest.given) == (["db1"], [])


def test_a_dry_run_changes_nothing(hypervisor, stopped, guest, logs):
    before = lifecycle.secure_xml(stopped, "web1")

    assert rename(hypervisor, stopped, is_dry=True) == {"seeded_by": "guestfs"}

    assert (lifecycle.secure_xml(stopped, "web1"), guest.given) == (before, [])


def running(conn, _monkeypatch, _hypervisor):
    """Run."""
    lifecycle.start(conn, "web1")


def with_snapshot(_conn, monkeypatch, _hypervisor):
    """Have a snapshot."""
    monkeypatch.setattr(snapshots, "names", lambda *_: ["before"])


def with_checkpoint(_conn, monkeypatch, _hypervisor):
    """Have a checkpoint."""
    monkeypatch.setattr(lifecycle, "list_domains_with_checkpoints", lambda _conn: {"web1"})


def with_saved_state(_conn, monkeypatch, _hypervisor):
    """Have a saved state."""
    monkeypatch.setattr(lifecycle, "saved", lambda _conn: {"web1"})


def with_namesake(_conn, _monkeypatch, hypervisor):
    """Be beside a VM of the new name."""
    hypervisor.init("db1", start=False)


def kept_definition(conn, _monkeypatch, _hypervisor):
    """Have moved away."""
    lifecycle.mark_moved(conn, "web1", "hyper2")


def without_guestfs(_conn, monkeypatch, _hypervisor):
    """Have no appliance."""
    monkeypatch.setattr(appliance, "why_missing", lambda _python: "no module 'guestfs'")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (running, r"VM 'web1' runs; stop it first \(virt.shutdown web1\)"),
        (with_snapshot, "has 1 snapshots, .* virt.delete_snapshots web1 all=True"),
        (with_checkpoint, "has checkpoints"),
        (with_saved_state, "has a saved state"),
        (with_namesake, "this host has a VM 'db1' already"),
        (kept_definition, "it has moved to hyper2"),
        (without_guestfs, "no module 'guestfs'; with seed=False the VM is renamed without"),
    ],
)
def test_what_cannot_be_carried_is_refused_with_nothing_changed(
    hypervisor, stopped, guest, logs, monkeypatch, change, reason
):
    change(stopped, monkeypatch, hypervisor)
    before = lifecycle.secure_xml(stopped, "web1")

    for is_dry in (True, False):
        with pytest.raises(RenameRefused, match=reason):
            rename(hypervisor, stopped, is_dry=is_dry)

    assert (lifecycle.secure_xml(stopped, "web1"), guest.given) == (before, [])


def test_a_guest_that_is_another_minion_is_refused_with_nothing_changed(
    hypervisor, stopped, guest, logs
):
    guest.errors.append(DiskRefused("its minion is called 'x'"))

    with pytest.raises(RenameRefused, match="called 'x'; with seed=False"):
        rename(hypervisor, stopped)
    assert names(stopped) == ["web1"]


def test_a_write_that_fails_midway_leaves_it_open(hypervisor, stopped, guest, logs):
    guest.errors.append(SeedError("libguestfs failed"))

    with pytest.raises(SeedError, match="libguestfs failed"):
        rename(hypervisor, stopped)
    assert names(stopped) == ["web1"]

    rename(hypervisor, stopped)
    assert names(stopped) == ["db1"]


@pytest.mark.parametrize("is_back", [True, False])
def test_a_rename_that_libvirt_refuses_gives_the_guest_its_id_again(
    hypervisor, stopped, guest, logs, monkeypatch, is_back
):
    def refuse(*_args):
        if not is_back:
            guest.errors.append(SeedError("the disk is full"))
        raise RuntimeError("libvirt says no")

    monkeypatch.setattr(naming, "set_name", refuse)
    error = RenameRefused if is_back else SeedError

    with pytest.raises(error, match="libvirt says no" if is_back else "the disk is full"):
        rename(hypervisor, stopped)

    assert guest.given == [("web1", "db1"), ("db1", "web1")][: 1 + is_back]
    assert names(stopped) == ["web1"]


@pytest.mark.parametrize("known_by", ["note", "mark"])
def test_update_knows_the_disks_of_a_renamed_vm(hypervisor, stopped, guest, logs, known_by):
    uuid = lifecycle.uuid(stopped, "web1")
    if known_by == "note":
        rename(hypervisor, stopped)
    else:
        # As after virsh domrename.
        naming.set_name(stopped, "web1", "db1")
        assert notes(stopped, "db1").former == ()
    given = {**DEFAULTS, "stop_on_reboot": None, "disks": [{"name": "system"}, {"name": "data"}]}

    answer = apply.update(
        hypervisor.context, update_request.from_call(hypervisor.settings, "db1", given)
    )

    assert answer == IDLE and lifecycle.uuid(stopped, "db1") == uuid


def test_a_clone_of_a_renamed_vm_has_its_disks_by_their_names(hypervisor, stopped, guest, logs):
    rename(hypervisor, stopped)

    source = clonesource.read_source(stopped, hypervisor.settings, "db1", "db2")

    assert [disk.name for disk in source.disks] == ["system", "data"]


def test_a_purge_removes_the_disks_of_a_renamed_vm(hypervisor, stopped, guest, logs):
    rename(hypervisor, stopped)

    purge.purge(stopped, hypervisor.settings, "db1")

    assert hypervisor.files() == []


def test_a_new_vm_of_the_former_name_does_not_get_the_disks(hypervisor, stopped, guest, logs):
    rename(hypervisor, stopped)

    with pytest.raises(StorageError, match="web1_system.qcow2 is there already"):
        hypervisor.init("web1")
    assert names(stopped) == ["db1"]


def with_variables(conn, folder, path):
    """Give the VM firmware variables of its name, and return their file."""
    text = lifecycle.secure_xml(conn, "web1")
    nvram = f"<loader readonly='yes' type='pflash'>/fw.fd</loader><nvram>{path}</nvram></os>"
    lifecycle.define(conn, text.replace("</os>", nvram))
    path.write_text("boot entries")
    return path


def test_the_firmwares_variables_go_with_the_name(hypervisor, stopped, guest, logs):
    path = with_variables(stopped, logs, logs / "web1_VARS.fd")
    inode = path.stat().st_ino

    rename(hypervisor, stopped)

    new_path = logs / "db1_VARS.fd"
    assert (path.exists(), new_path.stat().st_ino) == (False, inode)
    root = readdomain.domain(lifecycle.inactive_xml(stopped, "db1"))
    assert readdomain.firmware_variables(root) == str(new_path)


def test_variables_of_another_vm_are_not_overwritten(hypervisor, stopped, guest, logs):
    with_variables(stopped, logs, logs / "web1_VARS.fd")
    (logs / "db1_VARS.fd").write_text("another's")

    with pytest.raises(RenameRefused, match="would be .*db1_VARS.fd, which is there already"):
        rename(hypervisor, stopped)
    assert (logs / "db1_VARS.fd").read_text() == "another's"


@pytest.mark.parametrize("renamed", [False, True], ids=["before", "after"])
def test_a_host_that_died_around_the_rename_goes_on(
    hypervisor, stopped, guest, logs, monkeypatch, renamed
):
    path = with_variables(stopped, logs, logs / "web1_VARS.fd")
    work = naming.set_name

    def die(*args):
        if renamed:
            work(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(naming, "set_name", die)
    monkeypatch.setattr(secondname, "drop", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        rename(hypervisor, stopped)
    assert path.exists() and (logs / "db1_VARS.fd").exists()
    monkeypatch.undo()
    monkeypatch.setattr(write, "rename_minion", lambda *_args, **_more: None)
    monkeypatch.setattr(appliance, "why_missing", lambda _python: None)
    monkeypatch.setattr(renaming, "console_log", lambda name: str(logs / f"{name}-console.log"))
    back = ("db1", "web1")

    rename(hypervisor, stopped, *(("web1", "db1") if renamed else back))

    kept, gone = ("db1", "web1") if renamed else back[::-1]
    assert names(stopped) == [kept]
    assert [(logs / f"{name}_VARS.fd").exists() for name in (kept, gone)] == [True, False]


def test_a_vm_gets_no_name_that_it_has():
    with pytest.raises(BadArgument, match="'web1' is the VM's name already"):
        renaming.parse("web1", "web1", "6695eb01-f6a4-8304-79aa-97f2502e193f", True, None)
