"""Find the network manager that keeps this host's bridges."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from saltvirt.core.errors import BadArgument
from saltvirt.network.managers import filemanagers, ifupdown
from saltvirt.network.managers.change import Change, Manager
from saltvirt.network.managers.linkconfig import LinkConfig
from saltvirt.network.managers.networkmanager import NetworkManager
from saltvirt.network.managers.tools import PersistenceError


class NoManager:
    """The absence of a manager, by the operator's ``persist=none``."""

    title, gives_back_first, writes_heir = "persist=none", False, False

    def pending(self, _config: LinkConfig) -> dict[str, str]:
        """Return nothing."""
        return {}

    def files_of(self, _name: str) -> list[str]:
        """Return nothing."""
        return []

    def persisting(self, config: LinkConfig) -> Change:
        """Return a change of nothing."""
        return Change(self, config.name, (), paths=(), write=dict, is_coming=True)

    def forgetting(self, name: str, _ports: Iterable[str], _heir: LinkConfig | None) -> Change:
        """Return a change of nothing."""
        return Change(self, name, (), paths=(), write=dict, is_coming=False)

    def runs(self) -> bool:
        """Return that it does not."""
        return False

    def lease(self, _link: str) -> None:
        """Return nothing."""
        return

    def claims(self, _links: Iterable[str]) -> bool:
        """Return that it does not."""
        return False

    def holder(self, _link: str) -> None:
        """Return nothing."""
        return

    def take(self, _change: Change) -> None:
        """Do nothing."""

    let_go = give_back = take


def find(manager_name: str = "auto", links: Iterable[str] = ()) -> tuple[str, Manager]:
    """
    Return the name and the manager of this host's network; raise PersistenceError if none is found.

    links
        If there are several managers: the one that renews a lease of one of these; else ifupdown,
        if it sets one of them up; else the first that runs.
    """
    makers: dict[str, Callable[[], Manager]] = {
        "netplan": filemanagers.Netplan,
        "networkmanager": NetworkManager,
        "networkd": filemanagers.Networkd,
        "ifupdown": ifupdown.Ifupdown,
        "none": NoManager,
    }
    if manager_name != "auto":
        # A mistyped YAML value, such as a list, may be unhashable.
        if manager_name not in [*makers]:
            raise BadArgument("persist", f"{manager_name!r}; one of auto, {', '.join(makers)}")
        return manager_name, makers[manager_name]()
    managers = {name: makers[name]() for name, is_present in _detect().items() if is_present}
    if not managers:
        raise PersistenceError(
            "cannot tell who keeps this host's network over a reboot: give persist=... "
            f"({', '.join(makers)})"
        )
    name = _choose(managers, links)
    return name, managers[name]


def _choose(managers: dict[str, Manager], links: Iterable[str]) -> str:
    """Return the name of this host's manager among several; running ones come first."""
    holder_names = [name for name, manager in managers.items() if any(map(manager.lease, links))]
    running_names = [name for name, manager in managers.items() if manager.runs()]
    # NetworkManager ignores links in /etc/network/interfaces; networkd has files of its own.
    holder_names += [name for name in running_names if managers[name].claims(links)]
    return (holder_names or running_names or list(managers))[0]


def _detect() -> dict[str, bool]:
    is_netplan = shutil.which("netplan") and list(Path("/etc/netplan").glob("*.yaml"))
    return {
        # With the renderer NetworkManager, NetworkManager keeps the bridge.
        "netplan": bool(is_netplan and filemanagers.renderer() == "networkd"),
        "networkmanager": Path("/run/NetworkManager").exists(),
        "networkd": bool(
            list(Path("/etc/systemd/network").glob("*.network")) or filemanagers.Networkd().runs()
        ),
        "ifupdown": bool(shutil.which("ifup") and Path(ifupdown.Ifupdown.path).exists()),
    }
