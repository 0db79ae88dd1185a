"""Managers of networks that read files: systemd-networkd, netplan, and what all have in common."""

import re
from dataclasses import replace
from pathlib import Path

from saltvirt.net import leases, links, netplan, persist
from saltvirt.net.change import Change, content, put
from saltvirt.net.tools import KeepError, run

_LET_GO_S = 2
_OURS = ("05-salt-virt-", "salt-virt-")


def _has(path, line):
    """Return whether a file is there, and has a line."""
    data = content(path)
    return data is not None and (not line or line.encode() in data.splitlines())


class Files:
    """
    What managers that read files have in common.

    A manager has ``title``, ``own`` (``{path: line}`` of the files of a bridge), ``of_ports``
    (likewise, its path a pattern whose ``*`` is the ``{port}``), ``wanted(kept)``, ``runs()``,
    ``lease(link)``, ``take(change)`` and ``give_back(change)``. Those that run bring a port back
    under a bridge that others take it from, so they are told first.

    A file is a bridge's if it has that line too: a port's of ``lan`` may be called as a bridge's
    own, ``lan-dmz``.
    """

    title, own, of_ports, gives_back_first = "", {}, {}, True
    # What the bridge's own file says if it obeys routers.
    asks = ""
    # What a port had is in files that others wrote, and that are valid again.
    writes_heir = False

    def pending(self, kept):
        """Return ``{path: text}`` of the files that are not yet as they should be."""
        # A router may be away for a while, and its word comes back with it.
        own = b"\n".join(content(path) or b"" for path in self.paths(kept.name))
        is_asking = self.asks and re.search(self.asks.encode(), own, re.MULTILINE)
        wanted = self.wanted(replace(kept, ra=kept.ra or bool(is_asking)))
        for path in set(wanted).difference(self.kept_in(kept.name)):
            text = content(path)
            if text is not None and path.rpartition("/")[2].startswith(_OURS):
                raise KeepError(f"{path} keeps another bridge: give {kept.name} another name")
        return {path: text for path, text in wanted.items() if content(path) != text.encode()}

    def paths(self, name):
        """Return the paths of a bridge's own files, beside those of its ports."""
        return [path.format(name=name) for path in self.own]

    def kept_in(self, name):
        """Return the paths of the files that keep a bridge."""
        found = {path: self.own[template].format(name=name)
                 for template, path in zip(self.own, self.paths(name), strict=True)}  # fmt: skip
        for pattern, line in self.of_ports.items():
            begin, end = pattern.format(name=name).rpartition("/")[2].split("*")
            there = Path("/").glob(pattern.format(name=name).lstrip("/"))
            ports = {str(path): path.name.removeprefix(begin).removesuffix(end) for path in there}
            found |= {path: line.format(name=name, port=port) for path, port in ports.items()
                      if path not in found or not _has(path, found[path])}  # fmt: skip
        return sorted(path for path, line in found.items() if _has(path, line))

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

    title, asks = "systemd-networkd", "^IPv6AcceptRA=yes$"
    own = {
        "/etc/systemd/network/05-salt-virt-{name}.netdev": "Name={name}",
        "/etc/systemd/network/05-salt-virt-{name}.network": "Name={name}",
    }
    of_ports = {"/etc/systemd/network/05-salt-virt-{name}-*.network": "Bridge={name}"}

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
        if text:
            return leases.of_networkd(text.decode())
        # systemd 262 keeps no such file.
        try:
            return leases.of_networkctl(run(["networkctl", "--json=short", "status", link]))
        except (KeepError, ValueError):
            return None

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

    title, asks = "netplan", r"^\s+accept-ra: true$"
    own = {
        "/etc/netplan/90-salt-virt-{name}.yaml": "",
        "/etc/systemd/network/10-netplan-{name}.network.d/salt-virt.conf": "",
    }
    of_ports = {}

    def wanted(self, kept):
        """Return ``{path: text}`` of the files that keep a bridge, and of those that it changes."""
        own, end = set(self.paths(kept.name)), f"{_SAVED}-{kept.name}"
        now = {str(path): path.read_text() for path in sorted(Path("/etc/netplan").glob("*.yaml"))
               if str(path) not in own}  # fmt: skip
        macs = {port: _mac(port) for port in kept.ports}
        ids = netplan.ids(kept.ports, list(now.values()), macs)
        before, out = {}, {}
        for path, text in now.items():
            saved = content(f"{path}{end}")
            # What its ports gave up earlier is kept when it gets a port more.
            before[path] = netplan.restored(text, saved.decode(), ids) if saved else text
            freed = netplan.freed(text, ids)
            if freed:
                out |= {f"{path}{end}": before[path], path: freed}
        return {**netplan.written(kept, list(before.values()), macs), **out}

    def forgetting(self, name, ports, _heir):
        """Return the change that removes the files, and gives the ports back what they gave up."""
        end = f"{_SAVED}-{name}"
        saved = sorted(map(str, Path("/etc/netplan").glob(f"*{end}")))
        own = content(self.paths(name)[0])
        ids = {*ports, *netplan.ids_of(own.decode() if own else "", name)}
        # In this order, so that a host whose power fails meanwhile is never left without network.
        wanted = {}
        for path in saved:
            before, now = content(path).decode(), content(path.removesuffix(end))
            text = netplan.restored(now.decode() if now else "", before, ids)
            wanted[path.removesuffix(end)] = text.encode() or now
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
    return netplan.renderer([path.read_text() for path in paths])


def _mac(link):
    return (content(f"/sys/class/net/{link}/address") or b"").decode().strip() or None
