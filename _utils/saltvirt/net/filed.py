"""Managers of networks that read files: systemd-networkd, netplan, and what all have in common."""

from pathlib import Path

from saltvirt.net import leases, links, persist
from saltvirt.net.change import Change, content, put
from saltvirt.net.tools import KeepError, run

_LET_GO_S = 2


class Files:
    """
    What managers that read files have in common.

    A manager has ``title``, ``patterns`` (of its files' paths), ``wanted(kept)``, ``runs()``,
    ``lease(link)``, ``take(change)`` and ``give_back(change)``. Those that run bring a port back
    under a bridge that others take it from, so they are told first.
    """

    title, patterns, gives_back_first = "", (), True

    def pending(self, kept):
        """Return ``{path: text}`` of the files that are not yet as they should be."""
        wanted = self.wanted(kept)
        return {path: text for path, text in wanted.items() if content(path) != text.encode()}

    def kept_in(self, name):
        """Return the paths of the files that keep a bridge."""
        found = [path for pattern in self.patterns
                 for path in Path("/").glob(pattern.format(name=name).lstrip("/"))]  # fmt: skip
        return sorted(map(str, found))

    def keeping(self, kept):
        """Return the change after which a bridge is kept."""
        wanted = {path: text.encode() for path, text in self.pending(kept).items()}
        return self._change(kept.name, kept.ports, wanted, is_coming=True)

    def forgetting(self, name, ports, _heir):
        """Return the change after which nothing keeps a bridge; its ports are as before it."""
        return self._change(name, ports, dict.fromkeys(self.kept_in(name)), is_coming=False)

    def _change(self, name, ports, wanted, *, is_coming):
        def write():
            for path, data in wanted.items():
                put(path, data)

        return Change(self, name, ports, paths=wanted, write=write, is_coming=is_coming)

    def holder(self, _link):
        """Return None: what a link has is in the files alone."""
        return

    def let_go(self, _change):
        """Do nothing: what the files say is enough."""


class Networkd(Files):
    """systemd-networkd."""

    title = "systemd-networkd"
    patterns = (
        "/etc/systemd/network/05-salt-virt-{name}.net*",
        "/etc/systemd/network/05-salt-virt-{name}-*.network",
    )

    def wanted(self, kept):
        """Return ``{path: text}`` of the files that keep a bridge."""
        return persist.networkd(kept)

    def runs(self):
        """Return whether it runs."""
        try:
            run(["systemctl", "is-active", "--quiet", "systemd-networkd"])
        except KeepError:
            return False
        return True

    def lease(self, link):
        """Return the lease that it holds on a link, or None."""
        index = content(f"/sys/class/net/{link}/ifindex") or b""
        text = content(f"/run/systemd/netif/leases/{index.decode().strip() or 0}")
        return leases.of_networkd(text.decode()) if text else None

    def take(self, _change):
        """Let it read its files anew, if it runs: the bridge is in its hands then."""
        if self.runs():
            self.tell()

    def give_back(self, change):
        """Let it read its files anew, and wait until it has let go of the ports."""
        if not (change.written and self.runs()):
            return
        self.tell()
        for port in change.ports:
            # One that it has given up on needs a word of its own. Two words in a row to any other
            # make networkd 252 forget an address that it says it has.
            if not _is_free(port):
                run(["networkctl", "reconfigure", port])
                _is_free(port)

    def tell(self):
        """Let it read its files anew."""
        run(["networkctl", "reload"])


def _is_free(port):
    return links.until(lambda: not links.master(port), _LET_GO_S)


_SAVED = ".before-salt-virt"


class Netplan(Networkd):
    """netplan over systemd-networkd; others' files give up what the bridge takes over."""

    title = "netplan"
    patterns = (
        "/etc/netplan/90-salt-virt-{name}.yaml",
        "/etc/systemd/network/10-netplan-{name}.network.d/salt-virt.conf",
    )

    def wanted(self, kept):
        """Return ``{path: text}`` of the files that keep a bridge, and of those that it changes."""
        out = persist.netplan(kept)
        for path in map(str, sorted(Path("/etc/netplan").glob("*.yaml"))):
            text = Path(path).read_text()
            freed = None if path in out else persist.netplan_freed(text, kept.ports)
            if freed:
                out |= {f"{path}{_SAVED}-{kept.name}": text, path: freed}
        return out

    def forgetting(self, name, ports, _heir):
        """Return the change that removes the files, and brings back what others had before."""
        end = f"{_SAVED}-{name}"
        saved = sorted(map(str, Path("/etc/netplan").glob(f"*{end}")))
        # In this order, so that a host whose power fails meanwhile is never left without network.
        wanted = {path.removesuffix(end): content(path) for path in saved}
        wanted |= dict.fromkeys([*self.kept_in(name), *saved])
        return self._change(name, ports, wanted, is_coming=False)

    def give_back(self, change):
        """As networkd does; the folder that held the bridge's own settings goes with them."""
        super().give_back(change)
        folder = Path(f"/etc/systemd/network/10-netplan-{change.name}.network.d")
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def tell(self):
        """Let netplan write networkd's files, and networkd read them."""
        run(["netplan", "generate"])
        super().tell()


def renderer():
    """Return who netplan's files are for: ``networkd`` or ``NetworkManager``."""
    paths = sorted(Path("/etc/netplan").glob("*.yaml"))
    return persist.netplan_renderer([path.read_text() for path in paths])
