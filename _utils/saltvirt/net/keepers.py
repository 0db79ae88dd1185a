"""The managers of networks that keep a bridge over a reboot: find the host's, write, take back."""

import shutil
from pathlib import Path

from salt.exceptions import SaltException

from saltvirt import files
from saltvirt.errors import BadArgument, VirtError
from saltvirt.net import persist


class KeepError(VirtError):
    """The network cannot be kept over a reboot; the message says why."""


_PATTERNS = (
    "/etc/systemd/network/05-salt-virt-{name}.net*",
    "/etc/systemd/network/05-salt-virt-{name}-*.network",
    "/etc/NetworkManager/system-connections/salt-virt-{name}.nmconnection",
    "/etc/NetworkManager/system-connections/salt-virt-{name}-*.nmconnection",
    "/etc/netplan/90-salt-virt-{name}.yaml",
)


class Files:
    """A manager that reads files; ``commands`` let a running one read them anew."""

    def __init__(self, functions, render, commands, is_running, mode=0o644):
        self._call, self._render, self._commands = functions, render, commands
        self._is_running, self._mode = is_running, mode
        self._before = {}

    def pending(self, kept):
        """Return ``{path: text}`` of the files that are not yet as they should be."""
        wanted = self._render(kept)
        return {path: text for path, text in wanted.items()
                if not Path(path).exists() or Path(path).read_text() != text}  # fmt: skip

    def keep(self, kept):
        """Write what is pending and let the manager read it; raise KeepError if it cannot be."""
        for path, text in self.pending(kept).items():
            place = Path(path)
            self._before[path] = place.read_bytes() if place.exists() else None
            try:
                place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                files.write(place, text.encode(), self._mode)
            except OSError as exc:
                raise KeepError(f"cannot write {path}: {exc.strerror}") from exc
        self.reload()

    def kept_in(self, name):
        """Return the paths of the files that keep a bridge."""
        found = [path for pattern in _PATTERNS
                 for path in Path("/").glob(pattern.format(name=name).lstrip("/"))]  # fmt: skip
        return sorted(map(str, found))

    def forget(self, name, _heir):
        """Remove the files of a bridge; what its port had before is still written elsewhere."""
        gone = self.kept_in(name)
        for path in gone:
            self._before[path] = Path(path).read_bytes()
            Path(path).unlink()
        if gone:
            self.reload()

    def take_back(self):
        """Bring the files back to what they were."""
        for path, content in self._before.items():
            if content is None:
                Path(path).unlink(missing_ok=True)
            else:
                files.write(path, content, self._mode)
        if self._before:
            self.reload()

    def reload(self):
        """Let a running manager read its files anew."""
        for argv in self._commands if self._is_running() else ():
            done = self._call["cmd.run_all"](argv, python_shell=False, ignore_retcode=True)
            if done["retcode"]:
                why = (done["stderr"] or done["stdout"]).strip()
                raise KeepError(f"{' '.join(argv)} failed: {why}")


_SAVED = ".before-salt-virt"


class Netplan(Files):
    """netplan, whose other files must give up what the bridge takes over; they are saved first."""

    def keep(self, kept):
        """Write what is pending, and save the files of others before."""
        for path in self.pending(kept):
            if Path(path).exists() and path not in persist.netplan(kept):
                files.write(f"{path}{_SAVED}-{kept.name}", Path(path).read_bytes())
        super().keep(kept)

    def forget(self, name, heir):
        """Remove the bridge's file, and bring back what others had before it came."""
        for saved in Path("/etc/netplan").glob(f"*{_SAVED}-{name}"):
            path = str(saved)[: -len(f"{_SAVED}-{name}")]
            self._before[path] = Path(path).read_bytes() if Path(path).exists() else None
            self._before[str(saved)] = saved.read_bytes()
            saved.rename(path)
        super().forget(name, heir)


def _netplan(kept):
    out = persist.netplan(kept)
    for path in sorted(Path("/etc/netplan").glob("*.yaml")):
        freed = None if str(path) in out else persist.netplan_freed(path.read_text(), kept.ports)
        if freed:
            out[str(path)] = freed
    return out


