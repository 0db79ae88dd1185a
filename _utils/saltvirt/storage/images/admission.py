"""Images on their way into the cache: partial files, and the checks that an image must pass."""

import errno
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt.core import files, writelimit
from saltvirt.core.arguments import hide_credentials
from saltvirt.core.errors import ImageError, StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.units import human
from saltvirt.core.writelimit import Meter, Room
from saltvirt.storage.images import source, validation

Validate = Callable[[Path], validation.ValidatedImage]


@dataclass(frozen=True, slots=True)
class Admission:
    """
    An image with all checks that may refuse it.

    image
        Its name in messages, without the secrets of its URL.
    """

    image: str
    validate: Validate
    expected: Mapping[str, Any] | None
    room: Room

    def meter(self, folder: str | Path) -> Meter:
        """Begin to meter a step that writes content of the image into a folder."""
        return self.room.meter(self.image, folder)

    def refuse_digest(self, digest: str) -> None:
        """Refuse a SHA-256 other than the expected one, before the fetch."""
        if self.expected and self.expected["hash_type"] == "sha256":
            self._refuse(digest, self.expected)

    def needs_content(self) -> bool:
        """Return whether checking needs the content, because the checksum is not a SHA-256."""
        return bool(self.expected and self.expected["hash_type"] != "sha256")

    def refuse_content(self, path: str | Path) -> None:
        """Refuse a file by its expected checksum, if that is of another kind than SHA-256."""
        if self.expected and self.needs_content():
            self._refuse(source.file_digest(path, self.expected["hash_type"]), self.expected)

    def _refuse(self, digest: str, expected: Mapping[str, Any]) -> None:
        expected_digest = expected["hsum"].lower()
        if digest != expected_digest:
            raise ImageError(
                f"image {self.image} does not match image_hash: its {expected['hash_type']} "
                f"is {digest[:16]}..., not {expected_digest[:16]}...; it is not used"
            )

    def validated(self, path: Path) -> validation.ValidatedImage:
        """Return the image as validated; raise ImageError if it is refused or too large."""
        try:
            validated_image = self.validate(path)
        except ImageError as exc:
            raise ImageError(str(exc).replace(str(path), self.image)) from exc
        if validated_image.size_bytes > self.room.max_bytes:
            raise ImageError(
                f"image {self.image} has a size of {human(validated_image.size_bytes)}; "
                f"the most is {human(self.room.max_bytes)} (virt:image_max_gib)"
            )
        return validated_image


def from_settings(
    settings: HostSettings,
    image: str,
    validate: Validate,
    expected: Mapping[str, Any] | None = None,
) -> Admission:
    """Return the checks for an image."""
    return Admission(
        hide_credentials(image), validate, expected, writelimit.from_settings(settings)
    )


def refuse_other_digest(part: Path, image: object, digest: str) -> None:
    """Raise ImageError if a file does not have the expected digest."""
    actual_digest = source.file_digest(part)
    if actual_digest != digest:
        raise ImageError(
            f"image {image} changed while it was fetched, or arrived damaged "
            f"(SHA-256 {actual_digest[:16]}..., expected {digest[:16]}...); try again"
        )


@contextmanager
def translate_errors(base: Path, image: str) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the image."""
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"no space left in {base} for image {image}") from exc
        raise StorageError(f"image {image} cannot be stored in {base}: {exc}") from exc


@contextmanager
def new_part(base: Path, image: str) -> Iterator[Path]:
    """Yield the path of a new file; remove it afterwards unless it was renamed."""
    part = files.part_path(base, str(time.monotonic_ns()))
    try:
        with translate_errors(base, image):
            yield part
    finally:
        part.unlink(missing_ok=True)
