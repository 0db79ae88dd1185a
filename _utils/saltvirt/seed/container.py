"""
A seed's file: a qcow2 image around the seed's bytes.

Its guest writes to the seed, and QEMU takes an internal snapshot of a VM only if every disk that is
written to is qcow2. Source: QEMU, docs/interop/qcow2.txt.
"""

import struct
from collections.abc import Iterable
from itertools import count

from saltvirt.errors import SeedError

_BITS = 12
_CLUSTER = 1 << _BITS
# Entries of 8 bytes in the two levels of tables, reference counts of 2 bytes in a block of them.
_TABLE, _COUNTS = _CLUSTER // 8, _CLUSTER // 2
_HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII")
# Nothing else refers to the cluster, so that QEMU writes in its place: a key that is wiped is gone.
_COPIED = 1 << 63


def qcow2(data: bytes) -> bytes:
    """Return a qcow2 image whose disk has these bytes, whole blocks of 512; all are allocated."""
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
        # Where its tables are: of disk clusters, then of reference counts; no snapshots.
        *(tables, (2 + blocks) * _CLUSTER, _CLUSTER, 1, 0, 0),
        *(0, 0, 0, 4, _HEADER.size),
    )
    return b"".join(
        (
            _whole(header),
            _whole(_numbers(_CLUSTER * (2 + at) for at in range(blocks))),
            struct.pack(f">{total}H", *[1] * total).ljust(blocks * _CLUSTER, b"\0"),
            _whole(_numbers(_COPIED | _CLUSTER * (first_table + at) for at in range(tables))),
            _whole(_numbers(_COPIED | _CLUSTER * (first_data + at) for at in range(clusters))),
            _whole(data),
        )
    )


def _numbers(values: Iterable[int]) -> bytes:
    found = list(values)
    return struct.pack(f">{len(found)}Q", *found)


def _whole(data: bytes) -> bytes:
    return data + bytes(-len(data) % _CLUSTER)
