"""What a host has besides CPUs, memory and its image folder."""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What a host has of something else, in MiB: huge pages, a NUMA node, a storage pool."""

    limit_mib: Annotated[int, "not negative"]
    committed_mib: Annotated[int, "not negative"]
