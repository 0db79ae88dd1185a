"""
States of a hypervisor's own network: its bridges and its firewall.

.. versionadded:: 1.0.0
"""

import functools
from collections.abc import Mapping
from itertools import chain
from typing import Any

from saltvirt.certificates.host import enrolment
from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.core.options import optionguard
from saltvirt.core.salt import compat, statereturn
from saltvirt.network.bridge import absent, bridgeplan, confirm, present
from saltvirt.network.firewall import backends, lastpeers

__virtualname__ = "virt"
__opts__: Any
__salt__: Any


def __virtual__() -> str:
    """Load everywhere: the network may be set up before libvirt."""
    return __virtualname__


def _request(name: str, ports: Any, state_arguments: Mapping[str, Any]) -> present.Request:
    vlans = arguments.vlans("vlans", state_arguments["vlans"])
    delay_s = arguments.whole_number(
        "forward_delay", state_arguments["forward_delay"], least=0, most=30
    )
    timeout_s = arguments.whole_number(
        "confirm_timeout", state_arguments["confirm_timeout"], least=1, most=600
    )
    stp = arguments.boolean("stp", state_arguments["stp"])
    # With STP the kernel refuses smaller values.
    delay_s = max(delay_s, 2) if stp else delay_s
    options = {"stp": int(stp), "forward_delay_cs": 100 * delay_s}
    if stp and timeout_s <= 2 * delay_s:
        raise BadArgument(
            "confirm_timeout",
            f"with STP nothing passes for {2 * delay_s} s; give "
            "more than that, or a smaller forward_delay",
        )
    if arguments.boolean("vlan_filtering", state_arguments["vlan_filtering"]):
        options["vlan_filtering"] = 1
    elif vlans:
        raise BadArgument("vlans", "only a bridge with vlan_filtering=True looks at them")
    mtu = state_arguments["mtu"]
    return present.Request(
        bridge=bridgeplan.Bridge(
            name=arguments.link_name("name", name),
            ports=tuple(arguments.link_name("ports", p) for p in arguments.names("ports", ports)),
            addresses=arguments.interface_addresses("addresses", state_arguments["addresses"]),
            gateway=arguments.address("gateway", state_arguments["gateway"]),
            mtu=None if mtu is None else arguments.whole_number("mtu", mtu, least=576, most=65535),
            options=options,
            vlans=vlans,
        ),
        dhcp=None
        if state_arguments["dhcp"] is None
        else arguments.boolean("dhcp", state_arguments["dhcp"]),
        dns=None
        if state_arguments["dns"] is None
        else tuple(
            str(arguments.address("dns", d)) for d in arguments.names("dns", state_arguments["dns"])
        ),
        persist=state_arguments["persist"],
        confirm_timeout_s=timeout_s,
    )


def _tell_master(changes: Mapping[str, Any]) -> None:
    """Refresh the minion's grains, which it may have read while its address moved."""
    if changes and not __opts__["test"]:
        __salt__["saltutil.refresh_grains"]()


def bridge_present(
    name: str,
    ports: Any = (),
    addresses: Any = None,
    gateway: str | None = None,
    dhcp: bool | None = None,
    dns: Any = None,
    mtu: int | None = None,
    stp: bool = False,
    forward_delay: int = 0,
    vlan_filtering: bool = False,
    vlans: Any = (),
    persist: str = "auto",
    confirm_timeout: int = 30,
) -> dict[str, Any]:
    """
    Keep a persistent bridge over ports that may carry this host's own traffic.

    name
        The bridge, at most 15 characters.
    ports
        Links to join, a bond too. Their addresses, routes and VLANs move to the bridge at once.
    addresses, gateway
        Static addresses (``10.0.0.4/16``) and the default gateway. Default to those of the ports.
    dhcp, dns
        Give the bridge its address by DHCP; its name servers. Default to the present settings: a
        leased address means DHCP, and the same client renews the lease on the bridge.
    mtu
        In bytes, of bridge and ports. Defaults to that of the first port.
    stp, forward_delay
        Spanning tree, and its delay in seconds, with STP at least 2. Default to False and 0.
    vlan_filtering, vlans
        Filter VLANs on the bridge, and pass these (``[10, 20-30]``) on its ports.
    persist
        ``auto`` (default), ``networkmanager``, ``networkd``, ``netplan``, ``ifupdown`` or ``none``.
    confirm_timeout
        Seconds within which the master must be reached over the bridge. Defaults to 30.

    If the master is not reached, a step fails or the job is killed, links, addresses, routes, files
    and the network manager are rolled back, and the state fails with the reason. A lease without a
    client that renews it is refused. Present ports that are not listed stay. Undo:
    virt.bridge_absent.

    .. code-block:: yaml

        br0:
          virt.bridge_present:
            - ports: [eth0]
    """
    state_arguments = {k: v for k, v in locals().items() if k not in ("name", "ports")}
    try:
        request = _request(name, ports, state_arguments)
        changes = present.make(__opts__, request, is_test=__opts__["test"])
        _tell_master(changes)
    except VirtError as error:
        return statereturn.make_failure(name, error, globals())
    note = ", and the master was reached over it"
    if confirm.master_address(__opts__) is None:
        note = "; whether it leads anywhere was not tried, as this minion has no master"
    return statereturn.make_return(
        name,
        changes,
        is_test=__opts__["test"],
        test_comment=f"bridge {name} would be made",
        done_comment=f"bridge {name} is there{note}",
        unchanged_comment=f"bridge {name} is in order",
    )


