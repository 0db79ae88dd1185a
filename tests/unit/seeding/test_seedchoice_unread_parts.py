"""Parts of a seed that the guest will not read or serve cause a warning before the VM exists."""

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


def inspect_folder(tmp_path, files):
    """Have the worker, a real process, inspect a folder with these files."""
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
    assert inspect_folder(tmp_path, {path: b""}).has_ssh_server is is_there


def test_cloud_init_that_is_switched_off_is_none(tmp_path):
    files = {"usr/bin/cloud-init": b"", "usr/bin/salt-minion": b""}
    assert inspect_folder(tmp_path / "a", files).has_cloud_init

    inspected = inspect_folder(
        tmp_path / "b", {**files, "etc/cloud/cloud-init.disabled": b"by the installer"}
    )

    assert not inspected.has_cloud_init
    assert seedchoice.decide(seedchoice.SeedRequest(image="/a.qcow2"), inspected).name == "guestfs"


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
def test_the_data_sources_are_read_as_cloud_init_reads_them(tmp_path, files, sources):
    inspected = inspect_folder(
        tmp_path, {f"etc/cloud/{path}": data for path, data in files.items()}
    )

    assert inspected.datasources == sources


def warnings_for(inspected, method_name="auto", *, has_ssh_keys=True):
    """Return the warnings for an image."""
    request = seedchoice.SeedRequest(
        image="/a.qcow2",
        method_name=method_name,
        has_ssh_keys=has_ssh_keys,
        asks_for_ssh_keys=has_ssh_keys,
    )
    return seedchoice.decide(request, inspected).warnings


def test_keys_for_an_image_without_an_ssh_server_are_warned_of():
    for method_name in ("auto", "guestfs"):
        (line,) = warnings_for(replace(DEBIAN, has_ssh_server=False), method_name)
        assert line.startswith("ssh_authorized_keys let no user in yet: image /a.qcow2 has no SSH")
        assert "\n" not in line
    assert warnings_for(replace(DEBIAN, has_ssh_server=False), has_ssh_keys=False) == ()


def test_no_ssh_user_is_named_where_no_server_listens():
    request = seedchoice.SeedRequest(
        image="/a.qcow2", method_name="auto", has_ssh_keys=True, asks_for_ssh_keys=True
    )

    assert seedchoice.decide(request, DEBIAN).ssh_user == "debian"
    assert seedchoice.decide(request, replace(DEBIAN, has_ssh_server=False)).ssh_user is None


def test_cloud_init_with_other_data_sources_is_warned_of():
    azure = replace(DEBIAN, datasources=["Azure", "None"])

    (line,) = warnings_for(azure, has_ssh_keys=False)

    assert "looks for its data in Azure, None alone (datasource_list), not in NoCloud" in line
    # With guestfs the worker writes everything, so cloud-init need not read it.
    assert warnings_for(azure, "guestfs") == ()
    assert warnings_for(replace(DEBIAN, datasources=["NoCloud"])) == ()


@pytest.mark.parametrize("inspected", [DEBIAN, replace(DEBIAN, datasources=None)])
def test_unknown_facts_cause_no_warning(inspected):
    assert warnings_for(inspected) == ()
    assert warnings_for(None, "nocloud") == ()


def test_a_plan_shows_the_warnings_and_only_if_there_are_any():
    request = seedchoice.SeedRequest(image="/a.qcow2", has_ssh_keys=True)
    decision = seedchoice.decide(request, replace(DEBIAN, has_ssh_server=False))

    assert len(decision.to_dict()["warnings"]) == 1
    assert "warnings" not in seedchoice.decide(request, DEBIAN).to_dict()
