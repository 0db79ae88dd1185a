"""The nftables backend."""

import json
import logging
import tempfile
from typing import Any

from saltvirt.network.firewall import peeraddresses, rules
from saltvirt.network.firewall.backend import FirewallError, LoadedFirewall
from saltvirt.network.firewall.bootunits import RULES, BootUnits, units

log = logging.getLogger(__name__)
_WAYS = (
    "table inet salt_virt_try { chain c { type filter hook forward priority 0; "
    "fib saddr . iif oif exists accept; }; }"
)


class Nftables(LoadedFirewall):
    """A table of our own; other tables cannot accept packets that it refuses."""

    program, package = "nft", "nftables"

    def __init__(self, *args: Any, lets_in: bool = True) -> None:
        super().__init__(*args)
        self._name = self.name if lets_in else f"{self.name}{rules.BESIDE}"
        self._text, self._mark = rules.nftables(
            self._name,
            self.ports,
            self.peers,
            self._near(),
            lets_in=lets_in,
            sees_ways=self._sees_ways(),
        )
        self._table = f"table inet {self._name}"
        self._file = RULES / f"nftables-{self._name}.nft"
        nft = self._path("nft")
        texts = units(
            f"salt-virt-nftables-{self._name}",
            self._table,
            [[nft, "-f", str(self._file)]],
            [[nft, "delete", "table", "inet", self._name]],
            ["nftables.service"],
        )
        self.boot = BootUnits(self._run, texts, {self._file: self._text})

    def _near(self) -> rules.Peers:
        """Return the networks that this host shares with peers; none without nft."""
        return (
            peeraddresses.shared_networks(self._run, self.peers)
            if self.is_installed
            else rules.networks([])
        )

    def _sees_ways(self) -> bool:
        """Return whether this kernel supports ``fib saddr . iif`` in a forward chain."""
        if not self.is_installed or not any(self.peers.values()):
            return True
        try:
            self._run(["nft", "-c", _WAYS])
        except FirewallError as exc:
            # Linux before 5.18, or built without this feature.
            log.debug("no peer behind this host is let through: %s", exc)
            return False
        return True

    def refuse_broken(self) -> None:
        """Refuse a host on which nft is installed but fails."""
        try:
            self._run(["nft", "list", "tables"])
        except FirewallError as exc:
            raise FirewallError(
                f"{exc}; only nft keeps back what this host forwards: see to it that it works "
                "(modprobe nf_tables), and apply this again"
            ) from exc

    def plan(self) -> dict[str, str]:
        """Return the pending changes; refuse the names of distributions' tables."""
        rules.refuse_table(self._name)
        return super().plan()

    def _called(self) -> str:
        return self._table

    def _shown(self) -> str:
        return self._listed(["nft", "list", "table", "inet", self._name])

    def _there(self) -> list[str]:
        return [self._table] if self._shown() else []

    def _foreign(self) -> list[str]:
        listing = self._shown()
        return [self._table] if listing and not rules.is_our_table(listing) else []

    def _missing(self) -> list[str]:
        return [] if self._mark in self._shown() else [self._table]

    def _check(self) -> None:
        with tempfile.NamedTemporaryFile("w", prefix="salt-virt-") as handle:
            handle.write(self._text)
            handle.flush()
            self._run(["nft", "-c", "-f", handle.name])

    def _load(self) -> None:
        self._run(["nft", "-f", str(self._file)])

    def _unload(self) -> None:
        if self._there():
            self._run(["nft", "delete", "table", "inet", self._name])

    def _kept(self) -> str:
        return self._shown()

    def _put_back(self, loaded_rules: str) -> None:
        if not loaded_rules:
            self._unload()
            return
        with tempfile.NamedTemporaryFile("w", prefix="salt-virt-") as handle:
            handle.write(rules.replacing(self._name, loaded_rules))
            handle.flush()
            self._run(["nft", "-f", handle.name])

    def warnings(self) -> list[str]:
        """Return warnings about other input chains with the policy ``drop``, which still apply."""
        ruleset = json.loads(self._listed(["nft", "-j", "list", "chains"]) or "{}")
        chains = [c["chain"] for c in ruleset.get("nftables", ()) if "chain" in c]
        return [
            f"the chain {c['family']} {c['table']} {c['name']} drops what it does not accept: "
            f"let it accept the TCP ports {self.ports} of the other hypervisors too"
            for c in chains
            if c.get("hook") == "input" and c.get("policy") == "drop" and c["table"] != self._name
        ]
