"""
The kinds of libvirt's events, and their conversion to plain data.

libvirt uses numbers. Each enumeration is a row of words here, in the order of libvirt's numbers. A
number that a newer libvirt adds becomes ``unknown``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saltvirt.core.errors import BadConfig

# virDomainEventType, with the details of each type.
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
# libvirt has no words for the reason of a sleep.
_NO_WORDS: tuple[str, ...] = ()


def word(words: Sequence[str], number: int) -> str:
    """Return the word for a number of an enumeration."""
    return words[number] if 0 <= number < len(words) else "unknown"


Reader = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of event: its object, libvirt's ids of it, and its conversion to data."""

    name: str
    ids: tuple[str, ...]
    read: Reader

    @property
    def object(self) -> str:
        """``domain``, ``network``, ``pool``, ``nodedev`` or ``secret``."""
        return self.name.partition("/")[0]

    @property
    def event(self) -> str:
        """``lifecycle``, ``reboot`` and so on."""
        return self.name.partition("/")[2]


def _key_reader(*keys: str) -> Reader:
    """Return a reader that passes the arguments on under these keys."""
    return lambda *values: dict(zip(keys, values, strict=True))


def _word_reader(**enumerations: Sequence[str]) -> Reader:
    """Return a reader that converts numbers to words."""
    return lambda *numbers: {
        key: word(words, number)
        for (key, words), number in zip(enumerations.items(), numbers, strict=True)
    }


def _change_reader(words: Sequence[str]) -> Reader:
    """Return a reader for objects other than domains: libvirt defines no details for them yet."""
    return lambda event, _detail: {"event": word(words, event), "detail": "unknown"}


def _lifecycle(event: int, detail: int) -> dict[str, str]:
    event_word = word(tuple(_LIFECYCLE), event)
    return {"event": event_word, "detail": word(_LIFECYCLE.get(event_word, ()), detail)}


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
        "subject": [{"type": identity[0], "name": identity[1]} for identity in subject],
    }


def _endpoint(address: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "family": word(_ADDRESS, address["family"]),
        "node": address["node"],
        "service": address["service"],
    }


def _disk_change(
    old_path: str | None, new_path: str | None, device: str, reason: int
) -> dict[str, Any]:
    reason_word = word(_DISK_CHANGE, reason)
    return {"oldSrcPath": old_path, "newSrcPath": new_path, "dev": device, "reason": reason_word}


def _tray_change(device: str, reason: int) -> dict[str, str]:
    return {"dev": device, "reason": word(_TRAY_CHANGE, reason)}


def _block_job(disk: str, job: int, status: int) -> dict[str, str]:
    return {"disk": disk, "type": word(_JOB_TYPE, job), "status": word(_JOB, status)}


def _metadata_change(kind: int, namespace: str | None) -> dict[str, Any]:
    return {"type": word(_METADATA, kind), "nsuri": namespace}


def _memory_failure(recipient: int, action: int, flags: int) -> dict[str, Any]:
    recipient_word, action_word = word(_MEMORY_RECIPIENT, recipient), word(_MEMORY_ACTION, action)
    return {"recipient": recipient_word, "action": action_word, "flags": flags}


def _domain_kind(event: str, read: Reader, ids: tuple[str, ...] = ()) -> Kind:
    return Kind(f"domain/{event}", ids or (f"VIR_DOMAIN_EVENT_ID_{event.upper()}",), read)


_ASLEEP = _word_reader(reason=_NO_WORDS)
# The first id that this libvirt has is used: later ones give less detail.
_BLOCK_JOB = ("VIR_DOMAIN_EVENT_ID_BLOCK_JOB_2", "VIR_DOMAIN_EVENT_ID_BLOCK_JOB")
KINDS = (
    _domain_kind("lifecycle", _lifecycle),
    _domain_kind("reboot", _key_reader()),
    _domain_kind("rtc_change", _key_reader("utcoffset")),
    _domain_kind("watchdog", _word_reader(action=_WATCHDOG)),
    _domain_kind("graphics", _graphics),
    _domain_kind("io_error", _io_error, ("VIR_DOMAIN_EVENT_ID_IO_ERROR_REASON",)),
    _domain_kind("control_error", _key_reader()),
    _domain_kind("disk_change", _disk_change),
    _domain_kind("tray_change", _tray_change),
    _domain_kind("pmwakeup", _ASLEEP),
    _domain_kind("pmsuspend", _ASLEEP),
    _domain_kind("balloon_change", _key_reader("actual")),
    _domain_kind("pmsuspend_disk", _ASLEEP),
    _domain_kind("device_removed", _key_reader("dev")),
    _domain_kind("block_job", _block_job, _BLOCK_JOB),
    _domain_kind("tunable", _key_reader("params")),
    _domain_kind("agent_lifecycle", _word_reader(state=_AGENT_STATE, reason=_AGENT_REASON)),
    _domain_kind("device_added", _key_reader("dev")),
    _domain_kind("migration_iteration", _key_reader("iteration")),
    _domain_kind("job_completed", _key_reader("params")),
    _domain_kind("device_removal_failed", _key_reader("dev")),
    _domain_kind("metadata_change", _metadata_change),
    _domain_kind("block_threshold", _key_reader("dev", "path", "threshold", "excess")),
    _domain_kind("memory_failure", _memory_failure),
    _domain_kind("memory_device_size_change", _key_reader("dev", "size")),
    Kind("network/lifecycle", ("VIR_NETWORK_EVENT_ID_LIFECYCLE",), _change_reader(_NETWORK)),
    Kind("pool/lifecycle", ("VIR_STORAGE_POOL_EVENT_ID_LIFECYCLE",), _change_reader(_POOL)),
    Kind("pool/refresh", ("VIR_STORAGE_POOL_EVENT_ID_REFRESH",), _key_reader()),
    Kind("nodedev/lifecycle", ("VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE",), _change_reader(_NODEDEV)),
    Kind("nodedev/update", ("VIR_NODE_DEVICE_EVENT_ID_UPDATE",), _key_reader()),
    Kind("secret/lifecycle", ("VIR_SECRET_EVENT_ID_LIFECYCLE",), _change_reader(_SECRET)),
    Kind("secret/value_changed", ("VIR_SECRET_EVENT_ID_VALUE_CHANGED",), _key_reader()),
)


def chosen(filters: object) -> tuple[Kind, ...]:
    """
    Return the kinds that filters let through.

    filters
        A list, or one text, of ``all``, objects (``domain``) and kinds (``domain/lifecycle``).
        None and an empty list mean all.
    """
    names: Any = [filters] if isinstance(filters, str) else filters or ["all"]
    known_names = {"all", *(kind.name for kind in KINDS), *(kind.object for kind in KINDS)}
    is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    if not is_list or not known_names.issuperset(names):
        raise BadConfig(
            f"filters: {filters!r}; expected a list of 'all', {', '.join(_objects())}, or a kind "
            f"of their events, such as 'domain/lifecycle' (docs/events.md has them all)"
        )
    return tuple(k for k in KINDS if not {"all", k.object, k.name}.isdisjoint(names))


def _objects() -> list[str]:
    """Return the objects that have events, in the order of the kinds."""
    return list(dict.fromkeys(kind.object for kind in KINDS))
