"""
The facts in records of builds, purges and trash on a host, and of orders on the master.

As in :mod:`saltvirt.core.journal.movefacts`, a default stands for a value that a record does not
have (yet).
"""

from dataclasses import dataclass, field

from saltvirt.core.journal.movefacts import ArrivalFacts, DepartureFacts
from saltvirt.core.wire import default_with

# The phase of an order for a move; its facts are of another type.
MOVING = "moving"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFacts:
    """
    The record of a VM that a host builds.

    paths
        The files to make.
    secrets
        Those of them with credentials, which have no use once QEMU has read them.
    begun
        Those of them that this build has made, and has not given up.
    taken
        Volumes and existing disks that no other VM may take. Existing ones are the VM's then, and
        stay in any case.
    volumes
        ``[pool, volume]`` of what libvirt alone can make and remove; once it is made, with its key,
        empty if it has none.
    source
        The VM that is cloned.
    """

    uuid: str
    paths: list[str]
    secrets: list[str] | None = default_with("secrets")
    begun: list[str] | None = default_with("begun")
    taken: list[str] | None = default_with("taken")
    volumes: list[list[str]] | None = default_with("volumes")
    source: str | None = default_with("source")
    vcpus: int
    memory_mib: int
    disk_mib: int
    affinity: list[str]
    anti_affinity: list[str]
    stocks: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeFacts:
    """
    The record of a VM that a host purges.

    paths
        The files to remove.
    untouched
        Their signatures, by their paths, when the VM was stopped.
    volumes
        ``[pool, volume]`` of what only libvirt can remove; with its key, if it has one, by which it
        is recognized.
    definition
        The domain's XML, without secrets, that goes into the trash with its files.
    """

    uuid: str
    paths: list[str]
    untouched: dict[str, list[int]] | None = default_with("untouched")
    volumes: list[list[str]] | None = default_with("volumes")
    definition: str | None = default_with("definition")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashFacts:
    """
    The record of files that a host keeps in its trash.

    vm
        The VM that they belonged to.
    files
        The former path of each, recorded before the file is moved.
    days
        How long they are kept.
    why
        The operation that put them there.
    definition
        The VM's XML, without secrets, if it was known.
    volumes
        ``POOL/VOLUME`` of the VM's volumes that are not files, and so stayed in their pools.
    due
        When the files were first seen to be due for removal, in seconds since 1970; 0 for never.
    is_over
        Whether the trash has none of the files any more, so that its folders go, too.
    """

    vm: str
    uuid: str | None = default_with("uuid")
    files: list[str]
    days: int
    why: str
    definition: str | None = default_with("definition")
    volumes: list[str] | None = default_with("volumes")
    due: float = 0.0
    is_over: bool | None = default_with("is_over")


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderFacts:
    """
    The record of a VM that a master deploys or removes.

    host
        The host that got the request.
    order_id
        The id of the request on that host.
    public_key
        The key to delete with the VM.
    given_uuid
        The UUID that the host was asked to give the VM; a VM of that name with another UUID is
        another VM. None until a host was asked.
    only_made
        Whether the host was asked to remove only what the VM's build made.
    """

    # None is written, too, to replace a former value.
    host: str | None = None
    order_id: str | None = None
    public_key: str | None = None
    given_uuid: str | None = None
    only_made: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOrderFacts:
    """The record of a VM that a master moves; ``source`` is None if it is unknown."""

    source: str | None
    target: str
    uuid: str | None = default_with("uuid")


_SHAPES = {
    "departure": DepartureFacts,
    "arrival": ArrivalFacts,
    "build": BuildFacts,
    "purge": PurgeFacts,
    "trash": TrashFacts,
    "order": OrderFacts,
}


def shape(purpose: str, phase: str) -> type | None:
    """Return the type of a record's facts, None if its purpose has none."""
    return MoveOrderFacts if (purpose, phase) == ("order", MOVING) else _SHAPES.get(purpose)