class Ifupdown:
    """Debian's ifupdown, through Salt's own ``ip`` module."""

    _PATH = "/etc/network/interfaces"

    def __init__(self, functions):
        self._call, self._before = functions, None

    def pending(self, kept):
        """Return ``{interface: text}`` of those that are not yet as they should be."""
        out = {}
        for name, kind, settings in persist.ifupdown(kept):
            has = "".join(self._call["ip.get_interface"](name))
            wanted = "".join(self._build(name, kind, test=True, **settings))
            if has.strip() != wanted.strip():
                out[f"{self._PATH}: {name}"] = wanted
        return out

    def keep(self, kept):
        """Write the interfaces."""
        path = Path(self._PATH)
        self._before = path.read_bytes() if path.exists() else None
        for name, kind, settings in persist.ifupdown(kept):
            self._build(name, kind, **settings)

    def _build(self, name, kind, **settings):
        try:
            return self._call["ip.build_interface"](name, kind, True, **settings)
        except (SaltException, AttributeError, OSError) as exc:
            raise KeepError(f"Salt cannot write {name} to {self._PATH}: {exc}") from exc

    def kept_in(self, name):
        """Return the stanza that keeps a bridge, as ``path: name``."""
        return [f"{self._PATH}: {name}"] if self._call["ip.get_interface"](name) else []

    def forget(self, name, heir):
        """Remove the stanzas of a bridge; its port gets back what the bridge had."""
        path = Path(self._PATH)
        self._before = path.read_bytes()
        files.write(path, persist.ifupdown_without(path.read_text(), name).encode(), 0o644)
        if heir:
            port, kind, settings = persist.ifupdown_heir(heir)
            self._build(port, kind, **settings)

    def take_back(self):
        """Bring the file back to what it was."""
        if self._before is not None:
            files.write(self._PATH, self._before, 0o644)


class Nothing:
    """Nobody keeps the bridge; the operator asked for that."""

    def pending(self, _kept):
        """Return nothing."""
        return {}

    def keep(self, _kept):
        """Do nothing."""

    def kept_in(self, _name):
        """Return nothing."""
        return []

    def forget(self, _name, _heir):
        """Do nothing."""

    def take_back(self):
        """Do nothing."""


def _runs(path):
    return lambda: Path(path).exists()


def _makers(functions):
    nm, networkd = _runs("/run/NetworkManager/devices"), _runs("/run/systemd/netif/links")
    return {
        "netplan": lambda: Netplan(functions, _netplan, [["netplan", "generate"],
                                 ["networkctl", "reload"]], networkd, 0o600),
        "networkmanager": lambda: Files(functions, persist.networkmanager,
                                        [["nmcli", "connection", "reload"]], nm, 0o600),
        "networkd": lambda: Files(functions, persist.networkd,
                                  [["networkctl", "reload"]], networkd),
        "ifupdown": lambda: Ifupdown(functions),
        "none": Nothing,
    }  # fmt: skip


def find(functions, wanted="auto"):
    """Return the name and the manager of this host's network; raise KeepError if none is found."""
    makers = _makers(functions)
    if wanted != "auto":
        if wanted not in makers:
            raise BadArgument("persist", f"{wanted!r}; one of auto, {', '.join(makers)}")
        return wanted, makers[wanted]()
    signs = {
        "netplan": bool(shutil.which("netplan") and list(Path("/etc/netplan").glob("*.yaml"))),
        "networkmanager": Path("/run/NetworkManager").exists(),
        "networkd": bool(list(Path("/etc/systemd/network").glob("*.network"))
                         or Path("/run/systemd/netif/links").exists()),
        "ifupdown": bool(shutil.which("ifup") and Path(Ifupdown._PATH).exists()),
    }  # fmt: skip
    for name, is_there in signs.items():
        if is_there:
            return name, makers[name]()
    raise KeepError("cannot tell who keeps this host's network over a reboot: give persist=... "
                    f"({', '.join(makers)})")  # fmt: skip
