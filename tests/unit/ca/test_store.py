"""The CA's files: a lost file is not replaced in silence, and a backup restores all."""

import errno
import os
import shutil
import stat
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
from askedca import NOW, ask, parsed
from saltvirt.ca import backup, ca
from saltvirt.ca.ca import PkiError
from saltvirt.certificates.master import certificates
from saltvirt.cluster import membership
from saltvirt.cluster.cloud import Cloud
from saltvirt.core import files


def lose_certificate(place):
    """Lose the CA's certificate."""
    (place.folder / "cacert.pem").unlink()


def make_dangling(place):
    """Make the CA's certificate a dangling link, as after its package is removed."""
    lose_certificate(place)
    (place.folder / "cacert.pem").symlink_to(place.folder.parent / "gone.crt")


LOST = {
    "after the first certificate": lambda p: (
        ask(p),
        (p.folder / "cacrl.pem").unlink(),
        lose_certificate(p),
    ),
    "after a revocation": lambda p: (p.revoke(["ab" * 16], NOW), lose_certificate(p)),
    "with a list alone": lambda p: (p.authority(NOW), p.revocations(NOW), lose_certificate(p)),
    "in a rotation": lambda p: (p.begin_rotation(NOW), lose_certificate(p)),
    "as a link": lambda p: (p.authority(NOW), make_dangling(p)),
}


@pytest.mark.parametrize("happens", LOST.values(), ids=LOST)
def test_a_ca_without_its_certificate_is_not_recreated(place, happens):
    happens(place)
    key = (place.folder / "cakey.pem").read_bytes()

    for _twice in range(2):
        with pytest.raises(PkiError) as refused:
            ask(place)
        assert "cacert.pem" in str(refused.value) and "move" in str(refused.value)
        assert "\n" not in str(refused.value)
    assert (place.folder / "cakey.pem").read_bytes() == key


def test_a_key_without_a_certificate_is_put_aside_and_never_lost(place):
    place.folder.mkdir()
    old = [ca.key_pem(ca.new_key()) for _ in range(2)]
    for key in old:
        (place.folder / "cakey.pem").write_bytes(key)
        (place.folder / "cacert.pem").unlink(missing_ok=True)
        place.authority(NOW)

    aside = sorted(place.folder.glob("cakey.pem.*"))
    assert [path.read_bytes() for path in aside] == old
    assert {stat.S_IMODE(path.stat().st_mode) for path in aside} == {0o600}


def test_a_certificate_that_is_a_link_to_a_file_is_adopted(place):
    place.folder.mkdir()
    authority = ca.create("old", NOW)
    files.write(place.folder / "cakey.pem", ca.key_pem(authority.key))
    target_file = place.folder.parent / "ca.crt"
    target_file.write_bytes(ca.certificate_pem(authority.certificate))
    (place.folder / "cacert.pem").symlink_to(target_file)

    assert ask(place).trust["libvirt"].ca.encode() == target_file.read_bytes()


def backup_of_many_certificates(place):
    """Return a backup of a CA that has issued many certificates; the CA is gone then."""
    place.authority(NOW)
    place.revoke(["ab" * 16], NOW)
    (place.folder / "issued").mkdir()
    for number in range(200):
        (place.folder / "issued" / f"{number:032x}.json").write_text("{}")
    backup_files = backup.read_all(place.folder)
    shutil.rmtree(place.folder)
    return backup_files


def test_a_host_that_asks_during_an_import_gets_the_imported_ca(place):
    backup_files = backup_of_many_certificates(place)
    importing = threading.Thread(target=backup.restore, args=(place.folder, backup_files))
    importing.start()
    end = time.monotonic() + 10
    while not (place.folder / "issued").exists():  # it holds the lock
        assert time.monotonic() < end

    authority = place.authority(NOW)

    importing.join()
    assert ca.certificate_pem(authority.certificate) == backup_files["cacert.pem"]
    assert backup.read_all(place.folder) == backup_files


def test_a_backup_waits_for_changes_of_the_ca(place):
    place.authority(NOW)
    backups = []
    with place.locked():
        reading = threading.Thread(target=lambda: backups.append(backup.read_all(place.folder)))
        reading.start()
        time.sleep(0.2)
        assert backups == []
        (place.folder / "late").write_text("x")
    reading.join()
    assert backups[0]["late"] == b"x"


def test_a_backup_of_no_ca_makes_no_folder(place):
    assert backup.read_all(place.folder) == {}
    assert not place.folder.exists()


@pytest.mark.parametrize("name", ["../evil", "issued/../../evil", "issued/..", "/evil"])
def test_a_backup_with_a_path_outside_the_ca_is_not_imported(place, name):
    backup_files = backup_of_many_certificates(place)

    with pytest.raises(PkiError, match="outside the CA"):
        backup.restore(place.folder, {**backup_files, name: b"x"})

    assert os.listdir(place.folder) == []


