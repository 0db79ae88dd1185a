"""Load the rules of :mod:`saltvirt.net.rules` and keep them over a reboot, by Salt's functions."""

import json
import tempfile
from pathlib import Path

from saltvirt import files
from saltvirt.errors import BadArgument, VirtError
from saltvirt.net import rules

NFT_FILE = "/etc/salt-virt/firewall.nft"
_NFT_MAIN = ("/etc/sysconfig/nftables.conf", "/etc/nftables.conf")


class FirewallError(VirtError):
    """The firewall does not take the rules; the message carries its own words."""


class Firewall:
    """The rules of one name in one backend; ``plan`` says what ``apply`` would do."""

    def __init__(self, functions, name, ports, peers):
        self.call, self.name = functions, name
        self.ports, self.peers = rules.ports(ports), rules.networks(peers)

    def _run(self, argv, ok=(0,)):
        done = self.call["cmd.run_all"](argv, python_shell=False, ignore_retcode=True)
        if done["retcode"] not in ok:
            raise FirewallError(f"{' '.join(argv[:3])}: {done['stderr'] or done['stdout']}")
        return done

    def _loaded(self, argv):
        done = self.call["cmd.run_all"](argv, python_shell=False, ignore_retcode=True)
        return done["stdout"] if done["retcode"] == 0 else ""


class Nftables(Firewall):
    """A table of its own: what it refuses stays refused, whatever other tables accept."""

    def __init__(self, *args):
        super().__init__(*args)
        self.text, self.mark = rules.nftables(self.name, self.ports, self.peers)
        self._main = next((Path(p) for p in _NFT_MAIN if Path(p).exists()), Path(_NFT_MAIN[-1]))
        self._include = f'include "{NFT_FILE}"'

    def plan(self):
        """Return what is to be done: ``{what: why}``."""
        out = {}
        if self.mark not in self._loaded(["nft", "list", "table", "inet", self.name]):
            out[f"table inet {self.name}"] = "loaded"
        if not Path(NFT_FILE).exists() or Path(NFT_FILE).read_text() != self.text:
            out[NFT_FILE] = "written"
        if not self._main.exists() or self._include not in self._main.read_text().splitlines():
            out[str(self._main)] = "includes it"
        return out

    def apply(self):
        """Load the rules in one step and keep them."""
        Path(NFT_FILE).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        files.write(NFT_FILE, self.text.encode(), 0o644)
        self._run(["nft", "-f", NFT_FILE])
        lines = self._main.read_text().splitlines() if self._main.exists() else []
        if self._include not in lines:
            text = "\n".join([*(lines or ["#!/usr/sbin/nft -f"]), self._include, ""])
            files.write(self._main, text.encode(), 0o755)

    def remove(self):
        """Take the rules away; return what was done."""
        done = {}
        if self._loaded(["nft", "list", "table", "inet", self.name]):
            self._run(["nft", "delete", "table", "inet", self.name])
            done[f"table inet {self.name}"] = "removed"
        if self._main.exists() and self._include in self._main.read_text().splitlines():
            kept = [li for li in self._main.read_text().splitlines() if li != self._include]
            files.write(self._main, ("\n".join(kept) + "\n").encode(), 0o755)
            done[str(self._main)] = "includes it no more"
        if Path(NFT_FILE).exists():
            Path(NFT_FILE).unlink()
            done[NFT_FILE] = "removed"
        return done

    def warnings(self):
        """Return which other chains drop what they do not accept: they decide after ours."""
        listed = json.loads(self._loaded(["nft", "-j", "list", "chains"]) or "{}")
        chains = [c["chain"] for c in listed.get("nftables", ()) if "chain" in c]
        return [
            f"the chain {c['family']} {c['table']} {c['name']} drops what it does not accept: "
            f"let it accept the TCP ports {self.ports} of the other hypervisors too"
            for c in chains
            if c.get("hook") == "input" and c.get("policy") == "drop" and c["table"] != self.name
        ]


class Iptables(Firewall):
    """A chain of its own, first in INPUT."""

    _PROGRAMS = ((4, "ipv4", "iptables"), (6, "ipv6", "ip6tables"))

    def __init__(self, *args):
        super().__init__(*args)
        self.name = self.name.upper().replace("_", "-")

    def _is_loaded(self, version, program):
        _text, mark = rules.iptables(self.name, self.ports, self.peers, version)
        return mark in self._loaded([program, "-S", self.name]) and self._is_first(program)

    def _is_first(self, program):
        return f"-A INPUT -j {self.name}" in self._loaded([program, "-S", "INPUT"]).splitlines()

    def plan(self):
        """Return what is to be done: ``{what: why}``."""
        return {f"{program} {self.name}": "loaded" for version, _family, program in self._PROGRAMS
                if not self._is_loaded(version, program)}  # fmt: skip

    def apply(self):
        """Load the chains, each in one step, and keep them."""
        for version, family, program in self._PROGRAMS:
            text, _mark = rules.iptables(self.name, self.ports, self.peers, version)
            with tempfile.NamedTemporaryFile("w", prefix="salt-virt-") as handle:
                handle.write(text)
                handle.flush()
                self._run([f"{program}-restore", "--noflush", handle.name])
            if not self._is_first(program):
                self._run([program, "-I", "INPUT", "1", "-j", self.name])
            self.call["iptables.save"](family=family)

    def remove(self):
        """Take the chains away; return what was done."""
        done = {}
        for _version, family, program in self._PROGRAMS:
            if not self._loaded([program, "-S", self.name]):
                continue
            self._run([program, "-D", "INPUT", "-j", self.name], ok=(0, 1))
            self._run([program, "-F", self.name])
            self._run([program, "-X", self.name])
            self.call["iptables.save"](family=family)
            done[f"{program} {self.name}"] = "removed"
        return done

    def warnings(self):
        """Return nothing: what the chain accepts is accepted."""
        return []


class Firewalld(Firewall):
    """Rich rules of the default zone, now and over a reboot; those of hosts that left go."""

    def _differences(self):
        zone = self.call["firewalld.default_zone"]()
        wanted = rules.rich_rules(self.ports, self.peers)
        has = [rule for rule in self.call["firewalld.get_rich_rules"](zone, permanent=True)
               if rules.is_ours(rule, self.ports)]  # fmt: skip
        return zone, [r for r in wanted if r not in has], [r for r in has if r not in wanted]

    def plan(self):
        """Return what is to be done: ``{what: why}``."""
        _zone, missing, stale = self._differences()
        return {**dict.fromkeys(missing, "added"), **dict.fromkeys(stale, "removed")}

    def apply(self):
        """Add and remove the rules, then let firewalld read them without losing connections."""
        zone, missing, stale = self._differences()
        for rule in missing:
            self.call["firewalld.add_rich_rule"](zone, rule, permanent=True)
        for rule in stale:
            self.call["firewalld.remove_rich_rule"](zone, rule, permanent=True)
        self.call["firewalld.reload_rules"]()

    def remove(self):
        """Take the rules away; return what was done."""
        self.peers = rules.networks([])
        done = self.plan()
        if done:
            self.apply()
        return done

    def warnings(self):
        """Return nothing: what the zone accepts is accepted."""
        return []


_KINDS = {"nftables": Nftables, "iptables": Iptables, "firewalld": Firewalld}


def of(backend, functions, name, ports, peers):
    """Return the rules of a backend; refuse one that is not known."""
    if backend not in _KINDS:
        raise BadArgument("backend", f"{backend!r}; one of {', '.join(_KINDS)}")
    return _KINDS[backend](functions, name, ports, peers)
