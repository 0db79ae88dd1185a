"""The differences between releases of Salt that this project meets."""

import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import salt.cache
import salt.key
import salt.loader
import salt.pillar
import salt.utils.crypt
import salt.version

from saltvirt.core.errors import MasterError

_FOLDERS = {"accepted": "minions", "pending": "minions_pre", "rejected": "minions_rejected"}
# Ids with a key file that may be read without Salt's own check of each part of the path.
_PLAIN = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
# Characters of a public key as PEM; an RSA key of 16,384 bits has 3,000.
_MOST_KEY = 16 * 1024
_KEY_BEGIN = re.compile(r"-----BEGIN ((?:RSA )?PUBLIC KEY)-----\s*")
_KEY_LINE = re.compile(r"[A-Za-z0-9+/]+={0,2}\s*", re.ASCII)
# Shown in place of the fingerprint if a key is not a public key.
UNREADABLE = "not a public key"
# 3008 narrows the umask of the whole process while it writes a key: a file that another thread
# makes meanwhile may not be writable for its owner.
_STORING = threading.Lock()


def _key_text(key: object) -> str:
    """Return a key as text, an empty one if it is no text, or is longer than any key."""
    if isinstance(key, bytes):
        key = key[: _MOST_KEY + 1].decode("ascii", errors="replace").replace("\r\n", "\n")
    is_text = isinstance(key, str) and len(key) <= _MOST_KEY and key.isascii()
    return str(key) if is_text else ""


def _key_body(text: str) -> str | None:
    """
    Return the lines between the first and the last one of a public key, None if it is none.

    The first line, which no fingerprint covers, must be a BEGIN line and nothing more: Salt takes a
    key that is whole within that line, and a minion chooses the content of its waiting key.
    """
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    if len(lines) < 3 or not all(map(_KEY_LINE.fullmatch, lines[1:-1])):
        return None
    header = _KEY_BEGIN.fullmatch(lines[0])
    if header is None or lines[-1].rstrip() != f"-----END {header[1]}-----":
        return None
    return "".join(f"{line}\n" for line in lines[1:-1])


class KeyStore:
    """The master's minion keys: files on 3006, a cache with a driver on 3008."""

    def __init__(self, opts: Any) -> None:
        self._opts, self._keys = opts, salt.key.get_key(opts)
        self._pki = Path(opts["pki_dir"])
        self._cache = self._keys.cache if "keys.cache_driver" in opts else None
        driver = opts.get("keys.cache_driver", "localfs_key")
        self._has_files = driver == "localfs_key" and not opts.get("cluster_id")

    def read(self, minion_id: str) -> tuple[str | None, str | None]:
        """
        Return ``(state, public PEM)``; ``(None, None)`` if the master has no such key.

        A minion chooses the content of its waiting key: for anything but text the PEM is empty.

        Key files are read directly where that is possible: the default driver of 3008 takes ten
        times as long, with 200 hosts a twentieth of the time of ``virt.list``.
        """
        if self._cache is not None and not (self._has_files and _PLAIN.fullmatch(minion_id)):
            try:
                entry = self._cache.fetch("keys", minion_id) or {}
            except UnicodeDecodeError:
                entry = {"state": self._listed(minion_id)}
            state = entry.get("state")
            return (None, None) if state is None else (state, _key_text(entry.get("pub")))
        # Of several keys with one id, 3008 uses the last of these.
        folders = _FOLDERS.items() if self._cache is None else reversed(_FOLDERS.items())
        for state, folder in folders:
            path = self._pki / folder / minion_id
            try:
                if not path.is_symlink():
                    return state, _key_text(path.read_bytes())
            except (FileNotFoundError, IsADirectoryError):
                continue
        return None, None

    def _listed(self, minion_id: str) -> str | None:
        ids_by_folder = self._keys.list_status("all")
        states = (
            state
            for state, folder in _FOLDERS.items()
            if minion_id in ids_by_folder.get(folder, ())
        )
        return next(states, None)

    def accepted(self) -> list[str]:
        """Return the ids of all minions with accepted keys."""
        return sorted(self._keys.list_status("accepted")["minions"])

    def waiting(self) -> list[str]:
        """Return the ids of the minions with keys that are neither accepted nor rejected yet."""
        return sorted(self._keys.list_status("pre")["minions_pre"])

    def fingerprint(self, minion_id: str) -> str | None:
        """
        Return the fingerprint of a key as ``salt-call --local key.finger`` shows it on its host.

        ``salt-key -f`` shows the same on 3006; on 3008 it hashes the whole text instead, so its
        output equals nothing that a host shows. :data:`UNREADABLE` if the key is no public key;
        None if there is no key.
        """
        state, public = self.read(minion_id)
        if state is None:
            return None
        body = _key_body(public or "")
        if body is None:
            return UNREADABLE
        kind = self._opts["hash_type"]
        return str(salt.utils.crypt.pem_finger(key=body.encode(), sum_type=kind))

    def accept(self, minion_id: str, public_pem: str) -> None:
        """Accept a key for exactly this id; replace a key that waits under the id."""
        if self._cache is not None:
            with _STORING:
                self._cache.store("keys", minion_id, {"pub": public_pem, "state": "accepted"})
            return
        for state, folder in _FOLDERS.items():
            if state != "accepted":
                (self._pki / folder / minion_id).unlink(missing_ok=True)
        (self._pki / _FOLDERS["accepted"] / minion_id).write_text(public_pem)

    def discard(self, minion_id: str) -> None:
        """Remove an accepted key that no minion has used yet."""
        if self._cache is not None:
            self._cache.flush("keys", minion_id)
            return
        (self._pki / _FOLDERS["accepted"] / minion_id).unlink(missing_ok=True)

    def delete(self, minion_id: str) -> None:
        """Delete a minion's key as ``salt-key -d`` does, with its sessions and its cache."""
        # The key object opens the master's event bus, and 3008 warns if that stays open.
        with self._keys:
            self._keys.delete_key(match_dict={_FOLDERS["accepted"]: [minion_id]})


