"""What can hold a VM's data goes by one door: no other file of the library removes or writes it."""

import ast
from pathlib import Path

import trees

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "_utils" / "saltvirt"
DOOR = LIBRARY / "storage/door.py"
# What removes, renames, links or cuts off a file, as functions of modules and methods of paths.
CALLS = {
    *("unlink", "rename", "link", "truncate", "ftruncate", "hardlink_to", "symlink_to", "rmtree"),
    *("copyfile", "write_bytes"),
}
# What libvirt and qemu-img do for the door alone: ``{module: functions}``.
FOR_THE_DOOR = {
    "volumes": {"delete", "resize", "wipe"},
    "transfer": {"upload"},
    "diskvolumes": {"remove"},
    "snapshots": {"delete", "revert"},
}
# Files whose calls are about other things than VMs' data, with how many calls each has.
EXCEPTIONS = {
    "storage/images/cache.py": (1, "a part that was fetched gets its name"),
    "storage/images/clone.py": (2, "new files, and the half file of a copy that failed"),
    "storage/images/admission.py": (1, "parts that are being fetched, before they have a name"),
    "storage/images/incoming.py": (1, "a part that another host sends"),
    "storage/images/removal.py": (7, "notes of images, and parts of downloads"),
    "libvirt/probe.py": (1, "the boot disk of the probe of KVM"),
    "libvirt/storage/transfer.py": (2, "a new file that libvirt fills"),
    "vm/create/host/apply.py": (1, "credentials that QEMU has read"),
    "certificates/host/enrolment.py": (1, "a note about certificates"),
    "certificates/host/reload.py": (1, "a note about certificates"),
    "checks/doctor/host/localleftovers.py": (
        1,
        "marks of builds, which are second names of a file",
    ),
    "libvirt/maintenance.py": (2, "notes of maintenance"),
    "storage/claims.py": (4, "marks of arrivals and builds, which are second names of a file"),
    "vm/show/host/migrationinfo.py": (1, "marks that show whether two hosts see one file"),
    "migration/host/incomingfiles.py": (1, "a new file for a VM that comes, before it has content"),
    "libvirt/departedvms.py": (2, "definitions that are kept after a move"),
    "storage/definitionfiles.py": (3, "a definition of a VM that has moved, which libvirt left"),
    "core/salt/answering.py": (2, "notes of orders"),
    "storage/exclusivecreate.py": (1, "marks of builds, and the files that a build has just made"),
    "seeding/submission.py": (2, "tokens of authorizations"),
    "libvirt/domains/naming.py": (1, "the name of a domain"),
    "vm/rename/host/secondname.py": (3, "second names of firmware's variables, and console logs"),
    "vm/recovery/host/unfinished.py": (2, "credentials, and console logs"),
}


def _calls(path):
    for node in ast.walk(trees.tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            yield (owner.id if isinstance(owner, ast.Name) else ""), node.func.attr


def _removals(path):
    return [name for _owner, name in _calls(path) if name in CALLS]


_ROOMS = ("certificates", "checks", "libvirt", "migration", "seeding", "storage", "vm")


def _is_data(path):
    """Return whether a file of the library can have to do with disks at all."""
    parts = path.relative_to(LIBRARY).parts
    return parts[0] in _ROOMS and "master" not in parts and "offline" not in parts


def test_nothing_but_the_door_removes_or_renames_what_can_hold_a_vms_data():
    wrong = {}
    for path in filter(_is_data, sorted(LIBRARY.rglob("*.py"))):
        name = str(path.relative_to(LIBRARY))
        found = _removals(path)
        allowed, _reason = EXCEPTIONS.get(name, (0, ""))
        if path != DOOR and len(found) != allowed:
            wrong[name] = found
    assert wrong == {}


def test_libvirts_removals_are_called_by_the_door_alone():
    wrong = {}
    for path in [*LIBRARY.rglob("*.py"), *(ROOT / "_modules").glob("*.py")]:
        calls = [
            f"{owner}.{name}" for owner, name in _calls(path) if name in FOR_THE_DOOR.get(owner, ())
        ]
        if calls and path != DOOR:
            wrong[str(path.relative_to(ROOT))] = calls
    assert wrong == {}