def bridge_absent(name: str, persist: str = "auto", confirm_timeout: int = 30) -> dict[str, Any]:
    """
    Remove a bridge; its addresses, routes and lease move to its port, if it has one.

    name
        The bridge; refused if VMs use it.
    persist, confirm_timeout
        As for virt.bridge_present.

    .. code-block:: yaml

        br0:
          virt.bridge_absent
    """
    try:
        changes = absent.remove(
            __opts__,
            arguments.link_name("name", name),
            confirm_timeout_s=arguments.whole_number("confirm_timeout", confirm_timeout, most=600),
            persist_by=persist,
            is_test=__opts__["test"],
        )
        _tell_master(changes)
    except VirtError as error:
        return statereturn.make_failure(name, error, globals())
    return statereturn.make_return(
        name,
        changes,
        is_test=__opts__["test"],
        test_comment=f"bridge {name} would be removed",
        done_comment=f"bridge {name} is removed",
        unchanged_comment=f"there is no bridge {name}",
    )


def firewall_present(
    name: str, ports: Any, backend: str = "nftables", peers: Any = ()
) -> dict[str, Any]:
    """
    Let only the other hypervisors reach ports of this host.

    name
        Name of the table or chain that holds the rules: up to 28 letters, digits and ``_``.
    ports
        TCP ports and ranges: ``[16514, 49152-49215]``.
    backend
        ``nftables`` (default), ``iptables`` or ``firewalld``, which must run.
    peers
        Further addresses and networks, besides those of the hypervisors that the master knows.

    The rules are loaded atomically. A systemd unit ``salt-virt-BACKEND-NAME`` loads them at each
    boot, before the network, and ``salt-virt-BACKEND-NAME-again`` whenever a service that flushes
    all rules starts; firewalld keeps them itself; without systemd the comment notes that they are
    not loaded at boot. A table or chain of that name that is not ours is refused, as is a name that
    ends with ``_forward``. A warning names other nftables chains that drop packets. With every
    backend, nftables drops packets of NAT guests to these ports of peers: without ``nft`` there is
    a warning, and a failing ``nft`` is an error. While the master knows no address of a hypervisor,
    its last known addresses get in; the comment names both. If a step fails, all rules are
    restored. Undo: virt.firewall_absent.

    .. code-block:: yaml

        salt_virt:
          virt.firewall_present:
            - ports: [16514, 49152-49215]
    """
    is_test = __opts__["test"]
    try:
        ask = functools.partial(compat.certificates_pillar, __opts__)
        addresses_by_host, last_peers = enrolment.peers(ask), lastpeers.LastPeers(name)
        # A host that boots or has just lost its address must not be shut out by its peers.
        unknown_hosts = [host for host, addresses in addresses_by_host.items() if not addresses]
        kept_addresses = last_peers.of(unknown_hosts)
        all_peers = [
            *arguments.names("peers", peers),
            *chain(*addresses_by_host.values(), *kept_addresses.values()),
        ]
        work = backends.of(backend, __salt__, name, ports, all_peers)
        if not is_test:  # a test may run before the package is installed
            work.refuse_missing()
        changes = work.plan()
        if changes and not is_test:
            work.apply()
        if not is_test:
            last_peers.keep({**addresses_by_host, **kept_addresses})
        note, warnings = (
            work.note() + lastpeers.note(kept_addresses, unknown_hosts),
            work.warnings(),
        )
    except VirtError as error:
        return statereturn.make_failure(name, error, globals())
    ret = statereturn.make_return(
        name,
        changes,
        is_test=is_test,
        test_comment=f"rules would be set{note}",
        done_comment=f"rules are set{note}",
        unchanged_comment=f"the rules are in order{note}",
    )
    return {**ret, "warnings": warnings} if warnings else ret


def firewall_absent(name: str, ports: Any = (16514,), backend: str = "nftables") -> dict[str, Any]:
    """
    Remove the rules of virt.firewall_present, now and for later boots.

    name, ports, backend
        As there.

    Without the backend's program, loaded rules stay until the next boot, with a warning.

    .. code-block:: yaml

        salt_virt:
          virt.firewall_absent
    """
    try:
        work = backends.of(backend, __salt__, name, ports, [])
        changes, warnings = work.removal(), work.stays_loaded()
        if changes and not __opts__["test"]:
            work.remove()
        if not __opts__["test"]:
            lastpeers.LastPeers(name).forget()
        warnings += work.kept_by_others()
    except VirtError as error:
        return statereturn.make_failure(name, error, globals())
    ret = statereturn.make_return(
        name,
        changes,
        is_test=__opts__["test"],
        test_comment="rules would be removed",
        done_comment="rules are removed",
        unchanged_comment="there are none",
    )
    return {**ret, "warnings": warnings} if warnings else ret


optionguard.states(globals())
