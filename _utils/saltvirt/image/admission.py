"""What an image must pass before it is kept: its size, its checksum, and its validation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt import room
from saltvirt.arguments import hide_credentials
from saltvirt.config import HostSettings
from saltvirt.errors import ImageError
from saltvirt.image import source, validation
from saltvirt.room import Meter, Room
from saltvirt.units import human

Validate = Callable[[Path], validation.ValidatedImage]


@dataclass(frozen=True, slots=True)
class Admission:
    """
    An image and everything that may refuse it.

    image
        What it is called, without what its URL may have of secrets.
    """

    image: str
    validate: Validate
    expected: Mapping[str, Any] | None
    room: Room

    def meter(self, folder: str | Path) -> Meter:
        """Begin a step that writes something of it into a folder."""
        return self.room.meter(self.image, folder)

    def refuse_digest(self, digest: str) -> None:
        """Refuse a SHA-256 that is not the expected one, before anything is fetched."""
        if self.expected and self.expected["hash_type"] == "sha256":
            self._refuse(digest, self.expected)

    def needs_content(self) -> bool:
        """Return whether the image is needed to see its checksum; else its digest will do."""
        return bool(self.expected and self.expected["hash_type"] != "sha256")

    def refuse_content(self, path: str | Path) -> None:
        """Refuse a file without the expected checksum of any other kind."""
        if self.expected and self.needs_content():
            self._refuse(source.file_digest(path, self.expected["hash_type"]), self.expected)

    def _refuse(self, digest: str, expected: Mapping[str, Any]) -> None:
        expected_digest = expected["hsum"].lower()
        if digest != expected_digest:
            raise ImageError(
                f"image {self.image} is not what image_hash says: its {expected['hash_type']} "
                f"is {digest[:16]}..., not {expected_digest[:16]}...; nothing has read it"
            )

    def validated(self, path: Path) -> validation.ValidatedImage:
        """Return what the image is."""
        try:
            validated_image = self.validate(path)
        except ImageError as exc:
            raise ImageError(str(exc).replace(str(path), self.image)) from exc
        if validated_image.size_bytes > self.room.max_bytes:
            raise ImageError(
                f"image {self.image} says that it is {human(validated_image.size_bytes)} large; "
                "the most "
                f"is {human(self.room.max_bytes)} (virt:image_max_gib)"
            )
        return validated_image


def from_settings(
    settings: HostSettings,
    image: str,
    validate: Validate,
    expected: Mapping[str, Any] | None = None,
) -> Admission:
    """Return what an image must pass before it is kept."""
    return Admission(hide_credentials(image), validate, expected, room.from_settings(settings))


def refuse_other_digest(part: Path, image: object, digest: str) -> None:
    """Raise ImageError if a file does not have the digest that it should."""
    actual_digest = source.file_digest(part)
    if actual_digest != digest:
        raise ImageError(
            f"image {image} changed while it was fetched, or arrived damaged "
            f"(SHA-256 {actual_digest[:16]}..., expected {digest[:16]}...); try again"
        )
