"""Removing a clone of salt-cloud removes what was made for it, and nothing else."""

import libvirt
import pytest
from saltvirt.libvirt.domains import cloudvms, domainfiles, lifecycle
from test_cloudvms import FULL, QUICK, base, conn, disk, names, undefined

__all__ = ["base", "conn", "undefined"]


def attach(conn, name, path):
    """Attach a further disk to a VM."""
    text = conn.lookupByName(name).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    more = f"<disk type='file'><source file='{path}'/><target dev='vdz'/></disk></devices>"
    conn.defineXML(text.replace("</devices>", more))


@pytest.mark.parametrize("options", [FULL, QUICK])
def test_a_disk_that_a_clone_got_later_stays(conn, base, options):
    base(disk(), disk("raw", "vdb"))
    before = names(conn)
    created_clone = cloudvms.clone(conn, "base", "web1", **options)
    pool = conn.storagePoolLookupByName("default-pool")
    data = pool.storageVolLookupByName("base.raw").path()
    attach(conn, "web1", data)
    conn.lookupByName("base").undefine()

    cloudvms.remove_clone(conn, "web1", created_clone)

    assert names(conn) == before and "web1" not in {
        domain.name() for domain in conn.listAllDomains()
    }


def test_a_vm_that_has_got_the_name_of_a_clone_stays(conn, base):
    base(disk())
    created_clone = cloudvms.clone(conn, "base", "web1", **FULL)
    conn.lookupByName("web1").destroy()
    conn.lookupByName("web1").undefine()
    cloudvms.clone(conn, "base", "web1", **FULL)
    volumes_before = names(conn)

    cloudvms.remove_clone(conn, "web1", created_clone)

    assert names(conn) == volumes_before and lifecycle.is_defined(conn, "web1")


@pytest.mark.parametrize("has_variables", [True, False])
def test_the_variables_of_an_earlier_vm_stay(conn, base, undefined, monkeypatch, has_variables):
    monkeypatch.setattr(domainfiles, "has_variables", lambda *_args: has_variables)
    base(disk())
    created_clone = cloudvms.clone(conn, "base", "web1", **{**QUICK, "validate": False})

    cloudvms.remove_clone(conn, "web1", created_clone)

    assert undefined == [has_variables]
