"""What all hosts share: a disk is told from its folder, and nothing of another host is removed."""

import fcntl
import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import libvirt
import onrecord
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import diskpaths
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished

UUID = "4dea22b3-1d52-d8f3-2516-782e98ab3fa0"


@pytest.fixture
def shared(hypervisor):
    """A folder that all hosts share."""
    folder = hypervisor.root / "shared"
    folder.mkdir()
    hypervisor.settings = replace(hypervisor.settings, shared_paths=[str(folder)])
    return folder


@pytest.mark.parametrize("declared", ["{}", "{}/", "{}/.", "{}/../shared", "{}/../link"])
@pytest.mark.parametrize(
    ("path", "is_shared"),
    [
        ("shared/a.raw", True),
        ("shared//below/a.raw", True),
        ("link/a.raw", True),
        ("sharedX/a.raw", False),
        ("shared/../a.raw", False),
        ("shared/local.raw", False),
        ("elsewhere.raw", True),
    ],
)
def test_what_is_shared_is_told_by_where_it_really_is(
    hypervisor, shared, declared, path, is_shared
):
    root = hypervisor.root
    (root / "link").symlink_to(shared)
    (shared / "local.raw").symlink_to(root / "a.raw")
    (root / "elsewhere.raw").symlink_to(shared / "a.raw")
    settings = replace(hypervisor.settings, shared_paths=[declared.format(shared)])

    assert diskpaths.is_declared(settings, f"{root}/{path}") is is_shared


@pytest.mark.parametrize("declared", ["devices", "devices/lv1"])
def test_a_device_is_shared_by_the_name_that_all_hosts_have_for_it(
    hypervisor, monkeypatch, declared
):
    root = hypervisor.root
    (root / "devices").mkdir()
    (root / "dm-7").touch()
    (root / "devices" / "lv1").symlink_to(root / "dm-7")
    settings = replace(hypervisor.settings, shared_paths=[f"{root}/{declared}"])
    monkeypatch.setattr(Path, "is_block_device", lambda path: path.name == "dm-7")

    assert diskpaths.is_declared(settings, f"{root}/devices/lv1")
    assert not diskpaths.is_declared(settings, f"{root}/dm-7")


def test_the_name_of_a_network_disk_is_no_path(hypervisor, monkeypatch):
    monkeypatch.chdir(hypervisor.root)
    settings = replace(hypervisor.settings, shared_paths=["/"])

    assert not diskpaths.is_declared(settings, "pool/image")


@pytest.fixture
def conn(hypervisor):
    """The host's libvirt, as long as the test runs."""
    with hypervisor.libvirt() as opened:
        yield opened


@pytest.fixture
def web(hypervisor, shared, conn):
    """A stopped VM whose disks and media are shared, but for one disk."""
    paths = {
        name: shared / "vms" / f"web_{name}.raw" for name in ("floppy", "disk", "cdrom", "read")
    }
    paths["own"] = hypervisor.root / "web_own.raw"
    (shared / "vms").mkdir()
    disks = ""
    for number, (name, path) in enumerate(paths.items()):
        path.write_bytes(bytes(1000))
        device = name if name in ("floppy", "cdrom") else "disk"
        inside = "<readonly/>" if name == "read" else ""
        place = (
            "dev='fda' bus='fdc'" if name == "floppy" else f"dev='hd{'abcd'[number % 4]}' bus='ide'"
        )
        disks += (
            f"<disk type='file' device='{device}'><driver name='qemu' type='raw'/>"
            f"<source file='{path}'/><target {place}/>{inside}</disk>"
        )
    lifecycle.define(
        conn,
        f"<domain type='test'><name>web</name><uuid>{UUID}</uuid><memory>65536</memory>"
        f"<os><type>hvm</type></os><devices>{disks}</devices></domain>",
    )
    return paths


def kept(paths):
    """Return which of a VM's files are there."""
    return {name for name, path in paths.items() if path.exists()}


def free(paths):
    """Return what the master says after all hosts have said that they need none of the files."""
    return OtherHostsUsage(free=frozenset(map(str, paths.values())))


@pytest.fixture
def open_elsewhere():
    """A function that locks a file as a QEMU on another host does."""
    handles = []

    def lock(path):
        handles.append(open(path, "rb"))  # noqa: SIM115 # as long as the test runs
        asked = struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 101, 1, 0)
        fcntl.fcntl(handles[-1], fcntl.F_OFD_SETLK, asked)

    yield lock
    for handle in handles:
        handle.close()


def test_a_purge_removes_a_vms_own_disks_and_nothing_else_that_is_shared(
    hypervisor, conn, web, open_elsewhere
):
    # VMs of other hosts read it too.
    open_elsewhere(web["cdrom"])

    purge.purge(conn, hypervisor.settings, "web", dirs=True, removables=True, elsewhere=free(web))

    assert kept(web) == {"floppy", "cdrom", "read"}
    assert not lifecycle.is_defined(conn, "web")


def test_a_shared_folder_stays_though_it_is_empty(hypervisor, conn, web):
    for name in ("floppy", "cdrom", "read"):
        web[name].unlink()

    purge.purge(conn, hypervisor.settings, "web", dirs=True, elsewhere=free(web))

    assert kept(web) == set() and web["disk"].parent.is_dir()


