"""
What a host forwards, beside a backend that says nothing of it.

iptables cannot: whenever libvirt starts, it puts before all others what lets its guests out. What a
table of nftables refuses stays refused, whoever else accepts it.
"""

from saltvirt.errors import BadArgument
from saltvirt.net.firewall import bootunits, rules
from saltvirt.net.firewall.backend import Firewall, is_found
from saltvirt.net.firewall.nftables import Nftables
from saltvirt.undo import Steps


class WithForwarding(Firewall):
    """
    The rules of a backend, and a table beside them where nft is installed.

    is_wanted
        Otherwise the table is what another backend has left, and goes.
    """

    def __init__(self, backend: Firewall, table: Nftables, *, is_wanted: bool) -> None:
        self.backend, self._table, self._is_wanted = backend, table, is_wanted
        self.name, self.program, self.package = backend.name, backend.program, backend.package

    @property
    def _is_kept(self) -> bool:
        """Whether the table is to be there; refuse an nft that fails."""
        if not self._is_wanted or not self._table.is_installed:
            return False
        self._table.refuse_broken()
        return True

    def _left(self) -> dict[str, str]:
        """Return what there is of the table to remove: ``{what: why}``."""
        return {} if self._table.is_anothers else self._table.removal()

    def refuse_missing(self) -> None:
        """Refuse a host that cannot take the rules as it is."""
        self.backend.refuse_missing()

    def plan(self) -> dict[str, str]:
        """Return what is to be done: ``{what: why}``; refuse the name of a table beside others."""
        rules.refuse_beside(self.name)
        if self._is_wanted:
            return {**self.backend.plan(), **(self._table.plan() if self._is_kept else {})}
        return {**self.backend.plan(), **self._left()}

    def bring(self, steps: Steps) -> None:
        """Do what ``plan`` says; ``steps`` get how it is undone."""
        if self._is_kept:
            self._table.bring(steps)
        self.backend.bring(steps)
        if not self._is_wanted and self._left():
            self._table.take(steps)

    def removal(self) -> dict[str, str]:
        """Return what ``remove`` would do: ``{what: why}``; refuse a table beside others' rules."""
        if not self._is_wanted:
            _refuse_guard(self.name)
        return {**self.backend.removal(), **self._left()}

    def take(self, steps: Steps) -> None:
        """Do what ``removal`` says; ``steps`` get how it is undone."""
        self.backend.take(steps)
        if self._left():
            self._table.take(steps)

    def note(self) -> str:
        """Return what must be said beside the outcome."""
        has_table = self._is_wanted and self._table.is_installed
        return self.backend.note() + (self._table.note() if has_table else "")

    def warnings(self) -> list[str]:
        """Return what else on this host decides over these ports, or nothing does."""
        if not self._is_wanted or self._table.is_installed:
            return self.backend.warnings()
        return [
            *self.backend.warnings(),
            f"{self._table.program} is not installed, and nothing else keeps back what this host "
            "forwards: guests on a NAT network reach these ports of the other hypervisors; install "
            f"the package {self._table.package}, and apply this again",
        ]

    def kept_by_others(self) -> list[str]:
        """Return what others keep of these rules once ours are gone."""
        return self.backend.kept_by_others()

    def stays_loaded(self) -> list[str]:
        """Return what ``remove`` takes away for later boots only."""
        table = self._table.stays_loaded() if self._left() else []
        return [*self.backend.stays_loaded(), *table]


def _refuse_guard(name: str) -> None:
    """Refuse to take away alone what guards rules that are still there."""
    guarded_name = name.removesuffix(rules.BESIDE)
    if guarded_name != name and guarded_name in _names():
        raise BadArgument(
            "name",
            f"{name!r} is what the table beside {guarded_name!r} is called, which goes with those "
            f"rules: give the name {guarded_name} and their backend",
        )


def _names() -> set[str]:
    """Return the names of rules beside which there is to be a table."""
    return {path.stem.partition("-")[2] for path in bootunits.RULES.glob("*.rules")}


def find_outdated() -> list[str]:
    """Return the names of rules whose table, as its file has it, lets through what is not to be."""
    prefix = "nftables-"
    paths = bootunits.RULES.glob(f"{prefix}*.nft")
    return sorted(
        path.stem.removeprefix(prefix).removesuffix(rules.BESIDE)
        for path in paths
        if not rules.holds_back(path.read_text(encoding="utf-8", errors="replace"))
    )


def find_unguarded() -> list[str]:
    """Return the names of rules beside which there should be a table for what is forwarded."""
    folder, has_nft = bootunits.RULES, is_found(Nftables.program)
    tables = {name: folder / f"nftables-{name}{rules.BESIDE}.nft" for name in _names()}
    return sorted(name for name, path in tables.items() if not has_nft or not path.exists())
