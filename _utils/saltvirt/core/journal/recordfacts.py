"""
The facts in records of builds, purges, disk moves and trash on a host, and of orders on the master.

As in :mod:`saltvirt.core.journal.movefacts`, a default stands for a value that a record does not
have (yet).
"""

from dataclasses import dataclass, field

from saltvirt.core.journal.movefacts import ArrivalFacts, DepartureFacts
from saltvirt.core.wire import default_with

# The phases of orders with facts of other types: a move, and a rename.
MOVING, RENAMING, RENAMED = "moving", "renaming", "renamed"


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
    autostart
        Whether it started with its host; None for a VM that no virt.undo brings back.
    lost
        What virt.undo cannot bring back, one sentence each.
    tpm_state
        The folder with the state of its TPM, if its files are among the paths.
    """

    uuid: str
    paths: list[str]
    untouched: dict[str, list[int]] | None = default_with("untouched")
    volumes: list[list[str]] | None = default_with("volumes")
    definition: str | None = default_with("definition")
    autostart: bool | None = default_with("autostart")
    lost: list[str] | None = default_with("lost")
    tpm_state: str | None = default_with("tpm_state")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskMoveFacts:
    """
    The record of a disk that a host moves into another file.

    paths
        The new file.
    old, old_inode
        The file that the disk has, or had, and its number in its file system.
    target
        The disk's target in its VM.
    format
        The format of both files.
    backing
        The file that both are based on, if any.
    size_bytes
        The size of the disk as its guest sees it.
    pool
        The pool of the new file, or its folder, as the caller named it.
    stocks
        The room that the new file may take of pools, in MiB by names.
    """

    uuid: str
    paths: list[str]
    old: str
    old_inode: int
    target: str
    format: str
    size_bytes: int
    pool: str
    backing: str | None = default_with("backing")
    stocks: dict[str, int] = field(default_factory=dict)

    @property
    def new(self) -> str:
        """The new file."""
        return self.paths[0]


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
    autostart, lost, tpm_state
        As those of :class:`PurgeFacts`.
    gone
        ``POOL/VOLUME`` of the VM's volumes that are not files, and were removed for good.
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
    autostart: bool | None = default_with("autostart")
    lost: list[str] | None = default_with("lost")
    tpm_state: str | None = default_with("tpm_state")
    gone: list[str] | None = default_with("gone")


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
    undo_uuid
        The UUID of the VM that the host was asked to remove, if virt.undo is to bring it back.
    """

    # None is written, too, to replace a former value.
    host: str | None = None
    order_id: str | None = None
    public_key: str | None = None
    given_uuid: str | None = None
    only_made: bool = False
    undo_uuid: str | None = default_with("undo_uuid")


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoFacts:
    """
    The record of the last VM of a name that this master purged, for virt.undo.

    host
        The host that has it in its trash.
    public_key
        The key of its minion; None if it was not deleted.
    """

    host: str
    uuid: str
    public_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOrderFacts:
    """The record of a VM that a master moves; ``source`` is None if it is unknown."""

    source: str | None
    target: str
    uuid: str | None = default_with("uuid")


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameOrderFacts:
    """
    The record of a VM that a master renames, which is under both names.

    old, new
        The name that the VM had, and the one that it gets.
    seeds
        Whether the guest's minion is renamed, too.
    public_key
        The guest's accepted key, which goes with the name; None if there is none to move.
    order_id
        The id of the request on the host; None until the host was asked.
    """

    old: str
    new: str
    host: str
    uuid: str
    seeds: bool
    public_key: str | None = None
    order_id: str | None = None


_ORDER_SHAPES = {
    MOVING: MoveOrderFacts,
    RENAMING: RenameOrderFacts,
    RENAMED: RenameOrderFacts,
}
_SHAPES = {
    "departure": DepartureFacts,
    "arrival": ArrivalFacts,
    "build": BuildFacts,
    "purge": PurgeFacts,
    "diskmove": DiskMoveFacts,
    "trash": TrashFacts,
    "order": OrderFacts,
    "undo": UndoFacts,
}


def shape(purpose: str, phase: str) -> type | None:
    """Return the type of a record's facts, None if its purpose has none."""
    order_shape = _ORDER_SHAPES.get(phase) if purpose == "order" else None
    return order_shape or _SHAPES.get(purpose)
