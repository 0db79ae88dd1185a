"""Load the rules of :mod:`saltvirt.net.rules`, and have them loaded again at every boot."""

import json
import shutil
import tempfile
from pathlib import Path

from salt.exceptions import SaltException

from saltvirt import undo
from saltvirt.errors import BadArgument, VirtError
from saltvirt.net import rules
from saltvirt.net.boot import RULES, Boot, units
from saltvirt.net.record import Record

# Not the PATH of whoever runs the state: the unit's text must not depend on it.
_FOLDERS = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin"


class FirewallError(VirtError):
    """The firewall does not take the rules; the message carries its own words."""


class Firewall:
    """The rules of one name in one backend; ``plan`` says what ``apply`` would do."""

    program = package = None

    def __init__(self, functions, name, ports, peers):
        self.call, self.name = functions, rules.table_name(name)
        self.ports, self.peers = rules.ports(ports), rules.networks(peers)

    @property
    def is_installed(self):
        """Whether the host has the backend's program."""
        return shutil.which(self.program, path=_FOLDERS) is not None

    def refuse_missing(self):
        """Refuse a host that cannot take the rules as it is."""
        if not self.is_installed:
            raise FirewallError(f"{self.program} is not installed on this host: install the "
                                f"package {self.package}, or choose another backend")  # fmt: skip

    def _path(self, program):
        return shutil.which(program, path=_FOLDERS) or f"/usr/sbin/{program}"

    def _run(self, argv, ok=(0,)):
        found = [self._path(argv[0]), *argv[1:]]
        try:
            done = self.call["cmd.run_all"](found, python_shell=False, ignore_retcode=True)
        except SaltException as exc:
            raise FirewallError(f"{argv[0]}: {exc}") from exc
        if done["retcode"] not in ok:
            said = (done["stderr"] or done["stdout"]).strip().splitlines()
            raise FirewallError(f"{' '.join(argv[:4])}: {'; '.join(said)}")
        return done

    def _listed(self, argv):
        """Return what a command lists, nothing if there is no such thing."""
        if not self.is_installed:
            return ""
        done = self._run(argv, ok=range(256))
        return done["stdout"] if done["retcode"] == 0 else ""

    def warnings(self):
        """Return what else on this host decides over these ports."""
        return []

    def leftovers(self):
        """Return what others keep of these rules once ours are gone."""
        return []


class Loaded(Firewall):
    """A backend whose rules a unit of ours loads at boot."""

    boot = None

    def _refuse_foreign(self):
        for what in self._foreign():
            raise FirewallError(f"{what} is there and was not made by virt.firewall_present: "
                                "choose another name, or remove it")  # fmt: skip

    def plan(self):
        """Return what is to be done: ``{what: why}``; refuse what somebody else has made."""
        self._refuse_foreign()
        return {**dict.fromkeys(self._missing(), "loaded"), **self.boot.pending()}

    def apply(self):
        """Load the rules, each table in one step, and have them loaded at boot."""
        self._check()
        had_any = bool(self._there())
        with undo.on_failure() as steps:
            if not had_any:
                steps.then(self._unload)
            self.boot.keep(steps)
            if self._missing():
                self._load()

    def removal(self):
        """Return what ``remove`` would do: ``{what: why}``; refuse what somebody else has made."""
        self._refuse_foreign()
        return {**dict.fromkeys(self._there(), "removed"), **self.boot.there()}

    def remove(self):
        """Take the rules away, now and at boot."""
        self.boot.forget()
        self._unload()

    def note(self):
        """Return what must be said beside the outcome."""
        if self.boot.has_systemd:
            return ""
        paths = ", ".join(map(str, self.boot.texts))
        return f"; nothing loads {paths} at boot, as systemd does not run here"


