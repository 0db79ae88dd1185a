"""<rng>."""

from saltvirt.xml import element, fields


@element.declare("rng")
class Rng:
    """The content of a <rng>: the attributes of its <backend>, and the file that it reads."""

    model: str | None = fields.attribute("@model", default="virtio")
    backend: dict[str, str] = fields.bag("backend", default_factory=dict)
    path: str | None = fields.text("backend", default=None)


def for_vm() -> Rng:
    """Return the device that every VM gets: its random numbers are the host's."""
    return Rng(backend={"model": "random"}, path="/dev/urandom")
