"""The iptables backend."""

import tempfile
from pathlib import Path
from typing import Any

from saltvirt.network.firewall import rules
from saltvirt.network.firewall.backend import LoadedFirewall
from saltvirt.network.firewall.bootunits import RULES, BootUnits, units


class Iptables(LoadedFirewall):
    """A chain of our own in iptables and ip6tables, first in INPUT."""

    program = package = "iptables"
    _PROGRAMS = {"iptables": 4, "ip6tables": 6}
    _OTHERS = [
        "nftables.service",
        "iptables.service",
        "ip6tables.service",
        "netfilter-persistent.service",
    ]
    _SAVED = (
        "/etc/iptables/rules.v4",
        "/etc/iptables/rules.v6",
        "/etc/sysconfig/iptables",
        "/etc/sysconfig/ip6tables",
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._chain = rules.chain_name(self.name)
        rules_by_program = {
            program: rules.iptables(self._chain, self.ports, self.peers, version)
            for program, version in self._PROGRAMS.items()
        }
        self._texts = {program: text for program, (text, _mark) in rules_by_program.items()}
        self._marks = {program: mark for program, (_text, mark) in rules_by_program.items()}
        paths_by_program = {
            program: RULES / f"{program}-{self.name}.rules" for program in rules_by_program
        }
        jumps = {
            program: [self._path(program), "-w", "-D", "INPUT", "-j", self._chain]
            for program in rules_by_program
        }
        starts = []
        for program, path in paths_by_program.items():
            # The file adds the jump: remove a present one, as a stop removes only one.
            starts.append([f"-{jumps[program][0]}", *jumps[program][1:]])
            starts.append([self._path(f"{program}-restore"), "-w", "--noflush", str(path)])
        texts = units(
            f"salt-virt-iptables-{self.name}",
            f"chain {self._chain}",
            starts,
            list(jumps.values()),
            self._OTHERS,
        )
        self.boot = BootUnits(
            self._run,
            texts,
            {path: self._texts[program] for program, path in paths_by_program.items()},
        )

    def _called(self) -> str:
        return f"the chain {self._chain}"

    def _shown(self, program: str) -> str:
        return self._listed([program, "-w", "-S", self._chain])

    def _there(self) -> list[str]:
        return [f"{program} {self._chain}" for program in self._PROGRAMS if self._shown(program)]

    def _foreign(self) -> list[str]:
        return [
            f"{self._called()} of {program}"
            for program in self._PROGRAMS
            if not rules.is_our_chain(self._shown(program))
        ]

    def _missing(self) -> list[str]:
        return [
            f"{program} {self._chain}"
            for program, mark in self._marks.items()
            if mark not in self._shown(program) or not self._has_jump(program)
        ]

    def _has_jump(self, program: str) -> bool:
        # At any position: libvirt and others also insert theirs first when they start.
        listing = self._listed([program, "-w", "-S", "INPUT"])
        return f"-A INPUT -j {self._chain}" in listing.splitlines()

    def _restore(self, program: str, text: str, *words: str) -> None:
        with tempfile.NamedTemporaryFile("w", prefix="salt-virt-") as handle:
            handle.write(text)
            handle.flush()
            self._run([f"{program}-restore", "-w", "--noflush", *words, handle.name])

    def _check(self) -> None:
        for program, text in self._texts.items():
            self._restore(program, text, "--test")

    def _load(self) -> None:
        for program, text in self._texts.items():
            self._restore(program, rules.without_jump(text, self._chain))
            if not self._has_jump(program):
                self._run([program, "-w", "-I", "INPUT", "1", "-j", self._chain])

    def _unload(self) -> None:
        for program in self._PROGRAMS:
            self._unload_by(program)

    def _unload_by(self, program: str) -> None:
        if self._shown(program):
            self._unjump(program)
            self._run([program, "-w", "-F", self._chain])
            self._run([program, "-w", "-X", self._chain])

    def _unjump(self, program: str) -> None:
        jump = ["INPUT", "-j", self._chain]
        while self._run([program, "-w", "-C", *jump], ok=range(256))["retcode"] == 0:
            self._run([program, "-w", "-D", *jump])

    def _kept(self) -> dict[str, tuple[str, bool]]:
        return {
            program: (self._shown(program), self._has_jump(program)) for program in self._PROGRAMS
        }

    def _put_back(self, loaded_rules: dict[str, tuple[str, bool]]) -> None:
        for program, (listing, had_jump) in loaded_rules.items():
            if not listing:
                self._unload_by(program)
                continue
            self._restore(program, rules.restoring(self._chain, listing))
            if not had_jump:
                self._unjump(program)
            elif not self._has_jump(program):
                self._run([program, "-w", "-I", "INPUT", "1", "-j", self._chain])

    def kept_by_others(self) -> list[str]:
        """Return the saved rule files that would bring the chain back at boot."""
        return [
            f"{path} was saved with the chain {self._chain}, which comes back at boot: save "
            "the rules of this host again"
            for path in map(Path, self._SAVED)
            if path.exists() and f":{self._chain} " in path.read_text()
        ]
