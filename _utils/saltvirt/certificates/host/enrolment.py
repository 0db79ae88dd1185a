"""Ask the master for due certificates, write them, and have libvirtd read them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from saltvirt.ca import store
from saltvirt.ca.answer import VERSION, Answer
from saltvirt.certificates.host import installed, reload
from saltvirt.core import files, wire
from saltvirt.core.errors import StorageError, VirtError

# Calls the master's external pillar.
Ask = Callable[[Mapping[str, Any]], dict[str, Any] | None]
# Daemons that listen for TLS, and their sockets while they run (https://libvirt.org/daemons.html).
DAEMONS = {
    "libvirtd": "/run/libvirt/libvirt-admin-sock",
    "virtproxyd": "/run/libvirt/virtproxyd-admin-sock",
}


class EnrolmentRefused(VirtError):
    """The master gives no certificates; the message says why."""


def ask_master(ask: Ask, requests: Mapping[str, str]) -> dict[str, Any]:
    """Return the master's answer to requests for certificates; raise EnrolmentRefused."""
    answer = (ask({"certificates": requests, "version": VERSION}) or {}).get("libvirt_pki")
    if not answer:
        raise EnrolmentRefused(
            "the master has no external pillar 'libvirt' of this release: run 'salt-run "
            "saltutil.sync_all' there, restart it, and see that on_demand_ext_pillar lists libvirt"
        )
    if "error" in answer:
        raise EnrolmentRefused(f"the master refused: {answer['error']}")
    checked_answer: dict[str, Any] = answer
    return checked_answer


