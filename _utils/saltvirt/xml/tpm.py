"""<tpm>."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

from saltvirt.xml import attributes_of, bag, tag

# Where libvirt puts the state of an emulated one, below the VM's UUID.
_STATES = "/var/lib/libvirt/swtpm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What provides a TPM: the attributes of a <backend>, and those of its <source>."""

    attributes: dict[str, str]
    source: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tpm:
    """What a <tpm> says."""

    model: str | None
    backend: Backend | None = None


def build(tpm: Tpm) -> ET.Element:
    """Return the <tpm>."""
    backend = tpm.backend
    return tag(
        "tpm",
        {"model": tpm.model},
        tag("backend", backend.attributes, bag("source", backend.source))
        if backend is not None
        else None,
    )


def read(element: ET.Element) -> Tpm:
    """Return what a <tpm> says."""
    backend = element.find("backend")
    if backend is None:
        return Tpm(model=element.get("model"))
    source = attributes_of(backend.find("source"))
    tpm_backend = Backend(attributes=dict(backend.attrib), source=source)
    return Tpm(model=element.get("model"), backend=tpm_backend)


def state(tpm: Tpm, uuid: str | None) -> str | None:
    """
    Return where an emulated TPM has its state on the host, None for one that is not emulated.

    uuid
        The VM's, by which libvirt names the folder if it is not told.
    """
    if tpm.backend is None or tpm.backend.attributes.get("type") != "emulator":
        return None
    return (tpm.backend.source or {}).get("path") or f"{_STATES}/{uuid}"
