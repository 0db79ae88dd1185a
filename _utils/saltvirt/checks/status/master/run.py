"""Tell how the cloud is: ask all hosts once, and read what the master has on record."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from saltvirt.certificates.master import certificates
from saltvirt.checks.doctor.master import masterrecords
from saltvirt.checks.master.asking import Answers, ask_hosts, reader
from saltvirt.checks.master.masterfacts import MasterFacts
from saltvirt.checks.setup.master import run as setup
from saltvirt.checks.status.master import verdicts
from saltvirt.checks.status.statusanswer import HostStatus, RoomFacts, StatusFacts
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen
from saltvirt.cluster.rpc import waits
from saltvirt.core.terminal import count_text
from saltvirt.core.vmfilter import STATES

FUN = "virt.status_facts"
# Hosts renew their certificates long before; a new CA needs all hosts to be applied twice.
_CERTIFICATE_DAYS, _CA_DAYS = 30, 90
_RESOURCES = ("cpus", "memory_mib", "disk_mib")
_NamesByHost = Mapping[str, list[str]]


def status(cloud: Cloud, now: datetime, *, has_checks: bool = True) -> dict[str, Any]:
    """
    Return how the cloud is, as ``salt-run virt.status`` describes it.

    now
        The time by which certificates are judged.
    has_checks
        Whether to judge what audit, doctor and setup check judge, too. Defaults to True.
    """
    hosts = inventory.allowed_hosts(cloud)
    busy_vms = masterrecords.find_busy_vms(cloud.opts)
    grains = setup.read_grains(cloud, hosts) if has_checks else {}
    cloud.progress("Asking", detail=f"{count_text(len(hosts), 'host')}, all at once")
    answers = _ask(cloud, hosts, grains, has_checks=has_checks)
    statuses = {host: facts.host for host, facts in answers.hosts.items() if facts.host is not None}
    lastseen.refresh(
        cloud.opts,
        lastseen.ReportedNames(
            names_by_host={host: [*facts.states] for host, facts in statuses.items()}
        ),
    )
    master = MasterFacts(cloud, now)
    checks = None
    if has_checks:
        cloud.progress("Checking", detail="the answers, and this master's files")
        checks = verdicts.read_verdicts(
            verdicts.Look(
                cloud=cloud,
                master=master,
                answers=answers,
                hosts=hosts,
                busy_vms=busy_vms,
                grains=grains,
            )
        )
    last_seen = lastseen.read_all(cloud.opts)
    return {
        "at": now.astimezone(timezone.utc).isoformat(timespec="seconds"),
        "hosts": _hosts(cloud, hosts, answers, master, last_seen),
        "vms": _vms(statuses, last_seen, set(hosts) - set(statuses)),
        "room": _room(statuses),
        "checks": checks,
        "certificates": list(_ending_certificates(master)),
        "restart": [
            {"vm": name, "host": host, "changes": changes}
            for host, facts in sorted(statuses.items())
            for name, changes in sorted(facts.restart.items())
        ],
        "unfinished": [*_orders_left(cloud), *_left_on_hosts(statuses)],
        "at_work": sorted(busy_vms),
        "keys_waiting": sorted(master.waiting),
    }


def _ask(
    cloud: Cloud, hosts: list[str], grains: Mapping[str, Mapping[str, Any]], *, has_checks: bool
) -> Answers[StatusFacts]:
    """Ask all hosts once; record which are unresponsive, as other commands do."""
    checks_kwarg = {"checks": True, "peers": setup.find_peers(grains)} if has_checks else {}
    answers = ask_hosts(
        *(cloud, hosts, FUN, reader(FUN, StatusFacts)),
        kwarg=checks_kwarg,
        timeout_s=cloud.settings.timeout_s + (setup.LONGER_S if has_checks else 0),
    )
    waits.record_silence(cloud.opts, hosts, _silent_hosts(answers), cloud.members.has)
    return answers


def _silent_hosts(answers: Answers[StatusFacts]) -> list[str]:
    return sorted(host for host, failure in answers.failures.items() if failure.is_missing)


def _hosts(
    cloud: Cloud,
    hosts: list[str],
    answers: Answers[StatusFacts],
    master: MasterFacts,
    last_seen: _NamesByHost,
) -> dict[str, Any]:
    since = waits.silent_since(cloud.opts)
    silent_hosts = _silent_hosts(answers)
    failed = {
        host: failure.text for host, failure in answers.failures.items() if not failure.is_missing
    } | {
        host: facts.why_not.get("host", "its answer has nothing about the host")
        for host, facts in answers.hosts.items()
        if facts.host is None
    }
    return {
        "allowed": len(hosts),
        "answering": len(hosts) - len(silent_hosts) - len(failed),
        "silent": [
            {
                "host": host,
                "since": _iso(since.get(host)),
                "silent_s": _elapsed_s(since.get(host), answers.ended_s),
                "last_seen": len(last_seen.get(host, ())),
            }
            for host in silent_hosts
        ],
        "failed": [
            {"host": host, "reason": reason, "last_seen": len(last_seen.get(host, ()))}
            for host, reason in sorted(failed.items())
        ],
        "maintenance": sorted(
            host
            for host, facts in answers.hosts.items()
            if facts.host is not None and facts.host.is_in_maintenance
        ),
        "shut_out": [
            {"host": host, "last_seen": len(last_seen.get(host, ()))}
            for host in sorted(_shut_out(master, last_seen))
        ],
        "without_key": list(master.keyless_hosts),
    }


def _shut_out(master: MasterFacts, last_seen: _NamesByHost) -> Iterable[str]:
    """Return the hosts that were disallowed, and are minions still or had VMs when last asked."""
    known_ids = {*master.accepted, *last_seen}
    return {minion_id for minion_id in known_ids if master.members.is_disallowed(minion_id)}


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def _elapsed_s(since: float | None, now: float) -> int | None:
    return None if since is None else max(0, int(now - since))


def _vms(
    statuses: Mapping[str, HostStatus], last_seen: _NamesByHost, unanswered_hosts: Iterable[str]
) -> dict[str, Any]:
    # A hostile host may invent states.
    states = Counter(
        state if state in STATES else "unknown"
        for facts in statuses.values()
        for state in facts.states.values()
    )
    return {
        "total": states.total(),
        "by_state": dict(sorted(states.items())),
        "coming": sum(len(facts.coming) for facts in statuses.values()),
        "last_seen": sum(len(last_seen.get(host, ())) for host in unanswered_hosts),
    }


def _room(statuses: Mapping[str, HostStatus]) -> dict[str, dict[str, int]]:
    """
    Return the room of the hosts that answer.

    A host in maintenance gets no VMs, and one that has promised too much takes nothing away from
    the others: both have nothing free to promise.
    """
    return {resource: _sum_room(resource, statuses.values()) for resource in _RESOURCES}


def _sum_room(resource: str, statuses: Iterable[HostStatus]) -> dict[str, int]:
    rooms: list[tuple[RoomFacts, bool]] = [
        (getattr(facts, resource), facts.is_in_maintenance) for facts in statuses
    ]
    return {
        "used": sum(room.used for room, _is_closed in rooms),
        "promised": sum(room.promised for room, _is_closed in rooms),
        "free_to_promise": sum(
            max(0, room.limit - room.promised) for room, is_closed in rooms if not is_closed
        ),
        "limit": sum(room.limit for room, _is_closed in rooms),
    }


def _ending_certificates(master: MasterFacts) -> Iterator[dict[str, Any]]:
    """Yield the CAs and the newest certificates of allowed hosts that end soon, or have ended."""
    for path, end in master.ca_ends.items():
        days_left = (end - master.now).days
        if days_left < _CA_DAYS:
            yield {
                "host": None,
                "certificate": path,
                "days_left": days_left,
                "ends": end.isoformat(timespec="seconds"),
            }
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in certificates.list_certificates(master.authorities, master.now):
        # The rows of a host and purpose are in the order of their ends.
        if row["state"] != "revoked":
            newest[row["host"], row["purpose"]] = row
    for (host, purpose), row in newest.items():
        if row["days_left"] < _CERTIFICATE_DAYS and master.members.has(host):
            yield {
                "host": host,
                "certificate": purpose,
                "days_left": row["days_left"],
                "ends": row["not_after"],
            }


def _orders_left(cloud: Cloud) -> Iterator[dict[str, Any]]:
    for order in masterrecords.find_orders_left(cloud.opts):
        yield _unfinished(order.name, None, "command", order.phase, order.since or None)


def _left_on_hosts(statuses: Mapping[str, HostStatus]) -> Iterator[dict[str, Any]]:
    for host, facts in sorted(statuses.items()):
        for name in sorted(facts.unfinished):
            yield _unfinished(name, host, "build, purge or move of a disk")
        for move in facts.moves:
            if not move.is_live:
                yield _unfinished(move.name, host, "move", move.phase)
        for name in sorted(facts.unreadable):
            yield _unfinished(name, host, "unreadable record")


def _unfinished(
    vm: str, host: str | None, what: str, phase: str | None = None, since: str | None = None
) -> dict[str, Any]:
    return {"vm": vm, "host": host, "what": what, "phase": phase, "since": since}
