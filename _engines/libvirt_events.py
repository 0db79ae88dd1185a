"""
Engine ``libvirt_events``: forward libvirt's events to the event bus of a minion or a master.

.. versionadded:: 1.0.0
"""

import logging
import threading

import salt.utils.event
from saltvirt.core import arguments
from saltvirt.core.errors import VirtError
from saltvirt.libvirt import connect, events

__virtualname__ = "libvirt_events"
log = logging.getLogger(__name__)
_PREFIX = "salt/engines/libvirt_events"


def __virtual__():
    """Load only if libvirt's Python module is installed; otherwise return the reason."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def start(uri=None, tag_prefix=_PREFIX, filters=None):
    """
    Forward libvirt's events to Salt, and never return.

    uri
        The URI of libvirt. Defaults to libvirt's own choice (``uri_default`` of its
        ``libvirt.conf``).
    tag_prefix
        The prefix of the tags. Defaults to ``salt/engines/libvirt_events``.
    filters
        Which events: a list of ``all``, objects (``domain``, ``network``, ``pool``, ``nodedev``,
        ``secret``) and kinds (``domain/lifecycle``). Defaults to all.

    The tag is ``PREFIX/SCHEME[/NETLOC]/PATH/OBJECT/EVENT``, such as
    ``salt/engines/libvirt_events/qemu/system/domain/lifecycle``; the data has ``uri``, ``event``
    and the object (``{"domain": {"name", "id", "uuid"}}``), and fields of its kind, such as
    ``detail``. If the connection to libvirt is lost, the engine logs this once and waits.

    .. code-block:: yaml

        engines:
          - libvirt_events:
              filters:
                - domain/lifecycle
                - pool
    """
    try:
        # Options without a value get the defaults.
        libvirt_uri = None if uri is None else arguments.text("uri", uri)
        prefix = _PREFIX if tag_prefix is None else arguments.text("tag_prefix", tag_prefix)
        events.watch(libvirt_uri, events.chosen(filters), prefix, _sender())
    except VirtError as error:
        log.error("engine libvirt_events cannot start: %s; correct this, then restart Salt", error)
        # If this function returned, Salt would restart it again and again with the same error.
        threading.Event().wait()


def _sender():
    """Return a function that sends an event: to the local bus of a master, or by the minion."""
    if __opts__.get("__role") != "master":
        return lambda tag, data: __salt__["event.send"](tag, data)
    bus = salt.utils.event.get_master_event(__opts__, __opts__["sock_dir"], listen=False)
    return lambda tag, data: bus.fire_event(data, tag)
