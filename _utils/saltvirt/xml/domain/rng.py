"""<rng>."""

from saltvirt.xml import element
from saltvirt.xml.fields import attribute, bag, text


@element.declare("rng")
class Rng:
    """The content of a <rng>: the attributes of its <backend>, and the file that it reads."""

    model: str | None = attribute("@model", default="virtio")
    backend: dict[str, str] = bag("backend", default_factory=dict)
    path: str | None = text("backend", default=None)


def for_vm() -> Rng:
    """Return the device that every VM gets: its random numbers are the host's."""
    return Rng(backend={"model": "random"}, path="/dev/urandom")
