"""
States of libvirt's networks.

.. versionadded:: 1.0.0
"""

from collections.abc import Mapping
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import VirtError
from saltvirt.core.options import config, optionguard
from saltvirt.core.salt import statereturn
from saltvirt.libvirt import connect, networks, networkspec

__virtualname__ = "virt"
__opts__: Any
__pillar__: Any
__grains__: Any


def __virtual__() -> str | tuple[bool, str]:
    """Load only if libvirt's Python module is installed; otherwise return the reason."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def _open_connection(function: str, state_arguments: Mapping[str, Any]) -> Any:
    login = {key: state_arguments[key] for key in config.CONNECTION if state_arguments.get(key)}
    login |= state_arguments.get("kwargs") or {}
    settings = config.for_call(function, login, __opts__, __pillar__, __grains__)
    return connect.open_connection(settings, readonly=__opts__["test"])


def _keep_network(
    function: str, state_arguments: Mapping[str, Any], *, running: bool
) -> dict[str, Any]:
    name = state_arguments["name"]
    try:
        network = networkspec.from_call(
            name, state_arguments["bridge"], state_arguments["forward"], state_arguments
        )
        autostart = arguments.boolean("autostart", state_arguments["autostart"])
        with _open_connection(function, state_arguments) as conn:
            change, comment = networks.ensure_defined(
                conn, network, autostart=autostart, running=running, is_test=__opts__["test"]
            )
    except VirtError as error:
        return statereturn.make_failure(name, error, globals())
    return _state_return(name, change, comment)


def _state_return(name: str, change: str, comment: str) -> dict[str, Any]:
    return statereturn.make_return(
        name,
        {name: change} if change else {},
        is_test=__opts__["test"],
        test_comment=comment,
        done_comment=comment,
        unchanged_comment=comment,
    )


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
) -> dict[str, Any]:
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
) -> dict[str, Any]:
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


def network_absent(name: str, **kwargs: Any) -> dict[str, Any]:
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
    try:
        with _open_connection("virt.network_absent", {"kwargs": kwargs}) as conn:
            change = networks.remove(conn, name, is_test=__opts__["test"])
    except VirtError as error:
        return statereturn.make_failure(name, error, globals())
    comment = f"Network {name} {change.removeprefix('Network ') or 'is absent'}"
    return _state_return(name, change, comment)


optionguard.states(globals())
