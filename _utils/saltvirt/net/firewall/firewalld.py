"""Rich rules of firewalld."""

from collections.abc import Collection, Sequence
from typing import Any

from saltvirt.net.firewall import rules
from saltvirt.net.firewall.backend import Firewall, FirewallError
from saltvirt.net.firewall.ownrules import OwnRules
from saltvirt.undo import Steps

# What selects a set of rules, what is missing there and what is stale.
_Difference = tuple[Sequence[str], list[str], list[str]]


class Firewalld(Firewall):
    """
    Rich rules of the default zone, now and over a reboot; those of hosts that left go.

    Both sets are changed by themselves: a reload would drop what others have set for now only.
    Ours is what we have added to the permanent set; somebody else's rule that says the same is not.
    """

    program, package = "firewall-cmd", "firewalld"
    _NOW: Sequence[str] = ()
    _LATER: Sequence[str] = ("--permanent",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._own_rules, self._is_leaving = OwnRules(self.name), False

    @property
    def is_running(self) -> bool:
        """Whether firewalld answers."""
        return self._listed(["firewall-cmd", "--state"]).strip() == "running"

    def refuse_missing(self) -> None:
        """Refuse a host on which firewalld does not run: it takes rules from nobody."""
        super().refuse_missing()
        if not self.is_running:
            raise FirewallError(
                "firewalld does not run on this host: open what it would close in "
                "its default zone, then 'systemctl enable --now firewalld'; or "
                "choose another backend"
            )

    def _look(self) -> tuple[set[str], list[str] | None, list[_Difference]]:
        """Return our rules, those to record, and ``[(words for the set, to add, to remove)]``."""
        wanted = [] if self._is_leaving else rules.rich_rules(self.ports, self.peers)
        listed = {
            words: self._listed(["firewall-cmd", *words, "--list-rich-rules"]).splitlines()
            for words in (self._NOW, self._LATER)
        }
        recorded, others = self._own_rules.read(), self._own_rules.others()
        ours = set(recorded or ())
        if recorded is None:
            ours = rules.earlier_rich_rules(sum(listed.values(), []), self.ports)
        differences = [
            (words, *rules.rich_changes(wanted, has, ours - others))
            for words, has in listed.items()
        ]
        kept = [rule for rule in wanted if rule in ours | others or rule not in listed[self._LATER]]
        return ours, None if self._is_leaving else kept, differences

    def plan(self) -> dict[str, str]:
        """Return what is to be done: ``{what: why}``."""
        _ours, kept, differences = self._look()
        out = {}
        for _words, missing, stale in differences:
            out.update({**dict.fromkeys(missing, "added"), **dict.fromkeys(stale, "removed")})
        if self._own_rules.read() != kept:
            out[str(self._own_rules.path)] = "removed" if kept is None else "written"
        return out

    def bring(self, steps: Steps) -> None:
        """Add and remove the rules, those for now and those for later."""
        ours, kept, differences = self._look()
        steps.undo_with(self._own_rules.write, self._own_rules.read())
        # First, so that those of a run that is killed are known for ours.
        self._own_rules.write(sorted(ours.union(kept or ())))
        for words, missing, stale in differences:
            steps.undo_with(self._change, words, stale, missing)
            self._change(words, missing, stale)
        self._own_rules.write(kept)

    def _change(self, words: Sequence[str], more: Collection[str], fewer: Collection[str]) -> None:
        # firewall-cmd takes only one of the two at a time.
        for verb, changed in (("add", more), ("remove", fewer)):
            if changed:
                self._run(
                    ["firewall-cmd", *words, *(f"--{verb}-rich-rule={rule}" for rule in changed)]
                )

    def removal(self) -> dict[str, str]:
        """Return what ``remove`` would do: ``{what: why}``."""
        self._is_leaving = True
        if self.is_installed:
            self.refuse_missing()
        return self.plan()

    def take(self, steps: Steps) -> None:
        """Take the rules away, those for now and those for later."""
        self.bring(steps)

    def note(self) -> str:
        """Return what must be said beside the outcome."""
        return "" if self.is_running else "; firewalld does not run yet"
