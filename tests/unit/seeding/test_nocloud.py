"""Seeding: cloud-init reads the seed, and the private key is in no other place."""

import io
import json
import stat
import subprocess
from pathlib import Path

import keypairs
import pycdlib
import pytest
import yaml
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import BadArgument, SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.seeding import cloudconfig, firstboot, nocloud, write
from saltvirt.seeding import identity as identities
from saltvirt.seeding.seedmodel import CloudInit, Identity
from saltvirt.vm import profiles
from saltvirt.vm.spec import deployment

PUBLIC, PRIVATE = keypairs.named("a guest")


def identity(**fields):
    """Return a guest's identity."""
    defaults = {
        "id": "centos1.example.org",
        "master_key": "MASTER KEY\n",
        "config": {"id": "centos1.example.org", "master": "10.0.0.1"},
        "public_key": PUBLIC,
        "private_key": PRIVATE,
    }
    return Identity(**{**defaults, **fields})


@pytest.fixture
def seed(tmp_path):
    """A seed on disk."""
    path = tmp_path / "seed.iso"
    path.touch(mode=0o600)
    path.write_bytes(nocloud.content(identity(), "i-1", install=True))
    return path


def read(path, names=("meta-data", "user-data")):
    """Return the files of a seed under the names that cloud-init looks for."""
    iso = pycdlib.PyCdlib()
    iso.open(str(path))
    files = {"label": iso.pvd.volume_identifier.decode().strip()}
    for name in names:
        text = io.BytesIO()
        iso.get_file_from_iso_fp(text, rr_path=f"/{name}")
        files[name] = text.getvalue().decode()
    iso.close()
    return files


def test_cloud_init_finds_its_files_under_their_names(seed):
    files = read(seed)

    meta, user = json.loads(files["meta-data"]), yaml.safe_load(files["user-data"])
    assert files["label"] == "cidata"
    assert files["user-data"].startswith("#cloud-config\n")
    assert (meta["local-hostname"], meta["dsmode"]) == ("centos1.example.org", "local")
    assert (user["hostname"], user["fqdn"]) == ("centos1", "centos1.example.org")
    assert user["bootcmd"][0][:3] == ["cloud-init-per", "instance", "salt-virt"]


def test_the_private_key_is_behind_the_file_system_and_nowhere_in_it(seed):
    data = seed.read_bytes()
    size = len(data) - firstboot.SECRET_BYTES

    assert data[size:].rstrip(b"\0").decode() == PRIVATE
    assert b"PRIVATE KEY" not in data[:size]
    assert not any("PRIVATE" in text for text in read(seed).values())


@pytest.mark.slow
def test_the_guests_script_takes_the_key_and_wipes_it(seed, tmp_path):
    script = yaml.safe_load(read(seed)["user-data"])["bootcmd"][0][-1]
    root = tmp_path / "etc-salt"
    # The guest's paths are moved below a folder; blkid finds no seed outside a guest.
    script = script.replace("/etc/salt", str(root))
    script = script.replace("$(blkid -L cidata 2>/dev/null || findfs LABEL=cidata)", str(seed))
    script = script.split("if command -v salt-minion")[0]

    for _boot in range(2):
        subprocess.run(["sh", "-c", script], check=True)

    pki = root / "pki" / "minion"
    assert (pki / "minion.pem").read_text() == PRIVATE
    assert stat.S_IMODE((pki / "minion.pem").stat().st_mode) == 0o400
    assert (pki / "minion.pub").read_text() == PUBLIC
    assert (pki / "minion_master.pub").read_text() == "MASTER KEY\n"
    assert yaml.safe_load((root / "minion.d/zz-salt-virt.conf").read_text()) == {
        "id": "centos1.example.org",
        "master": "10.0.0.1",
    }
    assert b"PRIVATE" not in seed.read_bytes()
    assert read(seed)["label"] == "cidata"


