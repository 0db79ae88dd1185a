"""The worker writes below a folder: a real process, which needs no appliance for that."""

import json
import os
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import applianceuser
import pytest
from salt import config
from saltvirt.core import writelimit
from saltvirt.core.errors import SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.seeding import write
from saltvirt.seeding.offline import appliance
from saltvirt.seeding.seedmodel import Identity

IDENTITY = Identity(
    id="web1",
    config={"master": "m", "id": "web1"},
    public_key="PUB",
    private_key="PRIV",
)
BOOT = {"kind": "boot", "script": "echo install"}


@pytest.fixture
def root(tmp_path):
    """A guest's root with systemd, SSH host keys and a machine id, and no minion."""
    root = tmp_path / "root"
    for folder in ("etc/ssh", "usr/lib/systemd", "sbin", "usr/bin"):
        (root / folder).mkdir(parents=True)
    (root / "usr/lib/systemd/systemd").write_text("")
    (root / "etc/machine-id").write_text("0123\n")
    (root / "etc/ssh/ssh_host_rsa_key").write_text("of the image")
    return root


def run(tmp_path, root, install=BOOT, **job_fields):
    """Have the worker seed a folder, and return its answer."""
    job = {
        "action": "seed",
        "via": "folder",
        "path": str(root),
        "format": None,
        "install": install,
        "files": write.files_of(IDENTITY),
        **job_fields,
    }
    room = writelimit.from_settings(HostSettings())
    return appliance.run(job, state_dir=tmp_path / "state", room=room, python=sys.executable)


def test_an_identity_is_written_below_a_folder(tmp_path, root):
    answer = run(tmp_path, root)

    assert (answer["has_minion"], answer["has_systemd"]) == (False, True)
    assert (root / "etc/salt/minion_id").read_text() == "web1\n"
    key = root / "etc/salt/pki/minion/minion.pem"
    assert (key.read_text(), stat.S_IMODE(key.stat().st_mode)) == ("PRIV", 0o400)
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert (root / "etc/machine-id").read_text() == ""
    assert not (root / "etc/ssh/ssh_host_rsa_key").exists()
    assert (root / "usr/local/sbin/salt-virt-install").read_text() == "echo install"
    unit = root / "etc/systemd/system/multi-user.target.wants/salt-virt-install.service"
    assert str(unit.readlink()) == "/etc/systemd/system/salt-virt-install.service"
    assert list((tmp_path / "state/appliances").iterdir()) == []


@pytest.mark.parametrize("name", ["id.conf", "master.conf"])
def test_an_images_configuration_does_not_override_the_guests(tmp_path, root, name):
    (root / "etc/salt/minion.d").mkdir(parents=True)
    (root / "etc/salt/minion.d" / name).write_text("id: template\nmaster: old.example.org\n")

    run(tmp_path, root)

    minion_config = config.include_config(
        "minion.d/*.conf", str(root / "etc/salt/minion"), verbose=False
    )
    assert (minion_config["id"], minion_config["master"]) == ("web1", "m")


def test_a_guest_without_a_given_key_does_not_keep_its_images_key(tmp_path, root):
    pki = root / "etc/salt/pki/minion"
    identity_files = write.files_of(replace(IDENTITY, public_key=None, private_key=None))
    for image_id, is_kept in (("template\n", False), ("web1\n", True)):
        pki.mkdir(parents=True, exist_ok=True)
        for name in ("minion.pem", "minion.pub"):
            (pki / name).write_text("of the image")
        (root / "etc/salt/minion_id").write_text(image_id)

        run(tmp_path, root, files=identity_files)

        assert [(pki / name).exists() for name in ("minion.pem", "minion.pub")] == [is_kept] * 2


def test_a_folder_of_keys_that_is_another_users_becomes_roots(tmp_path, root):
    (root / "root/.ssh").mkdir(parents=True)
    os.chown(root / "root/.ssh", 1000, 1000)

    run(tmp_path, root, ssh_keys=["ssh-ed25519 AAAA anna"])

    folder_stat = (root / "root/.ssh").stat()
    assert (folder_stat.st_uid, folder_stat.st_gid, stat.S_IMODE(folder_stat.st_mode)) == (
        0,
        0,
        0o700,
    )
    assert (root / "root/.ssh/authorized_keys").read_text() == "ssh-ed25519 AAAA anna\n"


def test_an_existing_minion_is_started_instead(tmp_path, root):
    (root / "usr/bin/salt-minion").write_text("")
    (root / "usr/lib/systemd/system").mkdir()
    (root / "usr/lib/systemd/system/salt-minion.service").write_text("")

    assert run(tmp_path, root, None)["had_minion"]

    wants = root / "etc/systemd/system/multi-user.target.wants"
    assert [path.name for path in wants.iterdir()] == ["salt-minion.service"]


def test_a_minion_is_put_in_without_an_identity(tmp_path, root):
    (root / "usr/bin/salt-minion").write_text("")
    (root / "etc/selinux").mkdir()
    (root / "etc/selinux/config").write_text("SELINUX=enforcing\n")

    assert run(tmp_path, root, action="install")["has_minion"]

    assert (root / ".autorelabel").exists() and not (root / "etc/salt").exists()
    assert (root / "etc/machine-id").read_text() == "0123\n"
    assert (root / "etc/ssh/ssh_host_rsa_key").exists()


