"""The work of the state ``virt.keys``: ask the master, lay down what is due, let libvirtd know."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from saltvirt import files, wire
from saltvirt.errors import StorageError, VirtError
from saltvirt.ops.certificates import installed, reload
from saltvirt.pki import store
from saltvirt.pki.answer import VERSION, Answer

# Puts a question to the master's external pillar.
Ask = Callable[[Mapping[str, Any]], dict[str, Any] | None]
# The daemons that listen for TLS, by the socket that says they run (https://libvirt.org/daemons.html).
DAEMONS = {
    "libvirtd": "/run/libvirt/libvirt-admin-sock",
    "virtproxyd": "/run/libvirt/virtproxyd-admin-sock",
}


class EnrolmentRefused(VirtError):
    """The master gives no certificates; the message says why."""


def question(ask: Ask, wanted: Mapping[str, str]) -> dict[str, Any]:
    """Return the master's answer to a host that wants certificates; raise if it gives none."""
    answer = (ask({"certificates": wanted, "version": VERSION}) or {}).get("libvirt_pki")
    if not answer:
        raise EnrolmentRefused(
            "the master has no external pillar 'libvirt' of this release: run 'salt-run "
            "saltutil.sync_all' there, restart it, and see that on_demand_ext_pillar lists libvirt"
        )
    if "error" in answer:
        raise EnrolmentRefused(f"the master refused: {answer['error']}")
    found: dict[str, Any] = answer
    return found


