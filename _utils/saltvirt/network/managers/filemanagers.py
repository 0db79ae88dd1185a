"""Network managers that read files: systemd-networkd, netplan, and their common base class."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from saltvirt.network.bridge import leases, links
from saltvirt.network.bridge.leases import Lease
from saltvirt.network.managers import linkconfig, netplan
from saltvirt.network.managers.change import Change, content, put
from saltvirt.network.managers.linkconfig import LinkConfig
from saltvirt.network.managers.tools import PersistenceError, run

# Stacked links that only the lower link's file names; without these keys no boot creates them.
_KEYS = ("VLAN", "MACVLAN", "MACVTAP", "IPVLAN", "IPVTAP", "VXLAN", "IPoIB", "Xfrm", "Tunnel")
# Settings of a lease; without these another default route may win.
_LEASE = {
    *("RouteMetric", "RouteTable", "UseRoutes", "UseGateway"),
    *("UseDNS", "UseDomains", "UseNTP", "UseMTU", "UseHostname"),
}


def networkd_file(state: str) -> str:
    """Return the file that configures a link, from networkd's state of the link, or ""."""
    rows = (line.partition("=") for line in state.splitlines())
    return next((value for key, _equals, value in rows if key == "NETWORK_FILE"), "")


def link_settings(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return ``[(key, value)]`` of the stacked links in a link's file and drop-ins."""
    # VLAN= in another section names the tags that a bridge's port passes.
    rows = ((key, value) for s, key, value in _rows(texts) if s == "Network" and key in _KEYS)
    return list(dict.fromkeys((key, word) for key, value in rows for word in value.split()))


def lease_settings(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return ``[(key, value)]`` of the lease settings in these files."""
    values = {key: value for s, key, value in _rows(texts) if s in ("DHCPv4", "DHCP") and value}
    return [(key, value) for key, value in values.items() if key in _LEASE]


def _rows(texts: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield ``(section, key, value)`` of each line."""
    for text in texts:
        section = ""
        for line in map(str.strip, text.splitlines()):
            if line.startswith("["):
                section = line.strip("[]")
            key, _equals, value = (part.strip() for part in line.partition("="))
            yield section, key, value


_LET_GO_S = 2
_OURS = ("05-salt-virt-", "salt-virt-")


def _has(path: str, line: str) -> bool:
    """Return whether a file exists and has a line; "" matches any file."""
    data = content(path)
    return data is not None and (not line or line.encode() in data.splitlines())


class FileManager(ABC):
    """
    The base class of managers that read files.

    ``own`` has ``{path: line}`` of the files of a bridge, ``of_ports`` the same of its ports, with
    ``*`` in the path for the ``{port}``. A running manager attaches released ports again, so it is
    reloaded before the links change.

    A file belongs to a bridge only if it has that line: the file of port ``dmz`` of the bridge
    ``lan`` has the same name as the file of a bridge ``lan-dmz``.
    """

    title: str
    own: Mapping[str, str]
    of_ports: Mapping[str, str]
    gives_back_first = True
    # The pattern in a bridge's own file that enables router advertisements.
    asks = ""
    # The former configuration of a port is in the operator's files, which apply again.
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
        """Take over a bridge after its files were written, if the manager runs."""

    @abstractmethod
    def give_back(self, change: Change) -> None:
        """Release the ports of a bridge after its files were removed."""

    def pending(self, config: LinkConfig) -> dict[str, str]:
        """Return ``{path: text}`` of the files that have to change."""
        # Keep router advertisements enabled while the router is temporarily silent.
        own_content = b"\n".join(content(path) or b"" for path in self.paths(config.name))
        is_asking = self.asks and re.search(self.asks.encode(), own_content, re.MULTILINE)
        texts_by_path = self.wanted(replace(config, ra=config.ra or bool(is_asking)))
        for path in set(texts_by_path).difference(self.files_of(config.name)):
            text = content(path)
            if text is not None and path.rpartition("/")[2].startswith(_OURS):
                raise PersistenceError(
                    f"{path} keeps another bridge: give {config.name} another name"
                )
        return {
            path: text for path, text in texts_by_path.items() if content(path) != text.encode()
        }

    def paths(self, name: str) -> list[str]:
        """Return the paths of a bridge's own files, without those of its ports."""
        return [path.format(name=name) for path in self.own]

    def files_of(self, name: str) -> list[str]:
        """Return the paths of the files that keep a bridge."""
        lines_by_path = {
            path: self.own[template].format(name=name)
            for template, path in zip(self.own, self.paths(name), strict=True)
        }
        for pattern, line in self.of_ports.items():
            begin, end = pattern.format(name=name).rpartition("/")[2].split("*")
            port_paths = Path("/").glob(pattern.format(name=name).lstrip("/"))
            ports = {
                str(path): path.name.removeprefix(begin).removesuffix(end) for path in port_paths
            }
            lines_by_path |= {
                path: line.format(name=name, port=port)
                for path, port in ports.items()
                if path not in lines_by_path or not _has(path, lines_by_path[path])
            }
        return sorted(path for path, line in lines_by_path.items() if _has(path, line))

    def persisting(self, config: LinkConfig) -> Change:
        """Return the change after which a bridge is persistent."""
        contents_by_path = {path: text.encode() for path, text in self.pending(config).items()}
        return self._change(config.name, config.ports, contents_by_path, is_coming=True)

    def forgetting(self, name: str, ports: Iterable[str], heir: LinkConfig | None) -> Change:
        """Return the change that removes a bridge's files, so that its ports are as before."""
        return self._change(name, ports, dict.fromkeys(self.files_of(name)), is_coming=False)

    def _change(
        self,
        name: str,
        ports: Iterable[str],
        contents_by_path: Mapping[str, bytes | None],
        *,
        is_coming: bool,
    ) -> Change:
        def write() -> None:
            for path, data in contents_by_path.items():
                put(path, data)

        return Change(self, name, ports, paths=contents_by_path, write=write, is_coming=is_coming)

    def claims(self, links: Iterable[str]) -> bool:
        """Return False: files of this manager do not take precedence."""
        return False

    def holder(self, link: str) -> str | None:
        """Return None: the files hold the whole configuration of a link."""
        return None

    def let_go(self, change: Change) -> None:
        """Do nothing: removing the files is enough."""
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
        """Return ``{path: text}`` of a bridge's files; refuse files that other files precede."""
        files = {link: self._file_of(link) for link in (config.name, *config.ports)}
        texts = {link: _texts(path) for link, path in files.items()}
        texts_by_path = linkconfig.networkd(
            config,
            {link: link_settings(link_texts) for link, link_texts in texts.items()},
            lease_settings(text for link_texts in reversed(texts.values()) for text in link_texts),
        )
        for link, path in files.items():
            own_name = f"{_OURS[0]}{config.name}{'' if link == config.name else f'-{link}'}.network"
            file_name = path.rpartition("/")[2]
            if file_name and file_name < own_name and not file_name.startswith(_OURS):
                raise PersistenceError(
                    f"{path} sets {link}, and comes before the {own_name} that would: rename it, "
                    "so "
                    "that its name comes later"
                )
        return texts_by_path

    def _file_of(self, link: str) -> str:
        """Return the path of the file that configures a link now, or ""."""
        state = content(f"/run/systemd/netif/links/{_index(link)}") or b""
        return networkd_file(state.decode())

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
            return leases.from_networkd(text.decode(errors="replace"))
        # systemd 262 writes no lease file.
        try:
            return leases.from_networkctl(run(["networkctl", "--json=short", "status", link]))
        except (PersistenceError, ValueError):
            return None

    def take(self, change: Change) -> None:
        """Reload networkd, if it runs, so that it takes over the bridge."""
        if self.runs():
            self.tell()

    def give_back(self, change: Change) -> None:
        """Reload networkd, and wait until it has released the ports."""
        if not (change.written and self.runs()):
            return
        self.tell()
        for port in change.ports:
            # Reconfigure a port only if networkd has not released it: after both in a row
            # networkd 252 loses an address that it still reports.
            if not _is_free(port):
                run(["networkctl", "reconfigure", port])
                _is_free(port)

    def tell(self) -> None:
        """Reload networkd's files."""
        run(["networkctl", "reload"])


def _index(link: str) -> str:
    return (content(f"/sys/class/net/{link}/ifindex") or b"").decode().strip() or "0"


def _texts(path: str) -> list[str]:
    """Return the texts of a file of networkd, and of its drop-ins unless the file is ours."""
    name = path.rpartition("/")[2]
    if not name:
        return []
    drop_ins = Path("/etc/systemd/network").glob(f"{name}.d/*.conf")
    paths = [path, *([] if name.startswith(_OURS) else sorted(map(str, drop_ins)))]
    return [(content(file) or b"").decode() for file in paths]


def _is_free(port: str) -> bool:
    return links.wait_for(lambda: not links.master(port), _LET_GO_S)


_SAVED = ".before-salt-virt"


class Netplan(Networkd):
    """netplan over systemd-networkd; the ports' settings are removed from the operator's files."""

    title, asks = "netplan", r"^\s+accept-ra: true$"
    own = {
        "/etc/netplan/90-salt-virt-{name}.yaml": "",
        "/etc/systemd/network/10-netplan-{name}.network.d/salt-virt.conf": "",
    }
    of_ports = {}

    def wanted(self, config: LinkConfig) -> dict[str, str]:
        """Return ``{path: text}`` of a bridge's files, and of the operator's files that change."""
        own_paths, end = set(self.paths(config.name)), f"{_SAVED}-{config.name}"
        texts_by_path = {
            str(path): path.read_text()
            for path in sorted(Path("/etc/netplan").glob("*.yaml"))
            if str(path) not in own_paths
        }
        macs = {port: _mac(port) for port in config.ports}
        old_text = (content(self.paths(config.name)[0]) or b"").decode()
        ids = {
            *netplan.ids(config.ports, list(texts_by_path.values()), macs),
            *netplan.ids_of(old_text, config.name),
        }
        original_texts: dict[str, str] = {}
        out: dict[str, str] = {}
        for path, text in texts_by_path.items():
            saved_content = content(f"{path}{end}")
            # Settings that were removed for earlier ports stay in the saved copy.
            original_texts[path] = (
                netplan.restore_ports(text, saved_content.decode(), ids) if saved_content else text
            )
            freed_text = netplan.without_ports(text, ids)
            if freed_text:
                out |= {f"{path}{end}": original_texts[path], path: freed_text}
        return {**netplan.build_files(config, list(original_texts.values()), macs, old_text), **out}

    def forgetting(self, name: str, ports: Iterable[str], heir: LinkConfig | None) -> Change:
        """Return the change that removes the files and restores the ports' settings."""
        end = f"{_SAVED}-{name}"
        saved_paths = sorted(map(str, Path("/etc/netplan").glob(f"*{end}")))
        own_content = content(self.paths(name)[0])
        ids = {*ports, *netplan.ids_of(own_content.decode() if own_content else "", name)}
        # Restore before removing: a power failure in between must not leave the host offline.
        contents_by_path = {}
        for path in saved_paths:
            original_text, current_content = (
                (content(path) or b"").decode(),
                content(path.removesuffix(end)),
            )
            text = netplan.restore_ports(
                current_content.decode() if current_content else "", original_text, ids
            )
            contents_by_path[path.removesuffix(end)] = text.encode() or current_content
        contents_by_path |= dict.fromkeys([*self.files_of(name), *saved_paths])
        return self._change(name, ports, contents_by_path, is_coming=False)

    def give_back(self, change: Change) -> None:
        """Do as networkd, and remove the folder of the bridge's drop-in."""
        super().give_back(change)
        folder = Path(f"/etc/systemd/network/10-netplan-{change.name}.network.d")
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def tell(self) -> None:
        """Let netplan generate networkd's files, then reload networkd."""
        run(["netplan", "generate"])
        super().tell()


def renderer() -> str:
    """Return the renderer of netplan's files: ``networkd`` or ``NetworkManager``."""
    paths = sorted(Path("/etc/netplan").glob("*.yaml"))
    return netplan.renderer([path.read_text() for path in paths])


def _mac(link: str) -> str | None:
    return (content(f"/sys/class/net/{link}/address") or b"").decode().strip() or None
