"""Tell libvirt's errors apart by their codes: an object that is gone, a call without support."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from saltvirt.libvirt.connect import libvirt

_Value = TypeVar("_Value")
# The codes of a domain that vanished, or stopped, while it was being read.
DOMAIN_GONE = ("NO_DOMAIN", "OPERATION_INVALID")


def has_code(error: Any, *codes: str) -> bool:
    """Return whether an error of libvirt has one of these codes, such as ``NO_DOMAIN``."""
    return error.get_error_code() in [getattr(libvirt, f"VIR_ERR_{code}") for code in codes]


def value_or(default: Any, read: Callable[[], Any], *codes: str) -> Any:
    """
    Return what ``read`` returns, and ``default`` if it fails with one of some codes.

    codes
        As in :func:`has_code`; other errors are raised.
    """
    try:
        return read()
    except libvirt.libvirtError as exc:
        if has_code(exc, *codes):
            return default
        raise


def read_existing(
    objects: Iterable[Any], read: Callable[[Any], _Value], *codes: str
) -> Iterator[tuple[str, _Value]]:
    """
    Yield ``(name, value)`` of libvirt's objects, without those that vanish while they are read.

    read
        Called with each object, returns its value.
    codes
        The codes of an object that is gone. Default to those of a domain.
    """
    for listed_object in objects:
        try:
            row = listed_object.name(), read(listed_object)
        except libvirt.libvirtError as exc:
            if not has_code(exc, *(codes or DOMAIN_GONE)):
                raise
            continue
        yield row
