"""
Engine ``libvirt_events``: libvirt's events on Salt's event bus, of a minion or of a master.

.. versionadded:: 1.0.0
"""

import logging
import threading

import salt.utils.event
from saltvirt import arguments
from saltvirt.errors import VirtError
from saltvirt.kvm import connect, eventkinds, events

__virtualname__ = "libvirt_events"
log = logging.getLogger(__name__)
_PREFIX = "salt/engines/libvirt_events"


def __virtual__():
    """Load only where libvirt's Python module is; say what is missing otherwise."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def start(uri=None, tag_prefix=_PREFIX, filters=None):
    """
    Pass libvirt's events on to Salt, and never return.

    uri
        Which libvirt. Defaults to the one that libvirt itself chooses (``uri_default`` of its
        ``libvirt.conf``).
    tag_prefix
        What the tags begin with. Defaults to ``salt/engines/libvirt_events``.
    filters
        Which events: a list of ``all``, objects (``domain``, ``network``, ``pool``, ``nodedev``,
        ``secret``) and kinds (``domain/lifecycle``). Defaults to all.

    The tag is ``PREFIX/SCHEME[/NETLOC]/PATH/OBJECT/EVENT``, such as
    ``salt/engines/libvirt_events/qemu/system/domain/lifecycle``; the data has ``uri``, ``event``
    and the object (``{"domain": {"name", "id", "uuid"}}``), and what is of its kind, such as
    ``detail``. When libvirt goes away, the log says so once, and the engine waits for it.

    .. code-block:: yaml

        engines:
          - libvirt_events:
              filters:
                - domain/lifecycle
                - pool
    """
    try:
        # An option without a value says nothing.
        libvirt_uri = None if uri is None else arguments.text("uri", uri)
        prefix = _PREFIX if tag_prefix is None else arguments.text("tag_prefix", tag_prefix)
        events.watch(libvirt_uri, eventkinds.chosen(filters), prefix, _sender())
    except VirtError as error:
        log.error("engine libvirt_events has nothing to do: %s; then restart this Salt", error)
        # Salt would start it again and again, with the same words each time.
        threading.Event().wait()


def _sender():
    """Return what sends an event: a master's bus is here, a minion's master is elsewhere."""
    if __opts__.get("__role") != "master":
        return lambda tag, data: __salt__["event.send"](tag, data)
    bus = salt.utils.event.get_master_event(__opts__, __opts__["sock_dir"], listen=False)
    return lambda tag, data: bus.fire_event(data, tag)
