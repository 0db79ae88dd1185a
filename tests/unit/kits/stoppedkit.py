"""A stopped VM to clone."""

import gc

import pytest
from clonekit import disk, write
from saltvirt.libvirt.domains import lifecycle


@pytest.fixture
def stopped(hypervisor):
    """A host with a stopped VM, ``web1``, and data on its disks."""
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        lifecycle.destroy(conn, "web1")
        for name in ("system", "data"):
            write(disk(hypervisor, f"web1_{name}.qcow2"), 7)
        yield conn
    # An exception that a test has caught may still refer to the connection and keep it open.
    del conn
    gc.collect()