@pytest.mark.slow
@pytest.mark.parametrize("is_clone", [False, True])
@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_guest_gives_up_its_images_key_once(tmp_path, is_clone, is_cut_off):
    path, root = tmp_path / "seed.iso", tmp_path / "etc"
    keys = {} if is_clone else {"private_key": None, "public_key": None}
    guest_identity = identity(is_another=is_clone, **keys)
    path.write_bytes(nocloud.content(guest_identity, "i-1", install=False))
    script = yaml.safe_load(read(path)["user-data"])["bootcmd"][0][-1]
    script = script.split("if command -v salt-minion")[0].replace("/etc/", f"{root}/")
    script = script.replace("/var/lib/dbus", str(root)).replace("systemd-machine-id-setup", "none")
    script = script.replace("$(blkid -L cidata 2>/dev/null || findfs LABEL=cidata)", str(path))
    key = root / "salt/pki/minion/minion.pem"
    key.parent.mkdir(parents=True)
    key.write_text("of the image")
    (root / "salt/minion_id").write_text("template\n")

    for text in (script.split("umask 022\nmkdir")[0] if is_cut_off else script, script):
        subprocess.run(["sh", "-c", text], check=True)

    # For a guest without a given key, the minion makes one.
    assert key.read_text() == PRIVATE if is_clone else not key.exists()
    key.unlink(missing_ok=True)
    key.write_text("the guest's own")
    subprocess.run(["sh", "-c", script], check=True)
    assert key.read_text() == "the guest's own"


def test_values_of_a_user_cannot_become_shell(tmp_path):
    evil = "'; touch /tmp/owned; echo '$(id)`id`"
    path = tmp_path / "seed.iso"
    guest_identity = identity(config={"id": "x", "note": evil})
    path.write_bytes(nocloud.content(guest_identity, "i-1", install=False))
    script = yaml.safe_load(read(path)["user-data"])["bootcmd"][0][-1]

    writes = script[script.index("printf '%s' 'id") :].split(" >/etc/salt")[0]
    process = subprocess.run(["sh", "-c", writes], capture_output=True, text=True, check=True)

    assert yaml.safe_load(process.stdout)["note"] == evil


def test_without_keys_the_region_is_empty_and_the_script_still_works(tmp_path):
    path = tmp_path / "seed.iso"
    guest_identity = identity(private_key=None, public_key=None)
    path.write_bytes(nocloud.content(guest_identity, "i-1", install=False))

    assert path.read_bytes()[-firstboot.SECRET_BYTES :] == bytes(firstboot.SECRET_BYTES)
    assert "runcmd" not in yaml.safe_load(read(path)["user-data"])


def test_only_its_owner_may_read_a_seed(tmp_path):
    path = tmp_path / "seed.qcow2"
    nocloud.build(path, identity(), "i-1", install=True)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_only_its_minion_can_unseal_a_secret():
    other_public, other_private = keypair.generate()

    text = keypair.seal("the secret", PUBLIC)

    assert "the secret" not in text and keypair.is_sealed(text)
    assert keypair.unseal(text, PRIVATE) == "the secret"
    with pytest.raises(SeedError, match="sealed for another minion"):
        keypair.unseal(text, other_private)
    assert keypair.seal("the secret", PUBLIC) != text
    assert other_public != PUBLIC


@pytest.mark.parametrize("damage", [lambda t: t[:-8], lambda t: t[:40], lambda t: t + "AAAA"])
def test_a_damaged_seal_is_refused(damage):
    with pytest.raises(SeedError):
        keypair.unseal(damage(keypair.seal("x", PUBLIC)), PRIVATE)


def test_a_key_pair_comes_from_text_files_or_the_master(tmp_path):
    (tmp_path / "minion.pem").write_text(PRIVATE)
    (tmp_path / "k.pub").write_text(PUBLIC)
    guest_public, guest_private = keypair.generate()

    assert identities.read_key_pair(None, None, tmp_path) == (None, None)
    assert identities.read_key_pair(PUBLIC, PRIVATE, tmp_path) == (PUBLIC, PRIVATE)
    assert identities.read_key_pair(
        str(tmp_path / "k.pub"), str(tmp_path / "minion.pem"), tmp_path
    ) == (
        PUBLIC,
        PRIVATE,
    )
    assert identities.read_key_pair(
        guest_public, keypair.seal(guest_private, PUBLIC), tmp_path
    ) == (
        guest_public,
        guest_private,
    )


