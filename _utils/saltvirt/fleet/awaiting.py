"""Wait for the minion of a VM that was just made, and say what helps where it does not come."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.config import MasterSettings
from saltvirt.errors import VirtError
from saltvirt.fleet import reaching, stored
from saltvirt.fleet.building import Request
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hosts import DeployError
from saltvirt.fleet.pings import Pings
from saltvirt.placement.answers import HostInfo

# A distribution's image boots and installs its minion in a minute or two by KVM, and in five or ten
# where the processor is emulated.
_WAIT_S, _EMULATED_S = 300, 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a minion is waited for, in seconds, and why so long if nobody has said it."""

    wait_s: int
    why: str = ""


def is_emulated(info: HostInfo, asked: str | None) -> bool:
    """
    Return whether a host emulates the processor of a new VM.

    asked
        ``kvm`` or ``qemu``, None for what the host takes by default.
    """
    return (asked or info.domain_types.default) == "qemu"


def patience(settings: MasterSettings, wait_s: int | None, *, emulated: bool) -> Patience:
    """Return how long to wait: as the call says, else the master, else what the host needs."""
    given = settings.wait_s if wait_s is None else wait_s
    if given is not None:
        return Patience(wait_s=given)
    if emulated:
        return Patience(wait_s=_EMULATED_S, why="its host has no KVM and emulates it")
    return Patience(wait_s=_WAIT_S)


def refuse_unproved(
    opts: Mapping[str, Any], requests: Iterable[Request], answers: Mapping[str, HostInfo]
) -> None:
    """
    Raise MasterError if a minion would be waited for that this master cannot tell from others.

    answers
        What the hosts say that may build the VMs.
    """
    if any(
        one.given.get("start", True) and one.is_seeded(info)
        for one in requests
        for info in answers.values()
    ):
        stored.refuse_unproved(opts)


def wait_for_start(cloud: Cloud, name: str, *, wait_s: float, every_s: float = 5) -> float | None:
    """
    Return after how many seconds a new minion answers, or None if it does not within ``wait_s``.

    It is asked when it says that it started, and now and then in case that was missed.
    """
    begin = time.monotonic()
    with cloud.client() as local:
        pings = Pings(local, cloud, every_s)
        while time.monotonic() - begin < wait_s:
            if pings.answered([name], now=pings.has_started(name)):
                return round(time.monotonic() - begin, 1)
    return None


def _cut(why: str, name: str, host: str) -> DeployError:
    return DeployError(
        f"{why}: VM {name!r} runs on {host} and keeps its key; its minion was not waited for any "
        f"longer; see: salt {name} test.ping; remove it: salt-run virt.purge {name}"
    )


def minion(
    cloud: Cloud, name: str, host: str, how: Patience, told: Mapping[str, Any]
) -> dict[str, Any]:
    """
    Return ``{"minion", "seconds"}`` once a VM's minion answers, or raise with what helps.

    told
        What is said of the VM in either case.
    """
    why = f"; {how.why}" if how.why else ""
    cloud.progress("Waiting", detail=f"for its minion, at most {how.wait_s} s{why}")
    try:
        seconds = wait_for_start(cloud, name, wait_s=how.wait_s)
    except (KeyboardInterrupt, SystemExit):
        raise _cut("interrupted", name, host) from None
    except VirtError as failed:
        raise _cut(str(failed), name, host) from failed
    if seconds is not None:
        return {"minion": "answers", "seconds": seconds}
    error = DeployError(
        f"VM {name!r} runs on {host} and keeps its key, but its minion does not answer after "
        f"{how.wait_s} s; it may still come: salt {name} test.ping; its console says how far it "
        f"is: salt-run virt.console_log {name}; wait longer with wait_s= of virt.init, or virt:"
        f"wait_s of the master; remove it: salt-run virt.purge {name}"
    )
    found = reaching.of(cloud, host, name, has_minion=False)
    error.table = {**found, **reaching.console(cloud, host, name), **told}
    raise error
