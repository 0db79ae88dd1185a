"""
States of libvirt's networks.

.. versionadded:: 1.0.0
"""

from collections.abc import Mapping
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.options import optionguard
from saltvirt.core.salt.statereturn import StateChange
from saltvirt.entry.host import hostmodule
from saltvirt.libvirt import networks, networkspec

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def _keep_network(
    function: str, state_arguments: Mapping[str, Any], *, running: bool
) -> StateChange:
    name, is_test = state_arguments["name"], _module.is_test
    network = networkspec.from_call(
        name, state_arguments["bridge"], state_arguments["forward"], state_arguments
    )
    autostart = arguments.boolean("autostart", state_arguments["autostart"])
    login = hostmodule.login(state_arguments) | state_arguments["kwargs"]
    with _module.opened(function, login, readonly=is_test) as (conn, _settings):
        change, comment = networks.ensure_defined(
            conn, network, autostart=autostart, running=running, is_test=is_test
        )
    return StateChange({name: change} if change else {}, comment)


def network_defined(
    name: str,
    bridge: str | None = "unsaid",
    forward: str | None = "unsaid",
    vport: Any = None,
    tag: Any = None,
    ipv4_config: Any = None,
    ipv6_config: Any = None,
    autostart: bool = True,
    connection: str | None = None,
    username: str | None = None,
    password: str | None = None,
    mtu: Any = None,
    domain: Any = None,
    nat: Any = None,
    interfaces: Any = None,
    addresses: Any = None,
    physical_function: str | None = None,
    dns: Any = None,
    **kwargs: Any,
) -> StateChange:
    """
    Keep a network of libvirt's defined; it is not started now.

    name, bridge, forward
        As in ``virt.network_define``: ``forward`` is required, and None is an isolated network;
        ``bridge`` is needed with ``forward: bridge``.
    vport, tag, ipv4_config, ipv6_config, mtu, domain, nat
        As in ``virt.network_define``.
    interfaces, addresses, physical_function, dns
        As in ``virt.network_define``.
    autostart
        Start it with the host. Defaults to True.
    connection, username, password
        Override ``virt:connection``.

    ``changes`` is ``{name: text}``, such as ``Network defined, marked for autostart``. A running
    network gets a changed definition at its next start. Undo: ``virt.network_absent``.

    .. code-block:: yaml

        lan:
          virt.network_defined:
            - forward: nat
            - ipv4_config:
                cidr: 192.168.42.0/24
                dhcp_ranges:
                  - start: 192.168.42.10
                    end: 192.168.42.25
    """
    return _keep_network("virt.network_defined", locals(), running=False)


def network_running(
    name: str,
    bridge: str | None = "unsaid",
    forward: str | None = "unsaid",
    vport: Any = None,
    tag: Any = None,
    ipv4_config: Any = None,
    ipv6_config: Any = None,
    autostart: bool = True,
    connection: str | None = None,
    username: str | None = None,
    password: str | None = None,
    mtu: Any = None,
    domain: Any = None,
    nat: Any = None,
    interfaces: Any = None,
    addresses: Any = None,
    physical_function: str | None = None,
    dns: Any = None,
    **kwargs: Any,
) -> StateChange:
    """
    Keep a network of libvirt's defined and running.

    name, bridge, forward
        As in ``virt.network_define``: ``forward`` is required, and None is an isolated network;
        ``bridge`` is needed with ``forward: bridge``.
    vport, tag, ipv4_config, ipv6_config, mtu, domain, nat
        As in ``virt.network_define``.
    interfaces, addresses, physical_function, dns
        As in ``virt.network_define``.
    autostart
        Start it with the host. Defaults to True.
    connection, username, password
        Override ``virt:connection``.

    ``changes`` is ``{name: text}``, such as ``Network started``. A running network gets a changed
    definition at its next start. Undo: ``virt.network_absent``.

    .. code-block:: yaml

        main:
          virt.network_running:
            - bridge: main
            - forward: bridge
            - vport: openvswitch
            - tag: 180
    """
    return _keep_network("virt.network_running", locals(), running=True)


def network_absent(name: str, **kwargs: Any) -> StateChange:
    """
    Stop a network and remove its definition.

    name
        The network's name.
    connection, username, password
        Override ``virt:connection``.

    Fails, and changes nothing, while running VMs are in it. Undo: ``virt.network_running``.

    .. code-block:: yaml

        lan:
          virt.network_absent
    """
    opened = _module.opened("virt.network_absent", kwargs, readonly=_module.is_test)
    with opened as (conn, _settings):
        change = networks.remove(conn, name, is_test=_module.is_test)
    comment = f"Network {name} {change.removeprefix('Network ') or 'is absent'}"
    return StateChange({name: change} if change else {}, comment)


optionguard.states(globals())