@pytest.mark.parametrize(
    ("public", "private", "reason"),
    [
        (PUBLIC, None, "go together"),
        ("nonsense", "nonsense", "not a PEM key"),
        (5, [PRIVATE], "^pub_key is not text$"),
        (keypairs.named("a host")[0], PRIVATE, "not the public half"),
        ("/missing.pub", "/missing.pem", "pub_key /missing.pub|priv_key /missing.pem"),
    ],
)
def test_a_key_pair_that_cannot_work_is_refused_before_the_vm_exists(public, private, reason):
    with pytest.raises(SeedError, match=reason):
        identities.read_key_pair(public, private, "/nowhere")


def prepare(opts=None, settings=None, functions=(), **options):
    """Prepare the identity of a call."""
    host = settings or HostSettings()
    context = Context(settings=host, opts=opts or {"master": "10.0.0.1"}, functions=functions)
    return identities.prepare(
        context, deployment(host, "vm1", 1, 128, {"image": "/x.img", **options})
    )


def test_the_guest_gets_the_hypervisors_master_by_default():
    seed_settings = HostSettings(seed={"master": "203.0.113.9", "config": {"log_level": "info"}})

    assert prepare().config == {"master": "10.0.0.1", "id": "vm1"}
    assert prepare(settings=seed_settings).config["master"] == "203.0.113.9"
    assert prepare(settings=seed_settings).config["log_level"] == "info"
    assert prepare(config={"master": "m2"}).config["master"] == "m2"
    assert prepare({"master": "m", "master_port": 5506}).config["master_port"] == 5506


@pytest.mark.parametrize("master", ["localhost", "127.0.0.1", None])
def test_a_master_no_guest_can_reach_is_refused(master):
    with pytest.raises(SeedError, match="virt:seed:master"):
        prepare({"master": master, "id": "h"})


def test_the_text_of_an_identity_has_nothing_secret():
    secrets = {"user_data": {"password": "hunter2"}, "config": {"token": "hunter2"}}

    guest_identity = prepare(pub_key=PUBLIC, priv_key=PRIVATE, **secrets)

    assert guest_identity.private_key == PRIVATE and guest_identity.config["token"] == "hunter2"
    assert PRIVATE[40:80] not in repr(guest_identity) and "hunter2" not in repr(guest_identity)


def test_no_seed_without_an_image_or_when_it_is_not_wanted():
    assert prepare(seed=False) is None
    with pytest.raises(BadArgument, match="nothing to seed"):
        prepare(seed=False, pub_key="x", priv_key="y")


def test_another_seed_command_must_exist():
    with pytest.raises(BadArgument, match=r"no function 'my\.seed'"):
        prepare(seed_cmd="my.seed")


def test_another_seed_command_gets_temporary_files():
    call_values = {}

    def command(path, **options):
        call_values.update(options, path=path, text=Path(options["priv_key"]).read_text())

    functions = {"my.seed": command}
    context = Context(settings=HostSettings(), opts={"master": "m"}, functions=functions)
    options = {"image": "/x", "seed_cmd": "my.seed", "pub_key": PUBLIC, "priv_key": PRIVATE}
    call = deployment(HostSettings(), "vm1", 1, 128, options)
    guest_identity = identities.prepare(context, call)
    write.run_command(context, "my.seed", guest_identity, "/disk", install=True)

    assert (call_values["path"], call_values["id_"], call_values["text"]) == (
        "/disk",
        "vm1",
        PRIVATE,
    )
    assert not Path(call_values["priv_key"]).exists()


def test_a_seed_command_that_returns_false_has_failed():
    functions = {"my.seed": lambda *_args, **_options: False}
    context = Context(settings=HostSettings(), opts={"master": "m"}, functions=functions)
    call = deployment(HostSettings(), "vm1", 1, 128, {"image": "/x", "seed_cmd": "my.seed"})
    guest_identity = identities.prepare(context, call)

    with pytest.raises(SeedError, match="could not seed /disk"):
        write.run_command(context, "my.seed", guest_identity, "/disk", install=True)


