"""The real confinement of the appliance's process: its user, its files, its missing network."""

import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import applianceuser
import pytest
from saltvirt.core import writelimit
from saltvirt.core.errors import SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.seeding.offline import appliance, lending
from saltvirt.seeding.offline.worker import confined

# Kept before a fixture of all tests replaces it.
END_ALL = lending.end_all
ROOM = writelimit.from_settings(HostSettings())
# A worker without libguestfs: it enters the confinement, and reports what it finds there. It cannot
# read a Python below /root there, so it imports beforehand what a socket needs.
WORKER = """
import encodings.idna, json, os, socket, sys
sys.path.insert(0, {folder!r})
import confined
job = json.load(sys.stdin)
confined.RESOLVERS = job.get("resolvers", confined.RESOLVERS)
confined.enter(job, [])
status = dict(row.split(":", 1) for row in open("/proc/self/status"))
out = {{
    "ids": [os.getresuid(), os.getresgid(), os.getgroups()],
    "powers": [int(status["CapEff"], 16), int(status["CapPrm"], 16), int(status["NoNewPrivs"])],
    "path": job["path"],
    "there": sorted(os.listdir(confined.PLACE + "/given")),
    "tmp": os.environ["TMPDIR"],
}}
def attempt(name, deed):
    try:
        out[name] = deed()
    except OSError as exc:
        out[name] = type(exc).__name__
def connect():
    with socket.create_connection(("127.0.0.1", job["port"]), timeout=5):
        return "connected"
attempt("disk", lambda: open(job["path"], job["mode"]).write("written") if "+" in job["mode"]
        else open(job["path"]).read())
attempt("tmp_is_mine", lambda: open(out["tmp"] + "/x", "w").write("x"))
given = job.get("install", {{}}).get("files", [])
attempt("given", lambda: [open(path).read() for path, _name in given])
attempt("given_is_not_mine", lambda: open(confined.PLACE + "/given/0", "a"))
attempt("state", lambda: os.listdir(job["confined"]["folder"]))
attempt("root_again", lambda: os.setuid(0))
attempt("loopback", connect)
out["run"] = sorted(os.listdir("/run"))
attempt("resolvers", lambda: open(confined.RESOLVERS).read())
json.dump(out, sys.stdout)
"""


@pytest.fixture
def user():
    """The appliance's user, in the tests' root."""
    return applianceuser.there()


@pytest.fixture
def disk(tmp_path):
    """A disk that only root reads, in a folder that only root enters."""
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    path = folder / "disk"
    path.write_text("a disk")
    path.chmod(0o600)
    return path


def report_of(tmp_path, disk, action="seed", **job):
    """Return the report of a process in the appliance's confinement."""
    program = tmp_path / "worker"
    folder = str(Path(confined.__file__).parent)
    program.write_text(f"#!{sys.executable}\n{WORKER.format(folder=folder)}")
    program.chmod(0o755)
    mode = "r" if action == "look" else "r+"
    whole_job = {"action": action, "path": str(disk), "mode": mode, "port": 1, **job}
    return appliance.run(
        whole_job, state_dir=tmp_path / "state", room=ROOM, python=str(program), limit_s=60
    )


def test_the_process_has_a_user_without_rights_and_reaches_what_it_was_lent(tmp_path, disk, user):
    package = tmp_path / "private/minion.deb"
    package.write_text("a package")
    package.chmod(0o600)

    report = report_of(
        tmp_path, disk, install={"kind": "package", "files": [[str(package), "m.deb"]]}
    )

    assert report["ids"] == [[user.uid] * 3, [user.gid] * 3, []]
    assert report["powers"] == [0, 0, 1]
    assert (report["path"], report["disk"]) == (f"{confined.PLACE}/disk", len("written"))
    assert (report["tmp_is_mine"], report["given"]) == (1, ["a package"])
    for name in ("given_is_not_mine", "root_again"):
        assert report[name] == "PermissionError", name
    # The tests have the folder below /run, where it is not even visible.
    assert report["state"] in ("PermissionError", "FileNotFoundError")
    assert report["run"] == ["salt-virt-appliance"]
    assert disk.read_text() == "written"
    disk_stat = disk.stat()
    assert (disk_stat.st_uid, stat.S_IMODE(disk_stat.st_mode)) == (0, 0o600)
    assert stat.S_IMODE(package.stat().st_mode) == 0o600
    assert list((tmp_path / "state/appliances").iterdir()) == []
    # Its mounts are its own: no other process sees them.
    assert confined.PLACE not in Path("/proc/self/mounts").read_text()


