"""Lists of user data and vendor data: cloud-init uses one of the two, so a seed joins them."""

import io
import subprocess

import pycdlib
import pytest
import yaml
from saltvirt.seeding import cloudconfig, firstboot, nocloud
from saltvirt.seeding.seedmodel import CloudInit, Identity


def seed_data(tmp_path, *, user=(), vendor=None, ssh_keys=(), install=False):
    """Return ``(user data, vendor data)`` of a seed."""
    identity = Identity(
        id="web1",
        config={"id": "web1", "master": "10.0.0.1"},
        ssh_keys=ssh_keys,
        cloud_init=CloudInit(user_data=tuple(user), vendor_data=vendor),
    )
    path = tmp_path / "seed.iso"
    path.write_bytes(nocloud.content(identity, "i-1", install=install))
    iso = pycdlib.PyCdlib()
    iso.open(str(path))
    texts = []
    for name in ("user-data", "vendor-data")[: 2 if vendor else 1]:
        text = io.BytesIO()
        iso.get_file_from_iso_fp(text, rr_path=f"/{name}")
        texts.append(yaml.safe_load(text.getvalue()))
    iso.close()
    return (*texts, {})[:2]


def test_commands_and_keys_of_the_vendor_data_are_in_the_user_data_too(tmp_path):
    vendor = {
        "bootcmd": [["sh", "-c", "date >/run/b"]],
        "runcmd": ["vendor"],
        "ssh_authorized_keys": ["ssh-ed25519 VENDOR"],
    }
    user, _vendor = seed_data(
        tmp_path,
        user=[{"runcmd": ["user"]}],
        vendor=vendor,
        ssh_keys=["ssh-ed25519 OURS"],
        install=True,
    )

    assert user["bootcmd"][0][:3] == ["cloud-init-per", "instance", "salt-virt"]
    assert user["bootcmd"][1:] == vendor["bootcmd"]
    assert user["runcmd"][0] == ["sh", "-c", firstboot.install()]
    assert user["runcmd"][1:] == ["vendor", "user"]
    assert user["ssh_authorized_keys"] == ["ssh-ed25519 OURS", "ssh-ed25519 VENDOR"]


@pytest.mark.parametrize("key", ["packages", "write_files", "users", "groups", "mounts"])
def test_each_list_that_both_have_is_joined(tmp_path, key):
    user, _vendor = seed_data(tmp_path, user=[{key: ["user"]}], vendor={key: ["vendor"]})

    assert user[key] == ["vendor", "user"]


def test_lists_below_mappings_are_joined_too(tmp_path):
    user, _vendor = seed_data(
        tmp_path,
        user=[{"ntp": {"servers": ["user"], "enabled": True}, "apt": {"sources": {"a": {}}}}],
        vendor={"ntp": {"servers": ["vendor"], "pools": ["p"]}, "apt": {"sources": {"b": {}}}},
    )

    assert user["ntp"] == {"servers": ["vendor", "user"], "enabled": True}
    assert user["apt"] == {"sources": {"a": {}}}, "cloud-init itself merges mappings"


def test_data_that_only_the_vendor_data_has_stays_there(tmp_path):
    vendor = {"packages": ["vim"], "locale": "C.UTF-8"}
    user, vendor_data = seed_data(tmp_path, vendor=vendor)

    assert "packages" not in user and "locale" not in user
    assert vendor_data == vendor


@pytest.mark.parametrize("is_enabled", [False, "no", "False", 0])
def test_vendor_data_that_the_user_data_switches_off_is_not_joined(tmp_path, is_enabled):
    switch = {"vendor_data": {"enabled": is_enabled}, "packages": ["user"]}
    user, _vendor = seed_data(tmp_path, user=[switch], vendor={"packages": ["vendor"]})

    assert user["packages"] == ["user"]


@pytest.mark.parametrize("side", ["user", "vendor"])
def test_the_images_own_bootcmd_runs_unless_another_is_given(tmp_path, side):
    user, _vendor = seed_data(tmp_path)
    assert user["bootcmd"][1:] == [["sh", "-c", firstboot.image_bootcmd()]]

    bootcmd = {"bootcmd": [["true"]]}
    options = {"user": [bootcmd]} if side == "user" else {"vendor": bootcmd}
    user, _vendor = seed_data(tmp_path, **options)
    assert user["bootcmd"][1:] == [["true"]]


@pytest.mark.parametrize("is_new", [True, False])
def test_the_last_file_of_the_image_with_a_bootcmd_counts(tmp_path, is_new):
    cloud = tmp_path / "etc/cloud/cloud.cfg.d"
    cloud.mkdir(parents=True)
    (tmp_path / "etc/cloud/cloud.cfg").write_text("bootcmd:\n- old\n")
    (cloud / "10-image.cfg").write_text("bootcmd: [[image]]\n")
    (cloud / "20-other.cfg").write_text("# bootcmd: no\nruncmd: []\n")
    program = tmp_path / "cloud-init"
    program.write_text(
        f'#!/bin/sh\n[ "$2" = --help ] && {{ echo "{"--file" if is_new else ""}"; exit; }}\n'
        'echo "$@"\n'
    )
    program.chmod(0o755)
    script = firstboot.image_bootcmd().replace("/etc/cloud", f"{tmp_path}/etc/cloud")
    script = script.replace("cloud-init ", f"{program} ")

    process = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)

    words, file = "single --name bootcmd --frequency always", f"--file {cloud}/10-image.cfg"
    assert process.stdout.strip() == (f"{words} {file}" if is_new else f"{file} {words}")
    (tmp_path / "etc/cloud/cloud.cfg").unlink()
    (cloud / "10-image.cfg").unlink()
    process = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
    assert process.stdout == ""


def test_lists_of_one_side_alone_are_not_repeated():
    assert cloudconfig.lists_in_both({"a": ["x"], "b": {"c": ["y"]}}, {"b": {"d": []}}) == {}
