"""The <qemu:env> with the file from which GnuTLS reads what a QEMU may use for TLS."""

from saltvirt.xml.edit import readdomain

# The formula writes it, in a folder that AppArmor and SELinux let QEMU read. Without the file
# GnuTLS ignores the variable.
FILE = "/etc/pki/qemu/salt-virt-gnutls.conf"
_VARIABLE = "GNUTLS_SYSTEM_PRIORITY_FILE"
_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
_LINE = f"<commandline xmlns='{_QEMU}'><env name='{_VARIABLE}' value='{FILE}'/></commandline>"
_END = "</domain>"


def add_variable(definition: str) -> str:
    """Return a domain's XML with that variable, unless the domain sets the variable itself."""
    variables = readdomain.domain(definition).iterfind(f"{{{_QEMU}}}commandline/{{{_QEMU}}}env")
    if any(variable.get("name") == _VARIABLE for variable in variables):
        return definition
    # The rest is not rewritten: that would rename the prefixes of other metadata.
    before, end, after = definition.rpartition(_END)
    return f"{before}{_LINE}{end}{after}"
