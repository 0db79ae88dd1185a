"""<video>."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

from saltvirt.xml import attributes_of, bag, tag
from saltvirt.xml.domain.graphics import Graphics


@dataclass(frozen=True, slots=True, kw_only=True)
class Video:
    """The content of a <video>, as the attributes of its <model>."""

    model: dict[str, str] | None


def for_display(graphics: Graphics | None) -> Video | None:
    """Return the video card that a display needs, None without a display."""
    if graphics is None:
        return None
    return Video(model={"type": "virtio" if graphics.type == "egl-headless" else "vga"})


def build(video: Video) -> ET.Element:
    """Return the <video>."""
    return tag("video", None, bag("model", video.model))


def read(element: ET.Element) -> Video:
    """Return the content of a <video>."""
    return Video(model=attributes_of(element.find("model")))
