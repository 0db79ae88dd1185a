"""What is known of an image that its guest will not read or serve is said before it is a VM."""

import sys
from dataclasses import replace

import pytest
from saltvirt.core import writelimit
from saltvirt.core.options.config import HostSettings
from saltvirt.seeding import inspection, seedchoice
from saltvirt.seeding.offline import appliance
from saltvirt.seeding.seedmodel import Inspection

DEBIAN = Inspection(
    root="/dev/sda1", os="debian 12", has_cloud_init=True, has_minion=True, has_ssh_server=True
)


def look(tmp_path, files):
    """Have the worker, a real process, look into a folder with these files."""
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    job = {"action": "look", "via": "folder", "path": str(root), "format": None}
    room = writelimit.from_settings(HostSettings())
    return inspection.parse_content(
        appliance.run(job, state_dir=tmp_path / "state", room=room, python=sys.executable)
    )


@pytest.mark.parametrize(
    ("path", "is_there"),
    [
        ("usr/sbin/sshd", True),
        ("usr/bin/sshd", True),
        ("usr/sbin/dropbear", True),
        ("usr/bin/ssh", False),
    ],
)
def test_an_ssh_server_is_looked_for(tmp_path, path, is_there):
    assert look(tmp_path, {path: b""}).has_ssh_server is is_there


def test_cloud_init_that_is_switched_off_is_none(tmp_path):
    files = {"usr/bin/cloud-init": b"", "usr/bin/salt-minion": b""}
    assert look(tmp_path / "a", files).has_cloud_init

    found = look(tmp_path / "b", {**files, "etc/cloud/cloud-init.disabled": b"by the installer"})

    assert not found.has_cloud_init
    assert seedchoice.decide(seedchoice.SeedRequest(image="/a.qcow2"), found).name == "guestfs"


@pytest.mark.parametrize(
    ("files", "sources"),
    [
        ({}, None),
        ({"cloud.cfg": b"# datasource_list: [ Ec2 ]\n"}, None),
        ({"cloud.cfg": b"datasource_list: [ NoCloud, None ]\n"}, ["NoCloud", "None"]),
        ({"cloud.cfg": b"x: 1\ndatasource_list:\n  - Azure\n  - None\ny: 2\n"}, ["Azure", "None"]),
        (
            {
                "cloud.cfg": b"datasource_list: [NoCloud]\n",
                "cloud.cfg.d/90_azure.cfg": b"datasource_list: [ Azure ]\n",
                "cloud.cfg.d/10_first.cfg": b"datasource_list: [ Ec2 ]\n",
                "cloud.cfg.d/99_not.txt": b"datasource_list: [ Oracle ]\n",
            },
            ["Azure"],
        ),
        ({"cloud.cfg": b"datasource_list: [ " + b"A, " * 1000 + b"]"}, ["A"] * 50),
        ({"cloud.cfg": b"datasource_list: [NoCloud]\n" + b"#" * (5 << 20)}, None),
    ],
)
def test_where_cloud_init_looks_is_read_as_it_reads_it(tmp_path, files, sources):
    found = look(tmp_path, {f"etc/cloud/{path}": data for path, data in files.items()})

    assert found.datasources == sources


def warned(found, asked="auto", *, has_ssh_keys=True):
    """Return what is said of an image."""
    wish = seedchoice.SeedRequest(
        image="/a.qcow2",
        method_name=asked,
        has_ssh_keys=has_ssh_keys,
        asks_for_ssh_keys=has_ssh_keys,
    )
    return seedchoice.decide(wish, found).warnings


def test_keys_for_an_image_without_an_ssh_server_are_warned_of():
    for asked in ("auto", "guestfs"):
        (line,) = warned(replace(DEBIAN, has_ssh_server=False), asked)
        assert line.startswith("ssh_authorized_keys let no user in yet: image /a.qcow2 has no SSH")
        assert "\n" not in line
    assert warned(replace(DEBIAN, has_ssh_server=False), has_ssh_keys=False) == ()


def test_nobody_is_told_to_log_in_by_ssh_where_no_server_listens():
    wish = seedchoice.SeedRequest(
        image="/a.qcow2", method_name="auto", has_ssh_keys=True, asks_for_ssh_keys=True
    )

    assert seedchoice.decide(wish, DEBIAN).ssh_user == "debian"
    assert seedchoice.decide(wish, replace(DEBIAN, has_ssh_server=False)).ssh_user is None


def test_cloud_init_that_looks_elsewhere_is_warned_of():
    azure = replace(DEBIAN, datasources=["Azure", "None"])

    (line,) = warned(azure, has_ssh_keys=False)

    assert "looks for its data in Azure, None alone (datasource_list), not in NoCloud" in line
    # Then the worker writes everything, and cloud-init need not read it.
    assert warned(azure, "guestfs") == ()
    assert warned(replace(DEBIAN, datasources=["NoCloud"])) == ()


@pytest.mark.parametrize("found", [DEBIAN, replace(DEBIAN, datasources=None)])
def test_what_is_not_known_is_not_warned_of(found):
    assert warned(found) == ()
    assert warned(None, "nocloud") == ()


def test_a_plan_shows_the_warnings_and_only_if_there_are_any():
    wish = seedchoice.SeedRequest(image="/a.qcow2", has_ssh_keys=True)
    lacking = seedchoice.decide(wish, replace(DEBIAN, has_ssh_server=False))

    assert len(lacking.to_dict()["warnings"]) == 1
    assert "warnings" not in seedchoice.decide(wish, DEBIAN).to_dict()