def test_not_even_this_hosts_loopback_is_reachable(tmp_path, disk, user, listening):
    assert report_of(tmp_path, disk, port=listening)["loopback"] == "OSError"


def test_with_a_network_the_name_servers_are_there_though_the_file_is_a_link_into_run(
    tmp_path, disk, user
):
    servers = Path("/run/salt-virt-test/resolv.conf")
    servers.parent.mkdir()
    # The tests' own folders are in /run as well.
    etc = Path(tempfile.mkdtemp(dir="/var/tmp"))
    etc.chmod(0o755)
    try:
        servers.write_text("nameserver 192.0.2.1\n")
        # As with resolvconf beside systemd-resolved: a link in /run leads to another one.
        (servers.parent / "first").symlink_to("second")
        (servers.parent / "second").symlink_to(servers)
        (etc / "resolv.conf").symlink_to(servers.parent / "first")
        report = report_of(tmp_path, disk, network=True, resolvers=str(etc / "resolv.conf"))
    finally:
        shutil.rmtree(servers.parent)
        shutil.rmtree(etc)

    assert report["resolvers"] == "nameserver 192.0.2.1\n"
    assert report["run"] == ["salt-virt-appliance", "salt-virt-test"]


def test_a_world_readable_disk_stays_its_owners_while_it_is_inspected(tmp_path, disk, user):
    disk.chmod(0o644)

    with lending.lend_during(str(disk), user, is_read=True, limit_s=5) as lent:
        assert (lent, disk.stat().st_uid) == (None, 0)

    assert report_of(tmp_path, disk, action="look")["disk"] == "a disk"


def test_a_disk_is_given_back_even_if_the_job_fails_or_its_minion_is_killed(tmp_path, disk, user):
    with (
        pytest.raises(RuntimeError),
        lending.lend_during(str(disk), user, is_read=False, limit_s=5) as lent,
    ):
        expected = [str(disk), 0, 0o600, "", [user.uid, disk.stat().st_ino]]
        assert (lent, disk.stat().st_uid) == (expected, user.uid)
        disk.chmod(0o666)
        raise RuntimeError
    assert (disk.stat().st_uid, stat.S_IMODE(disk.stat().st_mode)) == (0, 0o600)

    os.chown(disk, user.uid, -1)
    confined.give_back(lent)

    assert disk.stat().st_uid == 0


@pytest.mark.parametrize("replacement", ["a link", "a link to a folder", "another file"])
def test_a_file_in_place_of_a_lent_disk_keeps_its_owner(tmp_path, disk, user, replacement):
    os.chown(disk, 4711, -1)
    root_folder, moved_to = tmp_path / "theirs", tmp_path / "moved"
    root_folder.mkdir()
    (root_folder / "disk").write_text("root's")
    handle = lending.open_disk(str(disk))
    lent = lending.lend(handle, str(disk), user, is_read=False)
    # The owner of its folder may do so while the disk is mounted, which can be for days.
    if replacement == "a link to a folder":
        disk.parent.rename(moved_to)
        disk.parent.symlink_to(root_folder)
    else:
        disk.rename(moved_to)
        disk.symlink_to(root_folder / "disk") if replacement == "a link" else disk.write_text(
            "root's"
        )

    with pytest.raises(FileExistsError, match="is not the file any more that was lent"):
        confined.give_back(lent)

    os.close(handle)
    assert disk.stat().st_uid == (root_folder / "disk").stat().st_uid == 0


