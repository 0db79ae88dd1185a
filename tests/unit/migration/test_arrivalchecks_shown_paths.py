"""Who may only look learns of no file of this host but those that VMs have."""

from dataclasses import replace

import asloaded
import pytest
from saltvirt.core import wire
from saltvirt.core.salt import answering
from saltvirt.migration.host import arrivalchecks
from saltvirt.vm.show.host import migrationinfo

MOVES = asloaded.module("_modules/virt_answers_moves.py")


@pytest.fixture
def moving(end, conn):
    """What another host has said of a VM."""
    end.make(conn)
    return migrationinfo.gather(conn, end.settings, "web1")["web1"]


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("where", ["plain", "by ..", "by a link"])
def test_of_a_file_elsewhere_nothing_is_told(end, conn, moving, tmp_path, is_there, where):
    secret = tmp_path / "elsewhere/secret"
    secret.parent.mkdir()
    if is_there:
        secret.write_text("x")
    images = end.settings.images
    path = {"plain": str(secret), "by ..": f"{images}/../elsewhere/secret"}.get(where)
    if path is None:
        (tmp_path / "link").symlink_to(secret.parent)
        path = f"{tmp_path}/link/secret"
    (disk,) = moving.disks[:1]
    asked = replace(
        moving,
        files=[path],
        disks=[replace(disk, path=path), replace(disk, path=path, how="shared")],
    )

    why = arrivalchecks.check(conn, end.settings, asked, may_tell_paths=False)

    about = [line for line in why if "secret" in line]
    assert about == [
        f"whether {path} is there is told to the master's runner alone: salt-run virt.migrate VM "
        "dry_run=True"
    ]


def test_of_the_files_of_vms_all_is_told(end, conn, moving):
    asked = replace(moving, files=[f"{end.settings.images}/kernel"])

    by_hand = arrivalchecks.check(conn, end.settings, asked, may_tell_paths=False)

    assert by_hand == arrivalchecks.check(conn, end.settings, asked)
    assert f"there is no file {end.settings.images}/kernel there" in by_hand


@pytest.mark.parametrize("path", ["/var/log/libvirt/qemu/", "/usr/share/OVMF/OVMF_CODE_4M.fd"])
def test_a_caller_learns_whether_log_folder_and_firmware_are_there(end, conn, moving, path):
    """Each VM that virt.init makes names that folder, and each one with UEFI its firmware."""
    asked = replace(moving, files=[path])

    by_hand = arrivalchecks.check(conn, end.settings, asked, may_tell_paths=False)

    assert by_hand == arrivalchecks.check(conn, end.settings, asked)


def test_the_runner_is_told_and_nobody_else(end, conn, moving, monkeypatch):
    """Who may call ``virt.signed`` may change VMs."""
    told = []

    def check(_conn, _settings, _moving, *, may_tell_paths):
        told.append(may_tell_paths)
        return []

    monkeypatch.setattr(arrivalchecks, "check", check)
    monkeypatch.setattr(MOVES._module, "settings", lambda *_given: end.settings)
    functions = {"virt.migrate_check": MOVES.migrate_check}
    order = answering.Order(fun="virt.migrate_check", arg=[wire.plain(moving)])

    MOVES.migrate_check(wire.plain(moving))
    answering._call_function(functions, order, lambda: end.settings)
    MOVES.migrate_check(wire.plain(moving))

    assert told == [False, True, False]
