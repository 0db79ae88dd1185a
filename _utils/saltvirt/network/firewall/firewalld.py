"""Rich rules of firewalld, and the file that records which of them are ours."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from saltvirt.core.undo import Steps
from saltvirt.network.firewall import bootunits, rules
from saltvirt.network.firewall.backend import Firewall, FirewallError
from saltvirt.network.managers import change

_HEAD = "# Rich rules set by Salt's virt.firewall_present, which removes no others.\n"


class OwnRules:
    """The rules of one rule set, a line each."""

    def __init__(self, name: str) -> None:
        self.path = bootunits.RULES / f"firewalld-{name}.rules"

    def read(self) -> list[str] | None:
        """Return the recorded rules, or None if there is no record."""
        return _rules(self.path) if self.path.exists() else None

    def others(self) -> set[str]:
        """Return the rules of all other rule sets."""
        paths = set(self.path.parent.glob("firewalld-*.rules")) - {self.path}
        return {rule for path in paths for rule in _rules(path)}

    def write(self, rules: Iterable[str] | None) -> None:
        """Replace the record; None removes it."""
        text = None if rules is None else _HEAD + "".join(f"{rule}\n" for rule in rules)
        change.put(self.path, text if text is None else text.encode())
        bootunits.tidy()


def _rules(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


# Options that select a set of rules, the missing rules, the stale rules.
_Difference = tuple[Sequence[str], list[str], list[str]]


class Firewalld(Firewall):
    """
    Rich rules of the default zone, at run time and permanent.

    Both sets are changed one by one: a reload would drop run-time rules of others. Only rules that
    this class added to the permanent set are ours, not identical rules of others.
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
        """Refuse a host on which firewalld does not run."""
        super().refuse_missing()
        if not self.is_running:
            raise FirewallError(
                "firewalld does not run on this host: open what it would close in "
                "its default zone, then 'systemctl enable --now firewalld'; or "
                "choose another backend"
            )

    def _look(self) -> tuple[set[str], list[str] | None, list[_Difference]]:
        """Return our rules, those to record, and ``[(options of the set, to add, to remove)]``."""
        expected_rules = [] if self._is_leaving else rules.rich_rules(self.ports, self.peers)
        rules_by_words = {
            words: self._listed(["firewall-cmd", *words, "--list-rich-rules"]).splitlines()
            for words in (self._NOW, self._LATER)
        }
        our_rules, other_rules = set(self._own_rules.read() or ()), self._own_rules.others()
        differences = [
            (words, *rules.rich_changes(expected_rules, present_rules, our_rules - other_rules))
            for words, present_rules in rules_by_words.items()
        ]
        kept_rules = [
            rule
            for rule in expected_rules
            if rule in our_rules | other_rules or rule not in rules_by_words[self._LATER]
        ]
        return our_rules, None if self._is_leaving else kept_rules, differences

    def plan(self) -> dict[str, str]:
        """Return the pending changes: ``{subject: change}``."""
        _our_rules, kept_rules, differences = self._look()
        out = {}
        for _words, missing_rules, stale_rules in differences:
            out.update(
                {**dict.fromkeys(missing_rules, "added"), **dict.fromkeys(stale_rules, "removed")}
            )
        if self._own_rules.read() != kept_rules:
            out[str(self._own_rules.path)] = "removed" if kept_rules is None else "written"
        return out

    def bring(self, steps: Steps) -> None:
        """Add and remove run-time and permanent rules."""
        our_rules, kept_rules, differences = self._look()
        steps.undo_with(self._own_rules.write, self._own_rules.read())
        # Record first: if this run is killed, its rules are known as ours.
        self._own_rules.write(sorted(our_rules.union(kept_rules or ())))
        for words, missing_rules, stale_rules in differences:
            steps.undo_with(self._change, words, stale_rules, missing_rules)
            self._change(words, missing_rules, stale_rules)
        self._own_rules.write(kept_rules)

    def _change(
        self, words: Sequence[str], added_rules: Collection[str], removed_rules: Collection[str]
    ) -> None:
        # firewall-cmd does not add and remove in one call.
        for verb, changed_rules in (("add", added_rules), ("remove", removed_rules)):
            if changed_rules:
                self._run(
                    [
                        "firewall-cmd",
                        *words,
                        *(f"--{verb}-rich-rule={rule}" for rule in changed_rules),
                    ]
                )

    def removal(self) -> dict[str, str]:
        """Return the changes of ``remove``: ``{subject: change}``."""
        self._is_leaving = True
        if self.is_installed:
            self.refuse_missing()
        return self.plan()

    def take(self, steps: Steps) -> None:
        """Remove run-time and permanent rules."""
        self.bring(steps)

    def note(self) -> str:
        """Return a note if firewalld does not run."""
        return "" if self.is_running else "; firewalld does not run yet"
