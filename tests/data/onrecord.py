"""What records say, whole, out of as much as a test cares for."""

from saltvirt.core import wire
from saltvirt.core.journal.movefacts import ArrivalFacts, DepartureFacts
from saltvirt.core.journal.recordfacts import (
    BuildFacts,
    DiskMoveFacts,
    MoveOrderFacts,
    OrderFacts,
    PurgeFacts,
)

UUID = "4dea22b3-1d52-d8f3-2516-782e98ab3fa9"
ROOM = {"vcpus": 1, "memory_mib": 1, "disk_mib": 0, "affinity": [], "anti_affinity": []}


def departure(**said):
    """Return the facts of a departure, as they are written."""
    usual = {"uuid": UUID, "target": "hyper2", "was_running": False, "autostart": False}
    return wire.plain(DepartureFacts(**{**usual, "leaves": True, "paths": [], **said}))


def arrival(**said):
    """Return the facts of an arrival, as they are written."""
    usual = {"uuid": UUID, "source": "hyper1", "was_running": False, "sizes": {}, "paths": []}
    return wire.plain(ArrivalFacts(**{**usual, "images": {}, "folders": [], **ROOM, **said}))


def build(**said):
    """Return the facts of a build, as they are written."""
    return wire.plain(BuildFacts(**{"uuid": UUID, "paths": [], **ROOM, **said}))


def purge(**said):
    """Return the facts of a purge, as they are written."""
    return wire.plain(PurgeFacts(**{"uuid": UUID, "paths": [], **said}))


def diskmove(**said):
    """Return the facts of a disk's move, as they are written."""
    usual = {"uuid": UUID, "paths": ["/srv/new"], "old": "/srv/old", "old_inode": 1}
    usual |= {"target": "vda", "format": "raw", "size_bytes": 1, "pool": "fast"}
    return wire.plain(DiskMoveFacts(**{**usual, **said}))


def order(**said):
    """Return the facts of the order of a deployment or a purge, as they are written."""
    return wire.plain(OrderFacts(**said))


def move_order(**said):
    """Return the facts of the order of a move, as they are written."""
    return wire.plain(MoveOrderFacts(**{"source": "hyper1", "target": "hyper2", **said}))


def noted(**said):
    """Return what a source with such a departure tells its target."""
    return wire.plain(DepartureFacts(**departure(**said)).noted)
