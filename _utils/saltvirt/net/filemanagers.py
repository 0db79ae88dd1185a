"""Managers of networks that read files: systemd-networkd, netplan, and what all have in common."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from saltvirt.net import leases, linkconfig, links, netplan, stacked
from saltvirt.net.change import Change, content, put
from saltvirt.net.leases import Lease
from saltvirt.net.linkconfig import LinkConfig
from saltvirt.net.tools import PersistenceError, run

_LET_GO_S = 2
_OURS = ("05-salt-virt-", "salt-virt-")


def _has(path: str, line: str) -> bool:
    """Return whether a file is there, and has a line."""
    data = content(path)
    return data is not None and (not line or line.encode() in data.splitlines())


class FileManager(ABC):
    """
    What managers that read files have in common.

    A manager has ``title``, ``own`` (``{path: line}`` of the files of a bridge), ``of_ports``
    (likewise, its path a pattern whose ``*`` is the ``{port}``), ``wanted(config)``, ``runs()``,
    ``lease(link)``, ``take(change)`` and ``give_back(change)``. Those that run bring a port back
    under a bridge that others take it from, so they are told first.

    A file is a bridge's if it has that line too: a port's of ``lan`` may be called as a bridge's
    own, ``lan-dmz``.
    """

    title: str
    own: Mapping[str, str]
    of_ports: Mapping[str, str]
    gives_back_first = True
    # What the bridge's own file says if it obeys routers.
    asks = ""
    # What a port had is in files that others wrote, and that are valid again.
    writes_heir = False

    @abstractmethod
    def wanted(self, config: LinkConfig) -> dict[str, str]:
        """Return ``{path: text}`` of the files that keep a bridge."""

    @abstractmethod
    def runs(self) -> bool:
        """Return whether it runs."""

    @abstractmethod
    def lease(self, link: str) -> Lease | None:
        """Return the lease that it holds on a link, or None."""

    @abstractmethod
    def take(self, change: Change) -> None:
        """Take a bridge whose files have been written, if it runs."""

    @abstractmethod
    def give_back(self, change: Change) -> None:
        """Let go of the ports of a bridge whose files are gone."""

    def pending(self, config: LinkConfig) -> dict[str, str]:
        """Return ``{path: text}`` of the files that are not yet as they should be."""
        # A router may be away for a while, and its word comes back with it.
        own = b"\n".join(content(path) or b"" for path in self.paths(config.name))
        is_asking = self.asks and re.search(self.asks.encode(), own, re.MULTILINE)
        wanted = self.wanted(replace(config, ra=config.ra or bool(is_asking)))
        for path in set(wanted).difference(self.files_of(config.name)):
            text = content(path)
            if text is not None and path.rpartition("/")[2].startswith(_OURS):
                raise PersistenceError(
                    f"{path} keeps another bridge: give {config.name} another name"
                )
        return {path: text for path, text in wanted.items() if content(path) != text.encode()}

    def paths(self, name: str) -> list[str]:
        """Return the paths of a bridge's own files, beside those of its ports."""
        return [path.format(name=name) for path in self.own]

    def files_of(self, name: str) -> list[str]:
        """Return the paths of the files that keep a bridge."""
        found = {
            path: self.own[template].format(name=name)
            for template, path in zip(self.own, self.paths(name), strict=True)
        }
        for pattern, line in self.of_ports.items():
            begin, end = pattern.format(name=name).rpartition("/")[2].split("*")
            there = Path("/").glob(pattern.format(name=name).lstrip("/"))
            ports = {str(path): path.name.removeprefix(begin).removesuffix(end) for path in there}
            found |= {
                path: line.format(name=name, port=port)
                for path, port in ports.items()
                if path not in found or not _has(path, found[path])
            }
        return sorted(path for path, line in found.items() if _has(path, line))

    def persisting(self, config: LinkConfig) -> Change:
        """Return the change after which a bridge is persistent."""
        wanted = {path: text.encode() for path, text in self.pending(config).items()}
        return self._change(config.name, config.ports, wanted, is_coming=True)

    def forgetting(self, name: str, ports: Iterable[str], heir: LinkConfig | None) -> Change:
        """Return the change after which nothing keeps a bridge; its ports are as before it."""
        return self._change(name, ports, dict.fromkeys(self.files_of(name)), is_coming=False)

    def _change(
        self,
        name: str,
        ports: Iterable[str],
        wanted: Mapping[str, bytes | None],
        *,
        is_coming: bool,
    ) -> Change:
        def write() -> None:
            for path, data in wanted.items():
                put(path, data)

        return Change(self, name, ports, paths=wanted, write=write, is_coming=is_coming)

    def claims(self, links: Iterable[str]) -> bool:
        """Return False: another manager's files say more than these."""
        return False

    def holder(self, link: str) -> str | None:
        """Return None: what a link has is in the files alone."""
        return None

    def let_go(self, change: Change) -> None:
        """Do nothing: what the files say is enough."""
        return


