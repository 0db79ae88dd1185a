"""A connection to libvirt's test driver, and the functions of pools and volumes on it."""

import gc

import asloaded
import libvirt
import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect

DEFAULT = """<pool type='dir'><name>default-pool</name>
<uuid>dfe224cb-28fb-8dd0-c4b2-64eb3f0f4566</uuid><target><path>/default-pool</path></target></pool>"""

# Loaded now, because another test may later replace libvirt in the library by a missing one.
MODULES, STATES = (
    [asloaded.module(f"{kind}/virt_{name}.py") for name in ("pool", "volume")]
    for kind in ("_modules", "_states")
)


@pytest.fixture
def conn():
    """A connection; the driver keeps its definitions while it is open."""
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as opened:
        yield opened
        remove_domains(opened)
        remove_pools(opened)
    # An exception that a test has caught may still refer to the connection and keep it open. The
    # older objects are frozen: to collect all of them after each test would take most of its time.
    gc.collect()
    gc.freeze()


def remove_domains(conn):
    """Remove all domains but the driver's own."""
    for domain in conn.listAllDomains():
        if domain.name() == "test":
            continue
        if domain.isActive():
            domain.destroy()
        if domain.name() in conn.listDefinedDomains():
            domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA)


def remove_pools(conn):
    """Remove all pools, and recreate the driver's own."""
    for pool in conn.listAllStoragePools():
        if pool.isActive():
            for volume in pool.listAllVolumes():
                volume.delete()
            pool.destroy()
        if pool.name() in conn.listDefinedStoragePools():
            pool.undefine()
    conn.storagePoolDefineXML(DEFAULT).create()


@pytest.fixture
def virt(conn):
    """The functions of the execution modules, as Salt merges them."""
    return type("Virt", (), {key: value for part in MODULES for key, value in vars(part).items()})


@pytest.fixture
def applied(conn):
    """Return the answers of a state: with test=True, without it, and from a second run."""

    def all_three(function, *args, **options):
        out = []
        for is_test in (True, False, False):
            for part in STATES:
                part.__opts__["test"] = is_test
            (work,) = [vars(part)[function] for part in STATES if function in vars(part)]
            out.append(work(*args, **options))
        return out

    return all_three
