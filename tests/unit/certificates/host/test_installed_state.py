"""The state virt.keys: what is due, what it installs, and that a missing answer is an error."""

import grp
import os
import pwd
import stat
import subprocess
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from askedca import GRAINS, ask
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from lockers import another_user_holds, ends
from saltvirt.ca import ca
from saltvirt.certificates.host import enrolment, installed

FUNCTIONS = {"cmd.has_exec": lambda _name: False}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def qemu(monkeypatch):
    """The group of QEMU, for which a group stands that each machine has."""
    monkeypatch.setattr(installed, "_QEMU_GROUPS", ("daemon",))
    return grp.getgrnam("daemon").gr_gid


def mode(path):
    """Return a file's mode."""
    return stat.S_IMODE(Path(path).stat().st_mode)


def test_the_second_run_changes_nothing_and_test_says_so(host):
    work, functions = host

    assert work.run(functions) == ({}, "all keys are in order")
    assert work.plan() == ({}, "all keys are in order")


DAMAGE = {
    "key lost": lambda p: p.key.unlink(),
    "certificate lost": lambda p: p.certificate.unlink(),
    "key swapped": lambda p: p.key.write_bytes(ca.key_pem(ca.new_key())),
    "key cut off": lambda p: p.key.write_bytes(p.key.read_bytes()[:50]),
    "key open to others": lambda p: p.key.chmod(0o644),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_files_are_replaced(host, damage):
    work, functions = host
    place = installed.places(work.basepath)["libvirt-server"]
    damage(place)

    planned_changes, _comment = work.plan()
    changes, _comment = work.run(functions)

    assert set(planned_changes) == set(changes) == {"libvirt-server"}
    assert stat.S_IMODE(place.key.stat().st_mode) == 0o600
    assert work.run(functions) == ({}, "all keys are in order")


def test_renewal_begins_when_a_third_of_the_life_is_left(host, place):
    work, _functions = host
    info = ask(place, wanted={}, now=datetime.now(timezone.utc))
    where = installed.places(work.basepath)["libvirt-server"]
    now = datetime.now(timezone.utc)

    assert installed.find_due_reason(where, info, now + timedelta(days=59)) is None
    assert "a third of its life" in installed.find_due_reason(where, info, now + timedelta(days=61))


def test_a_new_address_or_a_revocation_makes_a_certificate_due(host, place):
    work, _functions = host
    where = installed.places(work.basepath)["libvirt-server"]
    now = datetime.now(timezone.utc)
    moved = ask(place, wanted={}, now=now, grains={**GRAINS, "ipv4": ["192.0.2.99"]})
    certificate = x509.load_pem_x509_certificate(where.certificate.read_bytes())

    place.revoke([f"{certificate.serial_number:032x}"], now)

    assert (
        installed.find_due_reason(where, moved, now) == "the host's names or addresses have changed"
    )
    assert installed.find_due_reason(where, ask(place, wanted={}, now=now), now) == "it was revoked"


def renewed(work, functions):
    """Renew all files by force; return the keys and certificates before and after."""
    where = installed.places(work.basepath)["libvirt-client"]
    before = where.key.read_bytes(), where.certificate.read_bytes()
    replace(work, is_forced=True).run(functions)
    return before, (where.key.read_bytes(), where.certificate.read_bytes())


def test_a_renewal_and_a_new_ca_keep_the_key_so_that_every_reader_finds_a_pair(host, place):
    work, functions = host
    before, after = renewed(work, functions)
    assert after[0] == before[0] and after[1] != before[1]

    now = datetime.now(timezone.utc)
    place.begin_rotation(now)
    work.run(functions)
    place.promote(now)
    changes, _comment = work.run(functions)

    assert changes["libvirt-client"] == "it is not signed by the master's CA for this use"
    where = installed.places(work.basepath)["libvirt-client"]
    assert where.key.read_bytes() == before[0] and where.certificate.read_bytes() != after[1]


def test_one_run_of_a_host_waits_for_another(bare):
    ended_runs = []
    second = threading.Thread(target=lambda: ended_runs.append(bare.run(FUNCTIONS)))

    def asked(question):
        if question["certificates"]:
            second.start()
            second.join(1)
            assert ended_runs == []
        return bare.ask(question)

    changes, _comment = replace(bare, ask=asked).run(FUNCTIONS)
    second.join()

    assert set(installed.DEFAULT_PURPOSES) <= set(changes)
    assert ended_runs == [({}, "all keys are in order")]


def revoke(where, place):
    """Revoke the certificate."""
    serial = x509.load_pem_x509_certificate(where.certificate.read_bytes()).serial_number
    place.revoke([f"{serial:032x}"], datetime.now(timezone.utc))


def install_key(locations, place, minion_id, kind):
    """Install a key of this kind, certified for this minion, in place of the host's own."""
    key, certificate_request = installed.request(minion_id, ca.new_key(kind))
    answer = ask(
        place,
        minion_id,
        wanted={"libvirt-client": certificate_request},
        now=datetime.now(timezone.utc),
    )
    installed.lay_down(locations, key, answer.certificates["libvirt-client"])


DISTRUST = {
    "revoked": revoke,
    "open to others": lambda where, _place: where.key.chmod(0o644),
    "certified with another name": lambda where, place: install_key(where, place, "other", "ecdsa"),
    "not of this project": lambda where, place: install_key(where, place, "hyper1", "rsa"),
}


@pytest.mark.slow
@pytest.mark.parametrize("distrust", DISTRUST.values(), ids=DISTRUST)
def test_a_key_that_cannot_be_trusted_is_not_kept(host, place, distrust):
    where = installed.places(host[0].basepath)["libvirt-client"]
    distrust(where, place)

    before, after = renewed(*host)

    assert after[0] != before[0] and after[1] != before[1]


@pytest.mark.parametrize(
    ("pillar", "reason"),
    [
        ({}, "no external pillar"),
        (None, "no external pillar"),
        ({"libvirt_pki": {"error": "not you"}}, "the master refused: not you"),
    ],
)
def test_a_missing_answer_is_an_error(tmp_path, pillar, reason):
    work = enrolment.Enrolment(
        basepath=str(tmp_path), minion_id="hyper1", ask=lambda _requests: pillar
    )

    with pytest.raises(enrolment.EnrolmentRefused, match=reason):
        work.run({})
    with pytest.raises(enrolment.EnrolmentRefused, match=reason):
        work.plan()
    assert os.listdir(tmp_path) == []


@needs_root
def test_the_group_of_qemu_can_enter_the_folder_of_its_key(qemu, host, place):
    work, _functions = host
    where = installed.places(work.basepath)["qemu-server"]
    info = ask(place, wanted={}, now=datetime.now(timezone.utc))
    where.key.parent.chmod(0o700)
    os.chown(where.key.parent, -1, 0)
    reason = installed.find_due_reason(where, info, datetime.now(timezone.utc))
    key, pem = where.key.read_bytes(), where.certificate.read_text()

    installed.lay_down(where, serialization.load_pem_private_key(key, password=None), pem)

    assert reason == f"{where.key.parent} cannot be entered by QEMU's group daemon"
    assert installed.find_due_reason(where, info, datetime.now(timezone.utc)) is None
    stat_result = where.key.parent.stat()
    assert (stat.S_IMODE(stat_result.st_mode), grp.getgrgid(stat_result.st_gid).gr_name) == (
        0o750,
        "daemon",
    )


@needs_root
@pytest.mark.parametrize("purpose", ["libvirt-client", "qemu-server"])
def test_a_key_that_root_does_not_own_is_replaced(qemu, host, purpose):
    where = installed.places(host[0].basepath)[purpose]
    os.chown(where.key, pwd.getpwnam("nobody").pw_uid, -1)
    key_before = where.key.read_bytes()

    changes, _comment = host[0].run(FUNCTIONS)

    assert changes == {purpose: f"{where.key} belonged to nobody, not to root"}
    assert where.key.stat().st_uid == 0 and where.key.read_bytes() != key_before
    assert host[0].run(FUNCTIONS) == ({}, "all keys are in order")


@needs_root
def test_a_key_that_another_group_could_read_is_replaced(qemu, host):
    where = installed.places(host[0].basepath)["qemu-server"]
    os.chown(where.key, -1, grp.getgrnam("users").gr_gid)
    key_before = where.key.read_bytes()

    changes, _comment = host[0].run(FUNCTIONS)

    assert changes == {"qemu-server": f"{where.key} was readable by the group users"}
    assert where.key.stat().st_gid == qemu and where.key.read_bytes() != key_before
    assert host[0].run(FUNCTIONS) == ({}, "all keys are in order")


@needs_root
def test_a_new_group_of_qemu_is_applied_once(bare, monkeypatch):
    # At first only kvm exists; then libvirt's packages add libvirt-qemu.
    monkeypatch.setattr(installed, "_QEMU_GROUPS", ("users",))
    bare.run(FUNCTIONS)
    monkeypatch.setattr(installed, "_QEMU_GROUPS", ("daemon", "users"))

    changes, _comment = bare.run(FUNCTIONS)

    assert set(changes) == {"qemu-server", "qemu-client"}
    assert bare.run(FUNCTIONS) == ({}, "all keys are in order")


@needs_root
def test_a_key_that_qemu_cannot_read_is_due_and_is_kept(qemu, host):
    where = installed.places(host[0].basepath)["qemu-client"]
    where.key.chmod(0o600)
    key_before = where.key.read_bytes()

    changes, _comment = host[0].run(FUNCTIONS)

    assert changes == {"qemu-client": f"{where.key} cannot be read by QEMU's group daemon"}
    assert (mode(where.key), where.key.read_bytes()) == (0o640, key_before)


@needs_root
def test_qemu_cannot_write_in_the_folder_of_its_keys(qemu, bare):
    folder = installed.places(bare.basepath)["qemu-server"].key.parent
    folder.mkdir(parents=True)
    folder.chmod(0o770)

    bare.run(FUNCTIONS)

    assert (mode(folder), folder.stat().st_gid) == (0o750, qemu)


@needs_root
@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_a_narrow_umask_does_not_lock_qemu_out(qemu, bare, umask):
    umask_before = os.umask(umask)
    try:
        bare.run(FUNCTIONS)
    finally:
        os.umask(umask_before)

    base = Path(bare.basepath)
    modes = {name: mode(base / name) for name in (".", "..", "CA", "libvirt", "qemu")}
    assert modes == {".": 0o755, "..": 0o755, "CA": 0o755, "libvirt": 0o755, "qemu": 0o750}
    assert mode(base / "libvirt/private") == 0o700
    as_qemu = ["setpriv", "--reuid", "65534", "--regid", str(qemu), "--clear-groups", "cat"]
    subprocess.run([*as_qemu, base / "qemu/server-key.pem"], check=True, capture_output=True)
    assert bare.run(FUNCTIONS) == ({}, "all keys are in order")


@needs_root
def test_a_closed_folder_above_the_keys_is_opened_for_qemu(qemu, host):
    base = Path(host[0].basepath)
    base.chmod(0o750)

    changes, _comment = host[0].run(FUNCTIONS)

    reason = f"{base} cannot be entered by QEMU's group daemon"
    assert changes == {"qemu-server": reason, "qemu-client": reason}
    assert mode(base) == 0o751
    assert host[0].run(FUNCTIONS) == ({}, "all keys are in order")


@needs_root
def test_a_closed_folder_of_others_is_named_and_left_alone(qemu, host):
    parent = Path(host[0].basepath).parent
    parent.chmod(0o700)

    changes, planned_changes = host[0].run(FUNCTIONS), host[0].plan()

    # QEMU may enter it by another group or an ACL, so no change is due and no run fails.
    assert (
        changes
        == planned_changes
        == (
            {},
            (
                f"all keys are in order; {parent} cannot be entered by QEMU's group daemon, "
                f"which has its keys below it; if QEMU does not read them, run: chmod o+x {parent}"
            ),
        )
    )
    assert mode(parent) == 0o700


def test_a_lock_of_a_user_does_not_delay_the_revocation_list(host):
    """A user with read access to a file or a folder, such as /etc, may have locked it."""
    work, _functions = host

    with another_user_holds(Path(work.basepath).parent):
        assert ends(lambda: work.run(FUNCTIONS))
    assert mode(installed._LOCKS) == 0o700
