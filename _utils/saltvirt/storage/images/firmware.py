"""Detect from its first sectors whether a disk boots by UEFI alone."""

import struct
import uuid

_SECTOR = 512
# Enough for the MBR and a GPT, which take 34 sectors.
HEAD_BYTES = 64 * 1024
_SIGNATURE, _CODE_BYTES = b"\x55\xaa", 440
_GPT = b"EFI PART"
_ESP = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b").bytes_le
# GRUB's partition for BIOS boot code on a GPT disk.
_BIOS_BOOT = uuid.UUID("21686148-6449-6e6f-744e-656564454649").bytes_le
_MBR_ESP = 0xEF
_MOST_ENTRIES = 128


def needs_uefi(head: bytes) -> bool:
    """
    Return whether a disk boots by UEFI alone: it has an EFI partition, and no BIOS boot code.

    head
        The first bytes of the disk.
    """
    if head[510:512] != _SIGNATURE or any(head[:_CODE_BYTES]):
        return False
    if head[_SECTOR : _SECTOR + len(_GPT)] == _GPT:
        types = _types(head)
        return _ESP in types and _BIOS_BOOT not in types
    return any(head[446 + 16 * number + 4] == _MBR_ESP for number in range(4))


def _types(head: bytes) -> list[bytes]:
    """Return the partition types of a GPT."""
    first_lba, count, size = struct.unpack_from("<QII", head, _SECTOR + 72)
    begin = first_lba * _SECTOR
    if not 128 <= size <= 4096 or begin >= len(head):
        return []
    entries = range(begin, begin + size * min(count, _MOST_ENTRIES), size)
    return [head[entry : entry + 16] for entry in entries]
