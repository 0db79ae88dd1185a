"""The place of the appliance's process, for real: its user, its files, its lack of a network."""

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

# Before a fixture of all tests takes it away.
END_ALL = lending.end_all
ROOM = writelimit.from_settings(HostSettings())
# A worker without libguestfs: it goes where the appliance goes, and says what it finds there.
# A Python below /root cannot be read there: what a socket imports by itself is imported before.
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
def who():
    """The appliance's user, in the tests' root."""
    return applianceuser.there()


@pytest.fixture
def disk(tmp_path):
    """A disk that root alone reads, where nobody else gets to."""
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    path = folder / "disk"
    path.write_text("a disk")
    path.chmod(0o600)
    return path


def looked(tmp_path, disk, action="seed", **job):
    """Return what a process in the appliance's place finds there."""
    program = tmp_path / "worker"
    folder = str(Path(confined.__file__).parent)
    program.write_text(f"#!{sys.executable}\n{WORKER.format(folder=folder)}")
    program.chmod(0o755)
    mode = "r" if action == "look" else "r+"
    told = {"action": action, "path": str(disk), "mode": mode, "port": 1, **job}
    return appliance.run(
        told, state_dir=tmp_path / "state", room=ROOM, python=str(program), limit_s=60
    )


def test_it_is_a_user_without_any_right_and_comes_to_what_it_was_lent(tmp_path, disk, who):
    package = tmp_path / "private/minion.deb"
    package.write_text("a package")
    package.chmod(0o600)

    said = looked(tmp_path, disk, install={"kind": "package", "files": [[str(package), "m.deb"]]})

    assert said["ids"] == [[who.uid] * 3, [who.gid] * 3, []]
    assert said["powers"] == [0, 0, 1]
    assert (said["path"], said["disk"]) == (f"{confined.PLACE}/disk", len("written"))
    assert (said["tmp_is_mine"], said["given"]) == (1, ["a package"])
    for name in ("given_is_not_mine", "root_again"):
        assert said[name] == "PermissionError", name
    # Below /run, as the tests have it, it is not even there.
    assert said["state"] in ("PermissionError", "FileNotFoundError")
    assert said["run"] == ["salt-virt-appliance"]
    assert disk.read_text() == "written"
    left = disk.stat()
    assert (left.st_uid, stat.S_IMODE(left.st_mode)) == (0, 0o600)
    assert stat.S_IMODE(package.stat().st_mode) == 0o600
    assert list((tmp_path / "state/appliances").iterdir()) == []
    # What it sees there is its own: nothing of it is mounted for anybody else.
    assert confined.PLACE not in Path("/proc/self/mounts").read_text()


def test_not_even_this_hosts_loopback_is_there(tmp_path, disk, who, listening):
    assert looked(tmp_path, disk, port=listening)["loopback"] == "OSError"


def test_with_a_network_the_servers_of_names_are_there_though_the_file_is_a_link_into_run(
    tmp_path, disk, who
):
    servers = Path("/run/salt-virt-test/resolv.conf")
    servers.parent.mkdir()
    # The tests' own folders are in /run as well.
    etc = Path(tempfile.mkdtemp(dir="/var/tmp"))
    etc.chmod(0o755)
    try:
        servers.write_text("nameserver 192.0.2.1\n")
        # As with resolvconf beside systemd-resolved: one link in /run leads to another.
        (servers.parent / "first").symlink_to("second")
        (servers.parent / "second").symlink_to(servers)
        (etc / "resolv.conf").symlink_to(servers.parent / "first")
        said = looked(tmp_path, disk, network=True, resolvers=str(etc / "resolv.conf"))
    finally:
        shutil.rmtree(servers.parent)
        shutil.rmtree(etc)

    assert said["resolvers"] == "nameserver 192.0.2.1\n"
    assert said["run"] == ["salt-virt-appliance", "salt-virt-test"]


def test_a_disk_that_everybody_reads_stays_its_owners_while_it_is_looked_at(tmp_path, disk, who):
    disk.chmod(0o644)

    with lending.lend_during(str(disk), who, is_read=True, limit_s=5) as lent:
        assert (lent, disk.stat().st_uid) == (None, 0)

    assert looked(tmp_path, disk, action="look")["disk"] == "a disk"