def test_further_cloud_config_is_merged_into_ours():
    profile = {"packages": ["vim"], "users": ["default"], "write_files": [{"path": "/a"}]}
    text = "#cloud-config\npackages: [git]\nruncmd: [[ls]]\nbootcmd:\n"
    call = cloudconfig.mapping("user_data", text)

    merged = cloudconfig.merge({"bootcmd": [["ours"]], "runcmd": [["install"]]}, profile, call)

    assert merged["packages"] == ["vim", "git"]
    assert merged["runcmd"] == [["install"], ["ls"]]
    assert (merged["bootcmd"], merged["users"]) == ([["ours"]], ["default"])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("#!/bin/sh\nls", "a script goes under its 'runcmd'"),
        (["x"], "is neither a mapping"),
        ("#cloud-config\na: [", "is not YAML"),
        ({"hostname": "other"}, "'hostname' is the VM's name"),
        ({"bootcmd": "ls"}, "'bootcmd' is not a list"),
        ({"ssh_authorized_keys": "ssh-ed25519 A"}, "'ssh_authorized_keys' is not a list"),
    ],
)
def test_user_data_that_cloud_init_could_not_take_is_refused(value, reason):
    with pytest.raises(BadArgument, match=reason):
        cloudconfig.mapping("user_data", value)


def test_a_network_configuration_finds_nics_by_their_mac():
    interfaces = [
        {"name": "eth0", "bridge": "br0", "guest": "dhcp"},
        {
            "name": "eth1",
            "bridge": "br0",
            "mac": "52:54:00:00:00:01",
            "guest": {
                "addresses": ["10.0.0.4/16", "fd00::4/64"],
                "gateway": ["10.0.0.1", "fd00::1"],
                "dns": "10.0.0.1",
                "search": ["example.org"],
            },
        },
        {"name": "eth2", "bridge": "br0"},
    ]

    network = cloudconfig.network(profiles.nics("web1", {}, None, interfaces))

    assert network["version"] == 1
    first, second = network["config"]
    assert first["name"] == "eth0" and len(first["mac_address"]) == 17
    assert first["subnets"] == [{"type": "dhcp4"}]
    assert second == {
        "type": "physical",
        "name": "eth1",
        "mac_address": "52:54:00:00:00:01",
        "subnets": [
            {
                "type": "static",
                "address": "10.0.0.4/16",
                "gateway": "10.0.0.1",
                "dns_nameservers": ["10.0.0.1"],
                "dns_search": ["example.org"],
            },
            {"type": "static", "address": "fd00::4/64", "gateway": "fd00::1"},
        ],
    }
    assert cloudconfig.network(profiles.nics("web1", {}, "default", None)) is None


@pytest.mark.parametrize(
    ("guest_config", "reason"),
    [
        ("static", "dhcp, or"),
        ({"adresses": []}, "did you mean 'addresses'"),
        ({"addresses": ["10.0.0.4"]}, "not an address with its prefix"),
        ({"gateway": "10.0.0.1"}, "a gateway needs addresses"),
    ],
)
def test_a_guests_part_of_an_interface_is_checked(guest_config, reason):
    with pytest.raises(BadArgument, match=reason):
        profiles.nics("web1", {}, None, [{"name": "eth0", "bridge": "br0", "guest": guest_config}])


def test_the_seed_has_cloud_config_beside_the_identity(tmp_path):
    cloud = CloudInit(
        user_data=({"packages": ["vim"]},),
        vendor_data={"locale": "C.UTF-8"},
        network={"version": 2, "ethernets": {}},
    )
    path = tmp_path / "seed.iso"
    path.write_bytes(nocloud.content(identity(cloud_init=cloud), "i-1", install=False))

    names = ("meta-data", "user-data", "vendor-data", "network-config")
    files = read(path, names)
    assert yaml.safe_load(files["user-data"])["packages"] == ["vim"]
    assert files["vendor-data"].startswith("#cloud-config\n")
    assert json.loads(files["network-config"])["version"] == 2


def test_the_seed_has_values_that_only_yaml_can_express(tmp_path):
    text = "#cloud-config\na: 2032-09-01\nb: [{content: !!binary AAE=}]\n"
    cloud = CloudInit(user_data=(cloudconfig.mapping("user_data", text),))
    path = tmp_path / "seed.iso"
    path.write_bytes(nocloud.content(identity(cloud_init=cloud), "i-1", install=False))

    user_data, given_data = yaml.safe_load(read(path)["user-data"]), yaml.safe_load(text)
    assert user_data == {**user_data, **given_data} and "set -eu\n" in user_data["bootcmd"][0][-1]