def test_a_disk_that_libvirt_has_taken_meanwhile_stays_with_libvirt(disk, user):
    handle = lending.open_disk(str(disk))
    lent = lending.lend(handle, str(disk), user, is_read=False)
    os.close(handle)
    os.chown(disk, 4711, -1)

    confined.give_back(lent)

    assert disk.stat().st_uid == 4711


@pytest.mark.parametrize("caller", ["a job", "a mount"])
def test_a_killed_mounts_processes_end_before_another_job_has_their_user(
    tmp_path, disk, monkeypatch, caller
):
    monkeypatch.setattr(lending, "end_all", END_ALL)
    # No other test has this user.
    account = lending.Account("left", 3_000_000 + os.getpid(), 4711)
    handle = lending.open_disk(str(disk))
    lent = lending.lend(handle, str(disk), account, is_read=False)
    os.close(handle)
    lending.mounts_folder(tmp_path).mkdir()
    (lending.mounts_folder(tmp_path) / "x.json").write_text(
        json.dumps({"user": "left", "lent": lent})
    )
    with subprocess.Popen(["sleep", "60"], user=account.uid) as process:
        if caller == "a job":
            with lending.borrow_account([account], lending.locks_folder(tmp_path), 0):
                pass
        else:
            os.close(lending.reserve_account([account], lending.locks_folder(tmp_path))[1])
        exit_status = process.poll()
        process.kill()

    assert exit_status == -signal.SIGKILL and disk.stat().st_uid == 0


def test_the_note_of_another_mount_may_vanish_while_it_is_read(tmp_path, user):
    lending.mounts_folder(tmp_path).mkdir()
    (lending.mounts_folder(tmp_path) / "x.json").symlink_to("gone")

    os.close(lending.reserve_account([user], lending.locks_folder(tmp_path))[1])


def test_a_disk_that_an_interrupted_job_left_to_the_user_is_roots_after_the_next(disk, user):
    os.chown(disk, user.uid, -1)

    with lending.lend_during(str(disk), user, is_read=False, limit_s=5):
        pass

    assert disk.stat().st_uid == 0


def test_two_jobs_of_one_disk_have_it_one_after_the_other(disk, user):
    owners = []

    def borrow_as_other():
        with lending.lend_during(
            str(disk), lending.Account("other", 4711, 4711), is_read=True, limit_s=5
        ):
            owners.append(disk.stat().st_uid)

    second = threading.Thread(target=borrow_as_other)
    with lending.lend_during(str(disk), user, is_read=True, limit_s=5):
        second.start()
        second.join(0.3)
        owners.append(disk.stat().st_uid)
    second.join()

    assert owners == [user.uid, 4711] and disk.stat().st_uid == 0


# u::rw-, u:UID:rw-, g::r--, m::rw-, o::---; Source: acl(5), linux/posix_acl_xattr.h.
def _acl(uid):
    rows = ((1, 6, -1), (2, 6, uid), (4, 4, -1), (16, 6, -1), (32, 0, -1))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *row) for row in rows)


@pytest.mark.parametrize("giver", ["the job", "the worker"])
@pytest.mark.parametrize("listed_uid", [None, 4711])
def test_access_that_the_user_grants_is_removed_and_other_access_stays(
    disk, user, giver, listed_uid
):
    disk.chmod(0o660)
    try:
        os.setxattr(disk, "system.posix_acl_access", _acl(listed_uid or user.uid))
    except OSError as exc:
        pytest.skip(f"this file system has no access lists: {exc}")
    if listed_uid is None:
        os.removexattr(disk, "system.posix_acl_access")

    with lending.lend_during(str(disk), user, is_read=False, limit_s=5) as lent:
        os.setxattr(disk, "system.posix_acl_access", _acl(user.uid))
        if giver == "the worker":
            confined.give_back(lent)

    assert confined.others(str(disk)) == (_acl(listed_uid).hex() if listed_uid else "")
    assert stat.S_IMODE(disk.stat().st_mode) == 0o660


def test_a_path_is_reachable_if_all_its_folders_are(tmp_path, disk):
    assert confined.is_reachable("/etc/hostname")
    assert not confined.is_reachable(str(disk))


