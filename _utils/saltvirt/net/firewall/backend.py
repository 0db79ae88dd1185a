"""What all backends of the firewall have in common."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from salt.exceptions import SaltException

from saltvirt import undo
from saltvirt.errors import VirtError
from saltvirt.net.firewall import rules
from saltvirt.net.firewall.bootunits import BootUnits
from saltvirt.undo import Steps

Functions = Mapping[str, Callable[..., Any]]
# Not the PATH of whoever runs the state: the unit's text must not depend on it.
_FOLDERS = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin"


def is_found(program: str) -> bool:
    """Return whether the host has a program."""
    return shutil.which(program, path=_FOLDERS) is not None


class FirewallError(VirtError):
    """The firewall does not take the rules; the message carries its own words."""


class Firewall(ABC):
    """The rules of one name in one backend; ``plan`` says what ``apply`` would do."""

    program: str
    package: str

    def __init__(
        self, functions: Functions, name: str, ports: Any, peers: Iterable[object]
    ) -> None:
        self.call, self.name = functions, rules.table_name(name)
        self.ports, self.peers = rules.ports(ports), rules.networks(peers)

    @property
    def is_installed(self) -> bool:
        """Whether the host has the backend's program."""
        return is_found(self.program)

    def refuse_missing(self) -> None:
        """Refuse a host that cannot take the rules as it is."""
        if not self.is_installed:
            raise FirewallError(
                f"{self.program} is not installed on this host: install the "
                f"package {self.package}, or choose another backend"
            )

    def _path(self, program: str) -> str:
        return shutil.which(program, path=_FOLDERS) or f"/usr/sbin/{program}"

    def _run(self, argv: Sequence[str], ok: Collection[int] = (0,)) -> dict[str, Any]:
        command = [self._path(argv[0]), *argv[1:]]
        try:
            result = self.call["cmd.run_all"](command, python_shell=False, ignore_retcode=True)
        except SaltException as exc:
            raise FirewallError(f"{argv[0]}: {exc}") from exc
        if result["retcode"] not in ok:
            lines = (result["stderr"] or result["stdout"]).strip().splitlines()
            raise FirewallError(f"{' '.join(argv[:4])}: {'; '.join(lines)}")
        out: dict[str, Any] = result
        return out

    def _listed(self, argv: Sequence[str]) -> str:
        """Return what a command lists, nothing if there is no such thing."""
        if not self.is_installed:
            return ""
        result = self._run(argv, ok=range(256))
        return result["stdout"] if result["retcode"] == 0 else ""

    @abstractmethod
    def plan(self) -> dict[str, str]:
        """Return what is to be done: ``{what: why}``."""

    def apply(self) -> None:
        """Do what ``plan`` says, or nothing."""
        with undo.on_failure() as steps:
            self.bring(steps)

    @abstractmethod
    def bring(self, steps: Steps) -> None:
        """Do what ``plan`` says; ``steps`` get how it is undone."""

    @abstractmethod
    def removal(self) -> dict[str, str]:
        """Return what ``remove`` would do: ``{what: why}``."""

    def remove(self) -> None:
        """Take the rules away, now and for the boots to come, or nothing."""
        with undo.on_failure() as steps:
            self.take(steps)

    @abstractmethod
    def take(self, steps: Steps) -> None:
        """Do what ``removal`` says; ``steps`` get how it is undone."""

    @abstractmethod
    def note(self) -> str:
        """Return what must be said beside the outcome."""

    def warnings(self) -> list[str]:
        """Return what else on this host decides over these ports."""
        return []

    def kept_by_others(self) -> list[str]:
        """Return what others keep of these rules once ours are gone."""
        return []

    def stays_loaded(self) -> list[str]:
        """Return what ``remove`` takes away for later boots only."""
        return []


class LoadedFirewall(Firewall):
    """A backend whose rules a unit of ours loads at boot."""

    boot: BootUnits

    @abstractmethod
    def _called(self) -> str:
        """Return what that which is loaded is called."""

    @abstractmethod
    def _there(self) -> list[str]:
        """Return what of ours is loaded."""

    @abstractmethod
    def _foreign(self) -> list[str]:
        """Return what is loaded under our name and others made."""

    @abstractmethod
    def _missing(self) -> list[str]:
        """Return what is to be loaded."""

    @abstractmethod
    def _check(self) -> None:
        """Refuse rules that the backend would not take."""

    @abstractmethod
    def _load(self) -> None:
        """Load the rules."""

    @abstractmethod
    def _unload(self) -> None:
        """Take away what is loaded."""

    @abstractmethod
    def _kept(self) -> object:
        """Return what is loaded, for ``_put_back``."""

    @abstractmethod
    def _put_back(self, loaded_rules: Any) -> None:
        """Have loaded what was, whatever is loaded now."""

    def _refuse_foreign(self) -> None:
        for title in self._foreign():
            raise FirewallError(
                f"{title} is there and was not made by virt.firewall_present: "
                "choose another name, or remove it"
            )

    def plan(self) -> dict[str, str]:
        """Return what is to be done: ``{what: why}``; refuse what somebody else has made."""
        self._refuse_foreign()
        return {**dict.fromkeys(self._missing(), "loaded"), **self.boot.pending()}

    def bring(self, steps: Steps) -> None:
        """Load the rules, each table in one step, and have them loaded at boot."""
        self._check()
        # Undone last: to stop or start a unit changes what is loaded.
        steps.undo_with(self._put_back, self._kept())
        self.boot.keep(steps)
        if self._missing():
            self._load()

    def removal(self) -> dict[str, str]:
        """Return what ``remove`` would do: ``{what: why}``; refuse what somebody else has made."""
        self._refuse_foreign()
        return {**dict.fromkeys(self._there(), "removed"), **self.boot.there()}

    def stays_loaded(self) -> list[str]:
        """Return what ``remove`` takes away for later boots only, as its program is missing."""
        if self.is_installed or not self.boot.there():
            return []
        return [
            f"{self.program} is not installed, without which {self._called()} stays until this "
            f"host boots, if it is loaded: install the package {self.package}, and apply this again"
        ]

    @property
    def is_anothers(self) -> bool:
        """Whether what has our name is somebody else's, and nothing of ours is kept for boots."""
        return bool(self._foreign()) and not self.boot.there()

    def take(self, steps: Steps) -> None:
        """Take the rules away, now and at boot."""
        steps.undo_with(self._put_back, self._kept())
        self.boot.forget(steps)
        self._unload()

    def note(self) -> str:
        """Return what must be said beside the outcome."""
        if self.boot.has_systemd:
            return ""
        paths = ", ".join(map(str, self.boot.texts))
        return f"; nothing loads {paths} at boot, as systemd does not run here"
