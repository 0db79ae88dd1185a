"""The files of definitions that libvirt keeps: sync them, and tell which it has not loaded."""

from pathlib import Path
from typing import Any

from saltvirt.core import files
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.domains import query

# libvirt never removes the folder itself.
_DEFINITIONS = Path("/etc/libvirt/qemu")


def find_not_loaded(conn: Any) -> dict[str, str]:
    """
    Return ``{VM: remedy}`` of definitions on disk that libvirt has not loaded.

    libvirt skips definitions that it cannot read at its start, for example during an update of
    QEMU, or after a downgrade of libvirt.
    """
    # List files before domains; a definition removed in between is dropped by exists() below.
    definition_paths = sorted(_DEFINITIONS.glob("*.xml"))
    loaded_names = set(query.names(conn)) if definition_paths else set()
    return {
        path.stem: f"libvirt has not loaded {path}, so this host cannot tell which files that VM "
        "uses; its log says why: mend that and restart it, or move the file away if it is not a "
        "VM's"
        for path in definition_paths
        if path.stem not in loaded_names and path.exists()
    }


def refuse_not_loaded(conn: Any, name: str) -> None:
    """Raise StorageError if a VM's definition is on disk here, but libvirt has not loaded it."""
    reason = find_not_loaded(conn).get(name)
    if reason:
        raise StorageError(f"a VM called {name!r} may be on this host already: {reason}")


def settle_definitions() -> None:
    """Sync libvirt's folders of definitions, so that definitions and removals survive a crash."""
    for folder in (_DEFINITIONS, _DEFINITIONS / "autostart"):
        if folder.is_dir():
            files.sync_folder(folder)
