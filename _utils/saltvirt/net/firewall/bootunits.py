"""Rules that are loaded at every boot, by a oneshot unit of their own that touches no others."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import salt.utils.systemd

from saltvirt.net.change import content, put
from saltvirt.undo import Steps

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
    Return the texts of the units that load rules: ``{unit: text}``, that of the boot first.

    The second starts with each of ``others`` and ends at once. A restart or a reload of theirs
    reaches the first (PartOf, ReloadPropagatedFrom), but for a start, which empties what is there
    too, the first has nothing to do: it is active already. A drop-in of theirs is not needed: what
    has the second start is a link of its own, made by ``systemctl enable``.

    name
        That of the first; the second is called ``NAME-again``, which no name of rules can end with.
    what
        What it loads, for its description.
    start, stop
        Commands as lists of words; of ``start`` those that begin with ``-`` may fail, of ``stop``
        all. ``start`` may find the rules loaded.
    others
        Services that empty what is there when they load rules: these come after, each time.
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
        # After a stop of theirs the first is stopped too, and would not follow their next reload.
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
        # Before any network is up; cloud-init may ask for one before sysinit.target.
        "DefaultDependencies=no",
        "Wants=network-pre.target",
        "Before=network-pre.target shutdown.target",
        "Conflicts=shutdown.target",
        # Somebody who tries out rules restarts often; refused the sixth time, ours would be gone.
        "StartLimitIntervalSec=0",
        f"After={after}",
    ]


def tidy() -> None:
    """Remove the folder of the files if none is in it."""
    if RULES.is_dir() and not any(RULES.iterdir()):
        RULES.rmdir()


class BootUnits:
    """
    Files of rules, and the units that load them; without systemd the files alone.

    run
        Runs a command, a list of words, and raises if its exit code is not in ``ok``.
    texts
        What :func:`units` returns.
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
        """Return what is to be done: ``{what: why}``."""
        out = {str(p): "written" for p, text in self.texts.items() if content(p) != text}
        if self._is_stopped():
            out[self._first] = "started"
        return {**out, **dict.fromkeys(self._disabled(), "enabled")}

    def keep(self, steps: Steps) -> None:
        """Write the files, enable the units and start the first if it is not; see ``steps``."""
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
            # What this starts it with is what a boot will start it with.
            self._run(["systemctl", "start", self._first])

    def there(self) -> dict[str, str]:
        """Return what :meth:`forget` would do: ``{what: "removed"}``."""
        paths = dict.fromkeys([*self._units, *self.texts])
        return {str(path): "removed" for path in paths if path.exists()}

    def forget(self, steps: Steps) -> None:
        """Stop the units, and remove them and the files; see ``steps``."""
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
        """Have units that are there again enabled and started as they were."""
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
        if self.has_systemd:  # a unit that failed would be listed although its file is gone
            for path in self._units:
                self._run(["systemctl", "reset-failed", path.name], ok=range(256))
        tidy()
