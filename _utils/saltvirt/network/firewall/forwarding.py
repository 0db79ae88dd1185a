"""
Restrict forwarded packets for backends that cannot.

libvirt inserts the iptables rules for its guests before all others at each start. A packet that a
table of nftables refuses stays refused.
"""

from saltvirt.core.errors import BadArgument
from saltvirt.core.undo import Steps
from saltvirt.network.firewall import bootunits, rules
from saltvirt.network.firewall.backend import Firewall, is_found
from saltvirt.network.firewall.nftables import Nftables


class WithForwarding(Firewall):
    """
    A backend's rules, and an nft table for forwarded packets where nft is installed.

    is_wanted
        Whether the table is needed; otherwise it is another backend's leftover, and is removed.
    """

    def __init__(self, backend: Firewall, table: Nftables, *, is_wanted: bool) -> None:
        self.backend, self._table, self._is_wanted = backend, table, is_wanted
        self.name, self.program, self.package = backend.name, backend.program, backend.package

    @property
    def _is_kept(self) -> bool:
        """Whether the table has to exist; refuse an nft that fails."""
        if not self._is_wanted or not self._table.is_installed:
            return False
        self._table.refuse_broken()
        return True

    def _left(self) -> dict[str, str]:
        """Return the changes that remove the table: ``{subject: change}``."""
        return {} if self._table.is_anothers else self._table.removal()

    def refuse_missing(self) -> None:
        """Refuse a host on which the backend cannot be used."""
        self.backend.refuse_missing()

    def plan(self) -> dict[str, str]:
        """Return the pending changes: ``{subject: change}``; refuse a reserved name."""
        rules.refuse_beside(self.name)
        if self._is_wanted:
            return {**self.backend.plan(), **(self._table.plan() if self._is_kept else {})}
        return {**self.backend.plan(), **self._left()}

    def bring(self, steps: Steps) -> None:
        """Make the changes of ``plan``, and register their undo in ``steps``."""
        if self._is_kept:
            self._table.bring(steps)
        self.backend.bring(steps)
        if not self._is_wanted and self._left():
            self._table.take(steps)

    def removal(self) -> dict[str, str]:
        """Return the changes of ``remove``: ``{subject: change}``; refuse the table alone."""
        if not self._is_wanted:
            _refuse_guard(self.name)
        return {**self.backend.removal(), **self._left()}

    def take(self, steps: Steps) -> None:
        """Make the changes of ``removal``, and register their undo in ``steps``."""
        self.backend.take(steps)
        if self._left():
            self._table.take(steps)

    def note(self) -> str:
        """Return a note for the state's comment, or ""."""
        has_table = self._is_wanted and self._table.is_installed
        return self.backend.note() + (self._table.note() if has_table else "")

    def warnings(self) -> list[str]:
        """Return warnings about other rules of this host, or about a missing nft."""
        if not self._is_wanted or self._table.is_installed:
            return self.backend.warnings()
        return [
            *self.backend.warnings(),
            f"{self._table.program} is not installed, and nothing else keeps back what this host "
            "forwards: guests on a NAT network reach these ports of the other hypervisors; install "
            f"the package {self._table.package}, and apply this again",
        ]

    def kept_by_others(self) -> list[str]:
        """Return files of other tools that would bring these rules back at boot."""
        return self.backend.kept_by_others()

    def stays_loaded(self) -> list[str]:
        """Return what ``remove`` can remove for later boots only."""
        table = self._table.stays_loaded() if self._left() else []
        return [*self.backend.stays_loaded(), *table]


def _refuse_guard(name: str) -> None:
    """Refuse to remove the table of an existing rule set alone."""
    guarded_name = name.removesuffix(rules.BESIDE)
    if guarded_name != name and guarded_name in _names():
        raise BadArgument(
            "name",
            f"{name!r} is what the table beside {guarded_name!r} is called, which goes with those "
            f"rules: give the name {guarded_name} and their backend",
        )


def _names() -> set[str]:
    """Return the names of the rule sets that need a table for forwarded packets."""
    return {path.stem.partition("-")[2] for path in bootunits.RULES.glob("*.rules")}


def find_outdated() -> list[str]:
    """Return the names of rule sets with a table that drops less than it should."""
    prefix = "nftables-"
    paths = bootunits.RULES.glob(f"{prefix}*.nft")
    return sorted(
        path.stem.removeprefix(prefix).removesuffix(rules.BESIDE)
        for path in paths
        if not rules.holds_back(path.read_text(encoding="utf-8", errors="replace"))
    )


def find_unguarded() -> list[str]:
    """Return the names of rule sets that lack their table for forwarded packets."""
    folder, has_nft = bootunits.RULES, is_found(Nftables.program)
    tables = {name: folder / f"nftables-{name}{rules.BESIDE}.nft" for name in _names()}
    return sorted(name for name, path in tables.items() if not has_nft or not path.exists())
