"""
The facts of this master for ``virt.audit`` and ``virt.setup_check``.

A fact is a property, which is read when a check first needs it. Reading creates nothing, and asks
no minion.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path

import salt.version

from saltvirt.ca.authorities import LIBVIRT, Authorities
from saltvirt.checks import installed
from saltvirt.checks.master import cafiles, runningmaster, servedfiles
from saltvirt.checks.master.cafiles import FileFacts, OldKeysFacts
from saltvirt.checks.master.runningmaster import ServedFiles
from saltvirt.cluster import candidates, membership, minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.core import filecontent
from saltvirt.core.salt import compat


class MasterFacts:
    """
    The facts of this master.

    options
        The master's configuration.
    members
        Its hypervisors.
    now
        The time by which certificates are judged.
    named_hosts
        Hosts that the caller has named; empty for all.
    """

    def __init__(self, cloud: Cloud, now: datetime, named_hosts: Sequence[str] = ()) -> None:
        self.options, self.members = cloud.opts, cloud.members
        self.now, self.named_hosts = now, named_hosts

    @cached_property
    def release(self) -> str:
        """Salt's release, such as ``3006.25``."""
        return str(salt.version.__version__)

    @cached_property
    def code(self) -> str:
        """The digest of the master's own library."""
        return filecontent.of_code()

    @cached_property
    def user(self) -> str:
        """The user that the master runs as."""
        return str(self.options.get("user") or "root")

    @cached_property
    def foreign_virt(self) -> list[str]:
        """Distributions in the master's Python with another module ``virt``."""
        return installed.find_foreign_virt()

    @cached_property
    def is_synced(self) -> bool:
        """Whether this library came by the file server, and not by pip."""
        extension_folder = Path(self.options["extension_modules"]).resolve()
        return Path(__file__).resolve().is_relative_to(extension_folder)

    @cached_property
    def newer_files(self) -> list[str]:
        """Configuration files written after the running master started."""
        return runningmaster.find_newer_files(self.options)

    @cached_property
    def served_files(self) -> ServedFiles:
        """The needed files that the file server has."""
        return runningmaster.read_served(self.options)

    @cached_property
    def has_pillar(self) -> bool:
        """Whether this project's external pillar for certificates is loaded."""
        return runningmaster.has_pillar(self.options)

    @cached_property
    def root(self) -> str | None:
        """The first folder of the file server, None if there is none."""
        roots = (self.options.get("file_roots") or {}).get("base") or []
        return str(roots[0]) if roots else None

    @cached_property
    def accepted(self) -> list[str]:
        """Ids of accepted keys."""
        return compat.KeyStore(self.options).accepted()

    @cached_property
    def waiting(self) -> list[str]:
        """Ids of waiting keys."""
        return compat.KeyStore(self.options).waiting()

    @cached_property
    def candidates_by_id(self) -> Mapping[str, candidates.Candidate]:
        """The candidates by their ids."""
        return candidates.find_candidates(self.options, self.members)

    @cached_property
    def keyless_hosts(self) -> list[str]:
        """Ids that are allowed as hosts and have no accepted key."""
        unaccepted_ids = self.members.named.difference(self.accepted)
        return sorted(filter(self.members.has, unaccepted_ids))

    @cached_property
    def planted_keys(self) -> list[str]:
        """Accepted ids with key files that a minion may have written itself."""
        return sorted(filter(membership.may_be_planted, self.accepted))

    @cached_property
    def autosign_lines(self) -> list[str]:
        """The lines of ``autosign_file``."""
        return servedfiles.read_lines(self.options.get("autosign_file"))

    @cached_property
    def autosign_grains(self) -> list[str]:
        """The files of ``autosign_grains_dir``."""
        return servedfiles.list_names(self.options.get("autosign_grains_dir"))

    @cached_property
    def _roots(self) -> list[str]:
        return servedfiles.list_roots(self.options, "file_roots")

    @cached_property
    def _pillar_roots(self) -> list[str]:
        return servedfiles.list_roots(self.options, "pillar_roots")

    @cached_property
    def served_keys(self) -> list[str]:
        """Files with private keys that any minion can read."""
        return servedfiles.find_served_keys(self._roots)

    @cached_property
    def served_pillars(self) -> list[str]:
        """Pillar folders inside folders of the file server, or around them."""
        return servedfiles.find_served_pillars(self._pillar_roots, self._roots)

    @cached_property
    def loose_paths(self) -> dict[str, list[str]]:
        """Files of states and pillar that any user of this machine can write, by folder."""
        return servedfiles.find_loose_paths([*self._roots, *self._pillar_roots])

    @cached_property
    def reactors(self) -> list[str]:
        """Reactor files that call functions of ``virt`` at libvirt's events."""
        return sorted(servedfiles.find_reactors(self.options.get("reactor"), self._roots))

    @cached_property
    def _authorities(self) -> Authorities:
        return Authorities(membership.folder(self.options))

    @cached_property
    def ca_files(self) -> list[FileFacts]:
        """The folders of the CAs and their entries."""
        return list(cafiles.read_files(self._authorities))

    @cached_property
    def ca_ends(self) -> dict[str, datetime]:
        """When each CA expires, by the path of its certificate."""
        return dict(cafiles.read_ends(self._authorities))

    @cached_property
    def old_keys(self) -> list[OldKeysFacts]:
        """The folders of hosts' keys that Salt 3006 left."""
        return list(cafiles.find_old_keys(self._authorities.stores[LIBVIRT]))

    @cached_property
    def strange_files(self) -> list[str]:
        """Foreign or damaged files in the folders of the CAs and of the records of VMs' keys."""
        paths = (
            *cafiles.find_strange_files(self._authorities),
            *minionkeys.find_foreign_files(self.options),
        )
        return sorted({str(path) for path in paths})

    @cached_property
    def trusted_cas(self) -> dict[str, frozenset[str]]:
        """Fingerprints of the CAs by use."""
        return cafiles.by_use(self._authorities, cafiles.read_fingerprints)

    @cached_property
    def listed_serials(self) -> dict[str, frozenset[str]]:
        """Serials that each use's revocation list must have: revoked, and not yet expired."""
        return cafiles.by_use(
            self._authorities, lambda store: cafiles.find_revoked_serials(store, self.now)
        )

    @cached_property
    def issued(self) -> dict[str, str]:
        """The host of each certificate: ``{serial: host}``."""
        return {row["serial"]: row["host"] for row in self._authorities.issued()}

    @cached_property
    def revoked(self) -> frozenset[str]:
        """Serials of all revoked certificates."""
        return frozenset(self._authorities.revoked())
