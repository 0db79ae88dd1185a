"""Every difference between Salt 3006 and 3008 that this project meets, in one place."""

from pathlib import Path

import salt.key
import salt.version

_FOLDERS = {"accepted": "minions", "pending": "minions_pre", "rejected": "minions_rejected"}


class KeyStore:
    """The master's minion keys: files on 3006, a cache with a driver on 3008."""

    def __init__(self, opts):
        self._keys = salt.key.get_key(opts)
        self._pki = Path(opts["pki_dir"])
        self._cache = self._keys.cache if "keys.cache_driver" in opts else None

    def read(self, minion_id):
        """Return ``(state, public PEM)``; ``(None, None)`` if the master has no such key."""
        if self._cache is not None:
            entry = self._cache.fetch("keys", minion_id) or {}
            return entry.get("state"), entry.get("pub")
        for state, folder in _FOLDERS.items():
            path = self._pki / folder / minion_id
            if path.exists():
                return state, path.read_text()
        return None, None

    def accept(self, minion_id, public_pem):
        """Accept a key for exactly this id, whatever was waiting under the id before."""
        if self._cache is not None:
            self._cache.store("keys", minion_id, {"pub": public_pem, "state": "accepted"})
            return
        for state, folder in _FOLDERS.items():
            if state != "accepted":
                (self._pki / folder / minion_id).unlink(missing_ok=True)
        (self._pki / _FOLDERS["accepted"] / minion_id).write_text(public_pem)

    def discard(self, minion_id):
        """Take an accepted key away that no minion has used yet."""
        if self._cache is not None:
            self._cache.flush("keys", minion_id)
            return
        (self._pki / _FOLDERS["accepted"] / minion_id).unlink(missing_ok=True)

    def delete(self, minion_id):
        """Delete a minion's key as ``salt-key -d`` does: its sessions end, its cache goes."""
        self._keys.delete_key(match_dict={_FOLDERS["accepted"]: [minion_id]})


def pillar_ext(functions, external):
    """Return the answer of an on-demand external pillar; 3008 masks it unless told not to."""
    if salt.version.__saltstack_version__.major >= 3008:
        return functions["pillar.ext"](external, unmask=True)
    return functions["pillar.ext"](external)
