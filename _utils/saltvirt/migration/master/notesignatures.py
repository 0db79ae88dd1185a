"""
Prove that this master itself wrote a host's record of an evacuated VM.

The emptied host keeps the records of its evacuation, and could forge some to draw VMs of other
hosts to itself. So each record has a code (HMAC) over the host, the VM's name and UUID, and the
hosts where it was put. Only the master has the keys, one for each emptied host.

The key is replaced when its host is emptied or filled again, and the remaining records are proved
anew: proofs given before are void. The master keeps no list of records.
"""

import contextlib
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from saltvirt.core.errors import MasterError
from saltvirt.core.journal.movefacts import EvacuatedFacts
from saltvirt.core.jsonfile import JsonFile

Notes = Mapping[str, Mapping[str, EvacuatedFacts]]
# The first key makes proofs; the others count until what they proved is proved anew.
_Keys = dict[str, list[str]]
# The most keys of one host: a replacement that fails, as its host does not answer, adds one.
_MOST = 8


def _file(opts: Mapping[str, Any]) -> JsonFile[_Keys]:
    return JsonFile(
        # Not in the folder of the CAs: restoring its backup would bring old keys back.
        path=Path(opts["pki_dir"]) / "salt-virt" / "evacuations.json",
        parse=lambda content: {host: [*map(str, keys)] for host, keys in content["keys"].items()},
        plain=lambda keys_by_host: {"keys": keys_by_host},
        empty=dict,
        remedy="it proves evacuations: move it away, then bring VMs that are evacuated now home by "
        "salt-run virt.migrate NAME HOST",
        error=MasterError,
        indent=1,
    )


def _new_key() -> str:
    return secrets.token_hex(32)


def _code(key: str, host: str, name: str, uuid: str, hosts: Sequence[str]) -> str:
    # As JSON, so that different facts never give the same text.
    text = json.dumps(["evacuated", host, name, uuid, list(hosts)])
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def note(
    opts: Mapping[str, Any], host: str, name: str, uuid: str | None, hosts: Sequence[str]
) -> EvacuatedFacts:
    """Return the record of an evacuated VM for its host, with the proof."""
    if not uuid:  # nothing would tell the VM from another one of its name
        return EvacuatedFacts(hosts=list(hosts))
    keys = _file(opts).read().get(host)
    if not keys:
        keys = _file(opts).change(lambda keys_by_host: {host: [_new_key()], **keys_by_host})[host]
    proof = _code(keys[0], host, name, uuid, hosts)
    return EvacuatedFacts(hosts=list(hosts), uuid=uuid, proof=proof)


def select_proved(opts: Mapping[str, Any], noted: Notes) -> dict[str, dict[str, EvacuatedFacts]]:
    """Return the records that this master has proved."""
    keys = _file(opts).read()
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
    # Compare bytes: compare_digest takes text only if it is ASCII.
    proof = facts.proof.encode(errors="replace")
    codes = [_code(key, host, name, facts.uuid, facts.hosts).encode() for key in keys]
    return any([hmac.compare_digest(proof, code) for code in codes])


def has_key(opts: Mapping[str, Any], host: str) -> bool:
    """Return whether the master has a key for a host."""
    return host in _file(opts).read()


@contextlib.contextmanager
def renewed_key(opts: Mapping[str, Any], host: str) -> Iterator[None]:
    """
    Replace the key of a host; inside the block the old key's proofs stay valid.

    If the block fails, they stay valid until the next time: some may not be renewed.
    """
    key = _new_key()
    _file(opts).change(
        lambda keys_by_host: {
            **keys_by_host,
            host: [key, *keys_by_host.get(host, ())[: _MOST - 1]],
        },
    )
    yield
    _file(opts).change(
        lambda keys_by_host: {**keys_by_host, host: _drop_old_keys(keys_by_host[host], key)}
    )


def _drop_old_keys(keys: list[str], key: str) -> list[str]:
    """Return only the new key, or all keys if another command is replacing it."""
    return [key] if keys[0] == key else keys
