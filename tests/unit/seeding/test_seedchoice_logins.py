"""SSH keys as each seed method hands them over, and the users that they let in."""

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


def prepare(options=None, **call_options):
    """Return the identity that a call of virt.init prepares on a host with these options."""
    settings = HostSettings(seed=options or {})
    request = deployment(settings, "web1", 1, 64, {**IMAGE, **call_options})
    return identity.prepare(Context(settings=settings, opts={"master": "10.0.0.1"}), request)


def test_the_hosts_keys_come_first_and_each_is_there_once():
    guest_identity = prepare(
        {"ssh_authorized_keys": f"{ANNA}\n"}, ssh_authorized_keys=[BERT, f"{ANNA} too"]
    )

    assert guest_identity.ssh_keys == (ANNA, BERT)
    assert prepare().ssh_keys == ()


def test_a_wrong_key_of_the_host_names_its_option():
    with pytest.raises(BadArgument, match="virt:seed:ssh_authorized_keys: key 1: "):
        prepare({"ssh_authorized_keys": ["nothing"]})


def test_keys_for_a_vm_that_is_not_seeded_are_refused():
    with pytest.raises(BadArgument, match="ssh_authorized_keys: there is nothing to seed"):
        prepare(ssh_authorized_keys=ANNA, seed=False)
    # Keys for every VM of the host are no reason against a VM without a seed.
    assert prepare({"ssh_authorized_keys": ANNA}, seed=False) is None


def user_data_of(folder, keys, **user_data):
    """Return the user data of a seed."""
    path = folder / "seed.iso"
    data = identity.CloudInit(user_data=(user_data,))
    guest_identity = Identity(id="web1", config={}, ssh_keys=keys, cloud_init=data)
    path.write_bytes(nocloud.content(guest_identity, "i-1", install=False))
    iso, text = pycdlib.PyCdlib(), io.BytesIO()
    iso.open(str(path))
    iso.get_file_from_iso_fp(text, rr_path="/user-data")
    iso.close()
    return json.loads(text.getvalue().decode().removeprefix("#cloud-config\n"))


def test_cloud_init_gets_the_keys_for_its_default_user(tmp_path):
    assert user_data_of(tmp_path, (ANNA,))["ssh_authorized_keys"] == [ANNA]
    user_data = user_data_of(tmp_path, (ANNA,), ssh_authorized_keys=[BERT])
    assert user_data["ssh_authorized_keys"] == [ANNA, BERT]
    assert "ssh_authorized_keys" not in user_data_of(tmp_path, ())


@pytest.fixture
def root(tmp_path):
    """A guest's root with a minion."""
    root = tmp_path / "root"
    for folder in ("etc", "usr/bin", "root"):
        (root / folder).mkdir(parents=True)
    (root / "usr/bin/salt-minion").write_text("")
    return root


def seed_folder(tmp_path, root, *keys):
    """Have the worker, a real process, seed a folder; return the path of authorized_keys."""
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


def test_root_of_a_guest_gets_the_keys_and_only_root_reads_them(tmp_path, root):
    path = seed_folder(tmp_path, root, ANNA, BERT)

    assert path.read_text() == f"{ANNA}\n{BERT}\n"
    assert [stat.S_IMODE(path_.stat().st_mode) for path_ in (path.parent, path)] == [0o700, 0o600]


def test_keys_of_the_image_stay_and_none_is_there_twice(tmp_path, root):
    (root / "root/.ssh").mkdir()
    before = b"# of the image \xff\n" + f"{BERT} again\n".encode() + b'from="a" ssh-rsa AAAA x'
    (root / "root/.ssh/authorized_keys").write_bytes(before)

    path = seed_folder(tmp_path, root, ANNA, BERT)

    assert path.read_bytes() == before + f"\n{ANNA}\n".encode()


def test_an_oversized_file_of_keys_is_refused_and_left(tmp_path, root):
    (root / "root/.ssh").mkdir()
    path = root / "root/.ssh/authorized_keys"
    path.write_bytes(b"#" * (5 << 20))

    with pytest.raises(SeedError, match="authorized_keys has more than 4 MiB"):
        seed_folder(tmp_path, root, ANNA)
    assert path.stat().st_size == 5 << 20