class Nftables(Loaded):
    """A table of its own: what it refuses stays refused, whatever other tables accept."""

    program, package = "nft", "nftables"

    def __init__(self, *args):
        super().__init__(*args)
        self._text, self._mark = rules.nftables(self.name, self.ports, self.peers)
        self._table = f"table inet {self.name}"
        self._file = RULES / f"nftables-{self.name}.nft"
        nft = self._path("nft")
        texts = units(f"salt-virt-nftables-{self.name}", self._table,
                      [[nft, "-f", str(self._file)]],
                      [[nft, "delete", "table", "inet", self.name]],
                      ["nftables.service"])  # fmt: skip
        self.boot = Boot(self._run, texts, {self._file: self._text})

    def plan(self):
        """Return what is to be done; refuse a name that others may use later."""
        rules.refuse_table(self.name)
        return super().plan()

    def _shown(self):
        return self._listed(["nft", "list", "table", "inet", self.name])

    def _there(self):
        return [self._table] if self._shown() else []

    def _foreign(self):
        shown = self._shown()
        return [self._table] if shown and not rules.is_our_table(shown) else []

    def _missing(self):
        return [] if self._mark in self._shown() else [self._table]

    def _check(self):
        with tempfile.NamedTemporaryFile("w", prefix="salt-virt-") as handle:
            handle.write(self._text)
            handle.flush()
            self._run(["nft", "-c", "-f", handle.name])

    def _load(self):
        self._run(["nft", "-f", str(self._file)])

    def _unload(self):
        if self._there():
            self._run(["nft", "delete", "table", "inet", self.name])

    def warnings(self):
        """Return which other chains drop what they do not accept: they decide after ours."""
        listed = json.loads(self._listed(["nft", "-j", "list", "chains"]) or "{}")
        chains = [c["chain"] for c in listed.get("nftables", ()) if "chain" in c]
        return [
            f"the chain {c['family']} {c['table']} {c['name']} drops what it does not accept: "
            f"let it accept the TCP ports {self.ports} of the other hypervisors too"
            for c in chains
            if c.get("hook") == "input" and c.get("policy") == "drop" and c["table"] != self.name
        ]


class Iptables(Loaded):
    """A chain of its own, first in INPUT."""

    program = package = "iptables"
    _PROGRAMS = {"iptables": 4, "ip6tables": 6}
    _OTHERS = ["nftables.service", "iptables.service", "ip6tables.service",
               "netfilter-persistent.service"]  # fmt: skip
    _SAVED = ("/etc/iptables/rules.v4", "/etc/iptables/rules.v6",
              "/etc/sysconfig/iptables", "/etc/sysconfig/ip6tables")  # fmt: skip

    def __init__(self, *args):
        super().__init__(*args)
        self._chain = rules.chain_name(self.name)
        made = {program: rules.iptables(self._chain, self.ports, self.peers, version)
                for program, version in self._PROGRAMS.items()}  # fmt: skip
        self._texts = {program: text for program, (text, _mark) in made.items()}
        self._marks = {program: mark for program, (_text, mark) in made.items()}
        places = {program: RULES / f"{program}-{self.name}.rules" for program in made}
        jumps = {program: [self._path(program), "-w", "-D", "INPUT", "-j", self._chain]
                 for program in made}  # fmt: skip
        starts = []
        for program, path in places.items():
            # The file ends with the jump, which may be there: two would outlive a stop.
            starts.append([f"-{jumps[program][0]}", *jumps[program][1:]])
            starts.append([self._path(f"{program}-restore"), "-w", "--noflush", str(path)])
        texts = units(f"salt-virt-iptables-{self.name}", f"chain {self._chain}", starts,
                      list(jumps.values()), self._OTHERS)  # fmt: skip
        self.boot = Boot(self._run, texts, {path: self._texts[program]
                                            for program, path in places.items()})  # fmt: skip

    def _shown(self, program):
        return self._listed([program, "-w", "-S", self._chain])

    def _there(self):
        return [f"{program} {self._chain}" for program in self._PROGRAMS if self._shown(program)]

    def _foreign(self):
        return [f"the chain {self._chain} of {program}" for program in self._PROGRAMS
                if not rules.is_our_chain(self._shown(program))]  # fmt: skip

    def _missing(self):
        return [f"{program} {self._chain}" for program, mark in self._marks.items()
                if mark not in self._shown(program)
                or not self._has_jump(program)]  # fmt: skip

    def _has_jump(self, program):
        # Wherever it is by now: libvirt and others put theirs first too, whenever they start.
        listed = self._listed([program, "-w", "-S", "INPUT"])
        return f"-A INPUT -j {self._chain}" in listed.splitlines()

    def _restore(self, program, text, *words):
        with tempfile.NamedTemporaryFile("w", prefix="salt-virt-") as handle:
            handle.write(text)
            handle.flush()
            self._run([f"{program}-restore", "-w", "--noflush", *words, handle.name])

    def _check(self):
        for program, text in self._texts.items():
            self._restore(program, text, "--test")

    def _load(self):
        for program, text in self._texts.items():
            self._restore(program, rules.without_jump(text, self._chain))
            if not self._has_jump(program):
                self._run([program, "-w", "-I", "INPUT", "1", "-j", self._chain])

    def _unload(self):
        for program in self._PROGRAMS:
            if not self._shown(program):
                continue
            jump = ["INPUT", "-j", self._chain]
            while self._run([program, "-w", "-C", *jump], ok=range(256))["retcode"] == 0:
                self._run([program, "-w", "-D", *jump])
            self._run([program, "-w", "-F", self._chain])
            self._run([program, "-w", "-X", self._chain])

    def leftovers(self):
        """Return which files of others, saved meanwhile, bring the chain back at boot."""
        return [f"{path} was saved with the chain {self._chain}, which is back after a boot: save "
                "the rules of this host anew"
                for path in map(Path, self._SAVED)
                if path.exists() and f":{self._chain} " in path.read_text()]  # fmt: skip


