"""Read the master's records for ``virt.doctor``, and ping VMs' minions; change nothing."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from saltvirt.certificates.master import certificates
from saltvirt.checks import installed
from saltvirt.checks.doctor.master.doctorcloud import MasterRecords, OrderLeft
from saltvirt.cluster import minionkeys, orders, renameorders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import lastseen
from saltvirt.core import filecontent, locks
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import RenameOrderFacts
from saltvirt.core.salt import compat
from saltvirt.seeding.master import authorization

# How long a minion may take to answer, and then to reply to find_job.
_PING_S, _AT_IT_S = 2, 1


def read_records(cloud: Cloud, hosts: Collection[str], now: datetime) -> MasterRecords:
    """
    Return the records of this master; ask no minion.

    hosts
        The hosts that have answered.
    """
    opts, members, store = cloud.opts, cloud.members, compat.KeyStore(cloud.opts)
    folder, noted_keys = orders.folder(opts), minionkeys.read_vm_keys(opts)
    accepted_ids = frozenset(store.accepted())
    vms_by_host = {
        host: names
        for host, names in lastseen.read_all(opts).items()
        if host in accepted_ids or host in hosts or members.has(host)
    }
    certified_hosts = {
        row["host"]
        for row in certificates.list_certificates(certificates.open_authorities(opts), now)
        if row["state"] in ("good", "replaced")
    }
    return MasterRecords(
        code=filecontent.of_code(),
        copies=installed.find_copies(opts),
        foreign_virt=installed.find_foreign_virt(),
        now_s=now.timestamp(),
        busy_vms=find_busy_vms(opts),
        orders=list(find_orders_left(opts)),
        locks=[str(path) for path in locks.find_dead(folder / orders.PURPOSE)],
        recorded_keys=noted_keys,
        present_keys={name: _read_key(store, name) for name in noted_keys},
        authorizations=authorization.list_unused(opts),
        certified_hosts=frozenset(certified_hosts),
        accepted_ids=accepted_ids,
        allowed_ids=frozenset(
            minion_id
            for minion_id in {*accepted_ids, *certified_hosts, *noted_keys}
            if members.has(minion_id)
        ),
        last_seen_vms=vms_by_host,
    )


def _read_key(store: compat.KeyStore, name: str) -> tuple[str | None, str | None]:
    state, public_key = store.read(name)
    return state, public_key and public_key.strip()


def find_busy_vms(opts: Mapping[str, Any]) -> frozenset[str]:
    """Return the VMs that running commands of this master work on."""
    folder = orders.folder(opts)
    order_records = records.read_records(folder, orders.PURPOSE)
    return frozenset(
        record.name
        for record in order_records
        if records.is_live(folder, orders.PURPOSE, record.name)
    )


def find_orders_left(opts: Mapping[str, Any]) -> Iterator[OrderLeft]:
    """Yield the orders of this master that no command holds."""
    folder = orders.folder(opts)
    for record in records.read_records(folder, orders.PURPOSE):
        if not records.is_live(folder, orders.PURPOSE, record.name):
            left = OrderLeft(name=record.name, phase=record.phase, since=record.since_text)
            is_rename = record.phase in renameorders.PHASES
            # Each half names both: the VM may have either name.
            facts = renameorders.read(record) if is_rename else None
            yield left if facts is None else replace(left, new_name=_other_name(left.name, facts))
    for name, reason in records.find_unreadable(folder, orders.PURPOSE).items():
        yield OrderLeft(name=name, phase="unreadable", since="", error=reason)


def _other_name(name: str, facts: RenameOrderFacts) -> str:
    """Return the other one of the two names of a rename."""
    return facts.new if name == facts.old else facts.old


def find_answering_minions(cloud: Cloud, names: Collection[str]) -> frozenset[str]:
    """Return the minions that answer; an operator may have renamed a VM, but not its minion."""
    if not names:
        return frozenset()
    with cloud.client() as local:
        replies = local.cmd(
            sorted(names),
            "test.ping",
            tgt_type="list",
            timeout=_PING_S,
            gather_job_timeout=_AT_IT_S,
        )
    return frozenset(name for name, reply in (replies or {}).items() if reply is True)
