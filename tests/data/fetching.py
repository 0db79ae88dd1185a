"""Images, fetched as virt.init does."""

from saltvirt.image import cache


def obtain(host, image, heard=None):
    """Obtain an image as virt.init does."""
    progress = (lambda *figures: heard.append(figures)) if heard is not None else lambda *_: None
    return cache.obtain(str(image), saltenv="base", settings=host, opts={}, progress=progress)
