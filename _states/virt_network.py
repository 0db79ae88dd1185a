"""
States of a hypervisor's own network: who may reach its libvirt.

.. versionadded:: 1.0.0
"""

import functools

from saltvirt import compat
from saltvirt.errors import VirtError
from saltvirt.net import firewall
from saltvirt.ops import keys

__virtualname__ = "virt"


def __virtual__():
    """Load everywhere: the network may be set up before libvirt is."""
    return __virtualname__


def firewall_present(name, ports, backend="nftables", peers=()):
    """
    Let the other hypervisors, and nobody else, reach ports of this host.

    name
        Name of the table or chain that holds the rules: letters, digits and ``_``.
    ports
        TCP ports and ranges: ``[16514, 49152-49215]``.
    backend
        ``nftables`` (default), ``iptables`` or ``firewalld``.
    peers
        Addresses and networks beside those of the hypervisors that the master knows.

    Loaded in one step and kept over a reboot. A rule of another nftables table that drops is
    named as a warning. Undo: virt.firewall_absent.

    .. code-block:: yaml

        salt_virt:
          virt.firewall_present:
            - ports: [16514, 49152-49215]
    """
    ret = {"name": name, "changes": {}, "result": False, "comment": ""}
    try:
        ask = functools.partial(compat.certificates_pillar, __opts__)
        wanted = [*peers, *keys.peers(ask)]
        work = firewall.of(backend, __salt__, name, ports, wanted)
        ret["changes"] = work.plan()
        if ret["changes"] and not __opts__["test"]:
            work.apply()
    except VirtError as error:
        return {**ret, "changes": {}, "comment": str(error)}
    done = "would be set" if __opts__["test"] else "are set"
    ret["comment"] = f"rules {done}" if ret["changes"] else "the rules are in order"
    ret["result"] = None if __opts__["test"] and ret["changes"] else True
    return {**ret, "warnings": work.warnings()} if work.warnings() else ret


def firewall_absent(name, ports=(16514,), backend="nftables"):
    """
    Take away the rules of virt.firewall_present.

    name, ports, backend
        As there; firewalld finds its rules by the ports.

    .. code-block:: yaml

        salt_virt:
          virt.firewall_absent
    """
    ret = {"name": name, "changes": {}, "result": False, "comment": ""}
    try:
        work = firewall.of(backend, __salt__, name, ports, [])
        if __opts__["test"]:
            return {**ret, "result": None, "comment": "rules would be removed if there are any"}
        ret["changes"] = work.remove()
    except VirtError as error:
        return {**ret, "comment": str(error)}
    comment = "rules are removed" if ret["changes"] else "there are none"
    return {**ret, "result": True, "comment": comment}
