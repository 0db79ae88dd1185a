"""
Listen to libvirt's events without end, and reconnect after libvirt was away.

libvirt calls back in the thread that runs its event loop, which is the thread of :func:`watch`.
"""

import contextlib
import logging
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from saltvirt.core.errors import LibvirtRefused
from saltvirt.libvirt import connect
from saltvirt.libvirt.connect import libvirt
from saltvirt.libvirt.errorcodes import has_code, value_or
from saltvirt.libvirt.eventkinds import Kind

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
