"""Judge what this master has: pure functions."""

import shlex
from collections.abc import Iterator

from saltvirt.fleet.doctor.leftover import Leftover, Seen, by_hand, mended
from saltvirt.fleet.findings import MASTER


def findings(seen: Seen) -> Iterator[Leftover]:
    """Yield what is left over on the master."""
    yield from _code(seen)
    yield from _orders(seen)
    yield from _keys(seen)
    yield from _authorizations(seen)
    yield from _certificates(seen)


def _code(seen: Seen) -> Iterator[Leftover]:
    if len(seen.master.copies) > 1:
        yield by_hand(
            *("code-mixed", MASTER, MASTER),
            f"it finds this project twice: {', '.join(seen.master.copies)}",
            "keep one of them: salt-pip uninstall saltext-virt, or remove what was synced from "
            "extension_modules; then systemctl restart salt-master",
        )


def _orders(seen: Seen) -> Iterator[Leftover]:
    for one in seen.master.orders:
        if one.error:
            yield by_hand(
                *("record", MASTER, one.name),
                f"the order of VM {one.name} cannot be read: {one.error}",
                "see what it was about, then move it out of its folder",
            )
        else:
            yield mended(
                *("order", MASTER, one.name),
                f"a command for VM {one.name} was cut off at {one.since} ({one.phase})",
                "settles it by what the hosts have: a complete VM stays, with its key",
            )
    for path in seen.master.locks:
        what = f"{path} is a lock that no command holds"
        yield mended("lock", MASTER, path, what, "removes it")


def is_key_needed(name: str, seen: Seen) -> bool:
    """Return whether anything may still need the key that was accepted for a VM."""
    known = seen.master
    return (
        not seen.is_whole
        or known.keys.get(name) != ("accepted", known.noted.get(name))
        or name in seen.names
        or name in seen.busy
        or name in known.authorized
        or name in known.allowed
        or name in known.answering
    )


def _keys(seen: Seen) -> Iterator[Leftover]:
    there = {name: host for host, facts in seen.hosts.items() for name in facts.vms}
    for name in sorted(seen.master.noted):
        if not is_key_needed(name, seen):
            yield by_hand(
                *("key", MASTER, name),
                f"the key of VM {name} is accepted, and no host has such a VM",
                f"define it again; or if it is gone for good: salt-key -d {shlex.quote(name)}",
            )
        state, _public = seen.master.keys.get(name, (None, None))
        # One that somebody has rejected is meant to have none.
        if name in there and state in (None, "pending") and name not in seen.busy:
            accept = f"salt-key -a {shlex.quote(name)}"
            yield by_hand(
                *("vm-without-key", there[name], name),
                f"VM {name} had a key on this master, and has none any more: its minion cannot "
                "answer",
                f"if it is to answer: {accept}, once its minion has asked; else salt-key -r "
                f"{shlex.quote(name)}",
            )


def _authorizations(seen: Seen) -> Iterator[Leftover]:
    for name, (host, until) in sorted(seen.master.authorized.items()):
        if until < seen.master.now_s:
            yield mended(
                *("authorization", MASTER, name),
                f"{host} was authorized to submit a key of VM {name}, and never did in time",
                f"salt-run virt.unauthorize {shlex.quote(name)}",
            )


def _certificates(seen: Seen) -> Iterator[Leftover]:
    known = seen.master
    for host in sorted(known.certified - known.accepted):
        what = f"{host} has certificates that are valid, and is not a minion of this master"
        disallow = f"salt-run virt.disallow {shlex.quote(host)}"
        if host in known.allowed:
            # It may be on its way back, with a new key.
            yield by_hand(
                *("certificate", host, host), what, f"{disallow}, if it does not come back"
            )
        else:
            yield mended("certificate", host, host, what, f"{disallow}: revokes them")
