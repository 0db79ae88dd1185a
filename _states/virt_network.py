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
from saltvirt.core.errors import BadArgument
from saltvirt.core.options import optionguard
from saltvirt.core.salt import compat
from saltvirt.core.salt.statereturn import StateChange
from saltvirt.entry.host import hostmodule
from saltvirt.network.bridge import absent, bridgeplan, confirm, present
from saltvirt.network.firewall import backends, peeraddresses

__virtualname__ = "virt"
__virtual__ = hostmodule.load_everywhere
_module = hostmodule.HostModule(globals())
__opts__: Any
__salt__: Any


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
            f"with STP the bridge forwards nothing for {2 * delay_s} s; "
            "set confirm_timeout above that, or a smaller forward_delay",
        )
    if arguments.boolean("vlan_filtering", state_arguments["vlan_filtering"]):
        options["vlan_filtering"] = 1
    elif vlans:
        raise BadArgument("vlans", "has no effect without vlan_filtering=True")
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
    if changes and not _module.is_test:
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
) -> StateChange:
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
    request = _request(name, ports, state_arguments)
    changes = present.make(__opts__, request, is_test=_module.is_test)
    _tell_master(changes)
    note = ", and the master was reached over it"
    if confirm.master_address(__opts__) is None:
        note = "; this minion has no master, so the bridge was not tested"
    return StateChange(
        changes,
        f"bridge {name} would be made",
        done=f"bridge {name} is set up{note}",
        unchanged=f"bridge {name} is in order",
    )


def bridge_absent(name: str, persist: str = "auto", confirm_timeout: int = 30) -> StateChange:
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
    changes = absent.remove(
        __opts__,
        arguments.link_name("name", name),
        confirm_timeout_s=arguments.whole_number("confirm_timeout", confirm_timeout, most=600),
        persist_by=persist,
        is_test=_module.is_test,
    )
    _tell_master(changes)
    return StateChange(
        changes,
        f"bridge {name} would be removed",
        done=f"bridge {name} is removed",
        unchanged=f"there is no bridge {name}",
    )


def firewall_present(
    name: str, ports: Any, backend: str = "nftables", peers: Any = ()
) -> StateChange:
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
    ask = functools.partial(compat.certificates_pillar, __opts__)
    addresses_by_host, last_peers = enrolment.peers(ask), peeraddresses.LastPeers(name)
    # A host that boots or has just lost its address must not be shut out by its peers.
    unknown_hosts = [host for host, addresses in addresses_by_host.items() if not addresses]
    kept_addresses = last_peers.of(unknown_hosts)
    all_peers = [
        *arguments.names("peers", peers),
        *chain(*addresses_by_host.values(), *kept_addresses.values()),
    ]
    work = backends.of(backend, __salt__, name, ports, all_peers)
    if not _module.is_test:  # a test may run before the package is installed
        work.refuse_missing()
    changes = work.plan()
    if changes and not _module.is_test:
        work.apply()
    if not _module.is_test:
        last_peers.keep({**addresses_by_host, **kept_addresses})
    note = work.note() + peeraddresses.note(kept_addresses, unknown_hosts)
    return StateChange(
        changes,
        f"rules would be set{note}",
        done=f"rules are set{note}",
        unchanged=f"the rules are in order{note}",
        warnings=work.warnings(),
    )


def firewall_absent(name: str, ports: Any = (16514,), backend: str = "nftables") -> StateChange:
    """
    Remove the rules of virt.firewall_present, now and for later boots.

    name, ports, backend
        As there.

    Without the backend's program, loaded rules stay until the next boot, with a warning.

    .. code-block:: yaml

        salt_virt:
          virt.firewall_absent
    """
    work = backends.of(backend, __salt__, name, ports, [])
    changes, warnings = work.removal(), work.stays_loaded()
    if changes and not _module.is_test:
        work.remove()
    if not _module.is_test:
        peeraddresses.LastPeers(name).forget()
    return StateChange(
        changes,
        "rules would be removed",
        done="rules are removed",
        unchanged="there are no rules",
        warnings=[*warnings, *work.kept_by_others()],
    )


optionguard.states(globals())
