"""libvirt's side of a migration with several connections."""

from typing import Any

from saltvirt.libvirt.connect import domain, libvirt
from saltvirt.libvirt.errorcodes import has_code


def is_refused(error: Any) -> bool:
    """Return whether a migration failed because one side's QEMU lacks several connections."""
    return error is not None and has_code(error, "ARGUMENT_UNSUPPORTED") and "multifd" in str(error)


def running_xml(conn: Any, name: str) -> str:
    """Return a running domain's XML as libvirt sends it to another host, with its secrets."""
    flags = libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_MIGRATABLE
    xml: str = domain(conn, name).XMLDesc(flags)
    return xml
