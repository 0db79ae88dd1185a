"""
Convert libvirt's events to data; listen to them without end, and reconnect after a failure.

libvirt calls back in the thread that runs its event loop, which is the thread of :func:`watch`.
"""

import contextlib
import logging
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saltvirt.core.errors import BadConfig, LibvirtRefused
from saltvirt.libvirt import connect
from saltvirt.libvirt.connect import libvirt
from saltvirt.libvirt.errorcodes import has_code, value_or

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
    """A kind of event: its object, its ids in libvirt, and its conversion to data."""

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


log = logging.getLogger(__name__)

Send = Callable[[str, Mapping[str, Any]], object]
# How often to check the connection, and to retry one.
_LOOK_MS, _RETRY_S = 1000, 2
# A daemon that is unresponsive for half a minute is away: the network may have been cut.
_KEEPALIVE_S, _KEEPALIVES = 5, 6
_REGISTER = {
    "domain": "domainEventRegisterAny",
    "network": "networkEventRegisterAny",
    "pool": "storagePoolEventRegisterAny",
    "nodedev": "nodeDeviceEventRegisterAny",
    "secret": "secretEventRegisterAny",
}


def tag(prefix: str, uri: str, kind: Kind) -> str:
    """
    Return the tag of an event, ``PREFIX/SCHEME[/NETLOC]/PATH/OBJECT/EVENT``.

    ``qemu+ssh://user@host:1234/system`` becomes ``qemu+ssh/user@host:1234/system``.
    """
    parts = urllib.parse.urlparse(uri)
    location = (parts.scheme, parts.netloc, parts.path.strip("/"))
    return "/".join([prefix, *(part for part in location if part), kind.object, kind.event])


def watch(uri: str | None, kinds: Sequence[Kind], prefix: str, send: Send) -> None:
    """
    Send libvirt's events of some kinds, and never return.

    uri
        The libvirt daemon; None for libvirt's own default.
    send
        Called with a tag and its data. An event that cannot be sent is logged, and lost.

    An unresponsive daemon is retried every few seconds. The log reports the outage once, and its
    end. Events in between are lost.
    """
    # Without a handler, libvirt prints every error to standard error.
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    libvirt.virEventRegisterDefaultImpl()
    # virEventRunDefaultImpl returns after one round; this timer ends a round every second.
    libvirt.virEventAddTimeout(_LOOK_MS, lambda _timer, _nothing: None, None)
    name, is_reported = uri or "its default URI", False
    while True:
        try:
            with _open_listening(uri, kinds, prefix, send) as conn:
                log.info("libvirt answers at %s: its events are passed on", name)
                is_reported = False
                while conn.isAlive():
                    libvirt.virEventRunDefaultImpl()
                reason: object = "the connection was closed"
        except (libvirt.libvirtError, TimeoutError) as exc:
            reason = exc
        if not is_reported:
            log.error(
                "libvirt does not answer at %s: %s; its events are lost until it does, and it is "
                "asked every %s seconds; is libvirtd running on this host?",
                name,
                reason,
                _RETRY_S,
            )
            is_reported = True
        time.sleep(_RETRY_S)


@contextlib.contextmanager
def _open_listening(
    uri: str | None, kinds: Sequence[Kind], prefix: str, send: Send
) -> Iterator[Any]:
    """Yield a connection that sends its events of these kinds."""
    # A daemon that accepts the connection and then hangs would block the engine without end.
    conn = connect.open_in_time(lambda: libvirt.openReadOnly(uri), uri or "")
    try:
        _keep_alive(conn)
        actual_uri = conn.getURI()
        senders = {kind: _build_sender(actual_uri, kind, prefix, send) for kind in kinds}
        if not [kind for kind, sender in senders.items() if _register(conn, kind, sender)]:
            raise LibvirtRefused(
                f"libvirt at {actual_uri} has none of the events that are asked for"
            )
        yield conn
    finally:
        # Closing a dead connection fails; its callbacks are gone anyway.
        with contextlib.suppress(libvirt.libvirtError):
            conn.close()


def _keep_alive(conn: Any) -> None:
    """Have libvirt send keepalive probes to the daemon."""
    # A driver inside this process supports no keepalive, and needs none.
    value_or(None, lambda: conn.setKeepAlive(_KEEPALIVE_S, _KEEPALIVES), "NO_SUPPORT")


def _register(conn: Any, kind: Kind, callback: Callable[..., None]) -> bool:
    """Register a callback for a kind of event; return whether libvirt has that kind."""
    numbers = (getattr(libvirt, id_name, None) for id_name in kind.ids)
    number = next((candidate for candidate in numbers if candidate is not None), None)
    if number is None:
        log.warning("no events of %s: this libvirt is too old", kind.name)
        return False
    try:
        getattr(conn, _REGISTER[kind.object])(None, number, callback, None)
    except libvirt.libvirtError as exc:
        if not has_code(exc, "NO_SUPPORT", "INVALID_ARG"):
            raise
        log.warning("no events of %s: %s", kind.name, exc)
        return False
    return True


def _build_sender(uri: str, kind: Kind, prefix: str, send: Send) -> Callable[..., None]:
    """Return libvirt's callback, called with connection, object, the kind's values, and opaque."""
    event_tag = tag(prefix, uri, kind)

    def called(_conn: Any, event_object: Any, *arguments: Any) -> None:
        try:
            # A lifecycle reader replaces ``event``; the other kinds keep their own name.
            data = {
                "uri": uri,
                kind.object: _describe_object(kind, event_object),
                "event": kind.event,
            }
            send(event_tag, {**data, **kind.read(*arguments[:-1])})
        except Exception as exc:  # ``send`` may fail in any way; the next event is independent
            reason = f"{type(exc).__name__}: {exc}"
            log.error("an event of %s could not be sent: %s", kind.name, reason)

    return called


def _describe_object(kind: Kind, event_object: Any) -> dict[str, Any]:
    """Return an event's data on its object."""
    if kind.object == "domain":
        return {
            "name": event_object.name(),
            "id": event_object.ID(),
            "uuid": event_object.UUIDString(),
        }
    if kind.object == "secret":
        return {"uuid": event_object.UUIDString()}
    if kind.object == "nodedev":
        return {"name": event_object.name()}
    return {"name": event_object.name(), "uuid": event_object.UUIDString()}
