"""Have an image on this host: fetched with progress, and checked against what the user said."""

from salt.exceptions import SaltException

from saltvirt.errors import BadArgument
from saltvirt.image import cache, gate
from saltvirt.units import MIB


def obtain(context, image, saltenv, judge=gate.judge, image_hash=None):
    """
    Return the cached, judged copy of an image.

    image_hash
        As ``source_hash`` of Salt's file states: ``sha256=HEX``, HEX alone, or where a file with
        checksums lies (``salt://.../SHA256SUMS``, ``https://.../image.qcow2.sha512``).
    """
    return cache.obtain(
        image, saltenv=saltenv, settings=context.settings, opts=context.opts,
        say=_Steps(context, image), judge=judge,
        expected=_expected(context, image, saltenv, image_hash),
    )  # fmt: skip


def _expected(context, image, saltenv, image_hash):
    if image_hash is None:
        return None
    try:
        # The same function that stands behind file.managed's source_hash.
        return context.functions["file.get_source_sum"](
            source=image, source_hash=str(image_hash), saltenv=saltenv
        )
    except SaltException as exc:
        why = " ".join(str(exc).split())
        raise BadArgument("image_hash", f"no checksum of {image} in {image_hash!r}: {why}") from exc


class _Steps:
    """Report a fetch at every tenth of it, or every 64 MiB if its size is not known."""

    def __init__(self, context, image):
        self._context, self._image, self._last = context, image, 0

    def __call__(self, done_bytes, total_bytes):
        step = 10 * done_bytes // total_bytes if total_bytes else done_bytes // (64 * MIB)
        if step > self._last:
            self._last = step
            self._context.say(
                "Fetching", done_bytes=done_bytes, total_bytes=total_bytes, image=self._image
            )
