"""What this master has that a fault may have left; read only, and its VMs' minions are pinged."""

import sys
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from saltvirt import compat, content, locks, records
from saltvirt.fleet import authorization, certificates, hints, keys, orders
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.doctor.leftover import MasterFacts, OrderLeft

# How long a minion has to answer, and then to say that it is at it.
_PING_S, _AT_IT_S = 2, 1


def of(cloud: Cloud, hosts: Collection[str], now: datetime) -> MasterFacts:
    """
    Return what this master has; no minion is asked.

    hosts
        Those that have answered.
    """
    opts, members, store = cloud.opts, cloud.members, compat.KeyStore(cloud.opts)
    folder, noted = orders.folder(opts), keys.noted(opts)
    accepted = frozenset(store.accepted())
    known = {
        host: names
        for host, names in hints.every(opts).items()
        if host in accepted or host in hosts or members.has(host)
    }
    certified = {
        row["host"]
        for row in certificates.listed(certificates.opened(opts), now)
        if row["state"] in ("good", "replaced")
    }
    return MasterFacts(
        code=content.of_code(),
        copies=_copies(opts),
        now_s=now.timestamp(),
        at_work=at_work(opts),
        orders=list(_orders(folder)),
        locks=[str(path) for path in locks.dead(folder / orders.PURPOSE)],
        noted=noted,
        keys={name: _key(store, name) for name in noted},
        authorized=authorization.known(opts),
        certified=frozenset(certified),
        accepted=accepted,
        allowed=frozenset(one for one in {*accepted, *certified, *noted} if members.has(one)),
        hints=known,
    )


def _copies(opts: Mapping[str, Any]) -> list[str]:
    """Return where this process may find the library: synced, and installed."""
    places = [Path(opts["extension_modules"]) / "utils", *map(Path, sys.path)]
    has = (one / "saltvirt" for one in places if (one / "saltvirt/__init__.py").is_file())
    return sorted({str(one.resolve()) for one in has})


def _key(store: compat.KeyStore, name: str) -> tuple[str | None, str | None]:
    state, public = store.read(name)
    return state, public and public.strip()


def at_work(opts: Mapping[str, Any]) -> frozenset[str]:
    """Return the VMs that a command of this master is at work on."""
    folder = orders.folder(opts)
    every = records.every(folder, orders.PURPOSE)
    return frozenset(one.name for one in every if records.is_live(folder, orders.PURPOSE, one.name))


def _orders(folder: Path) -> Iterator[OrderLeft]:
    for record in records.every(folder, orders.PURPOSE):
        if not records.is_live(folder, orders.PURPOSE, record.name):
            yield OrderLeft(name=record.name, phase=record.phase, since=record.since_text)
    for name, why in records.unreadable(folder, orders.PURPOSE).items():
        yield OrderLeft(name=name, phase="unreadable", since="", error=why)


def answering(cloud: Cloud, names: Collection[str]) -> frozenset[str]:
    """Return which minions of VMs answer; somebody may have renamed a VM, and not its minion."""
    if not names:
        return frozenset()
    with cloud.client() as local:
        said = local.cmd(
            sorted(names),
            "test.ping",
            tgt_type="list",
            timeout=_PING_S,
            gather_job_timeout=_AT_IT_S,
        )
    return frozenset(name for name, one in (said or {}).items() if one is True)
