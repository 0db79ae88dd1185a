"""The managers of networks that keep a bridge: find this host's."""

import shutil
from pathlib import Path

from saltvirt.errors import BadArgument
from saltvirt.net import filed, ifupdown
from saltvirt.net.change import Change
from saltvirt.net.networkmanager import NetworkManager
from saltvirt.net.tools import KeepError


class Nothing:
    """Nobody keeps the bridge; the operator asked for that."""

    title, gives_back_first, writes_heir = "persist=none", False, False

    def pending(self, _kept):
        """Return nothing."""
        return {}

    def kept_in(self, _name):
        """Return nothing."""
        return []

    def keeping(self, kept):
        """Return a change of nothing."""
        return Change(self, kept.name, (), paths=(), write=dict, is_coming=True)

    def forgetting(self, name, _ports, _heir):
        """Return a change of nothing."""
        return Change(self, name, (), paths=(), write=dict, is_coming=False)

    def runs(self):
        """Return that it does not."""
        return False

    def lease(self, _link):
        """Return nothing."""
        return

    def take(self, _change):
        """Do nothing."""

    let_go = give_back = take


def find(wanted="auto", links=()):
    """
    Return the name and the manager of this host's network; raise KeepError if none is found.

    links
        Of several managers the one is meant that renews a lease of one of these; then ifupdown,
        if it sets one; then the first that runs.
    """
    makers = {
        "netplan": filed.Netplan,
        "networkmanager": NetworkManager,
        "networkd": filed.Networkd,
        "ifupdown": ifupdown.Ifupdown,
        "none": Nothing,
    }
    if wanted != "auto":
        if wanted not in makers:
            raise BadArgument("persist", f"{wanted!r}; one of auto, {', '.join(makers)}")
        return wanted, makers[wanted]()
    found = {name: makers[name]() for name, is_there in _signs().items() if is_there}
    if not found:
        raise KeepError("cannot tell who keeps this host's network over a reboot: give persist=... "
                        f"({', '.join(makers)})")  # fmt: skip
    name = _chosen(found, links)
    return name, found[name]


def _chosen(found, links):
    """Return which of several managers it is: one that does not run keeps nothing."""
    holders = [name for name, keeper in found.items() if any(map(keeper.lease, links))]
    running = [name for name, keeper in found.items() if keeper.runs()]
    # NetworkManager leaves alone what /etc/network/interfaces sets, networkd has files of its own.
    if "ifupdown" in running and found["ifupdown"].stanza(links):
        holders.append("ifupdown")
    return (holders or running or list(found))[0]


def _signs():
    is_netplan = shutil.which("netplan") and list(Path("/etc/netplan").glob("*.yaml"))
    return {
        # What it writes for NetworkManager is NetworkManager's to keep.
        "netplan": bool(is_netplan and filed.renderer() == "networkd"),
        "networkmanager": Path("/run/NetworkManager").exists(),
        "networkd": bool(list(Path("/etc/systemd/network").glob("*.network"))
                         or filed.Networkd().runs()),
        "ifupdown": bool(shutil.which("ifup") and Path(ifupdown.Ifupdown.path).exists()),
    }  # fmt: skip
