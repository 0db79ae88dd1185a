"""A connection to libvirt's test driver, and the functions of pools and volumes on it."""

import gc

import asloaded
import libvirt
import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect

DEFAULT = """<pool type='dir'><name>default-pool</name>
<uuid>dfe224cb-28fb-8dd0-c4b2-64eb3f0f4566</uuid><target><path>/default-pool</path></target></pool>"""

# Loaded now: later another test may have a libvirt in the library that is missing.
MODULES, STATES = (
    [asloaded.module(f"{kind}/virt_{name}.py") for name in ("pool", "volume")]
    for kind in ("_modules", "_states")
)


@pytest.fixture
def conn():
    """A connection; what is defined is kept as long as it is open."""
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as opened:
        yield opened
        remove_domains(opened)
        remove_pools(opened)
    # An exception that a test has looked at may still have it, and it would stay open. What is left
    # stays anyway: to look through it again after each test would take most of their time.
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
    """Remove all pools, and make the driver's own anew."""
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
    """Call a state: what it says with test=True, what it says, and what it says once more."""

    def all_three(function, *args, **options):
        out = []
        for is_test in (True, False, False):
            for part in STATES:
                part.__opts__["test"] = is_test
            (work,) = [vars(part)[function] for part in STATES if function in vars(part)]
            out.append(work(*args, **options))
        return out

    return all_three