def test_without_keys_nothing_is_touched(tmp_path, root):
    assert not seed_folder(tmp_path, root).parent.exists()


@pytest.mark.parametrize("link", ["root/.ssh", "root/.ssh/authorized_keys"])
def test_no_link_of_the_image_is_followed(tmp_path, root, link):
    for outside in (tmp_path / "outside", root / "srv"):
        outside.mkdir()
        (outside / "authorized_keys").write_text("of another\n")
    place = root / link
    place.parent.mkdir(exist_ok=True)
    target = "/srv" if link.endswith(".ssh") else "/srv/authorized_keys"
    place.symlink_to(target)

    path = seed_folder(tmp_path, root, ANNA)

    assert path.read_text() == f"{ANNA}\n" and not place.is_symlink()
    for outside in (tmp_path / "outside", root / "srv"):
        assert (outside / "authorized_keys").read_text() == "of another\n"


def test_systemd_writes_the_keys_that_came_as_a_credential(tmp_path):
    files = [("/etc/salt/minion_id", "web1\n", "644")]
    (tmp_path / "root").mkdir(mode=0o700)
    rules = tmp_path / "rules.conf"
    rules.write_bytes(credentials.content(files, (ANNA, BERT)))

    argv = ["systemd-tmpfiles", f"--root={tmp_path}", "--create", rules]
    process = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert process.returncode == 0, process.stderr
    path = tmp_path / "root/.ssh/authorized_keys"
    assert path.read_text() == f"{ANNA}\n{BERT}\n"
    assert [stat.S_IMODE(path_.stat().st_mode) for path_ in (path.parent, path)] == [0o700, 0o600]
    assert b".ssh" not in credentials.content(files)
    # The modes of the guest's own folders are left alone.
    assert not {b"/etc", b"/root", b"/"} & set(rules.read_bytes().split())


def request_of(method_name="auto", **fields):
    """Return the request of a call with keys."""
    defaults = {"has_ssh_keys": True, "asks_for_ssh_keys": True, "install_from": None}
    return seedchoice.SeedRequest(
        image="/a.qcow2", method_name=method_name, **{**defaults, **fields}
    )


@pytest.mark.parametrize(
    ("inspected", "reason"),
    [
        (
            Inspection(root=None),
            "image /a.qcow2 has no operating system, so nothing in it would read",
        ),
        (Inspection(root="/dev/sda1", has_minion=True), None),
        (DEBIAN, None),
    ],
)
def test_keys_that_nothing_would_read_are_refused(inspected, reason):
    if reason:
        with pytest.raises(SeedError, match=f"ssh_authorized_keys: {reason}"):
            seedchoice.decide(request_of(), inspected)
        # Keys of the host's options are only for the VMs that can have them.
        assert seedchoice.decide(request_of(asks_for_ssh_keys=False), inspected).ssh_user is None
    else:
        assert seedchoice.decide(request_of(), inspected).name in ("nocloud", "guestfs")


def test_a_users_own_seed_function_is_given_no_keys():
    with pytest.raises(SeedError, match="ssh_authorized_keys: seed_cmd my.seed is not given them"):
        seedchoice.decide(request_of(function="my.seed"))
    assert (
        seedchoice.decide(request_of(function="my.seed", asks_for_ssh_keys=False)).ssh_user is None
    )


@pytest.mark.parametrize(
    ("method_name", "inspected", "fields", "user"),
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
def test_the_login_user_is_named_where_it_is_known(method_name, inspected, fields, user):
    assert seedchoice.decide(request_of(method_name, **fields), inspected).ssh_user == user


@pytest.mark.parametrize(
    ("system", "user"),
    [("debian 13", "debian"), ("rhel 9", "cloud-user"), ("some system", None), (None, None)],
)
def test_default_users_are_known_by_the_distribution(system, user):
    assert seedchoice.default_user(system) == user


@pytest.mark.parametrize("key", ["user", "users", "system_info"])
def test_no_user_is_guessed_where_user_data_names_users(key):
    assert cloudconfig.names_users({key: []}) and not cloudconfig.names_users({"packages": []})


def test_the_keys_here_are_keys():
    assert sshkeys.read_keys("these", [ANNA, BERT]) == (ANNA, BERT)
