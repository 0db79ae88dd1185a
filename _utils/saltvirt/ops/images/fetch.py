"""Have an image on this host: fetched with progress, and checked against what the user said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from salt.exceptions import SaltException

from saltvirt.arguments import shown
from saltvirt.errors import BadArgument
from saltvirt.image import cache, validation
from saltvirt.ops.context import Context
from saltvirt.units import MIB

_Validate = Callable[[Path], validation.ValidatedImage]


def obtain(
    context: Context,
    image: str,
    saltenv: str,
    validate: _Validate = validation.validate,
    image_hash: object = None,
) -> validation.ValidatedImage:
    """
    Return the cached, validated copy of an image.

    image_hash
        As ``source_hash`` of Salt's file states: ``sha256=HEX``, HEX alone, or where a file with
        checksums lies (``salt://.../SHA256SUMS``, ``https://.../image.qcow2.sha512``).
    """
    return cache.obtain(
        image,
        saltenv=saltenv,
        settings=context.settings,
        opts=context.opts,
        progress=_Steps(context, shown(image)),
        validate=validate,
        expected=_expected(context, image, saltenv, image_hash),
    )


def _expected(context: Context, image: str, saltenv: str, image_hash: object) -> Any:
    if image_hash is None:
        return None
    try:
        # The same function that stands behind file.managed's source_hash.
        return context.functions["file.get_source_sum"](
            source=image, source_hash=str(image_hash), saltenv=saltenv
        )
    except SaltException as exc:
        why = " ".join(str(exc).split())
        for said in (image, str(image_hash)):
            why = why.replace(said, shown(said))
        raise BadArgument(
            "image_hash", f"no checksum of {shown(image)} in {shown(image_hash)!r}: {why}"
        ) from exc


class _Steps:
    """Report a fetch at every tenth of it, or every 64 MiB if its size is not known."""

    def __init__(self, context: Context, image: str) -> None:
        self._context, self._image, self._last = context, image, 0

    def __call__(self, done_bytes: int, total_bytes: int | None) -> None:
        step = 10 * done_bytes // total_bytes if total_bytes else done_bytes // (64 * MIB)
        if step > self._last:
            self._last = step
            self._context.progress(
                "Fetching", done_bytes=done_bytes, total_bytes=total_bytes, image=self._image
            )
