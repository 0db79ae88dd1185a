"""Load rules at every boot, by oneshot units of this project."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import salt.utils.systemd

from saltvirt.core.undo import Steps
from saltvirt.network.managers.change import content, put

UNITS = Path("/etc/systemd/system")
RULES = Path("/etc/salt-virt")


def units(
    name: str,
    title: str,
    start: Sequence[Sequence[str]],
    stop: Sequence[Sequence[str]],
    unit_names: Sequence[str],
) -> dict[str, str]:
    """
    Return the texts of the units that load rules: ``{unit: text}``, the boot unit first.

    Services in ``unit_names`` flush all rules when they load theirs. Their restart or reload
    reaches the boot unit (PartOf, ReloadPropagatedFrom), but their start does not, because the boot
    unit is active already: so the second unit starts with them (WantedBy) and ends at once.

    name
        The name of the boot unit; the second is ``NAME-again``, which no rule set can end with.
    title
        The title of the rules, for the description.
    start, stop
        Commands as lists; of ``start`` those that begin with ``-`` may fail, of ``stop`` all.
        ``start`` has to work with the rules loaded already.
    unit_names
        Services that flush rules; the units start after them.
    """
    starts = [" ".join(argv) for argv in start]
    boot_unit, again_unit = f"{name}.service", f"{name}-again.service"
    other_units = " ".join(unit_names)
    boot = [
        *_head(f"Firewall of Salt Virt: {title}", other_units),
        f"PartOf={other_units}",
        f"ReloadPropagatedFrom={other_units}",
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        *(f"ExecStart={line}" for line in starts),
        *(f"ExecReload={line}" for line in starts),
        *(f"ExecStop=-{' '.join(argv)}" for argv in stop),
        "",
        "[Install]",
        "WantedBy=sysinit.target",
    ]
    again_lines = [
        *_head(
            f"Firewall of Salt Virt: {title}, after others have loaded theirs",
            f"{other_units} {boot_unit}",
        ),
        # A stop of the other services stops the boot unit as well: start it again.
        f"Wants={boot_unit}",
        "",
        "[Service]",
        "Type=oneshot",
        *(f"ExecStart={line}" for line in starts),
        "",
        "[Install]",
        f"WantedBy={other_units}",
    ]
    return {boot_unit: "\n".join(boot) + "\n", again_unit: "\n".join(again_lines) + "\n"}


def _head(description: str, after: str) -> list[str]:
    return [
        "# Written by Salt's virt.firewall_present; virt.firewall_absent removes it.",
        "[Unit]",
        f"Description={description}",
        # Before any network is up; cloud-init may need the network before sysinit.target.
        "DefaultDependencies=no",
        "Wants=network-pre.target",
        "Before=network-pre.target shutdown.target",
        "Conflicts=shutdown.target",
        # No limit: an operator who tests rules restarts the other services often.
        "StartLimitIntervalSec=0",
        f"After={after}",
    ]


def tidy() -> None:
    """Remove the folder of the rules if it is empty."""
    if RULES.is_dir() and not any(RULES.iterdir()):
        RULES.rmdir()


class BootUnits:
    """
    Files of rules and the units that load them; without systemd only the files.

    run
        Runs a command (a list) and raises if its exit code is not in ``ok``.
    texts
        The units from :func:`units`.
    """

    def __init__(
        self,
        run: Callable[..., dict[str, Any]],
        texts: Mapping[str, str],
        rules: Mapping[Path, str],
    ) -> None:
        self._run, self._units = run, {UNITS / name: text for name, text in texts.items()}
        self._first = next(iter(texts))
        self.has_systemd = salt.utils.systemd.booted()
        self.texts = {path: text.encode() for path, text in rules.items()}
        if self.has_systemd:
            self.texts.update({path: text.encode() for path, text in self._units.items()})

    def _is(self, state: str, name: str) -> bool:
        result = self._run(["systemctl", f"is-{state}", name], ok=range(256))
        is_in_state: bool = result["stdout"].strip() == state
        return is_in_state

    def _disabled(self) -> list[str]:
        names = [path.name for path in self._units] if self.has_systemd else []
        return [name for name in names if not self._is("enabled", name)]

    def _is_stopped(self) -> bool:
        return self.has_systemd and not self._is("active", self._first)

    def pending(self) -> dict[str, str]:
        """Return the pending changes: ``{subject: change}``."""
        out = {str(p): "written" for p, text in self.texts.items() if content(p) != text}
        if self._is_stopped():
            out[self._first] = "started"
        return {**out, **dict.fromkeys(self._disabled(), "enabled")}

    def keep(self, steps: Steps) -> None:
        """Write the files, enable the units and start the first; register the undo in ``steps``."""
        steps.undo_with(self._tidy)
        for path, text in self.texts.items():
            steps.undo_with(put, path, content(path))
            put(path, text)
        if not self.has_systemd:
            return
        self._reread()
        for name in self._disabled():
            steps.undo_with(self._run, ["systemctl", "disable", name])
            self._run(["systemctl", "enable", name])
        if self._is_stopped():
            steps.undo_with(self._run, ["systemctl", "stop", self._first])
            # Through systemd, so that a mistake in the unit shows now and not at boot.
            self._run(["systemctl", "start", self._first])

    def there(self) -> dict[str, str]:
        """Return the changes of :meth:`forget`: ``{path: "removed"}``."""
        paths = dict.fromkeys([*self._units, *self.texts])
        return {str(path): "removed" for path in paths if path.exists()}

    def forget(self, steps: Steps) -> None:
        """Stop the units, remove them and the files; register the undo in ``steps``."""
        names = [path.name for path in self._units if path.exists()] if self.has_systemd else []
        if names:
            enabled = [name for name in names if self._is("enabled", name)]
            steps.undo_with(self._again, enabled, self._is("active", self._first))
        for path in map(Path, self.there()):
            steps.undo_with(put, path, content(path))
        if names:
            self._run(["systemctl", "disable", "--now", *names])
        for path in map(Path, self.there()):
            put(path, None)
        self._tidy()

    def _again(self, enabled: Sequence[str], was_active: bool) -> None:
        """Enable and start restored units as they were before."""
        self._reread()
        if enabled:
            self._run(["systemctl", "enable", *enabled])
        if was_active:
            self._run(["systemctl", "start", self._first])

    def _reread(self) -> None:
        if self.has_systemd:
            self._run(["systemctl", "daemon-reload"])

    def _tidy(self) -> None:
        self._reread()
        if self.has_systemd:  # systemd keeps listing a failed unit after its removal
            for path in self._units:
                self._run(["systemctl", "reset-failed", path.name], ok=range(256))
        tidy()
