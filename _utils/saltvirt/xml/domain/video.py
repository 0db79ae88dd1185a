"""<video>."""

from saltvirt.xml import element, fields
from saltvirt.xml.domain.graphics import Graphics


@element.declare("video")
class Video:
    """The content of a <video>, as the attributes of its <model>."""

    model: dict[str, str] | None = fields.bag("model", default=None)


def for_display(graphics: Graphics | None) -> Video | None:
    """Return the video card that a display needs, None without a display."""
    if graphics is None:
        return None
    return Video(model={"type": "virtio" if graphics.type == "egl-headless" else "vga"})