def peers(ask: Ask) -> dict[str, list[str]]:
    """
    Return ``{host: addresses}`` of the other hypervisors as the master knows them, none of our own.

    It knows no address of a host that has told none yet, or that has just told that it has none.
    """
    answer = question(ask, {})
    own = set(answer["own"])
    return {host: sorted(set(told) - own) for host, told in answer["peers"].items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """
    One run of the state.

    ask
        Puts a question to the master's external pillar.
    unread
        Filled by a run: which daemons go on with what they have read before.
    """

    basepath: str
    minion_id: str
    ask: Ask
    with_vnc: bool = False
    is_forced: bool = False
    unread: list[str] = field(default_factory=list)

    @property
    def _purposes(self) -> tuple[str, ...]:
        extra = ("vnc-server",) if self.with_vnc else ()
        return (*installed.DEFAULT_PURPOSES, *extra)

    @property
    def _authorities(self) -> dict[str, tuple[Path, Path]]:
        places = installed.places(self.basepath)
        return installed.authorities(self.basepath, (places[one].use for one in self._purposes))

    def _question(self, wanted: Mapping[str, str]) -> Answer:
        said = question(self.ask, wanted)
        try:
            told: Answer = wire.recorded(Answer, said)
        except ValueError as wrong:
            raise EnrolmentRefused(f"the master's answer is not understood: {wrong}") from wrong
        return told

    def _due(self, told: Answer) -> dict[str, str]:
        places, now = installed.places(self.basepath), store.utc_now()
        forced = "the operator asked for it" if self.is_forced else None
        reasons = {p: forced or installed.due(places[p], told, now) for p in self._purposes}
        return {purpose: why for purpose, why in reasons.items() if why}

    def plan(self) -> tuple[dict[str, Any], str]:
        """Return what would change, and a comment."""
        told = self._question({})
        changes = dict(self._due(told))
        stale = installed.stale_authorities(self._authorities, told.trust)
        changes |= dict.fromkeys(stale, "would be written")
        comment = "certificates are due" if changes else "all keys are in order"
        unread = ["libvirt has not read all of them yet"] if self._unread.exists() else []
        return changes, "; ".join([comment, *unread, *self._warnings()])

    def run(self, functions: Mapping[str, Callable[..., Any]]) -> tuple[dict[str, Any], str]:
        """
        Lay down what is due; return the changes and a comment.

        One run of a host waits for another: of two at once, the key of one could come to lie beside
        the certificate of the other, or an answer of before beside newer ones.
        """
        with installed.alone(self.basepath):
            return self._run(functions)

    def _run(self, functions: Mapping[str, Callable[..., Any]]) -> tuple[dict[str, Any], str]:
        told = self._question({})
        due = self._due(told)
        try:
            written = self._lay_down(due, told)
        except OSError as exc:
            self._reload(functions)
            raise StorageError(f"not all keys could be written: {exc}") from exc
        except VirtError:
            self._reload(functions)
            raise
        changes = {**due, **dict.fromkeys(written, "written")}
        what = "certificates" if due else "lists of who is trusted and who is revoked"
        done = f"new {what} are in place" if changes else "all keys are in order"
        return changes, "; ".join([done, *self._reload(functions), *self._warnings()])

    @property
    def _unread(self) -> Path:
        """What says that libvirtd may not have read all files: each run has it read them then."""
        return Path(self.basepath) / "salt-virt-unread"

    def _announce(self) -> None:
        # Before they are written: whatever ends this run, somebody may be revoked by them.
        installed.mark(self._unread)

    def _lay_down(self, due: Mapping[str, str], told: Answer) -> list[str]:
        """Write all that is due; return which lists of who is trusted were written."""
        # First what they are trusted by: a new certificate is good from its first moment on.
        of_trust = partial(installed.lay_down_authorities, self._authorities)
        written = of_trust(told.trust, self._announce)
        if due:
            written += of_trust(self._renew(due, told).trust, self._announce)
        return written

    def _warnings(self) -> list[str]:
        places = installed.places(self.basepath)
        # A test run may come before the folders are there; there is nothing to enter yet.
        return installed.closed_above(
            places[purpose] for purpose in self._purposes if places[purpose].key.exists()
        )

    def _renew(self, due: Mapping[str, str], told: Answer) -> Answer:
        places = installed.places(self.basepath)
        kept = {purpose: installed.kept_key(places[purpose], told) for purpose in due}
        made = {purpose: installed.request(self.minion_id, kept[purpose]) for purpose in due}
        told = self._question({purpose: pem for purpose, (_key, pem) in made.items()})
        self._announce()
        for purpose, (key, _pem) in made.items():
            if purpose not in told.certificates:
                raise EnrolmentRefused(f"the master sent no certificate for {purpose}")
            installed.lay_down(places[purpose], key, told.certificates[purpose])
        return told

    def _reload(self, functions: Mapping[str, Callable[..., Any]]) -> list[str]:
        """Let a libvirtd that listens for TLS read its files anew; say what it answered."""
        if not self._unread.exists():
            return []
        running = [daemon for daemon, socket in DAEMONS.items() if Path(socket).exists()]
        if running and not functions["cmd.has_exec"]("virt-admin"):
            # It may be there at the next run, and nobody knows of a start meanwhile.
            self.unread.extend(running)
            return ["virt-admin is not here, so libvirtd reads them at its next start"]
        whys = {
            one: reload.Admin(one, functions["cmd.run_all"]).read_tls_files() for one in running
        }
        return self._heard(whys) or ["no libvirt daemon runs; it reads them at its start"]

    def _heard(self, whys: Mapping[str, str | None]) -> list[str]:
        """Take in why daemons have not read the files, None for one that has; say it."""
        failed = {daemon: why for daemon, why in whys.items() if why is not None}
        # Nobody is let in by what does not listen, or only by what it reads at its start.
        self.unread.extend(one for one, why in failed.items() if reload.NO_TLS not in why.lower())
        if not failed:
            files.unlink(self._unread)
        return [_answer(daemon, why) for daemon, why in whys.items()]


def _answer(daemon: str, why: str | None) -> str:
    if why is None:
        return f"{daemon} uses them"
    reason = why.removeprefix("error: ")
    return f"{daemon} has not read them ({reason}); it will at its next start"
