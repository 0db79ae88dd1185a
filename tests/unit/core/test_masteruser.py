"""Root uses the master's files as the master's user, and explains missing permissions."""

import os
import pwd
import shutil
import stat
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

import pytest
from saltvirt.ca import backup, store
from saltvirt.cluster import orders
from saltvirt.cluster.inventory import lastseen
from saltvirt.core import files, locks
from saltvirt.core.errors import MasterError
from saltvirt.core.salt import masteruser
from saltvirt.entry import runners

USER = pwd.getpwnam("nobody")
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
__context__ = {}
__opts__ = {}


@pytest.fixture
def master():
    """Options of a master with the user "nobody" as owner of its folder; root owns the rest."""
    # Other users may not enter pytest's own folder.
    folder = Path(tempfile.mkdtemp(prefix="salt-virt-"))
    folder.chmod(0o755)
    for name in ("pki", "cache"):
        (folder / name).mkdir(mode=0o700)
        os.chown(folder / name, USER.pw_uid, USER.pw_gid)
    (folder / "secret").write_text("of root")
    (folder / "secret").chmod(0o600)
    yield {"user": USER.pw_name, "pki_dir": str(folder / "pki"), "cachedir": str(folder / "cache")}
    shutil.rmtree(folder)


def owner(path):
    """Return a file's owner, group and mode."""
    status = Path(path).lstat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


@needs_root
def test_files_of_root_belong_to_the_masters_user_alone(master):
    place = store.Store(Path(master["pki_dir"]) / "libvirt")
    groups = os.getgroups()

    with masteruser.as_master_user(master):
        place.authority(NOW)
        place.revoke(["ab" * 16], NOW)
        with locks.hold_lock(Path(master["cachedir"]) / "salt-virt" / "vm.json") as handle:
            assert os.fstat(handle.fileno()).st_uid == USER.pw_uid

    paths = {path for path in place.folder.rglob("*")} | {place.folder}
    assert len(paths) == 6
    assert {owner(path)[:2] for path in paths} == {(USER.pw_uid, USER.pw_gid)}
    assert owner(place.folder / "cakey.pem")[2] == 0o600
    # Afterwards the process is root again.
    assert os.getgroups() == groups
    files.write(Path(master["pki_dir"]) / "new", b"")
    assert owner(Path(master["pki_dir"]) / "new")[0] == 0


@needs_root
def test_orders_and_last_seen_vms_belong_to_the_masters_user(master):
    with masteruser.as_master_user(master):
        with orders.opened(master, "web") as order:
            orders.begin(order, orders.PLACING)
        lastseen.record_move(master, "web", "hyper1")

    paths = list((orders.folder(master).parent).rglob("*"))
    assert len(paths) == 4
    assert {owner(path)[0] for path in paths} == {USER.pw_uid}


@needs_root
def test_only_threads_started_inside_run_as_the_masters_user(master):
    path = Path(master["cachedir"]).parent / "secret"

    with ThreadPoolExecutor(1) as before:
        before.submit(path.read_text).result()
        with masteruser.as_master_user(master), ThreadPoolExecutor(1) as inside:
            with pytest.raises(PermissionError):
                inside.submit(path.read_text).result()
            assert before.submit(path.read_text).result() == "of root"


@needs_root
def test_two_concurrent_threads_have_separate_groups(master):
    barrier, ended = threading.Barrier(3), threading.Event()
    user_groups = os.getgrouplist(USER.pw_name, USER.pw_gid)

    def act(wait):
        with masteruser.as_master_user(master):
            barrier.wait(10)
            wait(10)
            return os.getgroups()

    before = os.getgroups()
    os.setgroups([0, 42])
    try:
        with ThreadPoolExecutor(2) as pool:
            short, long = pool.submit(act, lambda _s: None), pool.submit(act, ended.wait)
            barrier.wait(10)
            main_groups = os.getgroups()
            first = short.result()
            ended.set()
            assert (main_groups, first, long.result()) == ([0, 42], user_groups, user_groups)
        assert os.getgroups() == [0, 42]
    finally:
        os.setgroups(before)


