"""A host's facts for ``virt.doctor``: what it has, and what nothing there uses."""

from dataclasses import dataclass, field

from saltvirt.placement.answers import Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVm:
    """A domain: its UUID, and the files that it uses, as written and resolved."""

    uuid: str
    files: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseFile:
    """
    A file of a VM that nothing on its host uses or has on record.

    kind
        ``disk``, ``seed``, ``nvram``, ``managed-save``, ``console-log`` or ``token``.
    vm, uuid
        The VM that it was made for, by its mark; without a mark by its name, and the UUID is empty.
    quiet_s
        The seconds since the last write to it.
    is_shared
        Whether other hosts may have it, too: by ``virt:shared_paths``, or by its file system.
    """

    kind: str
    path: str
    vm: str
    uuid: str
    quiet_s: Amount
    is_shared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLeft:
    """A record of a move; ``is_live``: a process of the host works on it."""

    name: str
    purpose: str
    phase: str
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFacts:
    """
    A host's answer to ``virt.doctor``.

    code
        A digest of its library.
    copies
        The places where its minion finds a library: more than one is a mix of pip and sync.
    vms
        All domains, also those of VMs that have moved, with only their definition kept.
    made_for
        The VMs that the files of domains may belong to, by their marks and names: a VM may have
        been renamed.
    shared
        Files on shared storage that anything here uses, is based on or has on record.
    files
        Files that nothing here uses.
    busy
        VMs with a record here.
    left
        Leftovers that concern this host alone, by check; see ``hostleftovers.KINDS``.
    unreadable
        Why records cannot be read, and other unknown facts, by their VMs and entries.
    unreadable_trash
        Those of them that are entries of the trash.
    moves
        Moves on record.
    foreign_virt
        Distributions in its minion's Python with another module ``virt``.
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
    unreadable_trash: list[str] = field(default_factory=list)
    foreign_virt: list[str] = field(default_factory=list)
