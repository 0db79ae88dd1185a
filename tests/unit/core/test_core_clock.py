"""Builds and moves do not depend on the clock, which may change by hours at any time."""

import ast
from pathlib import Path

import saltvirt
import trees

HOME = Path(saltvirt.__file__).parent
# The modules that read it: for times to show (also of a VM's build), ages of parts of downloads
# and of loose files, the validity of a URL or a certificate, the offset between clocks, the time
# since a host's last reply, the days of an entry in the trash, events from before a wait began,
# and old answers for a master above.
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


def test_only_listed_modules_read_the_clock():
    readers = {str(path.relative_to(HOME)) for path in HOME.rglob("*.py") if _reads(path)}

    assert readers == READERS


def test_when_a_record_began_is_only_shown():
    # The state passes it on, and four modules show it. The trash, which takes no part in builds
    # and moves, counts its days by it, and so does virt.undo.
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
