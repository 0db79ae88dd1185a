"""A VM that could not boot is refused or named before it is made."""

import pytest
from saltvirt.core.errors import ImageError
from saltvirt.core.model import Disk, Vm
from saltvirt.storage.images.validation import ValidatedImage
from saltvirt.vm.create.host import buildplan

IMAGE = "salt://x.qcow2"


def vm(**more):
    """Return a VM that is made of an image."""
    disks = (Disk(name="system", target="vda", image=IMAGE),)
    usual = {"name": "web1", "cpu": 1, "vcpus": 1, "memory": 1, "memory_mib": 1, "arch": "x86_64"}
    return Vm(**{**usual, "disks": disks, **more})


def images(*, needs_uefi):
    """Return what is known of the image."""
    known = ValidatedImage(path="/x", format="qcow2", size_bytes=1, needs_uefi=needs_uefi)
    return {IMAGE: known}


def test_an_image_for_uefi_alone_is_refused_under_a_bios_with_what_boots_it():
    with pytest.raises(ImageError, match="boots by UEFI alone .*; give boot='{efi: True}'"):
        buildplan.refuse_unbootable(vm(), images(needs_uefi=True), is_seeded=True)


@pytest.mark.parametrize("is_seeded", [True, False])
@pytest.mark.parametrize(
    "more",
    [
        {"boot": {"efi": True}},
        {"boot": {"loader": "/a", "nvram": "/b"}},
        {"boot": {"kernel": "/a"}},
        {"boot_dev": ("network", "hd")},
        {"boot_dev": ("cdrom", "hd")},
        {"os_type": "linux"},
    ],
)
def test_a_vm_that_boots_otherwise_is_taken(more, is_seeded):
    known = images(needs_uefi=True)

    buildplan.refuse_unbootable(vm(**more), known, is_seeded=is_seeded)
    assert [*buildplan.boot_warnings(vm(**more), known, is_seeded=is_seeded)] == []


def test_what_is_not_known_of_an_image_refuses_nothing():
    for known in ({}, {IMAGE: None}, images(needs_uefi=False)):
        buildplan.refuse_unbootable(vm(), known, is_seeded=True)
        assert [*buildplan.boot_warnings(vm(), known, is_seeded=False)] == []


def test_without_a_seed_it_is_a_warning():
    known = images(needs_uefi=True)

    buildplan.refuse_unbootable(vm(), known, is_seeded=False)

    (line,) = buildplan.boot_warnings(vm(), known, is_seeded=False)
    assert "boots by UEFI alone" in line and line.endswith("give boot='{efi: True}'")


def test_a_vm_of_a_processor_without_a_bios_needs_uefi_for_each_image():
    with pytest.raises(ImageError, match="a VM of aarch64 has no BIOS.*boot='{efi: True}'"):
        buildplan.refuse_unbootable(vm(arch="aarch64"), images(needs_uefi=False), is_seeded=True)
    buildplan.refuse_unbootable(
        vm(arch="aarch64", boot={"efi": True}), images(needs_uefi=False), is_seeded=True
    )


EMPTY = Disk(name="system", target="vda", size_mib=1)


@pytest.mark.parametrize(
    ("more", "is_named"),
    [
        ({"disks": (EMPTY,)}, True),
        ({"disks": (EMPTY, Disk(name="cd", target="hda", device="cdrom"))}, True),
        ({"disks": ()}, False),
        ({"disks": (EMPTY,), "boot_dev": ("network", "hd")}, False),
        ({"disks": (EMPTY,), "boot": {"kernel": "/k"}}, False),
        ({"disks": (Disk(name="a", target="vda", source_file="/a"),)}, False),
        ({"disks": (EMPTY, Disk(name="b", target="hda", device="cdrom", source_file="/b"))}, False),
    ],
)
def test_a_vm_whose_only_disk_is_empty_is_named(more, is_named):
    said = [*buildplan.boot_warnings(vm(**more), {}, is_seeded=False)]

    assert said == (["no image was given: its disk is empty"] if is_named else [])


def test_the_user_is_told_of_an_empty_disk(hypervisor):
    with hypervisor.libvirt():
        given = {"image": None, "seed": False, "pub_key": None, "priv_key": None, "start": False}
        hypervisor.init(disks=[{"name": "system", "size": 1}], **given)

    assert "no image was given: its disk is empty" in str(hypervisor.said)
