"""
Define, change, show, start, stop and remove libvirt's networks.

.. versionadded:: 1.0.0
"""

from saltvirt.core import arguments
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.libvirt import networks, networkspec

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def network_define(
    name,
    bridge="unsaid",
    forward="unsaid",
    ipv4_config=None,
    ipv6_config=None,
    vport=None,
    tag=None,
    autostart=True,
    start=True,
    mtu=None,
    domain=None,
    nat=None,
    interfaces=None,
    addresses=None,
    physical_function=None,
    dns=None,
    **kwargs,
):
    """
    Define a network of libvirt's, and start it.

    name
        The network's name.
    bridge
        The host's bridge. Needed with ``forward=bridge`` without ``interfaces``. With nat, route,
        open and isolated libvirt makes a ``virbrN`` where none is given, or None; networks of
        other modes have none.
    forward
        ``nat``, ``route``, ``open``, ``bridge``, ``private``, ``vepa``, ``passthrough``,
        ``hostdev``, or None for an isolated network. Required.
    ipv4_config, ipv6_config
        ``{cidr, dhcp_ranges, hosts, bootp, tftp}``: ``dhcp_ranges`` is a list of ``{start, end}``,
        ``hosts`` is ``{IP: {mac, id, name}}`` or a list of ``{ip, mac, id, name}``, ``bootp`` is
        ``{file, server}``, ``tftp`` a folder. The host has the first address of ``cidr``.
    vport
        ``openvswitch`` or another type, or ``{type, parameters}``.
    tag
        A VLAN's number, or ``{trunk, tags}`` with tags ``[{id, nativeMode}]``.
    autostart
        Start it with the host. Defaults to True.
    start
        Start it now. Defaults to True.
    mtu
        Bytes; libvirt's own by default.
    domain
        ``{name, localOnly}`` of the network's DNS.
    nat
        ``{address: {start, end}, port: {start, end}}`` that connections go out by.
    interfaces
        The host's links, as text with blanks between or as a list.
    addresses
        PCI addresses such as ``0000:04:00.1``, likewise, for hostdev.
    physical_function
        The link that provides the virtual functions of a hostdev network.
    dns
        ``{forwarders, txt, hosts, srvs}``: ``forwarders`` is a list of ``{domain, addr}``, ``txt``
        is ``{name: value}``, ``hosts`` is ``{IP: [name]}``, ``srvs`` is a list of ``{name,
        protocol, target, port, priority, domain, weight}``.

    Returns True; fails with libvirt's message, and then leaves no network behind. Undo:
    virt.network_stop, virt.network_undefine.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.network_define lan None nat ipv4_config="{cidr: 10.98.0.0/24}" start=False
        salt hyper1 virt.network_undefine lan
    """
    options = {key: value for key, value in locals().items() if key in networkspec.KEYS}
    network = networkspec.from_call(name, bridge, forward, options)
    autostart = arguments.boolean("autostart", autostart)
    start = arguments.boolean("start", start)
    with _module.connection("virt.network_define", kwargs) as conn:
        networks.define(conn, network, autostart=autostart, start=start)
    return True


def network_update(
    name,
    bridge="unsaid",
    forward="unsaid",
    ipv4_config=None,
    ipv6_config=None,
    vport=None,
    tag=None,
    mtu=None,
    domain=None,
    nat=None,
    interfaces=None,
    addresses=None,
    physical_function=None,
    dns=None,
    test=False,
    **kwargs,
):
    """
    Change a network's definition if it differs.

    name, bridge, forward
        As in virt.network_define: ``forward`` is required, and None is an isolated network;
        ``bridge`` is needed with ``forward=bridge``.
    ipv4_config, ipv6_config, vport, tag, mtu, domain, nat
        As in virt.network_define.
    interfaces, addresses, physical_function, dns
        As in virt.network_define.
    test
        Change nothing, only return whether the definition would change. Defaults to False.

    A running network gets the new definition at its next start. Values that libvirt filled in
    (UUID, MAC, the name of a bridge) stay and count as no difference.

    Returns True if the definition changes, else False; fails if there is no such network. Undo:
    virt.network_update with the old values.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.network_update default virbr0 nat test=True \
ipv4_config="{cidr: 192.168.122.0/24}"
    """
    options = {key: value for key, value in locals().items() if key in networkspec.KEYS}
    network = networkspec.from_call(name, bridge, forward, options)
    is_test = arguments.boolean("test", test)
    with _module.connection("virt.network_update", kwargs, readonly=is_test) as conn:
        return networks.update(conn, network, is_test=is_test)


def list_networks(**kwargs):
    """
    Return the names of all networks, sorted.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.list_networks
    """
    with _module.connection("virt.list_networks", kwargs, readonly=True) as conn:
        return networks.names(conn)


def network_info(name=None, **kwargs):
    """
    Return the state of all networks, or of one.

    name
        Only this one.

    Returns ``{name: {uuid, bridge, autostart, active, persistent, leases}}``: ``bridge`` is None
    if it has none, the three flags are 0 or 1, ``leases`` is a list of ``{iface, expirytime,
    type, mac, iaid, ipaddr, prefix, hostname, clientid}`` with type ``ipv4`` or ``ipv6``; ``{}``
    if there is no such network. Fails with libvirt's message.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.network_info default
    """
    with _module.connection("virt.network_info", kwargs, readonly=True) as conn:
        return networks.info(conn, name)


def network_get_xml(name, **kwargs):
    """
    Return a network's XML as libvirt has it.

    name
        The network's name.

    Returns text; fails if there is no such network.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.network_get_xml default
    """
    with _module.connection("virt.network_get_xml", kwargs, readonly=True) as conn:
        return networks.get(conn, name).XMLDesc(0)


def network_start(name, **kwargs):
    """
    Start a network that is defined.

    name
        The network's name.

    Returns True; fails with libvirt's message, such as if it runs. Undo: virt.network_stop.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.network_stop default
        salt hyper1 virt.network_start default
    """
    with _module.connection("virt.network_start", kwargs) as conn:
        networks.get(conn, name).create()
    return True


def network_stop(name, **kwargs):
    """
    Stop a network; its definition stays. Running VMs in it lose their link for good.

    name
        The network's name.

    Returns True; fails if it does not run. Undo: virt.network_start.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.network_stop default
        salt hyper1 virt.network_start default
    """
    with _module.connection("virt.network_stop", kwargs) as conn:
        networks.get(conn, name).destroy()
    return True


def network_undefine(name, **kwargs):
    """
    Remove a network's definition; a running network continues until it is stopped.

    name
        The network's name.

    Returns True; fails if there is no such network. Undo: virt.network_define.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.network_define lan None nat ipv4_config="{cidr: 10.98.0.0/24}" start=False
        salt hyper1 virt.network_undefine lan
    """
    with _module.connection("virt.network_undefine", kwargs) as conn:
        networks.get(conn, name).undefine()
    return True


def network_set_autostart(name, state="on", **kwargs):
    """
    Start a network together with its host, or stop doing so.

    name
        The network's name.
    state
        ``on`` (default) or ``off``.

    Returns True; fails if there is no such network. Undo: the other state.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.network_set_autostart default off
        salt hyper1 virt.network_set_autostart default on
    """
    is_on = arguments.on_off("state", state)
    with _module.connection("virt.network_set_autostart", kwargs) as conn:
        networks.get(conn, name).setAutostart(int(is_on))
    return True


optionguard.modules(globals())