def test_no_link_of_a_guest_leads_out_of_it(tmp_path, root):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "minion_id").write_text("the host's")
    (root / "etc/salt").symlink_to(outside)
    (root / "etc/hostname").symlink_to(outside / "minion_id")
    (root / "etc/machine-id").unlink()
    (root / "etc/machine-id").symlink_to("../../outside/minion_id")

    with pytest.raises(SeedError, match="writing failed on .*root: .*'/etc/salt"):
        run(tmp_path, root)

    assert (outside / "minion_id").read_text() == "the host's"
    assert [path.name for path in outside.iterdir()] == ["minion_id"]


def test_no_link_leads_out_by_the_hosts_processes_either(tmp_path, root):
    """A root in which an administrator worked by chroot may have proc mounted in it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "proc").mkdir()
    (root / "etc/salt").symlink_to(f"/proc/1/root{outside}")
    job = {"action": "seed", "via": "folder", "path": str(root), "install": BOOT, "limit_s": 60}
    job["files"] = write.files_of(IDENTITY)
    script = 'mount -t proc proc "$1/proc" && exec "$2" "$3"'
    worker = Path(appliance.__file__).parent / "worker"

    process = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", root, sys.executable, worker],
        input=json.dumps(job),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert list(outside.iterdir()) == []
    assert f"run: umount {root}/proc" in json.loads(process.stdout)["refused"]


def test_a_link_inside_the_guest_is_followed_there(tmp_path, root):
    (root / "srv/salt").mkdir(parents=True)
    (root / "etc/salt").symlink_to("/srv/salt")

    run(tmp_path, root)

    assert (root / "srv/salt/minion_id").read_text() == "web1\n"


def test_a_farm_of_links_ends_with_an_error(tmp_path, root):
    for number in range(60):
        (root / f"etc/l{number}").symlink_to(f"/etc/l{number + 1}")
    (root / "etc/salt").symlink_to("/etc/l0")
    (root / "etc/l60").symlink_to("/etc/l0")

    with pytest.raises(SeedError, match="writing failed on .*root: .*'/etc/salt"):
        run(tmp_path, root)


def test_a_pipe_in_the_way_blocks_nothing(tmp_path, root):
    os.mkfifo(root / "etc/hostname")
    (root / "etc/machine-id").unlink()
    os.mkfifo(root / "etc/machine-id")

    run(tmp_path, root)

    assert (root / "etc/hostname").read_text() == "web1\n"


@pytest.mark.parametrize(
    ("job_fields", "reason"),
    [
        ({"install": None}, "there is no salt-minion in it, and install=False"),
        (
            {"install": {"kind": "tarball", "files": []}},
            "nothing is installed without an appliance",
        ),
        ({"path": "/proc"}, "there is no operating system in it"),
        ({"path": "/no/such"}, "writing failed on /no/such: .*No such file"),
    ],
)
def test_an_impossible_job_is_refused_and_writes_nothing(tmp_path, root, job_fields, reason):
    before = sorted(root.rglob("*"))

    with pytest.raises(SeedError, match=reason):
        run(tmp_path, root, **job_fields)

    assert sorted(root.rglob("*")) == before


def test_a_kernel_without_nbd_is_named(tmp_path, root):
    if Path("/sys/module/nbd").is_dir():
        pytest.skip("this machine's kernel has nbd; tests/cloud/test_nbd.py uses it")
    disk = tmp_path / "disk.raw"
    disk.write_bytes(bytes(1 << 20))

    with pytest.raises(SeedError, match="kernel has no 'nbd' .*; use seed_method=guestfs or "):
        run(tmp_path, root, via="nbd", path=str(disk), format="raw")


def greedy_program(tmp_path, script):
    """Return a program for the worker's place that runs a script, and then does not end."""
    path = tmp_path / "greedy"
    path.write_text(f"#!/bin/sh\n{script}\nexec sleep 60\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("action", "script", "reason"),
    [
        ("seed", "head -c 30M /dev/zero >>{disk}", "no room for image .* kept for VMs"),
        (
            "look",
            'head -c 1030M /dev/zero >"$TMPDIR/overlay"',
            "wrote more than 1024 MiB beside it",
        ),
    ],
)
@pytest.mark.slow
def test_an_appliance_that_writes_too_much_is_ended(tmp_path, small_disk, action, script, reason):
    applianceuser.there()
    disk = small_disk / "disk"
    disk.touch()
    program = greedy_program(tmp_path, script.format(disk=disk))
    room = writelimit.Room(max_bytes=1 << 40, reserve_bytes=20 << 20, limit_s=60)
    started_s = time.monotonic()

    with pytest.raises(SeedError, match=reason):
        appliance.run(
            {"action": action, "path": str(disk)},
            state_dir=tmp_path / "state",
            room=room,
            python=program,
        )

    assert time.monotonic() - started_s < 30
    assert list((tmp_path / "state/appliances").iterdir()) == []


@pytest.mark.parametrize("outcome", ["refused", "failed"])
def test_an_error_from_an_image_is_one_line_that_steers_no_terminal(outcome):
    answer = json.dumps(
        {outcome: "its root cannot be mounted: /dev/\x1b]0;x\x07sda1:\nwrong\r type"}
    )

    with pytest.raises(SeedError) as excinfo:
        appliance._answer({"path": "/a", "action": "seed"}, 0, answer, "")

    assert str(excinfo.value).isprintable()
    assert "its root cannot be mounted: /dev/" in str(excinfo.value)
    with pytest.raises(SeedError) as excinfo:
        appliance._answer(
            {"path": "/a", "action": "seed"}, 0, json.dumps({outcome: "x" * 10**6}), ""
        )
    assert len(str(excinfo.value)) < 1100
