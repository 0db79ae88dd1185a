"""
What a host forwards, beside a backend that says nothing of it.

iptables cannot: whenever libvirt starts, it puts before all others what lets its guests out. What a
table of nftables refuses stays refused, whoever else accepts it.
"""

from saltvirt import undo
from saltvirt.net.firewall.backend import Firewall
from saltvirt.net.firewall.nftables import Nftables


class WithForwarding(Firewall):
    """The rules of a backend, and a table beside them where nft works."""

    def __init__(self, backend: Firewall, table: Nftables) -> None:
        self.backend, self._table = backend, table
        self.name, self.program, self.package = backend.name, backend.program, backend.package

    @property
    def _has_nft(self) -> bool:
        return self._table.works

    def refuse_missing(self) -> None:
        """Refuse a host that cannot take the rules as it is."""
        self.backend.refuse_missing()

    def plan(self) -> dict[str, str]:
        """Return what is to be done: ``{what: why}``."""
        return {**self.backend.plan(), **(self._table.plan() if self._has_nft else {})}

    def apply(self) -> None:
        """Do what ``plan`` says, or nothing."""
        with undo.on_failure() as steps:
            if self._has_nft:
                if not self._table.removal():
                    steps.undo_with(self._table.remove)
                self._table.apply()
            self.backend.apply()

    def removal(self) -> dict[str, str]:
        """Return what ``remove`` would do: ``{what: why}``."""
        return {**self.backend.removal(), **(self._table.removal() if self._has_nft else {})}

    def remove(self) -> None:
        """Take the rules away, now and for the boots to come."""
        self.backend.remove()
        if self._has_nft:
            self._table.remove()

    def note(self) -> str:
        """Return what must be said beside the outcome."""
        if self._has_nft:
            return self.backend.note()
        return (
            f"{self.backend.note()}; guests on a NAT network reach these ports of the other "
            f"hypervisors: install the package {self._table.package}, and apply this again"
        )

    def warnings(self) -> list[str]:
        """Return what else on this host decides over these ports."""
        return self.backend.warnings()

    def kept_by_others(self) -> list[str]:
        """Return what others keep of these rules once ours are gone."""
        return self.backend.kept_by_others()
