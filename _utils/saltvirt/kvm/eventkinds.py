"""
The kinds of events that libvirt tells of, and what of each is passed on as plain data.

libvirt says numbers: each enumeration is a row of words here, in libvirt's order, which is that of
its numbers. A number that a newer libvirt adds is ``unknown``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saltvirt.errors import BadConfig

# virDomainEventType, and for each of its words the details.
_LIFECYCLE = {
    "defined": ("added", "updated", "renamed", "from snapshot"),
    "undefined": ("removed", "renamed"),
    "started": ("booted", "migrated", "restored", "from snapshot", "wakeup"),
    "suspended": (
        "paused",
        "migrated",
        "ioerror",
        "watchdog",
        "restored",
        "from snapshot",
        "api error",
        "postcopy",
        "postcopy failed",
    ),
    "resumed": ("unpaused", "migrated", "from snapshot", "postcopy", "postcopy failed"),
    "stopped": (
        "shutdown",
        "destroyed",
        "crashed",
        "migrated",
        "saved",
        "failed",
        "from snapshot",
    ),
    "shutdown": ("finished", "guest", "host"),
    "pmsuspended": ("memory", "disk"),
    "crashed": ("panicked", "crashloaded"),
}
_WATCHDOG = ("none", "pause", "reset", "poweroff", "shutdown", "debug", "injectnmi")
_IO_ERROR = ("none", "pause", "report")
_GRAPHICS = ("connect", "initialize", "disconnect")
_ADDRESS = ("ipv4", "ipv6", "unix")
_DISK_CHANGE = ("change missing on start", "drop missing on start")
_TRAY_CHANGE = ("open", "close")
_JOB_TYPE = ("unknown", "pull", "copy", "commit", "active commit", "backup")
_JOB = ("completed", "failed", "canceled", "ready")
_AGENT_STATE = ("unknown", "connected", "disconnected")
_AGENT_REASON = ("unknown", "domain started", "channel")
_METADATA = ("description", "title", "element")
_MEMORY_RECIPIENT = ("hypervisor", "guest")
_MEMORY_ACTION = ("ignore", "inject", "fatal", "reset")
_NETWORK = ("defined", "undefined", "started", "stopped")
_POOL = ("defined", "undefined", "started", "stopped", "created", "deleted")
_NODEDEV = ("created", "deleted", "defined", "undefined")
_SECRET = ("defined", "undefined")
# libvirt has no words for the reason of a sleep, nor for details of what is not a domain.
_NO_WORDS: tuple[str, ...] = ()


def word(words: Sequence[str], number: int) -> str:
    """Return what a number of an enumeration means."""
    return words[number] if 0 <= number < len(words) else "unknown"


Read = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of event: of which object, what libvirt calls it, how its arguments become data."""

    name: str
    ids: tuple[str, ...]
    read: Read

    @property
    def object(self) -> str:
        """``domain``, ``network``, ``pool``, ``nodedev`` or ``secret``."""
        return self.name.partition("/")[0]

    @property
    def event(self) -> str:
        """``lifecycle``, ``reboot`` and so on."""
        return self.name.partition("/")[2]


def _keys(*keys: str) -> Read:
    """Return a reader that passes the arguments on under these keys."""
    return lambda *values: dict(zip(keys, values, strict=True))


def _words(**enumerations: Sequence[str]) -> Read:
    """Return a reader of numbers."""
    return lambda *numbers: {
        key: word(words, number)
        for (key, words), number in zip(enumerations.items(), numbers, strict=True)
    }


def _changed(words: Sequence[str]) -> Read:
    """Return a reader of what is not a domain: its event has a detail that means nothing yet."""
    return lambda event, _detail: {"event": word(words, event), "detail": "unknown"}


def _lifecycle(event: int, detail: int) -> dict[str, str]:
    happened = word(tuple(_LIFECYCLE), event)
    return {"event": happened, "detail": word(_LIFECYCLE.get(happened, ()), detail)}


def _io_error(path: str, device: str, action: int, reason: str) -> dict[str, str]:
    return {
        "srcPath": path,
        "dev": device,
        "action": word(_IO_ERROR, action),
        "reason": reason,
    }


def _graphics(
    phase: int,
    local: Mapping[str, Any],
    remote: Mapping[str, Any],
    scheme: str,
    subject: Iterable[Sequence[str]],
) -> dict[str, Any]:
    return {
        "phase": word(_GRAPHICS, phase),
        "local": _endpoint(local),
        "remote": _endpoint(remote),
        "authScheme": scheme,
        "subject": [{"type": one[0], "name": one[1]} for one in subject],
    }


def _endpoint(address: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "family": word(_ADDRESS, address["family"]),
        "node": address["node"],
        "service": address["service"],
    }


def _disk_change(old: str | None, new: str | None, device: str, reason: int) -> dict[str, Any]:
    said = word(_DISK_CHANGE, reason)
    return {"oldSrcPath": old, "newSrcPath": new, "dev": device, "reason": said}


