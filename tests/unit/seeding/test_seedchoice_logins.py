"""Keys of those who may log in, as each seed method hands them over, and who logs in by them."""

import io
import json
import stat
import subprocess
import sys
from dataclasses import replace

import pycdlib
import pytest
from saltvirt.core import sshkeys, writelimit
from saltvirt.core.errors import BadArgument, SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.seeding import cloudconfig, credentials, identity, nocloud, seedchoice, write
from saltvirt.seeding.offline import appliance
from saltvirt.seeding.seedmodel import Identity, Inspection
from saltvirt.vm.spec import deployment

ANNA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPt3s3pgYnnXQQxiL6PhC6JlRVFrOXdeFEa3fMQvKD6y anna"
BERT = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGNfJQ6a1Sf2b6b1uQq3CgVUPYXM9gqVYPvlTqIYq3aA bert"
IMAGE = {"image": "salt://images/any.qcow2", "pub_key": None}
DEBIAN = Inspection(root="/dev/sda1", os="debian 12", has_cloud_init=True, has_minion=True)


def prepared(options=None, **given):
    """Return the identity that a call of virt.init prepares on a host with these options."""
    settings = HostSettings(seed=options or {})
    asked = deployment(settings, "web1", 1, 64, {**IMAGE, **given})
    return identity.prepare(Context(settings=settings, opts={"master": "10.0.0.1"}), asked)


def test_the_hosts_keys_come_first_and_each_is_there_once():
    made = prepared({"ssh_authorized_keys": f"{ANNA}\n"}, ssh_authorized_keys=[BERT, f"{ANNA} too"])

    assert made.ssh_keys == (ANNA, BERT)
    assert prepared().ssh_keys == ()


def test_a_wrong_key_of_the_host_names_its_option():
    with pytest.raises(BadArgument, match="virt:seed:ssh_authorized_keys: key 1: "):
        prepared({"ssh_authorized_keys": ["nothing"]})


def test_keys_for_a_vm_that_is_not_seeded_are_refused():
    with pytest.raises(BadArgument, match="ssh_authorized_keys: there is nothing to seed"):
        prepared(ssh_authorized_keys=ANNA, seed=False)
    # What every VM of the host gets is no reason against one that gets no seed.
    assert prepared({"ssh_authorized_keys": ANNA}, seed=False) is None


def seeded(folder, keys, **user_data):
    """Return the user data of a seed."""
    path = folder / "seed.iso"
    data = identity.CloudInit(user_data=(user_data,))
    who = Identity(id="web1", config={}, ssh_keys=keys, cloud_init=data)
    path.write_bytes(nocloud.content(who, "i-1", install=False))
    iso, text = pycdlib.PyCdlib(), io.BytesIO()
    iso.open(str(path))
    iso.get_file_from_iso_fp(text, rr_path="/user-data")
    iso.close()
    return json.loads(text.getvalue().decode().removeprefix("#cloud-config\n"))


def test_cloud_init_is_told_the_keys_of_its_default_user(tmp_path):
    assert seeded(tmp_path, (ANNA,))["ssh_authorized_keys"] == [ANNA]
    both = seeded(tmp_path, (ANNA,), ssh_authorized_keys=[BERT])
    assert both["ssh_authorized_keys"] == [ANNA, BERT]
    assert "ssh_authorized_keys" not in seeded(tmp_path, ())


@pytest.fixture
def root(tmp_path):
    """A guest's root with a minion."""
    root = tmp_path / "root"
    for folder in ("etc", "usr/bin", "root"):
        (root / folder).mkdir(parents=True)
    (root / "usr/bin/salt-minion").write_text("")
    return root


def work(tmp_path, root, *keys):
    """Have the worker, a real process, seed a folder; return the file of keys."""
    job = {
        "action": "seed",
        "via": "folder",
        "path": str(root),
        "format": None,
        "install": None,
        "files": write.files_of(Identity(id="web1", config={})),
        "ssh_keys": list(keys),
    }
    room = writelimit.from_settings(HostSettings())
    appliance.run(job, state_dir=tmp_path / "state", room=room, python=sys.executable)
    return root / "root/.ssh/authorized_keys"


def test_root_of_a_guest_gets_the_keys_and_nobody_else_reads_them(tmp_path, root):
    path = work(tmp_path, root, ANNA, BERT)

    assert path.read_text() == f"{ANNA}\n{BERT}\n"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path.parent, path)] == [0o700, 0o600]


def test_keys_of_the_image_stay_and_none_is_there_twice(tmp_path, root):
    (root / "root/.ssh").mkdir()
    before = b"# of the image \xff\n" + f"{BERT} again\n".encode() + b'from="a" ssh-rsa AAAA x'
    (root / "root/.ssh/authorized_keys").write_bytes(before)

    path = work(tmp_path, root, ANNA, BERT)

    assert path.read_bytes() == before + f"\n{ANNA}\n".encode()


