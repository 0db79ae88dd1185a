"""What a host says of itself to ``virt.doctor``: what is there, and what nothing there uses."""

from dataclasses import dataclass, field

from saltvirt.placement.answers import Amount, Count


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVm:
    """A domain: its UUID, and the files that it uses, as they are written and resolved."""

    uuid: str
    files: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseFile:
    """
    A file of a VM that nothing on its host uses or has on record.

    kind
        ``disk``, ``seed``, ``nvram``, ``managed-save``, ``console-log`` or ``token``.
    vm, uuid
        The VM that it was made for, by its mark; by its name where it has none, and then the UUID
        is empty.
    quiet_s
        How long ago it was last written to, in seconds.
    is_shared
        Whether other hosts may have it too: by ``virt:shared_paths``, or by its file system.
    """

    kind: str
    path: str
    vm: str
    uuid: str
    bytes: Count
    quiet_s: Amount
    is_shared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLeft:
    """A record of a move; ``is_live`` is whether a process of the host is at work on it."""

    name: str
    purpose: str
    phase: str
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFacts:
    """
    What a host answers to ``virt.doctor``.

    code
        A digest of the library that it has.
    copies
        Where its minion finds a library: more than one is a mix of pip and sync.
    vms
        All domains, those that have moved and of which only the definition was kept too.
    made_for
        Whose the files that domains use may be, by their marks and names: a VM may have been
        renamed.
    shared
        Files of storage that hosts share which anything here uses, is based on or has on record.
    files
        What nothing here uses.
    busy
        VMs of which anything is on record here.
    left
        What is this host's affair alone, by check: ``unfinished``, ``lock``, ``download``,
        ``mark``, ``trash``, ``pool``, ``network-file``, ``firewall``.
    unreadable
        Why records cannot be read, and what else is not known, by their VMs and entries.
    unreadable_trash
        Which of those are entries of the trash; a host of an older release does not tell.
    moves
        Moves on record.
    trash_days
        Its ``virt:trash_days``.
    """

    code: str
    copies: list[str]
    vms: dict[str, SeenVm]
    made_for: list[str]
    shared: list[str]
    files: list[LooseFile]
    busy: list[str]
    left: dict[str, list[str]]
    unreadable: dict[str, str]
    moves: list[MoveLeft]
    trash_days: Count
    unreadable_trash: list[str] = field(default_factory=list)