def _tray_change(device: str, reason: int) -> dict[str, str]:
    return {"dev": device, "reason": word(_TRAY_CHANGE, reason)}


def _block_job(disk: str, job: int, status: int) -> dict[str, str]:
    return {"disk": disk, "type": word(_JOB_TYPE, job), "status": word(_JOB, status)}


def _metadata_change(kind: int, namespace: str | None) -> dict[str, Any]:
    return {"type": word(_METADATA, kind), "nsuri": namespace}


def _memory_failure(recipient: int, action: int, flags: int) -> dict[str, Any]:
    who, done = word(_MEMORY_RECIPIENT, recipient), word(_MEMORY_ACTION, action)
    return {"recipient": who, "action": done, "flags": flags}


def _of_domain(event: str, read: Read, ids: tuple[str, ...] = ()) -> Kind:
    return Kind(f"domain/{event}", ids or (f"VIR_DOMAIN_EVENT_ID_{event.upper()}",), read)


_ASLEEP = _words(reason=_NO_WORDS)
# Of several ids the first is taken that libvirt has: the later ones say less.
_BLOCK_JOB = ("VIR_DOMAIN_EVENT_ID_BLOCK_JOB_2", "VIR_DOMAIN_EVENT_ID_BLOCK_JOB")
KINDS = (
    _of_domain("lifecycle", _lifecycle),
    _of_domain("reboot", _keys()),
    _of_domain("rtc_change", _keys("utcoffset")),
    _of_domain("watchdog", _words(action=_WATCHDOG)),
    _of_domain("graphics", _graphics),
    _of_domain("io_error", _io_error, ("VIR_DOMAIN_EVENT_ID_IO_ERROR_REASON",)),
    _of_domain("control_error", _keys()),
    _of_domain("disk_change", _disk_change),
    _of_domain("tray_change", _tray_change),
    _of_domain("pmwakeup", _ASLEEP),
    _of_domain("pmsuspend", _ASLEEP),
    _of_domain("balloon_change", _keys("actual")),
    _of_domain("pmsuspend_disk", _ASLEEP),
    _of_domain("device_removed", _keys("dev")),
    _of_domain("block_job", _block_job, _BLOCK_JOB),
    _of_domain("tunable", _keys("params")),
    _of_domain("agent_lifecycle", _words(state=_AGENT_STATE, reason=_AGENT_REASON)),
    _of_domain("device_added", _keys("dev")),
    _of_domain("migration_iteration", _keys("iteration")),
    _of_domain("job_completed", _keys("params")),
    _of_domain("device_removal_failed", _keys("dev")),
    _of_domain("metadata_change", _metadata_change),
    _of_domain("block_threshold", _keys("dev", "path", "threshold", "excess")),
    _of_domain("memory_failure", _memory_failure),
    _of_domain("memory_device_size_change", _keys("dev", "size")),
    Kind("network/lifecycle", ("VIR_NETWORK_EVENT_ID_LIFECYCLE",), _changed(_NETWORK)),
    Kind("pool/lifecycle", ("VIR_STORAGE_POOL_EVENT_ID_LIFECYCLE",), _changed(_POOL)),
    Kind("pool/refresh", ("VIR_STORAGE_POOL_EVENT_ID_REFRESH",), _keys()),
    Kind("nodedev/lifecycle", ("VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE",), _changed(_NODEDEV)),
    Kind("nodedev/update", ("VIR_NODE_DEVICE_EVENT_ID_UPDATE",), _keys()),
    Kind("secret/lifecycle", ("VIR_SECRET_EVENT_ID_LIFECYCLE",), _changed(_SECRET)),
    Kind("secret/value_changed", ("VIR_SECRET_EVENT_ID_VALUE_CHANGED",), _keys()),
)


def chosen(filters: object) -> tuple[Kind, ...]:
    """
    Return the kinds that filters let through.

    filters
        A list, or one text, of ``all``, objects (``domain``) and kinds (``domain/lifecycle``).
        None and an empty list are all.
    """
    wanted: Any = [filters] if isinstance(filters, str) else filters or ["all"]
    known = {"all", *(kind.name for kind in KINDS), *(kind.object for kind in KINDS)}
    is_list = isinstance(wanted, list | tuple) and all(isinstance(one, str) for one in wanted)
    if not is_list or not known.issuperset(wanted):
        raise BadConfig(
            f"filters: {filters!r}; expected a list of 'all', {', '.join(_objects())}, or a kind "
            f"of their events, such as 'domain/lifecycle' (docs/events.md has them all)"
        )
    return tuple(k for k in KINDS if not {"all", k.object, k.name}.isdisjoint(wanted))


def _objects() -> list[str]:
    """Return the objects that have events, in the order of the kinds."""
    return list(dict.fromkeys(kind.object for kind in KINDS))