class Networkd(FileManager):
    """systemd-networkd."""

    title = "systemd-networkd"
    asks = "^IPv6AcceptRA=yes$"
    own = {
        "/etc/systemd/network/05-salt-virt-{name}.netdev": "Name={name}",
        "/etc/systemd/network/05-salt-virt-{name}.network": "Name={name}",
    }
    of_ports = {"/etc/systemd/network/05-salt-virt-{name}-*.network": "Bridge={name}"}

    def wanted(self, config: LinkConfig) -> dict[str, str]:
        """Return ``{path: text}`` of the files that keep a bridge; refuse those that come late."""
        files = {link: self._file_of(link) for link in (config.name, *config.ports)}
        texts = {link: _texts(path) for link, path in files.items()}
        wanted = linkconfig.networkd(
            config,
            {link: stacked.of(found) for link, found in texts.items()},
            stacked.of_lease(text for found in reversed(texts.values()) for text in found),
        )
        for link, path in files.items():
            own = f"{_OURS[0]}{config.name}{'' if link == config.name else f'-{link}'}.network"
            there = path.rpartition("/")[2]
            if there and there < own and not there.startswith(_OURS):
                raise PersistenceError(
                    f"{path} sets {link}, and comes before the {own} that would: rename it, so "
                    "that its name comes later"
                )
        return wanted

    def _file_of(self, link: str) -> str:
        """Return the path of the file that sets a link now, "" if there is none."""
        state = content(f"/run/systemd/netif/links/{_index(link)}") or b""
        return stacked.file_of(state.decode())

    def runs(self) -> bool:
        """Return whether it runs."""
        try:
            run(["systemctl", "is-active", "--quiet", "systemd-networkd"])
        except PersistenceError:
            return False
        return True

    def lease(self, link: str) -> Lease | None:
        """Return the lease that it holds on a link, or None."""
        text = content(f"/run/systemd/netif/leases/{_index(link)}")
        if text:
            return leases.of_networkd(text.decode(errors="replace"))
        # systemd 262 keeps no such file.
        try:
            return leases.of_networkctl(run(["networkctl", "--json=short", "status", link]))
        except (PersistenceError, ValueError):
            return None

    def take(self, change: Change) -> None:
        """Let it read its files anew, if it runs: the bridge is in its hands then."""
        if self.runs():
            self.tell()

    def give_back(self, change: Change) -> None:
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

    def tell(self) -> None:
        """Let it read its files anew."""
        run(["networkctl", "reload"])


def _index(link: str) -> str:
    return (content(f"/sys/class/net/{link}/ifindex") or b"").decode().strip() or "0"


def _texts(path: str) -> list[str]:
    """Return the text of a file of networkd's, and of what is beside it if others wrote that."""
    name = path.rpartition("/")[2]
    if not name:
        return []
    beside = Path("/etc/systemd/network").glob(f"{name}.d/*.conf")
    paths = [path, *([] if name.startswith(_OURS) else sorted(map(str, beside)))]
    return [(content(one) or b"").decode() for one in paths]


def _is_free(port: str) -> bool:
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

    def wanted(self, config: LinkConfig) -> dict[str, str]:
        """Return ``{path: text}`` of the files that keep a bridge, and of those that it changes."""
        own, end = set(self.paths(config.name)), f"{_SAVED}-{config.name}"
        now = {
            str(path): path.read_text()
            for path in sorted(Path("/etc/netplan").glob("*.yaml"))
            if str(path) not in own
        }
        macs = {port: _mac(port) for port in config.ports}
        had = (content(self.paths(config.name)[0]) or b"").decode()
        ids = {
            *netplan.ids(config.ports, list(now.values()), macs),
            *netplan.ids_of(had, config.name),
        }
        before: dict[str, str] = {}
        out: dict[str, str] = {}
        for path, text in now.items():
            saved = content(f"{path}{end}")
            # What its ports gave up earlier is kept when it gets a port more.
            before[path] = netplan.restored(text, saved.decode(), ids) if saved else text
            freed = netplan.freed(text, ids)
            if freed:
                out |= {f"{path}{end}": before[path], path: freed}
        return {**netplan.written(config, list(before.values()), macs, had), **out}

    def forgetting(self, name: str, ports: Iterable[str], heir: LinkConfig | None) -> Change:
        """Return the change that removes the files, and gives the ports back what they gave up."""
        end = f"{_SAVED}-{name}"
        saved = sorted(map(str, Path("/etc/netplan").glob(f"*{end}")))
        own = content(self.paths(name)[0])
        ids = {*ports, *netplan.ids_of(own.decode() if own else "", name)}
        # In this order, so that a host whose power fails meanwhile is never left without network.
        wanted = {}
        for path in saved:
            before, now = (content(path) or b"").decode(), content(path.removesuffix(end))
            text = netplan.restored(now.decode() if now else "", before, ids)
            wanted[path.removesuffix(end)] = text.encode() or now
        wanted |= dict.fromkeys([*self.files_of(name), *saved])
        return self._change(name, ports, wanted, is_coming=False)

    def give_back(self, change: Change) -> None:
        """As networkd does; the folder that held the bridge's own settings goes with them."""
        super().give_back(change)
        folder = Path(f"/etc/systemd/network/10-netplan-{change.name}.network.d")
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def tell(self) -> None:
        """Let netplan write networkd's files, and networkd read them."""
        run(["netplan", "generate"])
        super().tell()


def renderer() -> str:
    """Return who netplan's files are for: ``networkd`` or ``NetworkManager``."""
    paths = sorted(Path("/etc/netplan").glob("*.yaml"))
    return netplan.renderer([path.read_text() for path in paths])


def _mac(link: str) -> str | None:
    return (content(f"/sys/class/net/{link}/address") or b"").decode().strip() or None
