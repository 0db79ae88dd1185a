"""
Listen to libvirt's events for ever, also when libvirt goes away and comes back.

libvirt tells of events in the thread that runs its event loop, which is the one of :func:`watch`.
"""

import contextlib
import logging
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from saltvirt.errors import LibvirtRefused
from saltvirt.kvm import connect
from saltvirt.kvm.connect import libvirt
from saltvirt.kvm.eventkinds import Kind

log = logging.getLogger(__name__)

Send = Callable[[str, Mapping[str, Any]], object]
# How often it is looked whether the connection lives, and whether libvirt is back.
_LOOK_MS, _RETRY_S = 1000, 2
# A host that answers nothing for half a minute is away: the network may have been cut.
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

    ``qemu+ssh://user@host:1234/system`` has ``qemu+ssh/user@host:1234/system`` in it.
    """
    parts = urllib.parse.urlparse(uri)
    location = (parts.scheme, parts.netloc, parts.path.strip("/"))
    return "/".join([prefix, *(part for part in location if part), kind.object, kind.event])


def watch(uri: str | None, kinds: Sequence[Kind], prefix: str, send: Send) -> None:
    """
    Send libvirt's events of some kinds, and never return.

    uri
        Which libvirt; None for the one that libvirt itself chooses.
    send
        Called with a tag and its data. An event that cannot be sent is logged, and lost.

    While libvirt does not answer it is asked every few seconds; the log says it once, and says when
    it is back. Events of that time are lost.
    """
    # libvirt prints every error to standard error unless told otherwise.
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    libvirt.virEventRegisterDefaultImpl()
    # The loop returns after each of its rounds, and this makes one.
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
    """Yield a connection whose events of these kinds are sent."""
    # One that takes the connection and is silent would hold the engine for ever.
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
        # It may be dead: libvirt then says so, and the callbacks have gone with it.
        with contextlib.suppress(libvirt.libvirtError):
            conn.close()


def _keep_alive(conn: Any) -> None:
    """Have libvirt ask a silent daemon whether it lives."""
    try:
        conn.setKeepAlive(_KEEPALIVE_S, _KEEPALIVES)
    except libvirt.libvirtError as exc:
        # A driver within this process needs none.
        if exc.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
            raise


def _register(conn: Any, kind: Kind, callback: Callable[..., None]) -> bool:
    """Have libvirt call back for a kind of event; return whether it has that kind."""
    numbers = (getattr(libvirt, id_name, None) for id_name in kind.ids)
    number = next((candidate for candidate in numbers if candidate is not None), None)
    if number is None:
        log.warning("no events of %s: this libvirt is too old", kind.name)
        return False
    try:
        getattr(conn, _REGISTER[kind.object])(None, number, callback, None)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() not in (libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_INVALID_ARG):
            raise
        log.warning("no events of %s: %s", kind.name, exc)
        return False
    return True


def _build_sender(uri: str, kind: Kind, prefix: str, send: Send) -> Callable[..., None]:
    """Return what libvirt calls: with the connection, the object, what happened, and no opaque."""
    event_tag = tag(prefix, uri, kind)

    def called(_conn: Any, event_object: Any, *arguments: Any) -> None:
        try:
            # An event has the word for what happened, and where there is none, its kind's.
            data = {
                "uri": uri,
                kind.object: _describe_object(kind, event_object),
                "event": kind.event,
            }
            send(event_tag, {**data, **kind.read(*arguments[:-1])})
        except Exception as exc:  # what sends may fail in any way, and the next event is another
            reason = f"{type(exc).__name__}: {exc}"
            log.error("an event of %s could not be sent: %s", kind.name, reason)

    return called


def _describe_object(kind: Kind, event_object: Any) -> dict[str, Any]:
    """Return what an event says of its object."""
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
