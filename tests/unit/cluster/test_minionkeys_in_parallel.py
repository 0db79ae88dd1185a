"""A command builds several VMs at once, so it accepts their keys in parallel."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

from saltvirt.cluster import minionkeys
from saltvirt.core.salt import compat


class Cache:
    """Salt 3008's cache of keys, which is not thread-safe: it sets the process's umask."""

    def __init__(self):
        self.stored, self._is_used = [], False

    def store(self, _bank, name, _entry):
        """Store a key; it takes a while."""
        assert not self._is_used
        self._is_used = True
        time.sleep(0.02)
        self._is_used = False
        self.stored.append(name)


def test_keys_are_stored_one_after_the_other(opts, monkeypatch):
    cache = Cache()
    monkeypatch.setattr(compat.salt.key, "get_key", lambda _opts: SimpleNamespace(cache=cache))
    cache_opts = {**opts, "keys.cache_driver": "localfs_key"}
    names = [f"web{number}" for number in range(4)]

    jobs = [
        threading.Thread(target=compat.KeyStore(cache_opts).accept, args=(name, "a key"))
        for name in names
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()

    assert sorted(cache.stored) == names


def test_a_key_that_is_deleted_while_keys_are_read_counts_as_none(opts, monkeypatch):
    for name in ("web1", "web2"):
        minionkeys.accept(opts, name, "a key")
    original_read_text = Path.read_text

    def forgotten(path, *args, **options):
        if path.name == "web1":
            minionkeys.forget(opts, "web1")
        return original_read_text(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", forgotten)

    assert minionkeys.read_vm_keys(opts) == {"web2": "a key"}
