"""Minion keys of VMs: made on the master, accepted for exactly one id."""

from saltvirt import compat, sealed
from saltvirt.errors import MasterError, NameTaken


def seal_for(opts, host, private):
    """Return a private key that only this host's minion can read."""
    _state, public = compat.KeyStore(opts).read(host)
    if not public:
        raise MasterError(f"the master has no accepted key of {host}; is it a minion of its own?")
    return sealed.seal(private, public)


def refuse_taken(opts, name):
    """Raise NameTaken if a minion of that id is accepted already."""
    state, _public = compat.KeyStore(opts).read(name)
    if state == "accepted":
        raise NameTaken(
            f"a minion called {name!r} is accepted on this master already; choose another name, "
            f"or remove it first: salt-run virt.purge {name}, or salt-key -d {name}"
        )


def accept(opts, name, public):
    """Accept a key for exactly this id."""
    compat.KeyStore(opts).accept(name, public)


def discard(opts, name, public):
    """Take back a key that :func:`accept` accepted; another key under the id stays."""
    store = compat.KeyStore(opts)
    state, known = store.read(name)
    if state == "accepted" and known.strip() == public.strip():
        store.discard(name)


def delete(opts, name):
    """Delete a minion's key; return whether there was one."""
    store = compat.KeyStore(opts)
    if store.read(name)[0] is None:
        return False
    store.delete(name)
    return True
