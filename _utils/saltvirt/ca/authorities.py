"""
A certificate authority for each use; its certificates are good for no other use.

Names in a single CA could not keep the uses apart: only libvirt's servers read the list of allowed
names, and QEMU checks chain and usage alone. A key of QEMU's group would open libvirtd.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from saltvirt.ca import certified, store
from saltvirt.core import files

LIBVIRT = "libvirt"
# By use: its folder below that of libvirt's CA, and its CA's name.
USES = {
    LIBVIRT: (".", "Salt Virt CA"),
    "qemu": ("qemu", "Salt Virt QEMU CA"),
    "vnc": ("vnc", "Salt Virt VNC CA"),
}
_DAY = timedelta(days=1)


def use_of(purpose: str) -> str:
    """Return the use of a certificate's purpose: ``qemu`` for ``qemu-server``."""
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

    def store_for(self, purpose: str) -> store.Store:
        """Return the CA that signs for a purpose."""
        return self.stores[use_of(purpose)]

    def issued(self) -> list[dict[str, Any]]:
        """Return all CAs' certificates: ``{host, purpose, serial, not_after, signer}``."""
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
        Revoke certificates, given as rows of ``issued``.

        If a CA fails, the others still revoke; then the first error is raised.
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
        """Return foreign and damaged files in the folders of records."""
        return [
            path
            for ca_store in self.stores.values()
            for path in certified.find_strange_files(ca_store.folder)
        ]

    def trust(self, use: str, now: datetime, **options: Any) -> Trust:
        """Return what a use trusts; its CA is made at the first call."""
        ca_store = self.stores[use]
        ca_store.authority(now, **options)
        return Trust(ca=ca_store.bundle(now), crl=ca_store.revocations(now))

    def begin_rotation(self, now: datetime, **options: Any) -> None:
        """Make the next CA of each use; from now on every host gets both CAs to trust."""
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
        """Remove the records of expired certificates, once a day."""
        mark = self.folder / "pruned"
        # A mark that cannot be read counts as missing.
        with suppress(FileNotFoundError, ValueError, TypeError):
            if now - datetime.fromisoformat(mark.read_text()) < _DAY:
                return
        for ca_store in self.stores.values():
            ca_store.prune(now)
        files.write(mark, now.isoformat().encode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the locks of all existing CAs, and of libvirt's."""
        with ExitStack() as stack:
            for use, ca_store in self.stores.items():
                if use == LIBVIRT or store.exists(ca_store.folder):
                    stack.enter_context(ca_store.locked())
            yield
