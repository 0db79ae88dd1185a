"""The CA's files: what is lost is not replaced in silence, and a backup comes back whole."""

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


def lose(place):
    """Lose the CA's certificate."""
    (place.folder / "cacert.pem").unlink()


def dangle(place):
    """Let the CA's certificate be a link that leads nowhere, as when its package is removed."""
    lose(place)
    (place.folder / "cacert.pem").symlink_to(place.folder.parent / "gone.crt")


LOST = {
    "after the first certificate": lambda p: (ask(p), (p.folder / "cacrl.pem").unlink(), lose(p)),
    "after a revocation": lambda p: (p.revoke(["ab" * 16], NOW), lose(p)),
    "with a list alone": lambda p: (p.authority(NOW), p.revocations(NOW), lose(p)),
    "in a rotation": lambda p: (p.begin_rotation(NOW), lose(p)),
    "as a link": lambda p: (p.authority(NOW), dangle(p)),
}


@pytest.mark.parametrize("happens", LOST.values(), ids=LOST)
def test_a_ca_that_lost_its_certificate_is_not_made_anew(place, happens):
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
    real = place.folder.parent / "ca.crt"
    real.write_bytes(ca.certificate_pem(authority.certificate))
    (place.folder / "cacert.pem").symlink_to(real)

    assert ask(place).trust["libvirt"].ca.encode() == real.read_bytes()


def with_notes(place):
    """Return a backup of a CA that has issued many certificates; the CA is gone then."""
    place.authority(NOW)
    place.revoke(["ab" * 16], NOW)
    (place.folder / "issued").mkdir()
    for number in range(200):
        (place.folder / "issued" / f"{number:032x}.json").write_text("{}")
    kept = backup.read_all(place.folder)
    shutil.rmtree(place.folder)
    return kept


def test_a_host_that_asks_during_an_import_gets_the_imported_ca(place):
    kept = with_notes(place)
    importing = threading.Thread(target=backup.restore, args=(place.folder, kept))
    importing.start()
    end = time.monotonic() + 10
    while not (place.folder / "issued").exists():  # it holds the lock
        assert time.monotonic() < end

    authority = place.authority(NOW)

    importing.join()
    assert ca.certificate_pem(authority.certificate) == kept["cacert.pem"]
    assert backup.read_all(place.folder) == kept


def test_a_backup_waits_for_whoever_changes_the_ca(place):
    place.authority(NOW)
    seen = []
    with place.locked():
        reading = threading.Thread(target=lambda: seen.append(backup.read_all(place.folder)))
        reading.start()
        time.sleep(0.2)
        assert seen == []
        (place.folder / "late").write_text("x")
    reading.join()
    assert seen[0]["late"] == b"x"


def test_a_backup_of_no_ca_makes_no_folder(place):
    assert backup.read_all(place.folder) == {}
    assert not place.folder.exists()


@pytest.mark.parametrize("name", ["../evil", "issued/../../evil", "issued/..", "/evil"])
def test_a_backup_that_names_a_file_elsewhere_is_not_begun_with(place, name):
    kept = with_notes(place)

    with pytest.raises(PkiError, match="outside the CA"):
        backup.restore(place.folder, {**kept, name: b"x"})

    assert os.listdir(place.folder) == []


@pytest.mark.parametrize("in_the_way", ["issued", "revoked"])
def test_an_import_that_fails_leaves_nothing_and_can_be_done_again(place, in_the_way):
    kept = with_notes(place)
    place.folder.mkdir()
    (place.folder / in_the_way).write_text("in the way")

    with pytest.raises(OSError):
        backup.restore(place.folder, kept)
    (place.folder / in_the_way).unlink()
    left = [path for path in place.folder.rglob("*") if not path.is_dir()]
    backup.restore(place.folder, kept)

    assert left == []
    assert backup.read_all(place.folder) == kept


def test_an_import_brings_a_lost_certificate_back_and_loses_no_other_key(place):
    ask(place)
    kept = backup.read_all(place.folder)
    lose(place)
    other = ca.key_pem(ca.new_key())
    (place.folder / "cakey.pem").write_bytes(other)

    backup.restore(place.folder, kept)

    assert ask(place).trust["libvirt"].ca.encode() == kept["cacert.pem"]
    assert [path.read_bytes() for path in place.folder.glob("cakey.pem.*")] == [other]


def test_a_key_on_a_read_only_mount_is_used_as_it_is(place, monkeypatch):
    place.authority(NOW)
    (place.folder / "cakey.pem").chmod(0o444)

    def refuse(self, _mode):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    monkeypatch.setattr(Path, "chmod", refuse)

    assert place.authority(NOW).certificate


def test_an_import_of_a_backup_with_a_key_put_aside_loses_no_other_key(place):
    ask(place)
    (place.folder / "cakey.pem.1").write_bytes(b"put aside before the backup")
    kept = backup.read_all(place.folder)
    assert "cakey.pem.1" not in kept
    shutil.rmtree(place.folder)
    place.folder.mkdir()
    other = ca.key_pem(ca.new_key())
    (place.folder / "cakey.pem").write_bytes(other)

    backup.restore(place.folder, {**kept, "cakey.pem.1": b"put aside before the backup"})

    assert [path.read_bytes() for path in place.folder.glob("cakey.pem.*")] == [other]


def test_a_backup_brings_back_who_is_a_hypervisor_but_not_over_a_newer_word(place):
    ask(place)
    opts = {"pki_dir": str(place.folder.parent)}
    membership.allow(opts, ["hyper1", "hyper4"])
    kept = backup.read_all(place.folder)
    shutil.rmtree(place.folder)
    membership.disallow(opts, ["hyper4"])

    with pytest.raises(PkiError, match="hypervisors.json is another list"):
        backup.restore(place.folder, kept)
    (place.folder / "hypervisors.json").unlink()
    backup.restore(place.folder, kept)

    assert membership.read_listed(opts).has("hyper4")
    assert (place.folder / "hypervisors.json").stat().st_mode & 0o077 == 0


def test_an_import_does_not_write_where_a_link_is_the_certificate(place):
    place.authority(NOW)
    kept = backup.read_all(place.folder)
    dangle(place)

    with pytest.raises(PkiError, match="there is a CA in .* already; move it away first"):
        backup.restore(place.folder, kept)


def test_a_runner_says_in_one_line_what_the_ca_refuses(place):
    serial = f"{parsed(ask(place)).serial_number:032x}"
    lose(place)
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
    real = place.folder.parent / "ca.key"
    real.write_bytes(ca.key_pem(authority.key))
    real.chmod(0o640)
    (place.folder / "cakey.pem").symlink_to(real)
    (place.folder / "cacert.pem").write_bytes(ca.certificate_pem(authority.certificate))

    ask(place)

    assert stat.S_IMODE(real.stat().st_mode) == 0o640