def test_a_file_of_keys_that_nobody_can_have_is_refused_and_left(tmp_path, root):
    (root / "root/.ssh").mkdir()
    path = root / "root/.ssh/authorized_keys"
    path.write_bytes(b"#" * (5 << 20))

    with pytest.raises(SeedError, match="authorized_keys has more than 4 MiB"):
        work(tmp_path, root, ANNA)
    assert path.stat().st_size == 5 << 20


def test_without_keys_nothing_of_it_is_touched(tmp_path, root):
    assert not work(tmp_path, root).parent.exists()


@pytest.mark.parametrize("link", ["root/.ssh", "root/.ssh/authorized_keys"])
def test_no_link_of_the_image_is_followed(tmp_path, root, link):
    for outside in (tmp_path / "outside", root / "srv"):
        outside.mkdir()
        (outside / "authorized_keys").write_text("of another\n")
    place = root / link
    place.parent.mkdir(exist_ok=True)
    target = "/srv" if link.endswith(".ssh") else "/srv/authorized_keys"
    place.symlink_to(target)

    path = work(tmp_path, root, ANNA)

    assert path.read_text() == f"{ANNA}\n" and not place.is_symlink()
    for outside in (tmp_path / "outside", root / "srv"):
        assert (outside / "authorized_keys").read_text() == "of another\n"


def test_systemd_writes_the_keys_that_came_as_a_credential(tmp_path):
    files = [("/etc/salt/minion_id", "web1\n", "644")]
    (tmp_path / "root").mkdir(mode=0o700)
    rules = tmp_path / "rules.conf"
    rules.write_bytes(credentials.content(files, (ANNA, BERT)))

    argv = ["systemd-tmpfiles", f"--root={tmp_path}", "--create", rules]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    path = tmp_path / "root/.ssh/authorized_keys"
    assert path.read_text() == f"{ANNA}\n{BERT}\n"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path.parent, path)] == [0o700, 0o600]
    assert b".ssh" not in credentials.content(files)
    # Folders of the guest's own are not ours to give other modes.
    assert not {b"/etc", b"/root", b"/"} & set(rules.read_bytes().split())


def wish(asked="auto", **change):
    """Return what a call with keys wishes."""
    usual = {"has_ssh_keys": True, "asks_for_ssh_keys": True, "install_from": None}
    return seedchoice.SeedRequest(image="/a.qcow2", method_name=asked, **{**usual, **change})


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (
            Inspection(root=None),
            "image /a.qcow2 has no operating system, so nothing in it would read",
        ),
        (Inspection(root="/dev/sda1", has_minion=True), None),
        (DEBIAN, None),
    ],
)
def test_keys_that_nothing_would_read_are_refused(found, why):
    if why:
        with pytest.raises(SeedError, match=f"ssh_authorized_keys: {why}"):
            seedchoice.decide(wish(), found)
        # Those of the host alone are for the VMs that can have them.
        assert seedchoice.decide(wish(asks_for_ssh_keys=False), found).ssh_user is None
    else:
        assert seedchoice.decide(wish(), found).name in ("nocloud", "guestfs")


def test_a_function_of_the_users_own_is_given_no_keys():
    with pytest.raises(SeedError, match="ssh_authorized_keys: seed_cmd my.seed is not given them"):
        seedchoice.decide(wish(function="my.seed"))
    assert seedchoice.decide(wish(function="my.seed", asks_for_ssh_keys=False)).ssh_user is None


@pytest.mark.parametrize(
    ("asked", "found", "change", "user"),
    [
        ("auto", DEBIAN, {}, "debian"),
        ("auto", DEBIAN, {"has_ssh_keys": False, "asks_for_ssh_keys": False}, None),
        ("auto", DEBIAN, {"has_own_users": True}, None),
        ("auto", Inspection(root=None), {"asks_for_ssh_keys": False}, None),
        ("auto", replace(DEBIAN, os="some system"), {}, "USER"),
        ("nocloud", None, {}, "USER"),
        ("nocloud", None, {"has_own_users": True}, None),
        ("nbd", None, {}, "root"),
        ("guestfs", DEBIAN, {}, "root"),
    ],
)
def test_who_logs_in_is_said_where_it_is_known(asked, found, change, user):
    assert seedchoice.decide(wish(asked, **change), found).ssh_user == user


@pytest.mark.parametrize(
    ("system", "user"),
    [("debian 13", "debian"), ("rhel 9", "cloud-user"), ("some system", None), (None, None)],
)
def test_default_users_are_known_by_the_distribution(system, user):
    assert seedchoice.default_user(system) == user


@pytest.mark.parametrize("key", ["user", "users", "system_info"])
def test_user_data_that_names_users_is_not_guessed_about(key):
    assert cloudconfig.names_users({key: []}) and not cloudconfig.names_users({"packages": []})


def test_the_keys_here_are_keys():
    assert sshkeys.read_keys("these", [ANNA, BERT]) == (ANNA, BERT)