def test_a_disk_is_given_back_even_if_the_job_fails_or_its_minion_is_killed(tmp_path, disk, who):
    with (
        pytest.raises(RuntimeError),
        lending.lend_during(str(disk), who, is_read=False, limit_s=5) as lent,
    ):
        was = [str(disk), 0, 0o600, "", [who.uid, disk.stat().st_ino]]
        assert (lent, disk.stat().st_uid) == (was, who.uid)
        disk.chmod(0o666)
        raise RuntimeError
    assert (disk.stat().st_uid, stat.S_IMODE(disk.stat().st_mode)) == (0, 0o600)

    os.chown(disk, who.uid, -1)
    confined.give_back(lent)

    assert disk.stat().st_uid == 0


@pytest.mark.parametrize("how", ["a link", "a link to a folder", "another file"])
def test_what_was_put_where_a_lent_disk_was_is_given_to_nobody(tmp_path, disk, who, how):
    os.chown(disk, 4711, -1)
    theirs, moved = tmp_path / "theirs", tmp_path / "moved"
    theirs.mkdir()
    (theirs / "disk").write_text("root's")
    handle = lending.open_disk(str(disk))
    lent = lending.lend(handle, str(disk), who, is_read=False)
    # Whoever owns its folder may do that while it is mounted, which can be for days.
    if how == "a link to a folder":
        disk.parent.rename(moved)
        disk.parent.symlink_to(theirs)
    else:
        disk.rename(moved)
        disk.symlink_to(theirs / "disk") if how == "a link" else disk.write_text("root's")

    with pytest.raises(FileExistsError, match="is not the file any more that was lent"):
        confined.give_back(lent)

    os.close(handle)
    assert disk.stat().st_uid == (theirs / "disk").stat().st_uid == 0


def test_a_disk_that_libvirt_has_taken_meanwhile_stays_its(disk, who):
    handle = lending.open_disk(str(disk))
    lent = lending.lend(handle, str(disk), who, is_read=False)
    os.close(handle)
    os.chown(disk, 4711, -1)

    confined.give_back(lent)

    assert disk.stat().st_uid == 4711


@pytest.mark.parametrize("way", ["a job", "a mount"])
def test_what_a_mount_has_left_that_was_killed_ends_before_another_is_its_user(
    tmp_path, disk, monkeypatch, way
):
    monkeypatch.setattr(lending, "end_all", END_ALL)
    # A user that no other test is.
    account = lending.Account("left", 3_000_000 + os.getpid(), 4711)
    handle = lending.open_disk(str(disk))
    lent = lending.lend(handle, str(disk), account, is_read=False)
    os.close(handle)
    lending.mounts_folder(tmp_path).mkdir()
    (lending.mounts_folder(tmp_path) / "x.json").write_text(
        json.dumps({"user": "left", "lent": lent})
    )
    with subprocess.Popen(["sleep", "60"], user=account.uid) as old:
        if way == "a job":
            with lending.borrow_account([account], lending.locks_folder(tmp_path), 0):
                pass
        else:
            os.close(lending.reserve_account([account], lending.locks_folder(tmp_path))[1])
        left = old.poll()
        old.kill()

    assert left == -signal.SIGKILL and disk.stat().st_uid == 0


def test_what_another_mount_has_noted_may_be_gone_when_it_is_read(tmp_path, who):
    lending.mounts_folder(tmp_path).mkdir()
    (lending.mounts_folder(tmp_path) / "x.json").symlink_to("gone")

    os.close(lending.reserve_account([who], lending.locks_folder(tmp_path))[1])


def test_a_disk_that_a_job_cut_off_has_left_to_the_user_is_roots_after_the_next(disk, who):
    os.chown(disk, who.uid, -1)

    with lending.lend_during(str(disk), who, is_read=False, limit_s=5):
        pass

    assert disk.stat().st_uid == 0


def test_two_jobs_of_one_disk_have_it_one_after_the_other(disk, who):
    owners = []

    def other():
        with lending.lend_during(
            str(disk), lending.Account("other", 4711, 4711), is_read=True, limit_s=5
        ):
            owners.append(disk.stat().st_uid)

    second = threading.Thread(target=other)
    with lending.lend_during(str(disk), who, is_read=True, limit_s=5):
        second.start()
        second.join(0.3)
        owners.append(disk.stat().st_uid)
    second.join()

    assert owners == [who.uid, 4711] and disk.stat().st_uid == 0


