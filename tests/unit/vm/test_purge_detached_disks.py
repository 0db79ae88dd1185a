"""A purge goes by a VM's definition: a disk that was taken out of it stays, though it runs yet."""

from pathlib import Path

import pytest
from saltvirt.libvirt.domains import lifecycle
from saltvirt.vm.purge.host import purge
from saltvirt.xml import parse, to_text


def without_data(text):
    """Return a definition without the disk called data."""
    root = parse(text)
    devices = root.find("devices")
    for one in devices.findall("disk"):
        if "_data." in one.find("source").get("file", ""):
            devices.remove(one)
    return to_text(root)


@pytest.fixture
def data(hypervisor):
    return Path(hypervisor.settings.images) / "web1_data.qcow2"


def test_a_disk_that_is_detached_at_the_next_start_is_not_purged(hypervisor, data):
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        conn.defineXML(without_data(lifecycle.inactive_xml(conn, "web1")))
        assert str(data) in lifecycle.xml(conn, "web1"), "it runs with it"

        purge.purge(conn, hypervisor.settings, "web1")

    assert hypervisor.files() == [data.name]


def test_a_disk_that_is_attached_at_the_next_start_is_purged(hypervisor, data):
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        whole = lifecycle.inactive_xml(conn, "web1")
        lifecycle.destroy(conn, "web1")
        conn.defineXML(without_data(whole))
        lifecycle.start(conn, "web1")
        conn.defineXML(whole)
        assert str(data) not in lifecycle.xml(conn, "web1"), "it runs without it"

        purge.purge(conn, hypervisor.settings, "web1")

    assert hypervisor.files() == []
