"""Record our firewalld rules in a file, because firewalld cannot mark them."""

from collections.abc import Iterable
from pathlib import Path

from saltvirt.network.firewall import bootunits
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
