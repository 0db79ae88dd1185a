"""A caller with read access learns of no file of this host but those of VMs."""

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
    """The migration info of a VM on another host."""
    end.make(conn)
    return migrationinfo.gather(conn, end.settings, "web1")["web1"]


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("spelling", ["plain", "by ..", "by a link"])
def test_the_presence_of_a_file_elsewhere_is_not_shown(
    end, conn, moving, tmp_path, is_there, spelling
):
    secret = tmp_path / "elsewhere/secret"
    secret.parent.mkdir()
    if is_there:
        secret.write_text("x")
    images = end.settings.images
    path = {"plain": str(secret), "by ..": f"{images}/../elsewhere/secret"}.get(spelling)
    if path is None:
        (tmp_path / "link").symlink_to(secret.parent)
        path = f"{tmp_path}/link/secret"
    (disk,) = moving.disks[:1]
    request = replace(
        moving,
        files=[path],
        disks=[replace(disk, path=path), replace(disk, path=path, how="shared")],
    )

    reasons = arrivalchecks.check(conn, end.settings, request, may_tell_paths=False)

    shown_lines = [line for line in reasons if "secret" in line]
    assert shown_lines == [
        f"whether {path} is there is told to the master's runner alone: salt-run virt.migrate VM "
        "dry_run=True"
    ]


def test_the_files_of_vms_are_shown(end, conn, moving):
    request = replace(moving, files=[f"{end.settings.images}/kernel"])

    reasons = arrivalchecks.check(conn, end.settings, request, may_tell_paths=False)

    assert reasons == arrivalchecks.check(conn, end.settings, request)
    assert f"there is no file {end.settings.images}/kernel there" in reasons


@pytest.mark.parametrize("path", ["/var/log/libvirt/qemu/", "/usr/share/OVMF/OVMF_CODE_4M.fd"])
def test_a_caller_learns_whether_log_folder_and_firmware_are_there(end, conn, moving, path):
    """Each VM that virt.init makes names that folder; each VM with UEFI names its firmware."""
    request = replace(moving, files=[path])

    reasons = arrivalchecks.check(conn, end.settings, request, may_tell_paths=False)

    assert reasons == arrivalchecks.check(conn, end.settings, request)


def test_only_the_runner_may_see_paths(end, conn, moving, monkeypatch):
    """A caller of ``virt.signed`` may change VMs, so it may see paths."""
    permissions = []

    def check(_conn, _settings, _moving, *, may_tell_paths):
        permissions.append(may_tell_paths)
        return []

    monkeypatch.setattr(arrivalchecks, "check", check)
    monkeypatch.setattr(MOVES._module, "settings", lambda *_args: end.settings)
    functions = {"virt.migrate_check": MOVES.migrate_check}
    order = answering.Order(fun="virt.migrate_check", arg=[wire.plain(moving)])

    MOVES.migrate_check(wire.plain(moving))
    answering._call_function(functions, order, lambda: end.settings)
    MOVES.migrate_check(wire.plain(moving))

    assert permissions == [False, True, False]
