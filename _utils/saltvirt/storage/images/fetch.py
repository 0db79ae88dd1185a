"""Fetch an image with progress reports, and check it against the user's checksum."""

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from salt.exceptions import SaltException

from saltvirt.core import writelimit
from saltvirt.core.arguments import hide_credentials
from saltvirt.core.errors import BadArgument, ImageError
from saltvirt.core.http import web
from saltvirt.core.salt.context import Context
from saltvirt.core.units import MIB
from saltvirt.storage.images import cache, validation

# Checksums of a distribution's images are some KiB.
_SUMS_BYTES = MIB
_Validate = Callable[[Path], validation.ValidatedImage]


def obtain(
    context: Context,
    image: str,
    saltenv: str,
    validate: _Validate = validation.validate,
    image_hash: object = None,
    digest: str | None = None,
) -> validation.ValidatedImage:
    """
    Return the cached, validated copy of an image.

    image_hash
        As ``source_hash`` of Salt's file states: ``sha256=HEX``, HEX alone, or the URL of a file
        with checksums (``salt://.../SHA256SUMS``, ``https://.../image.qcow2.sha512``).
    digest
        The content's SHA-256, if known: with that content in the cache, the source is not asked.
    """
    return cache.obtain(
        image,
        saltenv=saltenv,
        settings=context.settings,
        opts=context.opts,
        progress=_FetchProgress(context, hide_credentials(image)),
        validate=validate,
        expected=_find_checksum(context, image, saltenv, image_hash),
        digest=digest,
    )


def _find_checksum(context: Context, image: str, saltenv: str, image_hash: object) -> Any:
    if image_hash is None:
        return None
    hash_text = str(image_hash)
    try:
        with _local_checksum(context, hash_text) as hash_source:
            # file.managed parses its source_hash by the same function.
            return context.functions["file.get_source_sum"](
                source=image, source_hash=hash_source, saltenv=saltenv
            )
    except (SaltException, ImageError, OSError) as exc:
        reason = " ".join(str(exc).split())
        for location in (image, hash_text):
            reason = reason.replace(location, hide_credentials(location))
        raise BadArgument(
            "image_hash",
            f"no checksum of {hide_credentials(image)} in {hide_credentials(image_hash)!r}: "
            f"{reason}",
        ) from exc


@contextmanager
def _local_checksum(context: Context, image_hash: str) -> Iterator[str]:
    """
    Yield the source that Salt reads a checksum from; for a web URL, a temporary copy.

    Salt itself would download without a limit of size or time, and keep the file.
    """
    if re.match(r"(ftp|s3|swift)://", image_hash, re.IGNORECASE):
        raise ImageError("write a checksum, or where checksums lie: salt://... or https://...")
    if not re.match("https?://", image_hash, re.IGNORECASE):
        yield image_hash
        return
    meter = writelimit.from_settings(context.settings).meter(
        hide_credentials(image_hash), tempfile.gettempdir()
    )
    data = web.fetch_small(image_hash, _SUMS_BYTES, meter)
    with tempfile.NamedTemporaryFile(prefix="salt-virt-") as copy:
        # Salt reads the file as text.
        copy.write(data.decode(errors="replace").encode())
        copy.flush()
        try:
            yield copy.name
        except SaltException as exc:
            raise ImageError(str(exc).replace(copy.name, hide_credentials(image_hash))) from exc


class _FetchProgress:
    """Report a fetch after each tenth, or each 64 MiB if the size is unknown."""

    def __init__(self, context: Context, image: str) -> None:
        self._context, self._image, self._last = context, image, 0

    def __call__(self, done_bytes: int, total_bytes: int | None) -> None:
        step = 10 * done_bytes // total_bytes if total_bytes else done_bytes // (64 * MIB)
        if step > self._last:
            self._last = step
            self._context.progress(
                "Fetching", done_bytes=done_bytes, total_bytes=total_bytes, image=self._image
            )