def peers(ask: Ask) -> dict[str, list[str]]:
    """
    Return ``{host: addresses}`` of the other hypervisors, without this host's own addresses.

    A host that has reported no addresses, or none any more, has none here.
    """
    answer = ask_master(ask, {})
    own_addresses = set(answer["own"])
    return {
        host: sorted(set(addresses) - own_addresses) for host, addresses in answer["peers"].items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """
    One run of the state.

    unread
        Filled by a run: daemons that still use the files that they read before.
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
        return installed.authorities(
            self.basepath, (places[purpose].use for purpose in self._purposes)
        )

    def _question(self, requests: Mapping[str, str]) -> Answer:
        reply = ask_master(self.ask, requests)
        try:
            answer: Answer = wire.read_recorded(Answer, reply)
        except ValueError as wrong:
            raise EnrolmentRefused(f"the master's answer is not understood: {wrong}") from wrong
        return answer

    def _due(self, answer: Answer) -> dict[str, str]:
        places, now = installed.places(self.basepath), store.utc_now()
        forced_reason = "the operator asked for it" if self.is_forced else None
        reasons = {
            name: forced_reason or installed.find_due_reason(places[name], answer, now)
            for name in self._purposes
        }
        return {purpose: reason for purpose, reason in reasons.items() if reason}

    def plan(self) -> tuple[dict[str, Any], str]:
        """Return what would change, and a comment."""
        answer = self._question({})
        changes = dict(self._due(answer))
        stale_paths = installed.stale_authorities(self._authorities, answer.trust)
        changes |= dict.fromkeys(stale_paths, "would be written")
        comment = "certificates are due" if changes else "all keys are in order"
        unread_notice = ["libvirt has not read all of them yet"] if self._unread.exists() else []
        return changes, "; ".join([comment, *unread_notice, *self._warnings()])

    def run(self, functions: Mapping[str, Callable[..., Any]]) -> tuple[dict[str, Any], str]:
        """
        Write what is due; return the changes and a comment.

        Runs wait for each other: two at once could leave the key of one beside the certificate of
        the other, or an older answer beside newer ones.
        """
        with installed.lock_basepath(self.basepath):
            return self._run(functions)

    def _run(self, functions: Mapping[str, Callable[..., Any]]) -> tuple[dict[str, Any], str]:
        answer = self._question({})
        reasons_by_purpose = self._due(answer)
        try:
            written_paths = self._lay_down(reasons_by_purpose, answer)
        except OSError as exc:
            self._reload(functions)
            raise StorageError(f"not all keys could be written: {exc}") from exc
        except VirtError:
            self._reload(functions)
            raise
        changes = {**reasons_by_purpose, **dict.fromkeys(written_paths, "written")}
        subject = (
            "certificates" if reasons_by_purpose else "lists of who is trusted and who is revoked"
        )
        summary = f"new {subject} are in place" if changes else "all keys are in order"
        return changes, "; ".join([summary, *self._reload(functions), *self._warnings()])

    @property
    def _unread(self) -> Path:
        """The marker of unread files: while it exists, each run has the daemons read them again."""
        return Path(self.basepath) / "salt-virt-unread"

    def _announce(self) -> None:
        # Before writing: the files may revoke a host, and a killed run must not leave them unread.
        installed.write_marker(self._unread)

    def _lay_down(self, reasons_by_purpose: Mapping[str, str], answer: Answer) -> list[str]:
        """Write all that is due; return the CA files and revocation lists that were written."""
        # CA files first, so that a new certificate is trusted from its first moment on.
        lay_down_trust = partial(installed.lay_down_authorities, self._authorities)
        written_paths = lay_down_trust(answer.trust, self._announce)
        if reasons_by_purpose:
            written_paths += lay_down_trust(
                self._renew(reasons_by_purpose, answer).trust, self._announce
            )
        return written_paths

    def _warnings(self) -> list[str]:
        places = installed.places(self.basepath)
        # In a test run the folders may be missing.
        return installed.find_closed_parents(
            places[purpose] for purpose in self._purposes if places[purpose].key.exists()
        )

    def _renew(self, reasons_by_purpose: Mapping[str, str], answer: Answer) -> Answer:
        places = installed.places(self.basepath)
        old_keys = {
            purpose: installed.find_reusable_key(places[purpose], answer)
            for purpose in reasons_by_purpose
        }
        requests = {
            purpose: installed.request(self.minion_id, old_keys[purpose])
            for purpose in reasons_by_purpose
        }
        answer = self._question({purpose: pem for purpose, (_key, pem) in requests.items()})
        self._announce()
        for purpose, (key, _pem) in requests.items():
            if purpose not in answer.certificates:
                raise EnrolmentRefused(f"the master sent no certificate for {purpose}")
            installed.lay_down(places[purpose], key, answer.certificates[purpose])
        return answer

    def _reload(self, functions: Mapping[str, Callable[..., Any]]) -> list[str]:
        """Have running daemons read their TLS files again; return messages about the outcome."""
        if not self._unread.exists():
            return []
        running_daemons = [daemon for daemon, socket in DAEMONS.items() if Path(socket).exists()]
        if running_daemons and not functions["cmd.has_exec"]("virt-admin"):
            # The marker stays: virt-admin may be there next time, and restarts go unnoticed.
            self.unread.extend(running_daemons)
            return ["virt-admin is not here, so libvirtd reads them at its next start"]
        reasons_by_daemon = {
            daemon: reload.Admin(daemon, functions["cmd.run_all"]).read_tls_files()
            for daemon in running_daemons
        }
        return self._heard(reasons_by_daemon) or [
            "no libvirt daemon runs; it reads them at its start"
        ]

    def _heard(self, reasons_by_daemon: Mapping[str, str | None]) -> list[str]:
        """Return messages about daemons' outcomes; collect daemons that have not read the files."""
        failures = {
            daemon: reason for daemon, reason in reasons_by_daemon.items() if reason is not None
        }
        # A daemon without TLS admits no client, and would read the files at its start.
        self.unread.extend(
            name for name, reason in failures.items() if reload.NO_TLS not in reason.lower()
        )
        if not failures:
            files.unlink(self._unread)
        return [_reload_message(daemon, reason) for daemon, reason in reasons_by_daemon.items()]


def _reload_message(daemon: str, error: str | None) -> str:
    if error is None:
        return f"{daemon} uses them"
    reason = error.removeprefix("error: ")
    return f"{daemon} has not read them ({reason}); it will at its next start"
