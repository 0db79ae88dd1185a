"""
One certificate authority for each use: what one signs is good for nothing else.

libvirt's list of allowed names is read by its servers only, and QEMU looks at chain and usage
alone: names in one CA cannot keep the uses apart, and a key of QEMU's group would open libvirtd.

Releases before 1.0 signed all with libvirt's CA. Until every hypervisor has certificates of the
others, those others are trusted beside it; then what it signed for them is revoked.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from saltvirt import files
from saltvirt.pki import certified, store

LIBVIRT = "libvirt"
# Of each use the folder below that of libvirt's CA, and what its CA is called.
USES = {
    LIBVIRT: (".", "Salt Virt CA"),
    "qemu": ("qemu", "Salt Virt QEMU CA"),
    "vnc": ("vnc", "Salt Virt VNC CA"),
}
_SEPARATE = "separate"
_DAY = timedelta(days=1)


def use_of(purpose: str) -> str:
    """Return the use of a certificate's purpose: ``qemu`` of ``qemu-server``."""
    return purpose.partition("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What one use trusts: its CA's certificates and revocation lists, as PEM texts."""

    ca: str
    crl: str


class Authorities:
    """The CAs of a master, in one folder; see the module."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.stores = {
            use: store.Store(self.folder / subfolder, name)
            for use, (subfolder, name) in USES.items()
        }

    def of(self, purpose: str) -> store.Store:
        """Return the CA that signs for a purpose."""
        return self.stores[use_of(purpose)]

    def issued(self) -> list[dict[str, Any]]:
        """Return every certificate, of all CAs: ``{host, purpose, serial, not_after, signer}``."""
        return [
            {**row, "signer": use}
            for use, ca_store in self.stores.items()
            for row in ca_store.issued()
        ]

    def revoked(self) -> set[str]:
        """Return the serials that any CA has revoked."""
        return {serial for ca_store in self.stores.values() for serial in ca_store.revoked()}

    def revoke(self, rows: Collection[Mapping[str, Any]], now: datetime) -> None:
        """
        Revoke certificates, of which ``issued`` has told these rows.

        A CA that fails keeps no other from revoking; the first error is raised after that.
        """
        errors: list[Exception] = []
        for use, ca_store in self.stores.items():
            serials = [row["serial"] for row in rows if row["signer"] == use]
            try:
                if serials:
                    ca_store.revoke(serials, now)
            except (OSError, ValueError) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def strange(self) -> list[Path]:
        """Return the files in the folders of records that are not this project's, or damaged."""
        return [
            path
            for ca_store in self.stores.values()
            for path in certified.find_strange_files(ca_store.folder)
        ]

    def trust(self, use: str, now: datetime, **options: Any) -> Trust:
        """Return what a use trusts; its CA is made at the first call."""
        parts = [self.stores[use]]
        if not self.is_separate(use):
            parts.append(self.stores[LIBVIRT])
        for ca_store in parts:
            ca_store.authority(now, **options)
        return Trust(
            ca="".join(ca_store.bundle(now) for ca_store in parts),
            crl="".join(ca_store.revocations(now) for ca_store in parts),
        )

    def is_separate(self, use: str) -> bool:
        """Return whether nothing that libvirt's CA signed for a use is good any more."""
        return use == LIBVIRT or (self.stores[use].folder / _SEPARATE).exists()

    def separate(self, hosts: Collection[str], now: datetime) -> list[str]:
        """
        Revoke what libvirt's CA signed for other uses, where all hypervisors have better.

        hosts
            The hypervisors. Whoever is not one of them is not waited for.

        Returns the serials that were revoked.
        """
        out: list[str] = []
        for use in USES:
            if not self.is_separate(use):
                out += self._separated(use, hosts, now)
        return out

    def _separated(self, use: str, hosts: Collection[str], now: datetime) -> list[str]:
        good_rows = self._good(use, now)
        old_rows = [row for row in good_rows if row["signer"] == LIBVIRT]
        renewed_pairs = {(row["host"], row["purpose"]) for row in good_rows if row["signer"] == use}
        waited_for = {(row["host"], row["purpose"]) for row in old_rows if row["host"] in hosts}
        if waited_for - renewed_pairs:
            return []
        self.revoke(old_rows, now)
        with self.stores[use].locked():
            files.write(self.stores[use].folder / _SEPARATE, b"")
        return [row["serial"] for row in old_rows]

    def _good(self, use: str, now: datetime) -> list[dict[str, Any]]:
        """Return the certificates for a use that are neither over nor revoked, whoever signed."""
        revoked_serials = self.revoked()
        rows = [row for row in self.issued() if use_of(row["purpose"]) == use]
        return [
            row
            for row in rows
            if row["serial"] not in revoked_serials
            and datetime.fromisoformat(row["not_after"]) > now
        ]

    def begin_rotation(self, now: datetime, **options: Any) -> None:
        """Make the next CA of each use; from now on every host is told to trust both."""
        for ca_store in self.stores.values():
            ca_store.begin_rotation(now, **options)

    def promote(self, now: datetime) -> None:
        """Let the next CA of each use sign from now on."""
        for ca_store in self.stores.values():
            ca_store.promote(now)

    def finish_rotation(self, now: datetime) -> None:
        """Stop trusting the CAs that were replaced."""
        for ca_store in self.stores.values():
            ca_store.finish_rotation(now)

    def prune_daily(self, now: datetime) -> None:
        """Forget certificates that are over, and that they were revoked; once in a day."""
        mark = self.folder / "pruned"
        # A mark that cannot be read says nothing.
        with suppress(FileNotFoundError, ValueError, TypeError):
            if now - datetime.fromisoformat(mark.read_text()) < _DAY:
                return
        for ca_store in self.stores.values():
            ca_store.prune(now)
        files.write(mark, now.isoformat().encode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the locks of all CAs that are there, and of libvirt's."""
        with ExitStack() as stack:
            for use, ca_store in self.stores.items():
                if use == LIBVIRT or store.exists(ca_store.folder):
                    stack.enter_context(ca_store.locked())
            yield
