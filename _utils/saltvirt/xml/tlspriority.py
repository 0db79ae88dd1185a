"""The <qemu:env> that names the file in which GnuTLS reads what a QEMU may use for TLS."""

from saltvirt.xml import read

# The formula lays it down, in a folder that AppArmor and SELinux let QEMU read. Without the file
# GnuTLS does as if it was not told.
FILE = "/etc/pki/qemu/salt-virt-gnutls.conf"
_VARIABLE = "GNUTLS_SYSTEM_PRIORITY_FILE"
_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
_LINE = f"<commandline xmlns='{_QEMU}'><env name='{_VARIABLE}' value='{FILE}'/></commandline>"
_END = "</domain>"


def add_variable(definition: str) -> str:
    """Return a domain's XML with that variable; as it is if the domain sets the variable itself."""
    variables = read.domain(definition).iterfind(f"{{{_QEMU}}}commandline/{{{_QEMU}}}env")
    if any(variable.get("name") == _VARIABLE for variable in variables):
        return definition
    # The rest is not written anew: that would rename the prefixes of what others noted there.
    before, end, after = definition.rpartition(_END)
    return f"{before}{_LINE}{end}{after}"
