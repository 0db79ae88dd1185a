"""The stocks of a host besides CPUs, memory and its image folder."""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """A stock of a host, in MiB: huge pages, a NUMA node, a storage pool."""

    limit_mib: Annotated[int, "not negative"]
    committed_mib: Annotated[int, "not negative"]