@needs_root
@pytest.mark.parametrize("call", ["_set_groups", "_set_ids"])
def test_user_and_groups_are_changed_both_or_not_at_all(master, monkeypatch, call):
    before, lend = os.getgroups(), getattr(masteruser, call)
    secret = Path(master["cachedir"]).parent / "secret"
    calls = []

    def refuse(*args):
        calls.append(args)
        if len(calls) == 1:
            lend(*args) if call == "_set_groups" else None
            raise MasterError("no")
        return lend(*args)

    monkeypatch.setattr(masteruser, call, refuse)
    with pytest.raises(MasterError), masteruser.as_master_user(master):
        pass

    assert os.getgroups() == before
    assert secret.read_text() == "of root"


@needs_root
@pytest.mark.parametrize("machine", ["x86_64", "sparc"])
def test_groups_are_set_on_each_architecture(master, monkeypatch, machine):
    if machine == "sparc":  # an architecture with an unknown system call
        monkeypatch.setattr(masteruser.platform, "machine", lambda: machine)
    before = os.getgroups()

    with masteruser.as_master_user(master):
        assert os.getgroups() == os.getgrouplist(USER.pw_name, USER.pw_gid)
    assert os.getgroups() == before


@needs_root
@pytest.mark.parametrize("name", ["shadow", "sub/shadow", "own"])
def test_no_suggested_command_follows_a_link(master, name):
    folder, etc = Path(master["pki_dir"]), Path(master["pki_dir"]).parent / "etc"
    (etc / "sub").mkdir(parents=True)
    for file_name in ("shadow", "sub/shadow", "own"):
        (etc / file_name).touch(mode=0o600)
    os.chown(etc / "own", USER.pw_uid, -1)
    (etc / "own").chmod(0)
    (folder / "libvirt").symlink_to(etc)
    __opts__.clear()
    __opts__.update(master)

    error = opens(folder / "libvirt" / name)()["error"]

    assert "run:" not in error
    assert error.endswith(
        f"cannot read it; {folder}/libvirt on the way there is a link: put the "
        "folder itself in its place"
    )


@needs_root
@pytest.mark.parametrize("place", ["above/pki", "itself", "planted"])
def test_only_roots_own_link_to_the_masters_folder_is_followed(master, place):
    folder = Path(master["pki_dir"])
    (folder.parent / "above").symlink_to(folder.parent)
    for name in ("itself", "planted"):
        (folder.parent / name).symlink_to(folder)
    os.chown(folder.parent / "planted", USER.pw_uid, -1, follow_symlinks=False)
    (folder / "cakey.pem").touch(mode=0o600)
    __opts__.clear()
    __opts__.update(master, pki_dir=str(folder.parent / place))

    error = opens(Path(__opts__["pki_dir"]) / "cakey.pem")()["error"]

    if place == "planted":
        assert f"{folder.parent}/planted on the way there is a link" in error
        return
    named = folder if place == "itself" else folder.parent / place
    assert error.endswith(f"; run: chown -hR nobody: {named}")
    assert os.system(error.partition("; run: ")[2]) == 0
    assert owner(folder / "cakey.pem")[0] == USER.pw_uid


@needs_root
def test_root_does_not_follow_a_link_that_the_masters_user_planted(master):
    folder = Path(master["pki_dir"])
    secret = folder.parent / "secret"
    for name in ("cakey.pem", "ca.lock"):
        (folder / name).symlink_to(secret)
    (folder / "folder").symlink_to(folder.parent)

    with masteruser.as_master_user(master):
        for attempt in (
            (folder / "cakey.pem").read_bytes,
            locks.hold_lock(folder / "ca.lock").__enter__,
            lambda: files.write(folder / "folder" / "secret", b"of nobody"),
        ):
            with pytest.raises(PermissionError) as caught:
                attempt()
        files.write(folder / "cakey.pem", b"a file now")
    assert secret.read_text() == "of root"
    assert str(caught.value).startswith("[Errno 13]")


@needs_root
@pytest.mark.parametrize("name", ["revoked", "issued", "next"])
def test_an_unreadable_folder_does_not_count_as_empty(master, name):
    place = store.Store(Path(master["pki_dir"]) / "libvirt")
    with masteruser.as_master_user(master):
        place.authority(NOW)
        place.revoke(["ab" * 16], NOW)
        for folder in ("issued", "next"):
            (place.folder / folder).mkdir()
    os.chown(place.folder / name, 0, 0)
    (place.folder / name).chmod(0o700)

    ask = {"revoked": place.revoked, "issued": place.issued, "next": lambda: place.bundle(NOW)}
    with masteruser.as_master_user(master):
        for attempt in (ask[name], lambda: backup.read_all(place.folder)):
            with pytest.raises(PermissionError):
                attempt()


