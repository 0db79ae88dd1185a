"""<rng>."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

from saltvirt.xml import attributes_of, tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Rng:
    """The content of a <rng>: the attributes of its <backend>, and the file that it reads."""

    model: str | None = "virtio"
    backend: dict[str, str] = field(default_factory=dict)
    path: str | None = None


def for_vm() -> Rng:
    """Return the device that every VM gets: its random numbers are the host's."""
    return Rng(backend={"model": "random"}, path="/dev/urandom")


def build(rng: Rng) -> ET.Element:
    """Return the <rng>."""
    return tag("rng", {"model": rng.model}, tag("backend", rng.backend, text=rng.path))


def read(element: ET.Element) -> Rng:
    """Return the content of a <rng>."""
    backend = element.find("backend")
    # Another backend has elements, with only spaces between them.
    is_file = backend is not None and not len(backend)
    return Rng(
        model=element.get("model"),
        backend=attributes_of(backend) or {},
        path=element.findtext("backend") or None if is_file else None,
    )
