"""
Wrap a seed's bytes in a qcow2 image.

The guest writes to the seed, and QEMU takes an internal snapshot of a VM only if all disks that it
writes to are qcow2. Source: QEMU, docs/interop/qcow2.txt.
"""

import struct
from collections.abc import Iterable
from itertools import count

from saltvirt.core.errors import SeedError

_BITS = 12
_CLUSTER = 1 << _BITS
# Entries of 8 bytes in both levels of tables; a block of reference counts has 2 bytes for each.
_TABLE, _COUNTS = _CLUSTER // 8, _CLUSTER // 2
_HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII")
# Only this table refers to the cluster, so QEMU writes in place: wiping a key really removes it.
_COPIED = 1 << 63


def wrap_in_qcow2(data: bytes) -> bytes:
    """Return a fully allocated qcow2 image with these bytes as its disk, in blocks of 512."""
    clusters = -(-len(data) // _CLUSTER)
    tables = -(-clusters // _TABLE)
    # The blocks of reference counts count themselves, too.
    blocks = next(n for n in count(1) if n * _COUNTS >= 3 + n + tables + clusters)
    if tables > _TABLE or blocks > _TABLE:
        raise SeedError(f"the seed is too large: {len(data)} bytes")
    first_table, first_data = 3 + blocks, 3 + blocks + tables
    total = first_data + clusters
    header = _HEADER.pack(
        *(b"QFI\xfb", 3, 0, 0, _BITS, len(data), 0),
        # Tables of disk clusters, then of reference counts; no snapshots.
        *(tables, (2 + blocks) * _CLUSTER, _CLUSTER, 1, 0, 0),
        *(0, 0, 0, 4, _HEADER.size),
    )
    return b"".join(
        (
            _pad_to_cluster(header),
            _pad_to_cluster(_pack_numbers(_CLUSTER * (2 + number) for number in range(blocks))),
            struct.pack(f">{total}H", *[1] * total).ljust(blocks * _CLUSTER, b"\0"),
            _pad_to_cluster(
                _pack_numbers(
                    _COPIED | _CLUSTER * (first_table + number) for number in range(tables)
                )
            ),
            _pad_to_cluster(
                _pack_numbers(
                    _COPIED | _CLUSTER * (first_data + number) for number in range(clusters)
                )
            ),
            _pad_to_cluster(data),
        )
    )


def _pack_numbers(values: Iterable[int]) -> bytes:
    numbers = list(values)
    return struct.pack(f">{len(numbers)}Q", *numbers)


def _pad_to_cluster(data: bytes) -> bytes:
    return data + bytes(-len(data) % _CLUSTER)