# u::rw-, u:UID:rw-, g::r--, m::rw-, o::---; Source: acl(5), linux/posix_acl_xattr.h.
def _acl(uid):
    rows = ((1, 6, -1), (2, 6, uid), (4, 4, -1), (16, 6, -1), (32, 0, -1))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *row) for row in rows)


@pytest.mark.parametrize("by", ["the job", "the worker"])
@pytest.mark.parametrize("before", [None, 4711])
def test_whom_the_user_lets_in_does_not_stay_and_others_do(disk, who, by, before):
    disk.chmod(0o660)
    try:
        os.setxattr(disk, "system.posix_acl_access", _acl(before or who.uid))
    except OSError as exc:
        pytest.skip(f"this file system has no access lists: {exc}")
    if before is None:
        os.removexattr(disk, "system.posix_acl_access")

    with lending.lend_during(str(disk), who, is_read=False, limit_s=5) as lent:
        os.setxattr(disk, "system.posix_acl_access", _acl(who.uid))
        if by == "the worker":
            confined.give_back(lent)

    assert confined.others(str(disk)) == (_acl(before).hex() if before else "")
    assert stat.S_IMODE(disk.stat().st_mode) == 0o660


def test_a_path_that_others_get_to_is_the_one_that_is_opened(tmp_path, disk):
    assert confined.is_reachable("/etc/hostname")
    assert not confined.is_reachable(str(disk))


def test_what_the_appliance_is_given_finds_room_or_is_refused(tmp_path, who):
    package = tmp_path / "minion.deb"
    package.write_bytes(bytes(4096))
    job = {"uploads": [["/etc/x", str(package), "600"]]}
    full = writelimit.Room(max_bytes=1 << 40, reserve_bytes=1 << 60, limit_s=60)
    (tmp_path / "job").mkdir()

    with pytest.raises(SeedError, match="no room for image minion.deb"):
        lending.prepare_job(job, str(tmp_path / "job"), who, full)


def test_a_host_without_the_user_is_told_how_to_make_it():
    with pytest.raises(SeedError, match="user nosuch is missing on this host; run: salt HOST s"):
        lending.accounts(["nosuch"])


@pytest.mark.slow
def test_each_appliance_is_a_user_that_no_other_is_meanwhile(tmp_path):
    first, second = (lending.Account(name, uid, uid) for name, uid in (("a", 990), ("b", 991)))
    both = [first, second]
    with lending.borrow_account(both, tmp_path, 0) as one:
        with lending.borrow_account(both, tmp_path, 0) as other:
            assert [one, other] == both
            with (
                pytest.raises(SeedError, match=r"users of appliances \(a, b\) were in use by"),
                lending.borrow_account(both, tmp_path, 0.3),
            ):
                pytest.fail("there were two")
        with lending.borrow_account(both, tmp_path, 0) as other:
            assert other == second


@pytest.mark.parametrize(
    ("uid", "others", "why"),
    [
        (0, [("root", 0)], "is root too .uid 0.; give it a uid of its own"),
        (64055, [("libvirt-qemu", 64055), ("x", 1)], "is libvirt-qemu too"),
        (65534, [("nobody", 65534)], "is nobody too"),
    ],
)
def test_a_user_that_is_somebody_else_too_is_refused(uid, others, why):
    lending.refuse_shared("salt-virt", 990, [*others, ("salt-virt", 990)])

    with pytest.raises(SeedError, match=why):
        lending.refuse_shared("salt-virt", uid, [*others, ("salt-virt", uid)])


@pytest.fixture
def listening():
    """The port of a server on this host's loopback, which a process with a network reaches."""
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

    def built():
        argv = [sys.executable, "-c", script, guestfs, tmp_path / "cache"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    first = built()

    assert built() == first
    later = time.time() + 5  # supermin looks at whole seconds
    os.utime(guestfs / "supermin.d", (later, later))
    assert built() != first


@pytest.mark.parametrize("said", ["5", "[]", '"refused"', "null", "{", "[" * 100_000])
def test_an_answer_that_is_none_is_a_failure_in_one_line(said):
    with pytest.raises(SeedError, match=r"^libguestfs failed on /a: [^\n]+$"):
        appliance._answer({"path": "/a", "action": "look"}, 0, said, "")