@pytest.mark.parametrize("how", ["noted", "libvirt says it"])
def test_a_stale_definition_takes_no_shared_disk_with_it(hypervisor, conn, web, how, monkeypatch):
    if how == "noted":
        lifecycle.mark_moved(conn, "web", "hyper2")
    else:
        monkeypatch.setattr(lifecycle, "is_migrated", lambda *_: True)

    with pytest.raises(StorageError, match="has moved to .*web_disk.raw.*virt.undefine web"):
        purge.purge(conn, hypervisor.settings, "web")

    assert kept(web) == set(web) and lifecycle.is_defined(conn, "web")
    assert hypervisor.open_records() == []


def test_a_stale_definition_goes_with_the_disks_that_this_host_alone_has(hypervisor, conn, web):
    hypervisor.settings = replace(hypervisor.settings, shared_paths=[])
    lifecycle.mark_moved(conn, "web", "hyper2")

    purge.purge(conn, hypervisor.settings, "web")

    assert kept(web) == {"floppy", "cdrom"} and not lifecycle.is_defined(conn, "web")


def test_what_another_host_has_open_is_not_purged(hypervisor, conn, web, open_elsewhere):
    open_elsewhere(web["disk"])

    with pytest.raises(StorageError, match="a program, most likely on another host, has"):
        purge.purge(conn, hypervisor.settings, "web")

    assert kept(web) == set(web) and lifecycle.is_defined(conn, "web")


def test_what_another_host_has_open_stays_and_is_not_come_back_for(
    hypervisor, conn, web, open_elsewhere, monkeypatch
):
    undefine = lifecycle.undefine

    def started_elsewhere(*args, **given):
        undefine(*args, **given)
        open_elsewhere(web["disk"])

    monkeypatch.setattr(lifecycle, "undefine", started_elsewhere)
    purge.purge(conn, hypervisor.settings, "web", elsewhere=free(web))
    assert "disk" in kept(web) and "own" not in kept(web)

    # The VM of the other host is stopped, and this host settles what it has on record.
    monkeypatch.setattr(diskpaths, "is_open", lambda _path: False)
    unfinished.settle(conn, hypervisor.settings)

    assert "disk" in kept(web) and hypervisor.open_records() == []


@pytest.mark.parametrize("is_new", [True, False])
def test_a_purge_that_was_interrupted_removes_no_file_that_is_another_vms_by_now(
    hypervisor, conn, web, monkeypatch, is_new
):
    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr(unfinished, "remove", die)
        purge.purge(conn, hypervisor.settings, "web", elsewhere=free(web))
    if is_new:
        web["disk"].unlink()
        web["disk"].write_bytes(bytes(2000))

    unfinished.settle(conn, hypervisor.settings)

    assert ("disk" in kept(web)) is is_new and "own" not in kept(web)
    assert hypervisor.open_records() == []


def test_a_build_that_was_interrupted_removes_no_shared_file_that_it_had_not_begun(
    hypervisor, conn, shared
):
    paths = {name: shared / f"web_{name}.raw" for name in ("system", "data")}
    for path in paths.values():
        path.touch()
    with records.hold_record(reservations.folder(hypervisor.settings), "build", "web") as held:
        noted = [str(path) for path in paths.values()]
        begun = [str(paths["system"])]
        facts = onrecord.build(uuid=UUID, paths=noted, secrets=[], begun=begun)
        held.begin("t1", moveprotocol.MAKING, **facts)

    unfinished.settle(conn, hypervisor.settings)

    assert kept(paths) == {"data"} and hypervisor.open_records() == []


FIRMWARE = (
    f"<domain type='test'><name>fw</name><uuid>{UUID}</uuid><memory>65536</memory>"
    "<os><type>hvm</type><loader readonly='yes' type='pflash'>/usr/share/fw.fd</loader>"
    "<nvram>{}</nvram></os></domain>"
)


@pytest.mark.parametrize(("is_shared", "is_up"), [(True, False), (True, True), (False, False)])
def test_firmware_variables_of_another_hosts_vm_stay(tmp_path, monkeypatch, is_shared, is_up):
    flags, folder = [], tmp_path / ("shared" if is_shared else "own")
    # The test driver does not know of keeping them.
    vm = SimpleNamespace(
        XMLDesc=lambda _flags: FIRMWARE.format(folder / "fw_VARS.fd"),
        isActive=lambda: is_up,
        undefineFlags=flags.append,
        name=lambda: "fw",
        listAllSnapshots=list,
    )
    monkeypatch.setattr(lifecycle, "domain", lambda *_: vm)

    own = HostSettings(shared_paths=[f"{tmp_path}/shared"], state_dir=str(tmp_path / "state"))
    had = libvirt.VIR_CONNECT_LIST_DOMAINS_MANAGEDSAVE
    had |= libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_CHECKPOINT
    conn = SimpleNamespace(
        listAllDomains=lambda flags=0: [] if flags & had else [vm], lookupByName=lambda _: vm
    )
    purge.undefine(conn, own, "fw")

    (told,) = flags
    is_kept = is_shared and not is_up
    assert bool(told & libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM) is is_kept
    assert bool(told & libvirt.VIR_DOMAIN_UNDEFINE_NVRAM) is not is_kept
    # With these libvirt refuses to forget a VM, unless it is told to forget them too.
    for kind in ("MANAGED_SAVE", "SNAPSHOTS_METADATA", "CHECKPOINTS_METADATA"):
        assert told & getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{kind}")
