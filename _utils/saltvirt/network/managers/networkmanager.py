"""NetworkManager, which takes over a bridge as soon as its files are reloaded."""

import shutil
from functools import partial
from pathlib import Path

from saltvirt.network.bridge import leases
from saltvirt.network.bridge.leases import Lease
from saltvirt.network.bridge.links import wait_for
from saltvirt.network.managers import linkconfig
from saltvirt.network.managers.change import Change
from saltvirt.network.managers.filemanagers import FileManager
from saltvirt.network.managers.linkconfig import LinkConfig
from saltvirt.network.managers.tools import PersistenceError, run

_OURS = "salt-virt-"
_PROFILES = "/etc/NetworkManager/system-connections"
_WAIT_S = 20
_PORT_S = 3
_CHOOSE_S = 0.5
_DISCONNECTED, _ACTIVE = 30, 100
_UP = ["nmcli", "--wait", str(_WAIT_S), "connection", "up"]


class NetworkManager(FileManager):
    """NetworkManager; it recreates a removed bridge, so reload it before the links change."""

    title = "NetworkManager"
    # Without an address, method=auto is the default and not a choice.
    asks = r"^\[ipv6\]\nmethod=auto\naddress1="
    own = {
        f"{_PROFILES}/salt-virt-{{name}}.nmconnection": "interface-name={name}",
    }
    # NetworkManager 1.46 rewrites `master` as `controller`, and a bridge's name as its UUID.
    of_ports = {
        f"{_PROFILES}/salt-virt-{{name}}-*.nmconnection": "interface-name={port}",
    }

    def wanted(self, config: LinkConfig) -> dict[str, str]:
        """Return ``{path: text}`` of the files that keep a bridge."""
        return linkconfig.networkmanager(config)

    def runs(self) -> bool:
        """Return whether NetworkManager runs and has ``nmcli``."""
        return bool(Path("/run/NetworkManager/devices").exists() and shutil.which("nmcli"))

    def lease(self, link: str) -> Lease | None:
        """Return the lease that NetworkManager holds on a link, or None."""
        try:
            return (
                leases.from_networkmanager(
                    run(["nmcli", "-t", "-f", "DHCP4", "device", "show", link])
                )
                if self.runs()
                else None
            )
        except PersistenceError:  # no such device, or an unmanaged one
            return None

    def holder(self, link: str) -> str | None:
        """Return the UUID of a link's connection that is not ours, or None."""
        if not self.runs():
            return None
        name, uuid = _field(link, "GENERAL.CONNECTION"), _field(link, "GENERAL.CON-UUID")
        return uuid if uuid and not name.startswith(_OURS) else None

    def take(self, change: Change) -> None:
        """Bring up the bridge and its ports from their keyfiles."""
        if not self.runs():
            return
        run(["nmcli", "connection", "reload"])
        bridge = f"{_OURS}{change.name}"
        connections_by_port = {port: f"{bridge}-{port}" for port in change.ports}
        if change.written or _field(change.name, "GENERAL.CONNECTION") != bridge:
            run([*_UP, bridge])
        for port, connection in connections_by_port.items():
            # NetworkManager activates ports with their bridge; a second request interrupts them.
            if not wait_for(partial(_is_up, port, connection), _PORT_S):
                run([*_UP, connection])
        if connections_by_port and not wait_for(lambda: _is_up(change.name, bridge), _WAIT_S):
            raise PersistenceError(
                f"NetworkManager does not bring up {change.name} within {_WAIT_S} s"
            )

    def give_back(self, change: Change) -> None:
        """Activate the former connections of the ports, or let NetworkManager choose."""
        if not self.runs():
            return
        if change.written:
            run(["nmcli", "connection", "reload"])
        for port, uuid in change.had.items():
            if uuid and _field(port, "GENERAL.CON-UUID") != uuid:
                run([*_UP, uuid, "ifname", port])
            elif change.written:
                _choose(port)


def _choose(port: str) -> None:
    """Wait until NetworkManager has activated a connection of its choice on a port."""
    if not wait_for(lambda: _is_begun(port), _CHOOSE_S):
        # The port's automatic connection is created at boot only: request it.
        run(["nmcli", "--wait", str(_WAIT_S), "device", "connect", port])
    wait_for(lambda: _is_up(port), _WAIT_S)


def _field(link: str, field: str) -> str:
    try:
        return run(["nmcli", "-g", field, "device", "show", link]).strip()
    except PersistenceError:  # no such device, yet or any more
        return ""


def _state(link: str) -> int:
    number = _field(link, "GENERAL.STATE").partition(" ")[0]
    return int(number) if number.isdigit() else 0


def _is_up(link: str, connection: str | None = None) -> bool:
    return _state(link) == _ACTIVE and connection in (None, _field(link, "GENERAL.CONNECTION"))


def _is_begun(link: str) -> bool:
    return _DISCONNECTED < _state(link) <= _ACTIVE
