"""Maintenance of this host: the flag that keeps new VMs away, and the notes on evacuated VMs."""

import json
from pathlib import Path
from typing import Any

from saltvirt.core import arguments, files, locks, wire
from saltvirt.core.errors import StorageError
from saltvirt.core.journal.movefacts import EvacuatedFacts
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations


def _flag(settings: HostSettings) -> Path:
    return Path(settings.state_dir) / "maintenance"


def is_on(settings: HostSettings) -> bool:
    """Return whether the host takes no new VMs."""
    return _flag(settings).exists()


def set_flag(settings: HostSettings, state: object) -> bool:
    """Set or clear the flag that keeps new VMs away from this host; return the new state."""
    is_enabled = arguments.on_off("state", state)
    # VMs are admitted under the same lock: any VM admitted before the flag is listed as being
    # built when this returns.
    with reservations.host_lock(settings):
        if is_enabled:
            files.write(_flag(settings), b"")
        else:
            files.unlink(_flag(settings))
    return is_enabled


def note_evacuated(settings: HostSettings, vms: Any) -> Any:
    """
    Record where evacuations have moved VMs of this host; return all notes.

    vms
        ``{name: {"hosts", "uuid", "proof"}}`` from the master, with the hosts in order; None, or no
        hosts, forgets a VM.
    """
    changed_notes = {
        name: _parse_note(note) for name, note in (arguments.mapping("vms", vms) or {}).items()
    }
    path = Path(settings.state_dir) / "evacuated.json"
    with locks.hold_lock(path.with_suffix(".lock")):
        notes = _read_notes(path)
        merged_notes = {name: note for name, note in {**notes, **changed_notes}.items() if note}
        if merged_notes and merged_notes != notes:
            files.write(path, json.dumps(merged_notes).encode())
        elif not merged_notes and notes:
            files.unlink(path)
    return merged_notes


def _parse_note(note: object) -> dict[str, Any] | None:
    """Return a VM's note as plain data; None to forget the VM."""
    if note is None:
        return None
    facts: EvacuatedFacts = wire.argument("vms", EvacuatedFacts, note)
    return wire.plain(facts) if facts.hosts else None


def _read_notes(path: Path) -> dict[str, Any]:
    try:
        notes = wire.read_recorded(dict[str, EvacuatedFacts], json.loads(path.read_text()))
        return {name: wire.plain(note) for name, note in notes.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, TypeError) as exc:
        raise StorageError(
            f"{path}, which says where VMs of this host were evacuated to, cannot be read: {exc}; "
            "remove it, and bring them back with salt-run virt.migrate"
        ) from exc
