"""Addresses and login of a VM on this host, and the tail of its console log."""

import logging
import os
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saltvirt.core import files, guestaccess, terminal
from saltvirt.core.errors import VirtError
from saltvirt.core.units import MIB
from saltvirt.libvirt import networks
from saltvirt.libvirt.domains import query
from saltvirt.network.bridge import links
from saltvirt.vm.show.host import inspect, showndisks
from saltvirt.vm.spec import console_log
from saltvirt.xml.edit import readdomain

log = logging.getLogger(__name__)


def describe_vm(conn: Any, name: str, host: str) -> dict[str, dict[str, Any]]:
    """
    Return a VM as :func:`saltvirt.vm.show.host.inspect.vm_info` does, with its addresses and login.

    host
        This host's minion id.
    """
    disks = showndisks.Disks(conn)
    return {
        row["name"]: {**inspect.describe(row, disks), **_describe_access(conn, row, host)}
        for row in inspect.rows(conn, name)
    }


def _describe_access(conn: Any, row: Mapping[str, Any], host: str) -> dict[str, Any]:
    root, name = readdomain.domain(row["xml"]), row["name"]
    user = guestaccess.ssh_user(readdomain.describe_notes(root)["ssh_user"])
    behind = networks.find_host_only_subnets(conn, readdomain.links(root)["networks"])
    out = {"addresses": [], "addresses_from": None, "behind_host": behind, "ssh_user": user}
    if row["state"] != "running":
        return {**out, "login": None}
    addresses, source = _find_addresses(conn, name, root)
    login = guestaccess.ssh(
        addresses, user, host=host, jump_networks=behind
    ) or guestaccess.console(name, host)
    return {**out, "addresses": addresses, "addresses_from": source, "login": login}


def _find_addresses(conn: Any, name: str, root: ET.Element) -> tuple[list[str], str | None]:
    """Return a running VM's addresses from the first source that knows any, and that source."""
    for source in ("lease", *(["agent"] if readdomain.has_agent(root) else []), "neighbours"):
        if source == "neighbours":
            addresses, source = _neighbours(conn, name, root)
        else:
            addresses = query.addresses(conn, name, source)
        if addresses:
            return addresses, source
    return [], None


def _neighbours(conn: Any, name: str, root: ET.Element) -> tuple[list[str], str]:
    """Return addresses from the kernel's neighbour table, as libvirt's reader may fail."""
    try:
        return guestaccess.addresses(links.neighbours(_on_bridges(root))), "neighbours"
    except VirtError as exc:
        log.debug("the neighbours of this host are not known: %s", exc)
        return query.addresses(conn, name, "arp"), "arp"


def _on_bridges(root: ET.Element) -> list[tuple[str, str]]:
    """Return ``(bridge, MAC)`` of a running VM's NICs; running XML names networks' bridges."""
    pairs = (
        (nic.get("source", {}).get("bridge"), mac) for mac, nic in readdomain.nics(root).items()
    )
    return [(bridge, mac) for bridge, mac in pairs if bridge]


def read_console_tail(name: str, lines: int) -> str:
    """
    Return the last lines of a VM's console log, from its last MiB.

    The guest writes the log, so terminal control sequences are left out.
    """
    path = Path(console_log(name))
    try:
        with open(path, "rb", opener=files.open_by_trusted_links) as handle:
            handle.seek(max(0, os.fstat(handle.fileno()).st_size - MIB))
            text = handle.read().decode(errors="replace")
    except OSError as exc:
        raise VirtError(f"no console log of {name!r}: {exc.strerror} ({path})") from exc
    return "\n".join(terminal.printable(line) for line in text.splitlines()[-lines:])
