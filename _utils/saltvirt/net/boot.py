"""Rules that are loaded at every boot, by a oneshot unit of their own that touches no others."""

import contextlib
from pathlib import Path

import salt.utils.systemd

from saltvirt import files
from saltvirt.errors import VirtError

UNITS = Path("/etc/systemd/system")
RULES = Path("/etc/salt-virt")


class BootError(VirtError):
    """The rules cannot be kept for the next boot; the message says why."""


def unit(what, start, stop, others):
    """
    Return the text of a unit.

    what
        What it loads, for its description.
    start, stop
        Commands as lists of words; one of ``stop`` may fail.
    others
        Services that empty what is there when they load rules: this one comes after, each time.
    """
    starts, stops = [" ".join(argv) for argv in start], [" ".join(argv) for argv in stop]
    lines = [
        "# Written by Salt's virt.firewall_present; virt.firewall_absent removes it.",
        "[Unit]",
        f"Description=Firewall of Salt Virt: {what}",
        # Before any network is up; cloud-init may ask for one before sysinit.target.
        "DefaultDependencies=no",
        "Wants=network-pre.target",
        "Before=network-pre.target shutdown.target",
        "Conflicts=shutdown.target",
        f"After={' '.join(others)}",
        f"PartOf={' '.join(others)}",
        f"ReloadPropagatedFrom={' '.join(others)}",
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        *(f"ExecStart={line}" for line in starts),
        *(f"ExecReload={line}" for line in starts),
        *(f"ExecStop=-{line}" for line in stops),
        "",
        "[Install]",
        "WantedBy=sysinit.target",
    ]
    return "\n".join(lines) + "\n"


def _content(path):
    return path.read_bytes() if path.exists() else None


class Boot:
    """
    Files of rules, and the unit that loads them; without systemd the files alone.

    run
        Runs a command, a list of words, and raises if its exit code is not in ``ok``.
    """

    def __init__(self, run, name, text, rules):
        self._run, self.name = run, f"{name}.service"
        self.has_systemd = salt.utils.systemd.booted()
        self._unit = UNITS / self.name
        self.texts = {path: content.encode() for path, content in rules.items()}
        if self.has_systemd:
            self.texts[self._unit] = text.encode()

    def _is(self, state):
        if not self.has_systemd:
            return True
        done = self._run(["systemctl", f"is-{state}", self.name], ok=range(256))
        return done["stdout"].strip() == state

    def pending(self):
        """Return what is to be done: ``{what: why}``."""
        out = {str(p): "written" for p, text in self.texts.items() if _content(p) != text}
        if not self._is("enabled"):
            out[self.name] = "enabled"
        elif not self._is("active"):
            out[self.name] = "started"
        return out

    def keep(self, steps):
        """Write the files, enable the unit and start it if it is not; undone by ``steps``."""
        steps.then(self._tidy)
        for path, text in self.texts.items():
            steps.then(self._put, path, _content(path))
            self._put(path, text)
        if not self.has_systemd:
            return
        self._reread()
        if not self._is("enabled"):
            steps.then(self._run, ["systemctl", "disable", self.name])
            self._run(["systemctl", "enable", self.name])
        if not self._is("active"):
            # What this starts it with is what a boot will start it with.
            self._run(["systemctl", "start", self.name])

    def there(self):
        """Return what :meth:`forget` would do: ``{what: "removed"}``."""
        return {str(path): "removed" for path in [self._unit, *self.texts] if path.exists()}

    def forget(self):
        """Stop the unit, and remove it and the files."""
        if self.has_systemd and self._unit.exists():
            self._run(["systemctl", "disable", "--now", self.name])
        for path in map(Path, self.there()):
            self._put(path, None)
        self._tidy()

    def _put(self, path, text):
        try:
            if text is None:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    path.unlink()
                return
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            files.write(path, text, 0o644)
        except OSError as exc:
            with contextlib.suppress(OSError):
                files.part_path(path.parent, path.name).unlink()
            raise BootError(f"cannot write {path}: {exc.strerror}") from exc

    def _reread(self):
        if self.has_systemd:
            self._run(["systemctl", "daemon-reload"])

    def _tidy(self):
        self._reread()
        if self.has_systemd:  # a unit that failed would be listed although its file is gone
            self._run(["systemctl", "reset-failed", self.name], ok=range(256))
        if RULES.is_dir() and not any(RULES.iterdir()):
            RULES.rmdir()
