"""<tpm>."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

from saltvirt.xml import attributes_of, bag, tag

# libvirt's folder for the states of emulated TPMs, by the VMs' UUIDs.
_STATES = "/var/lib/libvirt/swtpm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The provider of a TPM: the attributes of a <backend>, and those of its <source>."""

    attributes: dict[str, str]
    source: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tpm:
    """The content of a <tpm>."""

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
    """Return the content of a <tpm>."""
    backend = element.find("backend")
    if backend is None:
        return Tpm(model=element.get("model"))
    source = attributes_of(backend.find("source"))
    tpm_backend = Backend(attributes=dict(backend.attrib), source=source)
    return Tpm(model=element.get("model"), backend=tpm_backend)


def state(tpm: Tpm, uuid: str | None) -> str | None:
    """
    Return the place of an emulated TPM's state on the host, None for another TPM.

    uuid
        The VM's, for libvirt's own name of the folder.
    """
    if tpm.backend is None or tpm.backend.attributes.get("type") != "emulator":
        return None
    return (tpm.backend.source or {}).get("path") or f"{_STATES}/{uuid}"
