"""Record what each host was certified for and has requested; take its names from other hosts."""

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from saltvirt.ca import policy
from saltvirt.ca.authorities import Authorities
from saltvirt.ca.ca import PkiError
from saltvirt.ca.certified import names_in
from saltvirt.core import files, locks

PER_HOUR, PER_DAY = 60, 100
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_END = ".json"
# The limit for a host that requests other names each time; MORE stands for names beyond it.
_MOST, MORE = 1000, "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """
    The record of a host.

    subjects
        The names and addresses of its newest certificate.
    requested_at
        When it got certificates within the last day, as ISO 8601.
    certified
        ``{name or address: end}`` of all its certificates, by the newest one with that name.
    """

    subjects: tuple[str, ...] = ()
    requested_at: tuple[str, ...] = ()
    certified: Mapping[str, str] = field(default_factory=dict)

    def with_request(self, host: str, now: datetime, options: Mapping[str, Any]) -> "Enrolled":
        """Return the record with one more request; raise PkiError if there are too many."""
        per_hour = options.get("requests_per_hour", PER_HOUR)
        per_day = options.get("requests_per_day", max(PER_DAY, per_hour))
        times = [text for text in self.requested_at if now - datetime.fromisoformat(text) < _DAY]
        times_in_hour = [text for text in times if now - datetime.fromisoformat(text) < _HOUR]
        for limit, request_times, span, words, option in (
            (per_hour, times_in_hour, _HOUR, "an hour", "requests_per_hour"),
            (per_day, times, _DAY, "a day", "requests_per_day"),
        ):
            if len(request_times) >= limit:
                next_allowed = datetime.fromisoformat(request_times[-limit]) + span
                raise PkiError(
                    f"{host} has had certificates {len(request_times)} times within {words} "
                    f"(virt:pki:{option}); it gets more after {next_allowed:%H:%M} UTC"
                )
        return replace(self, requested_at=(*times, now.isoformat()))

    def with_names(self, names: Collection[str], until: datetime, now: datetime) -> "Enrolled":
        """Return the record with a new certificate, without names of expired ones."""
        good_names = {name: end for name, end in self.certified.items() if _is_good(end, now)}
        ends_by_name = {**good_names, **dict.fromkeys(names, until.isoformat())}
        if len(ends_by_name) > _MOST:
            newest = sorted(ends_by_name, key=ends_by_name.__getitem__)[-_MOST:]
            ends_by_name = {
                **{name: ends_by_name[name] for name in newest},
                MORE: until.isoformat(),
            }
        return replace(self, subjects=tuple(names), certified=ends_by_name)

    def without(self, names: Collection[str]) -> "Enrolled":
        """Return the record without names that no good certificate of the host has any more."""
        return replace(
            self,
            subjects=tuple(name for name in self.subjects if name not in names),
            certified={name: end for name, end in self.certified.items() if name not in names},
        )

    def certified_names(self, now: datetime) -> set[str]:
        """Return the names in good certificates and in the newest one, maybe MORE."""
        good_names = {name for name, end in self.certified.items() if _is_good(end, now)}
        return good_names.union(self.subjects)


def _is_good(end: str, now: datetime) -> bool:
    return datetime.fromisoformat(end) > now


class Register:
    """The records of all hosts; the folder is that of the CAs."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder) / "enrolled"

    @contextmanager
    def hold_lock(self, host: str) -> Iterator[None]:
        """Hold the lock of a host, so that its requests are answered one at a time."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locks.hold_lock(self._folder / f"{host}.lock"):
            yield

    def read(self, host: str) -> Enrolled:
        """Return the record of a host."""
        path = self._folder / f"{host}{_END}"
        try:
            content = json.loads(path.read_bytes())
            return Enrolled(
                subjects=tuple(content["subjects"]),
                requested_at=tuple(content["requested_at"]),
                certified=dict(content["certified"]),
            )
        except FileNotFoundError:
            return Enrolled()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise PkiError(
                f"the record {path} of {host}'s certificates cannot be read ({error}); move it away"
            ) from error

    def write(self, host: str, record: Enrolled) -> None:
        """Write the record of a host."""
        files.write(self._folder / f"{host}{_END}", json.dumps(asdict(record)).encode())

    def hosts(self) -> list[str]:
        """Return the hosts that have had certificates."""
        names = [name for name in names_in(self._folder) if name.endswith(_END)]
        return sorted(filter(policy.is_name, (name.removesuffix(_END) for name in names)))

    def holders(self, hosts: Iterable[str]) -> dict[str, str]:
        """Return ``{name or address: host}`` of these hosts' newest certificates."""
        return {text: host for host in sorted(hosts) for text in self.read(host).subjects}


log = logging.getLogger(__name__)


def reclaim_names(
    authorities: Authorities,
    register: Register,
    host: str,
    names_by_host: Mapping[str, Collection[str]],
    now: datetime,
) -> dict[str, list[str]]:
    """
    Revoke the certificates of other hosts that have a name or an address of this one.

    host
        The id of a hypervisor that the master knows.
    names_by_host
        ``virt:pki:names``; a name that it gives to two hosts stays with both.

    Returns ``{other host: [revoked serial]}``. The other hosts get new certificates, without these
    names, at their next ``virt.keys``.
    """
    own_names = policy.assigned(host, names_by_host.get(host) or ())
    revoked_by_host = {}
    for other_id in register.hosts():
        names = own_names - policy.assigned(other_id, names_by_host.get(other_id) or ())
        if other_id == host or not _may_have(register.read(other_id).certified_names(now), names):
            continue
        with register.hold_lock(other_id):
            serials = _revoke_certificates(authorities, register, other_id, names, now)
        if serials:
            revoked_by_host[other_id] = serials
            log.warning(
                "revoked certificates of %s with a name of %s: %s; it gets others at its next "
                "virt.keys",
                *(other_id, host, ", ".join(serials)),
            )
    return revoked_by_host


def _may_have(certified_names: set[str], names: set[str]) -> bool:
    return MORE in certified_names or not certified_names.isdisjoint(names)


def _revoke_certificates(
    authorities: Authorities,
    register: Register,
    other_id: str,
    names: set[str],
    now: datetime,
) -> list[str]:
    """Revoke a host's certificates with any of these names; return the serials."""
    revoked_serials = authorities.revoked()
    good_rows = [
        row
        for row in authorities.issued()
        if row["host"] == other_id
        and row["serial"] not in revoked_serials
        and datetime.fromisoformat(row["not_after"]) > now
    ]
    rows = [row for row in good_rows if not names.isdisjoint(row["names"])]
    authorities.revoke(rows, now)
    kept_names = {name for row in good_rows if row not in rows for name in row["names"]}
    record = register.read(other_id)
    register.write(other_id, record.without(record.certified_names(now) - kept_names - {MORE}))
    return [row["serial"] for row in rows]