class Firewalld(Firewall):
    """
    Rich rules of the default zone, now and over a reboot; those of hosts that left go.

    Both sets are changed by themselves: a reload would drop what others have set for now only.
    Ours is what we have added to the permanent set; somebody else's rule that says the same is not.
    """

    program, package = "firewall-cmd", "firewalld"
    _NOW, _LATER = (), ("--permanent",)

    def __init__(self, *args):
        super().__init__(*args)
        self._record, self._is_leaving = Record(self.name), False

    @property
    def is_running(self):
        """Whether firewalld answers."""
        return self._listed(["firewall-cmd", "--state"]).strip() == "running"

    def refuse_missing(self):
        """Refuse a host on which firewalld does not run: it takes rules from nobody."""
        super().refuse_missing()
        if not self.is_running:
            raise FirewallError("firewalld does not run on this host: open what it would close in "
                                "its default zone, then 'systemctl enable --now firewalld'; or "
                                "choose another backend")  # fmt: skip

    def _look(self):
        """Return our rules, those to record, and ``[(words for the set, to add, to remove)]``."""
        wanted = [] if self._is_leaving else rules.rich_rules(self.ports, self.peers)
        listed = {
            words: self._listed(["firewall-cmd", *words, "--list-rich-rules"]).splitlines()
            for words in (self._NOW, self._LATER)
        }
        recorded, others = self._record.read(), self._record.others()
        ours = set(recorded or ())
        if recorded is None:
            ours = rules.earlier_rich_rules(sum(listed.values(), []), self.ports)
        differences = [(words, *rules.rich_changes(wanted, has, ours - others))
                       for words, has in listed.items()]  # fmt: skip
        kept = [rule for rule in wanted
                if rule in ours | others or rule not in listed[self._LATER]]  # fmt: skip
        return ours, None if self._is_leaving else kept, differences

    def plan(self):
        """Return what is to be done: ``{what: why}``."""
        _ours, kept, differences = self._look()
        out = {}
        for _words, missing, stale in differences:
            out.update({**dict.fromkeys(missing, "added"), **dict.fromkeys(stale, "removed")})
        if self._record.read() != kept:
            out[str(self._record.path)] = "removed" if kept is None else "written"
        return out

    def apply(self):
        """Add and remove the rules, those for now and those for later."""
        ours, kept, differences = self._look()
        with undo.on_failure() as steps:
            steps.then(self._record.write, self._record.read())
            # First, so that those of a run that is killed are known for ours.
            self._record.write(sorted(ours.union(kept or ())))
            for words, missing, stale in differences:
                steps.then(self._change, words, stale, missing)
                self._change(words, missing, stale)
            self._record.write(kept)

    def _change(self, words, more, fewer):
        # firewall-cmd takes only one of the two at a time.
        for verb, changed in (("add", more), ("remove", fewer)):
            if changed:
                self._run(["firewall-cmd", *words,
                           *(f"--{verb}-rich-rule={rule}" for rule in changed)])  # fmt: skip

    def removal(self):
        """Return what ``remove`` would do: ``{what: why}``."""
        self._is_leaving = True
        if self.is_installed:
            self.refuse_missing()
        return self.plan()

    def remove(self):
        """Take the rules away, those for now and those for later."""
        self.apply()

    def note(self):
        """Return what must be said beside the outcome."""
        return "" if self.is_running else "; firewalld does not run yet"


_KINDS = {"nftables": Nftables, "iptables": Iptables, "firewalld": Firewalld}


def of(backend, functions, name, ports, peers):
    """Return the rules of a backend; refuse one that is not known."""
    if backend not in _KINDS:
        raise BadArgument("backend", f"{backend!r}; one of {', '.join(_KINDS)}")
    return _KINDS[backend](functions, name, ports, peers)
