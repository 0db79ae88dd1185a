"""Mounting for any caller, and making images: what is refused; the rest is in tests/cloud."""

import fcntl
import importlib.util
import json
import os
import subprocess
import time
from pathlib import Path

import applianceuser
import pytest
from saltvirt.core import writelimit
from saltvirt.core.errors import BadArgument, ImageError, SeedError, StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.seeding import seedchoice
from saltvirt.seeding.offline import guestmount, hostmount, lending

MODULES = Path(__file__).resolve().parents[3] / "_modules"


def load_module(name):
    """Load an execution module of this project without a minion."""
    spec = importlib.util.spec_from_file_location(f"loaded_{name}", MODULES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    module.__opts__, module.__pillar__, module.__grains__ = {}, {}, {}
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("mounted", [{"/": "/dev/sda"}, {"/x": "/dev/nbd0; rm"}, {"/x": None}])
def test_only_a_device_of_nbd_is_cleared(mounted):
    with pytest.raises(BadArgument, match="is not an nbd device"):
        hostmount.clear(mounted)


@pytest.mark.parametrize("seed", [{}, {"allow_host_mount": False}, {"allow_host_mount": "yes"}])
def test_this_hosts_kernel_mounts_nothing_unless_allowed(seed):
    with pytest.raises(SeedError, match="set virt:seed:allow_host_mount: True"):
        seedchoice.refuse_host_mount(HostSettings(seed=seed))


def test_nothing_is_mounted_over_existing_files(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root/file").write_text("")
    settings = HostSettings(state_dir=str(tmp_path / "state"))

    with pytest.raises(StorageError, match="is not empty"):
        guestmount.mount(settings, "/x.qcow2", "qcow2", "rw", str(tmp_path / "root"))
    with pytest.raises(BadArgument, match="access: 'rx'; rw or ro"):
        guestmount.mount(settings, "/x.qcow2", "qcow2", "rx", None)
    with pytest.raises(BadArgument, match="nothing is mounted at"):
        guestmount.umount(settings, str(tmp_path / "root"))


def test_only_a_guests_mount_is_unmounted_and_nothing_is_mounted_over_another(tmp_path):
    settings = HostSettings(state_dir=str(tmp_path / "state"))

    # Its file system is not asked, as it may never answer; a link leads to the same place.
    (tmp_path / "link").symlink_to("/proc")
    for name in ("/proc", str(tmp_path / "link")):
        with pytest.raises(BadArgument, match="is proc, and not a guest's disk"):
            guestmount.umount(settings, name)
        with pytest.raises(StorageError, match="something is mounted at /proc; guestfs.umount it"):
            guestmount.mount(settings, "/x.qcow2", "qcow2", "rw", name)


@pytest.mark.parametrize(
    ("subfolder", "owner", "mode"), [("a/root", 4711, 0o755), ("a", 4711, 0o755), ("a", 0, 0o775)]
)
def test_nothing_is_mounted_where_others_could_put_a_link(tmp_path, subfolder, owner, mode):
    # Such a user could redirect the guest's files to, say, /etc/cron.d.
    (tmp_path / "a/root").mkdir(parents=True)
    os.chown(tmp_path / subfolder, owner, -1)
    (tmp_path / subfolder).chmod(mode)
    applianceuser.there()
    settings = HostSettings(state_dir=str(tmp_path / "state"))

    with pytest.raises(StorageError, match=f"{tmp_path / subfolder} is not root's alone"):
        guestmount.mount(settings, "/x.qcow2", "qcow2", "rw", str(tmp_path / "a/root"))
    (tmp_path / subfolder).chmod(0o1777)
    if owner == 0:
        with pytest.raises(SeedError, match="/x.qcow2 cannot be opened"):
            guestmount.mount(settings, "/x.qcow2", "qcow2", "rw", str(tmp_path / "a/root"))


def test_a_device_is_not_locked_in_a_world_writable_folder(tmp_path, monkeypatch):
    """In such a folder any user could make root empty a file, wait forever, or find no device."""
    monkeypatch.setattr(hostmount.nbd, "_devices", lambda: [tmp_path / "nbd4711"])
    file, planted_link = tmp_path / "file", Path("/run/lock/salt-virt-nbd4711")
    planted_link.parent.mkdir(exist_ok=True)
    file.write_text("of the host")
    planted_link.symlink_to(file)

    try:
        with hostmount.nbd.free() as device, open(file) as opened_file:
            fcntl.flock(opened_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            assert device == "/dev/nbd4711"
        assert file.read_text() == "of the host"
    finally:
        planted_link.unlink()
        (hostmount.nbd.LOCKS / "nbd4711.lock").unlink()


def test_a_device_that_another_job_has_is_not_free(tmp_path, monkeypatch):
    monkeypatch.setattr(hostmount.nbd, "_devices", lambda: [tmp_path / "nbd1", tmp_path / "nbd2"])
    monkeypatch.setattr(hostmount.nbd, "LOCKS", tmp_path / "locks")

    with hostmount.nbd.free() as first, hostmount.nbd.free() as second:
        assert (first, second) == ("/dev/nbd1", "/dev/nbd2")
        # A user that may read the lock may hold it.
        assert (tmp_path / "locks/nbd1.lock").stat().st_mode & 0o077 == 0
        with pytest.raises(hostmount.nbd.Unusable, match="in use"), hostmount.nbd.free():
            pass


def test_this_hosts_kernel_mounts_nothing_where_others_could_put_a_link(tmp_path, monkeypatch):
    """The kernel's nbd is replaced: this machine has none."""
    monkeypatch.setattr(hostmount.nbd, "parts", lambda device: [device])
    monkeypatch.setattr(Path, "is_block_device", lambda _path: True)
    monkeypatch.setattr(hostmount, "run", lambda *_words: pytest.fail("it was mounted"))
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 4711, -1)

    for root in (tmp_path / "theirs", tmp_path / "theirs/new"):
        with pytest.raises(StorageError, match="theirs is not root's alone"):
            hostmount.mount_device(HostSettings(), "/dev/nbd0", str(root))


def test_nothing_is_mounted_where_others_put_a_link_during_the_check(tmp_path, monkeypatch):
    """Another user may be quicker in /tmp; the race is replaced, as no user wins it at will."""
    settings = HostSettings(state_dir=str(tmp_path / "state"))
    refuse, mount_point, empty_folder = (
        hostmount.refuse_others,
        tmp_path / "tmp/a/b",
        tmp_path / "empty",
    )
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    empty_folder.mkdir()

    def refuse_and_be_late(path):
        refuse(path)
        if not (tmp_path / "tmp/a").is_symlink():
            (tmp_path / "tmp/a").symlink_to(empty_folder)

    monkeypatch.setattr(hostmount, "refuse_others", refuse_and_be_late)

    with pytest.raises(StorageError, match="tmp/a is not root's alone"):
        guestmount.mount(settings, "/x.qcow2", "qcow2", "rw", str(mount_point))


@pytest.fixture
def before_the_power_failed(tmp_path):
    """A disk that was mounted before a crash; the kernel does not know the mount any more."""
    disk = tmp_path / "disk"
    disk.write_text("a disk")
    account = applianceuser.there()
    handle = lending.open_disk(str(disk))
    lent = lending.lend(handle, str(disk), account, is_read=False)
    os.close(handle)
    folder = str(tmp_path / "state/appliances/1")
    account_facts = {"user": account.name, "uid": account.uid, "gid": account.gid}
    settings = HostSettings(state_dir=str(tmp_path / "state"))
    record = guestmount._record_path(settings, tmp_path / "root")
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({**account_facts, "folder": folder, "lent": lent}))
    yield settings, disk, record
    assert disk.stat().st_uid == 0 and not record.exists()


def test_a_mount_gives_back_the_disk_of_an_earlier_mount_before_a_crash(
    tmp_path, before_the_power_failed
):
    settings, _disk, _record = before_the_power_failed

    with pytest.raises(SeedError, match="/no cannot be opened"):
        guestmount.mount(settings, "/no", "raw", "rw", str(tmp_path / "root"))


def test_a_disk_grows_into_space_that_vms_do_not_need_and_without_any_it_is_refused(tmp_path):
    disk = tmp_path / "disk"
    applianceuser.there()
    disk.write_bytes(bytes(4096))
    handle, settings = (
        lending.open_disk(str(disk)),
        HostSettings(image_max_gib=1, disk_reserve_mib=1),
    )
    free_bytes = min(1 << 30, writelimit.read_space(disk)[1] - (1 << 20))

    most_bytes = guestmount._most_bytes(settings, str(disk), handle)

    # Other processes write meanwhile.
    assert most_bytes == pytest.approx(4096 + free_bytes, abs=64 << 20)
    full_settings = HostSettings(state_dir=str(tmp_path / "state"), disk_reserve_mib=1 << 40)
    with pytest.raises(ImageError, match="no room for image .*/disk in .*are kept for VMs"):
        guestmount.mount(full_settings, str(disk), "raw", "rw", str(tmp_path / "root"))
    os.close(handle)
    assert disk.stat().st_uid == 0 and not (tmp_path / "root").exists()
    device = lending.open_disk("/dev/null")
    assert guestmount._most_bytes(HostSettings(), "/dev/null", device) is None
    os.close(device)


def test_a_disk_that_another_job_keeps_is_not_waited_for_forever(tmp_path):
    """A mount keeps its disk until it is unmounted."""
    disk = tmp_path / "disk"
    disk.touch()
    reason = f"{disk} is in use by another job of this host, or mounted, for 0.2 s; try again"
    user, other_account = applianceuser.there(), lending.Account("other", 4711, 4711)

    with lending.lend_during(str(disk), user, is_read=False, limit_s=0):
        started_s = time.monotonic()
        with (
            pytest.raises(SeedError, match=reason),
            lending.lend_during(str(disk), other_account, is_read=False, limit_s=0.2),
        ):
            pass
        assert time.monotonic() - started_s < 2 and disk.stat().st_uid == user.uid

    assert disk.stat().st_uid == 0


def test_a_disk_that_was_replaced_by_another_file_is_logged_and_left(
    tmp_path, before_the_power_failed, caplog
):
    settings, disk, _record = before_the_power_failed
    disk.rename(tmp_path / "moved")
    disk.symlink_to("/etc/hostname")

    assert guestmount.umount(settings, str(tmp_path / "root")) is True

    assert "is not the file any more that was lent" in caplog.text
    assert "'" + str(disk) + "'" in caplog.text


def test_images_are_made_and_converted(tmp_path):
    qemu_img, image, copy = (
        load_module("qemu_img"),
        str(tmp_path / "a.qcow2"),
        str(tmp_path / "b.vmdk"),
    )

    assert qemu_img.make_image(image, 64, "qcow2") == image
    assert qemu_img.convert(image, copy, "vmdk") is True

    argv = ["qemu-img", "info", "-f", "vmdk", copy]
    output = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert "virtual size: 64 MiB" in output


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("relative", 64, "qcow2"), "not an absolute path"),
        (("/no/such/folder/x", 64, "qcow2"), "not an absolute path"),
        (("/etc/passwd", 64, "qcow2"), "exists already"),
        (("{}/x", 64, "iso"), "fmt: 'iso'; one of qcow2"),
        (("{}/x", "much", "qcow2"), "size"),
        (("{}/x", 0, "qcow2"), "size: 0 is out of range"),
    ],
)
def test_an_image_that_cannot_be_made_is_refused(tmp_path, words, reason):
    location = words[0].format(tmp_path)

    with pytest.raises((BadArgument, StorageError), match=reason):
        load_module("qemu_img").make_image(location, *words[1:])
    assert list(tmp_path.iterdir()) == []


def test_an_image_that_names_another_file_is_not_converted(tmp_path):
    evil = tmp_path / "evil.qcow2"
    argv = [
        "qemu-img",
        "create",
        "-q",
        "-f",
        "qcow2",
        "-u",
        "-b",
        "/etc/shadow",
        "-F",
        "raw",
        evil,
        "1M",
    ]
    subprocess.run(argv, check=True)

    with pytest.raises(ImageError, match="names a backing file"):
        load_module("qemu_img").convert(str(evil), str(tmp_path / "out.raw"), "raw")
    assert not (tmp_path / "out.raw").exists()
