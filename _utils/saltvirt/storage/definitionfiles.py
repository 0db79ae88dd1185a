"""The files of definitions that libvirt keeps: sync them, and tell which it has not loaded."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from saltvirt.core import files
from saltvirt.core.errors import StorageError, VirtError
from saltvirt.libvirt.domains import lifecycle, query
from saltvirt.xml.edit import readdomain

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


def is_leftover(conn: Any, name: str, uuid: str) -> bool:
    """
    Return whether a VM's definition is on disk here, and libvirt has no VM of that name or UUID.

    libvirt 9 writes the definition of a VM again that was undefined while it runs, when one of its
    block jobs ends; it does not know of that file, until it reads it at its next start.
    """
    is_known = name in query.names(conn) or lifecycle.name_of(conn, uuid) is not None
    return not is_known and _is_of(_path(name), name, uuid)


def drop_leftover(conn: Any, name: str, uuid: str) -> None:
    """Remove the file of a VM's definition, if it still is one as :func:`is_leftover` describes."""
    path = _path(name)
    # libvirt loads no files with another ending.
    aside = path.with_name(f".{name}.salt-virt-leftover")
    if not is_leftover(conn, name, uuid):
        return
    with suppress(FileNotFoundError):
        path.rename(aside)
        # libvirt may have written the definition of a new VM of that name in between.
        if name in query.names(conn) or not _is_of(aside, name, uuid):
            with suppress(FileExistsError):
                path.hardlink_to(aside)
        aside.unlink()


def _path(name: str) -> Path:
    return _DEFINITIONS / f"{name}.xml"


def _is_of(path: Path, name: str, uuid: str) -> bool:
    """Return whether a file is the definition of the VM with this name and UUID."""
    try:
        root = readdomain.domain(path.read_text())
    except (OSError, ValueError, VirtError):
        return False
    return (readdomain.name(root), readdomain.uuid(root)) == (name, uuid)


def settle_definitions() -> None:
    """Sync libvirt's folders of definitions, so that definitions and removals survive a crash."""
    for folder in (_DEFINITIONS, _DEFINITIONS / "autostart"):
        if folder.is_dir():
            files.sync_folder(folder)