class Grains:
    """
    The grains that minions last sent with requests for their pillars, as the master keeps them.

    The master has authenticated these minions. A return proves nothing: any minion may send one as
    a syndic's (``_syndic_return``), and the master stores it under any id, on both lines.

    On 3008 with the cache ``localfs`` a minion can overwrite others' grains, too: see "Salt 3008
    and its caches" in docs/security.md.
    """

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self._cache = salt.cache.factory(dict(opts))
        self._has_bank = "keys.cache_driver" in opts

    def _place(self, minion_id: str) -> tuple[str, str]:
        return ("grains", minion_id) if self._has_bank else (f"minions/{minion_id}", "data")

    def of(self, minion_id: str) -> Any:
        """Return a minion's grains; None if it has not requested its pillar yet."""
        grains = self._cache.fetch(*self._place(minion_id))
        if grains and not self._has_bank:
            grains = grains.get("grains")
        return grains or None

    def forget(self, minion_id: str) -> None:
        """Delete the grains that a former minion left under an id."""
        if self._cache.contains(*self._place(minion_id)):
            self._cache.flush(*self._place(minion_id))


def loses_answers_of_syndics() -> bool:
    """
    Return whether a master of this Salt loses the replies of minions behind a syndic.

    On 3008.3 the syndic's event loop fails to pass them on; on 3006 they come after
    ``syndic_wait``.
    """
    return bool(salt.version.__saltstack_version__.major >= 3007)


def ask_pillar(opts: Any, external: Mapping[str, Any]) -> Any:
    """
    Return the master's answer to a request for an on-demand external pillar.

    external
        ``{pillar's name: {argument: value}}``.

    The request has fresh grains: the minion's may be older than the packages and bridges that the
    same run made. The function pillar.ext would mask the answer on
    """
    grains = salt.loader.grains(opts, force_refresh=True)
    saltenv = opts.get("saltenv") or opts.get("environment")
    return salt.pillar.get_pillar(opts, grains, opts["id"], saltenv, ext=external).compile_pillar()


def certificates_pillar(opts: Any, question: Mapping[str, Any]) -> Any:
    """Return the master's answer to a request for certificates."""
    return ask_pillar(opts, {"libvirt": question})


# In each line, the first release in which the master gives a minion no pillar but its own.
OWN_PILLAR_SINCE = {3006: 12, 3007: 4}
OWN_PILLAR_UPDATE = "to 3006.12, 3007.4, 3008 or a later one of these lines"


def is_since(release: str, firsts: Mapping[int, int]) -> bool:
    """
    Return whether a release of Salt, such as ``3006.12``, includes a change.

    firsts
        First release of each line with the change; later lines have it, too.
    """
    match = re.match(r"(\d+)(?:\.(\d+))?", release)
    line, number = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
    return number >= firsts[line] if line in firsts else line > max(firsts)


def refuse_old_master() -> None:
    """Raise MasterError if this master's Salt gives a minion the pillar of another."""
    release = salt.version.__version__
    if not is_since(release, OWN_PILLAR_SINCE):
        raise MasterError(
            f"Salt {release} on this master gives any minion the pillar of any other, so that any "
            f"guest could be a hypervisor: update it {OWN_PILLAR_UPDATE}"
        )