def opens(path):
    """Return a runner function that reads a file."""

    @runners.runner_function
    def run():
        return Path(path).read_text()

    return run


REFUSED = {
    "a file": (
        "pki/libvirt/cakey.pem",
        "{0}/pki/libvirt/cakey.pem belongs to root (0600), and user nobody, as which the "
        "master runs, cannot read it; run: chown -hR nobody: {0}/pki",
    ),
    "a folder": (
        "cache/salt-virt/vm.json",
        "{0}/cache/salt-virt belongs to root (0700), and user nobody, as which the master "
        "runs, cannot enter it on the way to {0}/cache/salt-virt/vm.json; run: chown -hR "
        "nobody: {0}/cache",
    ),
    "a link": (
        "pki/link",
        "{0}/pki/link is a link, and user nobody, as which the master runs, "
        "cannot read what it leads to; put the file itself there",
    ),
    "its own": (
        "pki/own",
        "{0}/pki/own belongs to nobody (0000), and user nobody, as which the "
        "master runs, cannot read it; run: chmod u+rwX {0}/pki/own",
    ),
    "another's": (
        "private/x/pass",
        "{0}/private belongs to root (0700), and user nobody, as which the master runs, "
        "cannot enter it on the way to {0}/private/x/pass; choose a place that nobody "
        "can use; this makes one: install -d -m 700 -o nobody /srv/salt-virt",
    ),
}


@needs_root
@pytest.mark.parametrize(("path", "line"), REFUSED.values(), ids=REFUSED)
def test_a_runner_names_the_owner_of_an_unreadable_file_and_the_remedy(master, path, line):
    folder = Path(master["pki_dir"]).parent
    for name in ("pki/libvirt", "cache/salt-virt", "private/x"):
        (folder / name).mkdir(parents=True, mode=0o755)
    for name in ("pki/libvirt/cakey.pem", "cache/salt-virt/vm.json", "private/x/pass", "pki/own"):
        (folder / name).touch(mode=0o600)
    for name in ("cache/salt-virt", "private"):
        (folder / name).chmod(0o700)
    os.chown(folder / "pki/own", USER.pw_uid, USER.pw_gid)
    (folder / "pki/own").chmod(0)
    (folder / "pki/link").symlink_to(folder / "private/x/pass")
    __opts__.clear()
    __opts__.update(master)

    data = opens(folder / path)()

    assert data["error"] == line.format(folder)
    command = data["error"].partition("; run: ")[2]
    if command:  # the command is the remedy
        assert os.system(command) == 0
        assert opens(folder / path)() == ""


@needs_root
def test_a_backup_that_cannot_be_written_is_named_as_it_was_typed(master):
    path = Path(master["pki_dir"]).parent / "ca.backup"

    with masteruser.as_master_user(master), pytest.raises(PermissionError) as caught:
        files.write(path, b"")

    message = masteruser.explain_error(caught.value, master)
    assert message.startswith(f"{path.parent} belongs to root (0755), and user nobody, as which")
    assert "cannot write in it; choose a place that nobody can use" in message
    assert ".part" not in message


def test_the_final_name_of_a_part_is_known():
    assert files.whole_path(files.part_path("/a", "b.pem")) == Path("/a/b.pem")
    assert files.whole_path(Path("/a/.b.part")) == Path("/a/.b.part")


@needs_root
def test_a_missing_user_of_the_master_is_an_error():
    __opts__.clear()
    __opts__.update(user="nosuchuser")

    with (
        pytest.raises(MasterError, match="says user: nosuchuser"),
        masteruser.as_master_user(__opts__),
    ):
        pass
    assert "has no such user" in opens("/etc/hostname")()["error"]


def test_a_master_of_this_very_user_changes_nothing(tmp_path):
    with masteruser.as_master_user({"user": pwd.getpwuid(os.geteuid()).pw_name}):
        files.write(tmp_path / "a", b"")
    assert owner(tmp_path / "a")[0] == os.geteuid()


def test_other_errors_of_files_are_one_line_too(tmp_path):
    __opts__.clear()
    __opts__["user"] = pwd.getpwuid(os.geteuid()).pw_name

    data = opens(tmp_path / "missing")()

    assert data["error"] == f"[Errno 2] No such file or directory: '{tmp_path}/missing'"
