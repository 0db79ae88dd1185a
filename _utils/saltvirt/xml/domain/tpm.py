"""<tpm>."""

from saltvirt.xml import element, fields

# libvirt's folder for the states of emulated TPMs, by the VMs' UUIDs.
_STATES = "/var/lib/libvirt/swtpm"


@element.declare("backend")
class Backend:
    """The provider of a TPM: the attributes of a <backend>, and those of its <source>."""

    attributes: dict[str, str] = fields.bag()
    source: dict[str, str] | None = fields.bag("source", default=None)


@element.declare("tpm")
class Tpm:
    """The content of a <tpm>."""

    model: str | None = fields.attribute("@model")
    backend: Backend | None = fields.child(default=None)


read = element.reader(Tpm)


def state(tpm: Tpm, uuid: str | None) -> str | None:
    """
    Return the place of an emulated TPM's state on the host, None for another TPM.

    uuid
        The VM's, for libvirt's own name of the folder.
    """
    if tpm.backend is None or tpm.backend.attributes.get("type") != "emulator":
        return None
    return (tpm.backend.source or {}).get("path") or f"{_STATES}/{uuid}"
