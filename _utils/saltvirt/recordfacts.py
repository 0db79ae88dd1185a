"""
What is on record of a build, a purge and the trash on a host, and of an order on the master.

As in :mod:`saltvirt.movefacts`, a default stands for what a record does not say (yet).
"""

from dataclasses import dataclass, field

from saltvirt.movefacts import ArrivalFacts, DepartureFacts
from saltvirt.wire import said_with

# The phase of an order that is a move's; what it says is another thing.
MOVING = "moving"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFacts:
    """
    What a host has noted of a VM that it builds.

    paths
        The files that are made.
    secrets
        Those of them that hold credentials, which nobody needs once QEMU has read them.
    begun
        Those of them that this build has made, and has not given up.
    taken
        Disks that were there already, and volumes: nobody else takes them. What was there is the
        VM's then, and stays whatever becomes of it.
    volumes
        ``[pool, volume]`` of what libvirt alone can make and remove; once it is made, with its
        number, empty if it has none.
    source
        The VM that it is a clone of.
    """

    uuid: str
    paths: list[str]
    secrets: list[str] | None = said_with("secrets")
    begun: list[str] | None = said_with("begun")
    taken: list[str] | None = said_with("taken")
    volumes: list[list[str]] | None = said_with("volumes")
    source: str | None = said_with("source")
    vcpus: int
    memory_mib: int
    disk_mib: int
    affinity: list[str]
    anti_affinity: list[str]
    stocks: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeFacts:
    """
    What a host has noted of a VM that it purges.

    paths
        The files that are removed.
    untouched
        Their signatures, by their paths, when the VM was stopped; of older releases those alone
        that all hosts share.
    volumes
        ``[pool, volume]`` of what only libvirt can remove; with its number, if it has one, by which
        it is known again.
    definition
        The domain's XML, without secrets, that goes into the trash with its files.
    """

    uuid: str
    paths: list[str]
    untouched: dict[str, list[int]] | None = said_with("untouched")
    volumes: list[list[str]] | None = said_with("volumes")
    definition: str | None = said_with("definition")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashFacts:
    """
    What a host has noted of files that it keeps in its trash.

    vm
        The VM that they were of.
    files
        Where each was; it is noted before it is moved.
    days
        How long they are kept.
    why
        What has put them there.
    definition
        The VM's XML, without secrets, if it was known.
    volumes
        ``POOL/VOLUME`` of the VM that are not files, and so stayed where they are.
    due
        When it was first seen to have been kept for its days, in seconds since 1970; 0 if it never
        was.
    is_over
        Whether nothing of it is in the trash any more, so that its folders go, too.
    """

    vm: str
    uuid: str | None = said_with("uuid")
    files: list[str]
    days: int
    why: str
    definition: str | None = said_with("definition")
    volumes: list[str] | None = said_with("volumes")
    due: float = 0.0
    is_over: bool | None = said_with("is_over")


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderFacts:
    """
    What a master has noted of a VM that it deploys or removes.

    host
        The host that was asked.
    order_id
        What the host was asked is known there by this.
    public_key
        The key that goes if the VM does.
    given_uuid
        That which the host was asked to give the VM, and had said before that it would; another of
        its name is another VM. None if it had not: it may be upgraded since.
    only_made
        Whether the host was asked to remove only what the VM's build made.
    """

    # None is written too, in place of what was there.
    host: str | None = None
    order_id: str | None = None
    public_key: str | None = None
    given_uuid: str | None = None
    only_made: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOrderFacts:
    """What a master has noted of a VM that it moves; ``source`` is None if nobody knows it."""

    source: str | None
    target: str
    uuid: str | None = said_with("uuid")


_SHAPES = {
    "departure": DepartureFacts,
    "arrival": ArrivalFacts,
    "build": BuildFacts,
    "purge": PurgeFacts,
    "trash": TrashFacts,
    "order": OrderFacts,
}


def shape(purpose: str, phase: str) -> type | None:
    """Return the type of what a record says, None if its purpose has none."""
    return MoveOrderFacts if (purpose, phase) == ("order", MOVING) else _SHAPES.get(purpose)
