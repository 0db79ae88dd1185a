"""Nothing about a build or a move is decided by the clock: it may be moved by hours at any time."""

import ast
from pathlib import Path

import saltvirt
import trees

HOME = Path(saltvirt.__file__).parent
# Who reads it, and what for: to be shown (also when a VM was built), ages of lost parts of
# downloads and of loose files, how long a URL or a certificate is good for, how far clocks are
# apart, since when a host is silent, how many days the trash has kept something, whether an event
# was fired before nobody waited any more, which answers a master above no longer asks for.
READERS = {
    "core/journal/records.py",
    "checks/doctor/host/unusedfiles.py",
    "cluster/undorecords.py",
    "storage/trash.py",
    "storage/images/removal.py",
    "core/files.py",
    "cells/cellside.py",
    "cluster/inventory/inventory.py",
    "cluster/inventory/listing.py",
    "cluster/inventory/vmtable.py",
    "vm/create/host/apply.py",
    "vm/show/host/details.py",
    "cluster/rpc/minions.py",
    "cluster/rpc/waits.py",
    "checks/master/asking.py",
    "checks/setup/host/facts.py",
    "seeding/master/authorization.py",
    "ca/store.py",
}
CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.datetime.now", "datetime.utcnow"}


def _attributes(path, *names):
    """Yield a file's attributes of these names."""
    text = path.read_text()
    for node in trees.nodes(path) if any(name in text for name in names) else ():
        if isinstance(node, ast.Attribute) and node.attr in names:
            yield node


def _reads(path):
    last = {clock.rpartition(".")[2] for clock in CLOCKS}
    return any(ast.unparse(node) in CLOCKS for node in _attributes(path, *last))


def test_only_who_is_listed_reads_the_clock():
    found = {str(path.relative_to(HOME)) for path in HOME.rglob("*.py") if _reads(path)}

    assert found == READERS


def test_when_a_record_began_is_only_shown():
    # The state passes it on, four show it; all others get that text. The trash, which
    # is of nothing that is built or moved, counts its days by it; so does what virt.undo needs.
    readers = {
        str(path.relative_to(HOME))
        for path in HOME.rglob("*.py")
        if any(_attributes(path, "since"))
    }
    shown = {
        "core/journal/records.py",
        "migration/host/movestate.py",
        "migration/master/settle.py",
        "checks/doctor/master/masterchecks.py",
        "checks/status/master/run.py",
    }
    assert readers == {*shown, "cluster/undorecords.py", "storage/trash.py"}