def test_a_job_whose_files_have_no_room_is_refused(tmp_path, user):
    package = tmp_path / "minion.deb"
    package.write_bytes(bytes(4096))
    job = {"uploads": [["/etc/x", str(package), "600"]]}
    full_room = writelimit.Room(max_bytes=1 << 40, reserve_bytes=1 << 60, limit_s=60)
    (tmp_path / "job").mkdir()

    with pytest.raises(SeedError, match="no room for image minion.deb"):
        lending.prepare_job(job, str(tmp_path / "job"), user, full_room)


def test_the_error_of_a_missing_user_names_the_remedy(monkeypatch):
    monkeypatch.setattr(lending, "USERS", ("nosuch",))

    with pytest.raises(SeedError, match="user nosuch is missing on this host; run: salt HOST s"):
        lending.accounts()


@pytest.mark.slow
def test_each_appliance_has_a_user_of_its_own(tmp_path):
    first, second = (lending.Account(name, uid, uid) for name, uid in (("a", 990), ("b", 991)))
    accounts = [first, second]
    with lending.borrow_account(accounts, tmp_path, 0) as first_account:
        with lending.borrow_account(accounts, tmp_path, 0) as second_account:
            assert [first_account, second_account] == accounts
            with (
                pytest.raises(SeedError, match=r"users of appliances \(a, b\) were in use by"),
                lending.borrow_account(accounts, tmp_path, 0.3),
            ):
                pytest.fail("there were two")
        with lending.borrow_account(accounts, tmp_path, 0) as second_account:
            assert second_account == second


@pytest.mark.parametrize(
    ("uid", "accounts", "reason"),
    [
        (0, [("root", 0)], "is root too .uid 0.; give it a uid of its own"),
        (64055, [("libvirt-qemu", 64055), ("x", 1)], "is libvirt-qemu too"),
        (65534, [("nobody", 65534)], "is nobody too"),
    ],
)
def test_a_user_that_shares_its_uid_is_refused(uid, accounts, reason):
    lending.refuse_shared("salt-virt", 990, [*accounts, ("salt-virt", 990)])

    with pytest.raises(SeedError, match=reason):
        lending.refuse_shared("salt-virt", uid, [*accounts, ("salt-virt", uid)])


@pytest.fixture
def listening():
    """The port of a server on this host's loopback; a process with a network reaches it."""
    script = (
        "import socket, time; s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); time.sleep(120)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as server:
        yield json.loads(server.stdout.readline())
        server.kill()


BUILD = """
import os, sys, time
sys.path.insert(0, {folder!r})
import confined
confined.CACHE = sys.argv[2]
with confined.built([sys.argv[1]]) as built:
    files = sorted(os.listdir(built))
    assert files == sorted(confined._BUILT), files
    assert all(os.stat(f"{{built}}/{{name}}").st_mode & 0o004 for name in files)
    print(os.stat(f"{{built}}/root").st_mtime_ns)
"""


@pytest.mark.slow
def test_the_appliance_is_built_by_root_and_again_only_if_packages_change(tmp_path):
    guestfs = tmp_path / "guestfs"
    (guestfs / "supermin.d").mkdir(parents=True)
    (guestfs / "supermin.d/packages").write_text("base-files\n")
    subprocess.run(
        ["tar", "-czf", guestfs / "supermin.d/base.tar.gz", "-C", "/", "etc/hostname"], check=True
    )
    script = BUILD.format(folder=str(Path(confined.__file__).parent))

    def build_and_stat():
        argv = [sys.executable, "-c", script, guestfs, tmp_path / "cache"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    first_time = build_and_stat()

    assert build_and_stat() == first_time
    later_s = time.time() + 5  # supermin looks at whole seconds
    os.utime(guestfs / "supermin.d", (later_s, later_s))
    assert build_and_stat() != first_time


@pytest.mark.parametrize("text", ["5", "[]", '"refused"', "null", "{", "[" * 100_000])
def test_a_malformed_answer_is_a_failure_in_one_line(text):
    with pytest.raises(SeedError, match=r"^libguestfs failed on /a: [^\n]+$"):
        appliance._answer({"path": "/a", "action": "look"}, 0, text, "")
