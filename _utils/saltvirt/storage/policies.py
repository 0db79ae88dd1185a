"""
Which references keep a file from which use: one table, read by the index of a host's files.

A row is a source of references, a column a use that can spoil a file. An ``x`` means that a
reference of that source keeps the file as it is.

===========  ==================================================================================
delete       remove a disk of a VM that is purged
undo         remove a file that the record of a build or an arrival names as made and given up
volume       delete a volume of a pool
fill         shrink or write over a volume of a pool
group        delete a pool together with all its volumes
wipe         wipe a volume
take         give a disk that exists already to a new VM
base         let a VM write to a file that its definition names as ``source_file``
write        write to a disk that no running VM has: ``seed.apply``, ``guestfs``, ``qemu_nbd``
merge        write an external snapshot's overlay into the file below it
drop         remove the overlay of an external snapshot, once it is merged
revert       go back to an internal snapshot, in the file that it is in
replace      put a new golden image in the place of an old one
prune        remove a cached image
cloud        remove a disk of a VM that ``salt-cloud -d`` destroys
loose        name a file as left over (``virt.doctor``)
asked        tell the master whether this host needs a file that another host is to remove
===========  ==================================================================================
"""

from dataclasses import dataclass

# Sources of references: what may use a file.
DISK = "disk"
BACKING = "backing"
POOL_DISK = "pool-disk"
POOL_BACKING = "pool-backing"
SNAPSHOT = "snapshot"
INTERNAL = "internal-snapshot"
OWN_SNAPSHOT = "own-snapshot"
OWN_INTERNAL = "own-internal-snapshot"
SAVED = "saved-state"
KEPT = "kept-definition"
BOOT = "boot-file"
COMING = "coming"
GOING = "going"
RECORD = "record-backing"
TRASH = "trash"
OTHER_TRASH = "trash-of-others"
FILE = "file-without-vm"
CACHED = "cached-image"
GOLDEN = "golden-image"
LINK = "hard-link"
OPEN = "open"
OPEN_SHARED = "open-elsewhere"
# Sources of doubt: unreadable data that may refer to a file.
NO_CHAIN = "unreadable-chain"
NO_TRASH = "unreadable-trash"
NO_RECORD = "unreadable-record"
ELSEWHERE = "other-hosts"
# What the master passes on from other hosts: they are unsure, or use the file.
UNSURE = "other-hosts-unsure"
USED_ELSEWHERE = "used-elsewhere"

DOUBTS = (NO_CHAIN, NO_TRASH, NO_RECORD, ELSEWHERE)

TABLE = """
                      delete undo volume fill group wipe take base write merge drop revert replace prune cloud loose asked
disk                  x      x    .      .    .     x    x    .    .     x     x    x      x       x     x     x     x
backing               x      x    x      x    x     x    x    x    x     x     x    x      x       x     x     x     x
pool-disk             x      x    .      .    .     x    x    .    .     .     .    .      .       .     .     .     x
pool-backing          x      x    x      x    x     x    x    .    .     .     .    .      .       .     .     .     x
snapshot              x      x    x      x    x     x    x    x    x     x     x    x      x       x     x     x     x
internal-snapshot     x      x    x      x    x     x    x    .    .     .     x    .      x       x     x     x     x
own-snapshot          .      .    .      .    .     .    .    .    .     x     .    x      .       .     .     .     .
own-internal-snapshot .      .    .      .    .     .    .    .    .     .     x    .      .       .     .     .     .
saved-state           .      .    .      .    .     x    .    .    x     .     .    .      .       .     .     x     x
kept-definition       x      .    .      .    .     .    .    .    .     .     .    .      .       .     x     x     x
boot-file             x      x    x      x    x     x    .    .    x     .     x    .      x       x     x     x     x
coming                x      x    .      .    x     x    x    .    x     .     .    .      x       .     .     x     x
going                 .      .    .      .    .     x    x    .    x     .     .    .      x       .     .     x     .
record-backing        x      .    x      x    x     x    .    .    x     x     x    .      x       .     x     x     x
trash                 x      x    x      x    x     x    x    x    x     x     x    x      x       x     x     x     x
trash-of-others       x      x    x      x    .     x    x    x    x     x     x    x      x       x     x     x     .
file-without-vm       x      .    x      x    .     x    x    .    x     x     x    x      x       x     x     x     x
cached-image          x      .    .      x    .     x    x    x    x     .     .    .      .       .     x     .     .
golden-image          .      .    .      x    .     x    .    x    x     .     .    .      .       .     .     .     .
hard-link             .      .    .      x    .     x    x    x    x     .     .    .      .       .     .     .     .
open                  .      .    .      .    .     .    .    .    .     .     .    .      .       .     .     x     .
open-elsewhere        x      x    .      .    .     .    .    .    .     .     .    .      .       .     .     .     .
unreadable-chain      x      .    x      x    x     x    x    .    x     x     x    .      x       x     x     x     x
unreadable-trash      x      .    x      x    x     x    x    x    x     x     x    x      x       x     x     x     x
unreadable-record     x      .    .      .    .     .    .    .    .     .     .    .      .       .     .     x     x
other-hosts           x      .    x      x    .     x    .    .    .     x     x    .      .       .     x     .     .
"""  # noqa: E501


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """
    A use that can spoil a file.

    counts
        The sources of references that forbid the use.
    doubts
        The sources of doubt that forbid the use.
    """

    name: str
    counts: frozenset[str]
    doubts: frozenset[str]


def _parse_table() -> dict[str, Policy]:
    header, *rows = (line.split() for line in TABLE.strip().splitlines())
    sources_by_use: dict[str, set[str]] = {name: set() for name in header}
    for source, *marks in rows:
        for name, mark in zip(header, marks, strict=True):
            if mark == "x":
                sources_by_use[name].add(source)
    return {
        name: Policy(
            name=name,
            counts=frozenset(sources.difference(DOUBTS)),
            doubts=frozenset(sources.intersection(DOUBTS)),
        )
        for name, sources in sources_by_use.items()
    }


POLICIES = _parse_table()
DELETE, UNDO, VOLUME, FILL, GROUP, WIPE = (
    POLICIES[name] for name in ("delete", "undo", "volume", "fill", "group", "wipe")
)
TAKE, BASE, WRITE, MERGE, DROP = (
    POLICIES[name] for name in ("take", "base", "write", "merge", "drop")
)
REVERT, REPLACE, PRUNE, CLOUD, LOOSE, ASKED = (
    POLICIES[name] for name in ("revert", "replace", "prune", "cloud", "loose", "asked")
)
