"""
What proves that this master noted on a host itself that a VM was evacuated from it.

The notes of evacuations are kept by the host that was emptied, which could make some up to draw
the VMs of others to itself. So each has a code (HMAC) over the host, the VM's name and UUID and the
hosts that it was put on, with a key that only the master has, one for each host that is emptied.

The key is replaced when its host is emptied or filled again, and what is still noted then is
proved anew: what the host was given before proves nothing any more. There is no list of what was
noted on the master.
"""

import contextlib
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from saltvirt import files, locks
from saltvirt.errors import MasterError
from saltvirt.movefacts import EvacuatedFacts

VERSION = 1
Notes = Mapping[str, Mapping[str, EvacuatedFacts]]
# The first is the one that proves; others count until what they have proved is proved anew.
_Keys = dict[str, list[str]]
# Of one host. There are more than two only if it fell silent as often while its were replaced.
_MOST = 8


def _path(opts: Mapping[str, Any]) -> Path:
    # Not in the folder of the CAs: a backup that is put back would bring old keys back with it.
    return Path(opts["pki_dir"]) / "salt-virt" / "evacuations.json"


def _read(opts: Mapping[str, Any]) -> _Keys:
    path = _path(opts)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            raise ValueError(f"it is of version {content['version']!r}")
        return {host: [str(key) for key in keys] for host, keys in content["keys"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise MasterError(
            f"{path}, by which evacuations are proved, cannot be read ({exc}); move it away: VMs "
            "that are evacuated now are then brought home by salt-run virt.migrate NAME HOST"
        ) from exc


def _change(opts: Mapping[str, Any], change: Callable[[_Keys], _Keys]) -> _Keys:
    path = _path(opts)
    with locks.hold_lock(path.with_suffix(".lock")):
        files.sweep(path.parent)
        keys_by_host = _read(opts)
        changed_keys = change(keys_by_host)
        if changed_keys != keys_by_host:
            content = {"version": VERSION, "keys": changed_keys}
            files.write(path, json.dumps(content, indent=1).encode())
    return changed_keys


def _new_key() -> str:
    return secrets.token_hex(32)


def _code(key: str, host: str, name: str, uuid: str, hosts: Sequence[str]) -> str:
    # As JSON, in which no two of them read the same.
    text = json.dumps(["evacuated", host, name, uuid, list(hosts)])
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def note(
    opts: Mapping[str, Any], host: str, name: str, uuid: str | None, hosts: Sequence[str]
) -> EvacuatedFacts:
    """Return what a host is to note of a VM that was evacuated from it, with its proof."""
    if not uuid:  # a host of a release that does not say it
        return EvacuatedFacts(hosts=list(hosts))
    keys = _read(opts).get(host)
    if not keys:
        keys = _change(opts, lambda keys_by_host: {host: [_new_key()], **keys_by_host})[host]
    proof = _code(keys[0], host, name, uuid, hosts)
    return EvacuatedFacts(hosts=list(hosts), uuid=uuid, proof=proof)


def select_proved(opts: Mapping[str, Any], noted: Notes) -> dict[str, dict[str, EvacuatedFacts]]:
    """Return the notes that this master has made."""
    keys = _read(opts)
    return {
        host: {
            name: facts
            for name, facts in host_notes.items()
            if _is_proved(keys.get(host, ()), host, name, facts)
        }
        for host, host_notes in noted.items()
    }


def _is_proved(keys: Sequence[str], host: str, name: str, facts: EvacuatedFacts) -> bool:
    if not facts.uuid or not facts.proof:
        return False
    # Bytes that may be anything: of text, only ASCII is compared.
    proof = facts.proof.encode(errors="replace")
    codes = [_code(key, host, name, facts.uuid, facts.hosts).encode() for key in keys]
    return any([hmac.compare_digest(proof, code) for code in codes])


def has_key(opts: Mapping[str, Any], host: str) -> bool:
    """Return whether anything was proved for a host."""
    return host in _read(opts)


@contextlib.contextmanager
def renewed_key(opts: Mapping[str, Any], host: str) -> Iterator[None]:
    """
    Replace the key of a host; inside the block what the last one has proved is good as well.

    If the block fails, it stays good until the next time: some of it may not be proved anew.
    """
    key = _new_key()
    _change(
        opts,
        lambda keys_by_host: {
            **keys_by_host,
            host: [key, *keys_by_host.get(host, ())[: _MOST - 1]],
        },
    )
    yield
    _change(
        opts, lambda keys_by_host: {**keys_by_host, host: _drop_old_keys(keys_by_host[host], key)}
    )


def _drop_old_keys(keys: list[str], key: str) -> list[str]:
    """Return the keys of a host when one has proved all; not if it is being replaced itself."""
    return [key] if keys[0] == key else keys
