"""What all hosts share: a disk is told from its folder, and nothing of another host is removed."""

from dataclasses import replace
from pathlib import Path

import pytest
from saltvirt.ops import storage


@pytest.fixture
def shared(hypervisor):
    """A folder that all hosts share."""
    folder = hypervisor.root / "shared"
    folder.mkdir()
    hypervisor.settings = replace(hypervisor.settings, shared_paths=[str(folder)])
    return folder


@pytest.mark.parametrize("declared", ["{}", "{}/", "{}/.", "{}/../shared", "{}/../link"])
@pytest.mark.parametrize(
    ("path", "is_shared"),
    [
        ("shared/a.raw", True),
        ("shared//below/a.raw", True),
        ("link/a.raw", True),
        ("sharedX/a.raw", False),
        ("shared/../a.raw", False),
        ("shared/local.raw", False),
        ("elsewhere.raw", True),
    ],
)
def test_what_is_shared_is_told_by_where_it_really_is(
    hypervisor, shared, declared, path, is_shared
):
    root = hypervisor.root
    (root / "link").symlink_to(shared)
    (shared / "local.raw").symlink_to(root / "a.raw")
    (root / "elsewhere.raw").symlink_to(shared / "a.raw")
    settings = replace(hypervisor.settings, shared_paths=[declared.format(shared)])

    assert storage.is_declared(settings, f"{root}/{path}") is is_shared


@pytest.mark.parametrize("declared", ["devices", "devices/lv1"])
def test_a_device_is_shared_by_the_name_that_all_hosts_have_for_it(
    hypervisor, monkeypatch, declared
):
    root = hypervisor.root
    (root / "devices").mkdir()
    (root / "dm-7").touch()
    (root / "devices" / "lv1").symlink_to(root / "dm-7")
    settings = replace(hypervisor.settings, shared_paths=[f"{root}/{declared}"])
    monkeypatch.setattr(Path, "is_block_device", lambda path: path.name == "dm-7")

    assert storage.is_declared(settings, f"{root}/devices/lv1")
    assert not storage.is_declared(settings, f"{root}/dm-7")


def test_the_name_of_a_network_disk_is_no_path(hypervisor, monkeypatch):
    monkeypatch.chdir(hypervisor.root)
    settings = replace(hypervisor.settings, shared_paths=["/"])

    assert not storage.is_declared(settings, "pool/image")
