"""Nobody starts a VM here that is on its way to or from another host."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from saltvirt import locks, protocol, records
from saltvirt.config import HostSettings
from saltvirt.errors import VirtError
from saltvirt.ops import reservations

_AWAY = {protocol.HANDING: "handed over", protocol.LEAVING: "gone"}


class OnItsWay(VirtError):
    """The VM is on its way between two hosts; the message says which command settles that."""


@contextmanager
def starting(settings: HostSettings, name: str) -> Iterator[None]:
    """Start a VM, or hand it over, in the block: never both at once."""
    with unstarted(settings, name):
        refuse_moving(settings, name)
        yield


def unstarted(settings: HostSettings, name: str) -> AbstractContextManager[Any]:
    """Return the lock under which a VM is started, or looked at to be handed over."""
    return locks.held(Path(settings.state_dir) / "locks" / f"start-{quote(name, safe='')}.lock")


def refuse_moving(settings: HostSettings, name: str) -> None:
    """Raise OnItsWay if a VM belongs, or may belong, to another host."""
    place = reservations.folder(settings)
    departure = records.look(place, "departure", name)
    arrival = records.look(place, "arrival", name)
    if departure is not None and departure.phase in _AWAY:
        raise _error(departure, f"{_AWAY[departure.phase]} to {departure.facts.get('target')}")
    if arrival is not None and arrival.phase != protocol.ARRIVED:
        raise _error(arrival, f"still on its way here from {arrival.facts.get('source')}")


def _error(record: records.Record, what: str) -> OnItsWay:
    return OnItsWay(
        f"VM {record.name!r} is {what}, in a move that was begun at {record.since_text} and is "
        f"not over; if nobody is at it any more, have both hosts asked: "
        f"salt-run virt.settle {record.name}"
    )