@pytest.mark.parametrize("in_the_way", ["issued", "revoked"])
def test_a_failed_import_leaves_nothing_and_can_be_repeated(place, in_the_way):
    backup_files = backup_of_many_certificates(place)
    place.folder.mkdir()
    (place.folder / in_the_way).write_text("in the way")

    with pytest.raises(OSError):
        backup.restore(place.folder, backup_files)
    (place.folder / in_the_way).unlink()
    files = [path for path in place.folder.rglob("*") if not path.is_dir()]
    backup.restore(place.folder, backup_files)

    assert files == []
    assert backup.read_all(place.folder) == backup_files


def test_an_import_brings_a_lost_certificate_back_and_loses_no_other_key(place):
    ask(place)
    backup_files = backup.read_all(place.folder)
    lose_certificate(place)
    other_key = ca.key_pem(ca.new_key())
    (place.folder / "cakey.pem").write_bytes(other_key)

    backup.restore(place.folder, backup_files)

    assert ask(place).trust["libvirt"].ca.encode() == backup_files["cacert.pem"]
    assert [path.read_bytes() for path in place.folder.glob("cakey.pem.*")] == [other_key]


def test_a_key_on_a_read_only_mount_is_used_unchanged(place, monkeypatch):
    place.authority(NOW)
    (place.folder / "cakey.pem").chmod(0o444)

    def refuse(self, _mode):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    monkeypatch.setattr(Path, "chmod", refuse)

    assert place.authority(NOW).certificate


def test_an_import_of_a_backup_with_a_key_put_aside_loses_no_other_key(place):
    ask(place)
    (place.folder / "cakey.pem.1").write_bytes(b"put aside before the backup")
    backup_files = backup.read_all(place.folder)
    assert "cakey.pem.1" not in backup_files
    shutil.rmtree(place.folder)
    place.folder.mkdir()
    other_key = ca.key_pem(ca.new_key())
    (place.folder / "cakey.pem").write_bytes(other_key)

    backup.restore(place.folder, {**backup_files, "cakey.pem.1": b"put aside before the backup"})

    assert [path.read_bytes() for path in place.folder.glob("cakey.pem.*")] == [other_key]


def test_a_backup_restores_the_list_of_hypervisors_but_does_not_replace_a_newer_one(place):
    ask(place)
    opts = {"pki_dir": str(place.folder.parent)}
    membership.allow(opts, ["hyper1", "hyper4"])
    backup_files = backup.read_all(place.folder)
    shutil.rmtree(place.folder)
    membership.disallow(opts, ["hyper4"])

    with pytest.raises(PkiError, match="hypervisors.json is another list"):
        backup.restore(place.folder, backup_files)
    (place.folder / "hypervisors.json").unlink()
    backup.restore(place.folder, backup_files)

    assert membership.read_listed(opts).has("hyper4")
    assert (place.folder / "hypervisors.json").stat().st_mode & 0o077 == 0


def test_an_import_does_not_write_where_a_link_is_the_certificate(place):
    place.authority(NOW)
    backup_files = backup.read_all(place.folder)
    make_dangling(place)

    with pytest.raises(PkiError, match="there is a CA in .* already; move it away first"):
        backup.restore(place.folder, backup_files)


def test_a_runner_returns_the_cas_error_in_one_line(place):
    serial = f"{parsed(ask(place)).serial_number:032x}"
    lose_certificate(place)
    cloud = Cloud.of({"pki_dir": str(place.folder.parent)})

    with pytest.raises(certificates.PkiRefused, match="is lost, and its CA has been in use"):
        certificates.revoke(cloud, serial, NOW)


def test_the_key_of_an_adopted_ca_is_closed(place):
    place.folder.mkdir(mode=0o755)
    authority = ca.create("old", datetime.now(timezone.utc))
    (place.folder / "cakey.pem").write_bytes(ca.key_pem(authority.key))
    (place.folder / "cakey.pem").chmod(0o644)
    (place.folder / "cacert.pem").write_bytes(ca.certificate_pem(authority.certificate))

    ask(place, now=datetime.now(timezone.utc))

    assert stat.S_IMODE((place.folder / "cakey.pem").stat().st_mode) == 0o600


def test_a_linked_key_of_an_adopted_ca_keeps_the_mode_its_owner_gave_it(place):
    place.folder.mkdir()
    authority = ca.create("old", NOW)
    target_file = place.folder.parent / "ca.key"
    target_file.write_bytes(ca.key_pem(authority.key))
    target_file.chmod(0o640)
    (place.folder / "cakey.pem").symlink_to(target_file)
    (place.folder / "cacert.pem").write_bytes(ca.certificate_pem(authority.certificate))

    ask(place)

    assert stat.S_IMODE(target_file.stat().st_mode) == 0o640
