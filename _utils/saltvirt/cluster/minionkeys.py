"""Minion keys of VMs: made on the master, each accepted for exactly one id."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from saltvirt.cluster import membership
from saltvirt.core import files
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import MasterError, NameTaken
from saltvirt.core.salt import compat

# Larger than any public key of a minion.
_MOST_NOTE = 64 * 1024


def seal_for(opts: Mapping[str, Any], host: str, private_key: str) -> str:
    """Return a private key sealed so that only this host's minion can read it."""
    public = read_accepted(opts, host)
    if not public:
        raise MasterError(f"the master has no accepted key of {host}; is it one of its minions?")
    return keypair.seal(private_key, public)


def refuse_reserved(opts: Mapping[str, Any], name: str) -> None:
    """Raise BadArgument if the minion of a VM of this name would pass for a hypervisor."""
    membership.read_members(opts).refuse_guest(name)


def refuse_taken(opts: Mapping[str, Any], name: str) -> None:
    """Raise NameTaken if the master has accepted a minion of this id."""
    state, _public = compat.KeyStore(opts).read(name)
    if state == "accepted":
        raise NameTaken(
            f"a minion called {name!r} is accepted on this master already; choose another name, "
            f"or remove it first: salt-run virt.purge {name}, or salt-key -d {name}"
        )


def accept(opts: Mapping[str, Any], name: str, public_key: str) -> None:
    """Accept a key for exactly this id, and record that the key is a VM's."""
    path = _note_path(opts, name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.write(path, public_key.strip().encode())
    # Grains of the last minion of this name say nothing about the new one.
    compat.Grains(opts).forget(name)
    compat.KeyStore(opts).accept(name, public_key)


def discard(opts: Mapping[str, Any], name: str, public_key: str) -> None:
    """Remove a key that :func:`accept` accepted; keep another key under this id."""
    if read_accepted(opts, name) == public_key.strip():
        compat.KeyStore(opts).discard(name)
    forget(opts, name)


def read_accepted(opts: Mapping[str, Any], name: str) -> str | None:
    """Return the accepted key of a minion, or None."""
    return read_accepted_from(compat.KeyStore(opts), name)


def read_accepted_from(store: compat.KeyStore, name: str) -> str | None:
    """Return the accepted key from an open store: opening takes longer than reading."""
    state, public_key = store.read(name)
    return public_key.strip() if public_key and state == "accepted" else None


def delete(opts: Mapping[str, Any], name: str, public_key: str | None) -> bool:
    """Delete this key of a minion, and no other under its id; return whether it existed."""
    forget(opts, name)
    if public_key is None or read_accepted(opts, name) != public_key.strip():
        return False
    compat.KeyStore(opts).delete(name)
    return True


def _note_path(opts: Mapping[str, Any], name: str) -> Path:
    return Path(opts["cachedir"]) / "salt-virt-keys" / quote(name, safe="")


def read_vm_keys(opts: Mapping[str, Any]) -> dict[str, str]:
    """
    Return ``{id: public key}`` of all keys accepted for VMs, deleted ones included.

    A minion that is no VM has no entry, so its key never passes for that of a VM.
    """
    return {name: key for name, _path, key in _read_notes(opts) if key is not None}


def find_foreign_files(opts: Mapping[str, Any]) -> list[Path]:
    """Return files among the key records that hold no key: minions can write there."""
    return [path for _name, path, key in _read_notes(opts) if key is None]


def _read_notes(opts: Mapping[str, Any]) -> Iterator[tuple[str, Path, str | None]]:
    """Yield the id, path and key of each record; the key is None if the file holds none."""
    folder = _note_path(opts, "any").parent
    for path in sorted(folder.glob("[!.]*")) if folder.is_dir() else ():
        name = unquote(path.name)
        # Any minion of a master with Salt 3008 can create a file there.
        is_note = quote(name, safe="") == path.name and path.is_file()
        with contextlib.suppress(FileNotFoundError):  # another command removed the record
            yield name, path, _read_key(path) if is_note else None


def _read_key(path: Path) -> str | None:
    if path.stat().st_size > _MOST_NOTE:
        return None
    try:
        text = path.read_text(encoding="ascii").strip()
    except UnicodeDecodeError:
        return None
    return text if text and text.replace("\n", "").isprintable() else None


def forget(opts: Mapping[str, Any], name: str) -> None:
    """Remove the record that a key was accepted for a VM."""
    files.unlink(_note_path(opts, name))
