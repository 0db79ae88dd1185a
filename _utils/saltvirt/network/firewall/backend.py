"""Base classes of the firewall backends."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from salt.exceptions import SaltException

from saltvirt.core import undo
from saltvirt.core.errors import VirtError
from saltvirt.core.undo import Steps
from saltvirt.network.firewall import rules
from saltvirt.network.firewall.bootunits import BootUnits

Functions = Mapping[str, Callable[..., Any]]
# Not $PATH: the unit's text must not depend on the caller's environment.
_FOLDERS = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin"


def is_found(program: str) -> bool:
    """Return whether the host has a program."""
    return shutil.which(program, path=_FOLDERS) is not None


class FirewallError(VirtError):
    """The firewall refused the rules; the message has its output."""


class Firewall(ABC):
    """One rule set in one backend; ``plan`` returns what ``apply`` does."""

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
        """Refuse a host without the backend."""
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
        """Return a command's output, "" if it fails."""
        if not self.is_installed:
            return ""
        result = self._run(argv, ok=range(256))
        return result["stdout"] if result["retcode"] == 0 else ""

    @abstractmethod
    def plan(self) -> dict[str, str]:
        """Return the pending changes: ``{subject: change}``."""

    def apply(self) -> None:
        """Make the changes of ``plan``; undo all of them on failure."""
        with undo.on_failure() as steps:
            self.bring(steps)

    @abstractmethod
    def bring(self, steps: Steps) -> None:
        """Make the changes of ``plan``, and register their undo in ``steps``."""

    @abstractmethod
    def removal(self) -> dict[str, str]:
        """Return the changes of ``remove``: ``{subject: change}``."""

    def remove(self) -> None:
        """Remove the rules now and for later boots; restore them on failure."""
        with undo.on_failure() as steps:
            self.take(steps)

    @abstractmethod
    def take(self, steps: Steps) -> None:
        """Make the changes of ``removal``, and register their undo in ``steps``."""

    @abstractmethod
    def note(self) -> str:
        """Return a note for the state's comment, or ""."""

    def warnings(self) -> list[str]:
        """Return warnings about other rules of this host that affect these ports."""
        return []

    def kept_by_others(self) -> list[str]:
        """Return files of other tools that would bring these rules back at boot."""
        return []

    def stays_loaded(self) -> list[str]:
        """Return what ``remove`` can remove for later boots only."""
        return []


class LoadedFirewall(Firewall):
    """A backend with rules that a unit of this project loads at boot."""

    boot: BootUnits

    @abstractmethod
    def _called(self) -> str:
        """Return the title of the table or chain."""

    @abstractmethod
    def _there(self) -> list[str]:
        """Return the titles of our loaded rules."""

    @abstractmethod
    def _foreign(self) -> list[str]:
        """Return the titles of loaded rules with our name that are not ours."""

    @abstractmethod
    def _missing(self) -> list[str]:
        """Return the titles of rules that have to be loaded."""

    @abstractmethod
    def _check(self) -> None:
        """Refuse rules that the backend rejects in a test run."""

    @abstractmethod
    def _load(self) -> None:
        """Load the rules."""

    @abstractmethod
    def _unload(self) -> None:
        """Unload the rules."""

    @abstractmethod
    def _kept(self) -> object:
        """Return the loaded rules, for ``_put_back``."""

    @abstractmethod
    def _put_back(self, loaded_rules: Any) -> None:
        """Restore the formerly loaded rules."""

    def _refuse_foreign(self) -> None:
        for title in self._foreign():
            raise FirewallError(
                f"{title} is there and was not made by virt.firewall_present: "
                "choose another name, or remove it"
            )

    def plan(self) -> dict[str, str]:
        """Return the pending changes: ``{subject: change}``; refuse rules that are not ours."""
        self._refuse_foreign()
        return {**dict.fromkeys(self._missing(), "loaded"), **self.boot.pending()}

    def bring(self, steps: Steps) -> None:
        """Load the rules atomically, and have a unit load them at boot."""
        self._check()
        # Undone last, because stopping or starting a unit changes the loaded rules.
        steps.undo_with(self._put_back, self._kept())
        self.boot.keep(steps)
        if self._missing():
            self._load()

    def removal(self) -> dict[str, str]:
        """Return the changes of ``remove``: ``{subject: change}``; refuse others' rules."""
        self._refuse_foreign()
        return {**dict.fromkeys(self._there(), "removed"), **self.boot.there()}

    def stays_loaded(self) -> list[str]:
        """Return rules that stay loaded until a boot, as the backend's program is missing."""
        if self.is_installed or not self.boot.there():
            return []
        return [
            f"{self.program} is not installed, without which {self._called()} stays until this "
            f"host boots, if it is loaded: install the package {self.package}, and apply this again"
        ]

    @property
    def is_anothers(self) -> bool:
        """Whether loaded rules with our name are not ours, and no boot unit of ours exists."""
        return bool(self._foreign()) and not self.boot.there()

    def take(self, steps: Steps) -> None:
        """Remove the rules, now and for boots."""
        steps.undo_with(self._put_back, self._kept())
        self.boot.forget(steps)
        self._unload()

    def note(self) -> str:
        """Return a note if no unit loads the rules at boot."""
        if self.boot.has_systemd:
            return ""
        paths = ", ".join(map(str, self.boot.texts))
        return f"; nothing loads {paths} at boot, as systemd does not run here"
