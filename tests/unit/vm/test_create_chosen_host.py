"""A dry run says where the VM would go, and that its disk would be empty."""

import fleetkit
import pytest
from saltvirt.vm.create.master import deploy
from saltvirt.vm.create.master.many import run
from test_many_run import call
from test_output import outputter

EMPTY = "no image was given: its disk is empty, unless hyper1 has a disk for it already"


def planned(cloud, **given):
    """Return the table of a dry run."""
    return deploy.dry_run(cloud.master, fleetkit.request(**given))


def test_the_row_of_the_host_that_gets_the_vm_is_marked(cloud):
    table = planned(cloud, image="salt://a.qcow2")

    chosen = [host for host, row in table.items() if row.get("chosen")]
    assert chosen == ["hyper1"] and table["hyper1"]["vm"] == "web"
    assert "warnings" not in table["hyper1"]
    assert outputter("virt_plan")(table).splitlines()[-1] == "web would go to hyper1"


def test_of_a_host_that_is_named_the_dry_run_says_so(cloud):
    assert planned(cloud, host="hyper3")["hyper3"]["chosen"]


@pytest.mark.parametrize(
    ("given", "is_warned"),
    [
        ({}, True),
        ({"disks": [{"name": "system", "size": 1}]}, True),
        ({"image": "salt://a.qcow2"}, False),
        ({"disks": [{"name": "system", "image": "salt://a.qcow2"}]}, False),
        ({"disks": [{"name": "cd", "device": "cdrom", "source_file": "/a.iso"}]}, False),
        ({"boot_dev": "network hd"}, False),
        ({"boot": {"kernel": "/k", "initrd": "/i"}}, False),
        ({"disk": None}, False),
    ],
)
def test_a_dry_run_without_an_image_says_that_the_disk_is_empty(cloud, given, is_warned):
    row = planned(cloud, **given)["hyper1"]

    assert row.get("warnings", []) == [EMPTY] * is_warned


def test_the_warning_stands_below_the_table(cloud):
    shown = outputter("virt_plan")(planned(cloud))

    assert shown.splitlines()[-3] == "web would go to hyper1"
    assert " ".join(shown.split()).endswith(f"warning: {EMPTY}")


def test_a_profile_with_an_image_is_no_empty_disk(cloud):
    cloud.hosts.profiles["default"]["has_image"] = True

    assert "warnings" not in planned(cloud)["hyper1"]


def test_of_many_vms_each_with_an_empty_disk_is_named(cloud):
    plan = run.dry_run(cloud.master, call(vms=[{"name": "a", "image": None}, {"name": "b"}]))

    assert set(plan["warnings"]) == {"a"} and set(plan["plan"]) == {"a", "b"}
    assert "no image was given" in plan["warnings"]["a"][0]
    assert "warning: no image was given" in outputter("virt_moves")(plan)


def test_of_many_vms_with_an_image_nothing_is_said(cloud):
    assert "warnings" not in run.dry_run(cloud.master, call(2))
