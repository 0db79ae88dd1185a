"""What libvirt removes with a definition, and a purge with a trash keeps for virt.undo."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saltvirt.core import terminal
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt.domains import domainfiles, lifecycle, snapshots
from saltvirt.storage import sharing
from saltvirt.xml.edit import readdomain


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptState:
    """
    What is kept of a VM beside its disks.

    paths
        The files of its firmware's variables and of its TPM's state.
    has_variables
        Whether the variables are among them.
    tpm_state
        The folder of the TPM's state, if its files are among them.
    autostart
        Whether it starts with its host; None for a VM that no virt.undo brings back.
    lost
        What cannot be kept, one sentence each.
    """

    paths: list[str] = field(default_factory=list)
    has_variables: bool = False
    tpm_state: str | None = None
    autostart: bool | None = None
    lost: list[str] = field(default_factory=list)


def find(conn: Any, settings: HostSettings, name: str, *, keeps_variables: bool) -> KeptState:
    """
    Return what a purge keeps of a VM; nothing without a trash, or if the VM has moved.

    keeps_variables
        Whether the firmware's variables stay in any case.
    """
    if not settings.trash_days or lifecycle.moved_to(conn, name) is not None:
        return KeptState()
    root = readdomain.domain(lifecycle.inactive_xml(conn, name))
    variables = None if keeps_variables else readdomain.firmware_variables(root)
    if variables is not None and not _is_own(conn, settings, name, variables):
        variables = None
    lost = [*_find_lost(conn, name)]
    tpm_state = readdomain.tpm_state(root)
    if tpm_state is not None and not Path(tpm_state).is_dir():
        tpm_state = None
    if tpm_state is not None and (
        not lifecycle.keeps_tpm() or sharing.is_shared(settings, tpm_state)
    ):
        lost.append("the state of its TPM is lost, and with it what opens its disks, maybe")
        tpm_state = None
    return KeptState(
        paths=[*([variables] if variables else []), *_find_files(tpm_state)],
        has_variables=variables is not None,
        tpm_state=tpm_state,
        autostart=name in lifecycle.list_autostarted_domains(conn),
        lost=lost,
    )


def _is_own(conn: Any, settings: HostSettings, name: str, variables: str) -> bool:
    """Return whether variables are a plain file of this host, and of this VM alone."""
    path = Path(variables)
    is_plain = path.is_file() and not path.is_symlink()
    is_other = sharing.is_shared(settings, variables) or domainfiles.has_shared_variables(
        conn, name
    )
    return is_plain and not is_other


def _find_files(folder: str | None) -> list[str]:
    """Return the files below a folder, without the trash's own."""
    paths = sorted(Path(folder).rglob("*")) if folder else []
    return [str(path) for path in paths if path.is_file() and not path.is_symlink()]


def _find_lost(conn: Any, name: str) -> list[str]:
    """Return what libvirt alone keeps of a VM, and removes with its definition."""
    lost = []
    displays = readdomain.displays(readdomain.domain(lifecycle.secure_xml(conn, name)))
    if any(display.password for display in displays):
        lost.append("the password of its display is not kept")
    if name in lifecycle.saved(conn):
        lost.append("its saved state (managed save) is lost: it starts anew")
    if name in lifecycle.list_domains_with_checkpoints(conn):
        lost.append("its checkpoints are lost: the next backup is a full one")
    snapshot_names = snapshots.names(conn, name)
    if snapshot_names:
        lost.append(
            f"libvirt no longer knows its snapshots ({terminal.join_some(snapshot_names)}); those "
            "in its disks stay in them"
        )
    return lost
