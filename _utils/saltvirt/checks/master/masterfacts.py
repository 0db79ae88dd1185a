"""
The facts of this master for ``virt.audit`` and ``virt.setup_check``.

A fact is a property, which is read when a check first needs it. Reading creates nothing, and asks
no minion.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property

import salt.version

from saltvirt.ca.authorities import LIBVIRT, Authorities
from saltvirt.checks import installed
from saltvirt.checks.master import cafiles, runningmaster, servedfiles
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

    # Salt's release, such as 3006.25.
    release = cached_property(lambda _facts: str(salt.version.__version__))
    # The digest of the master's own library.
    code = cached_property(lambda _facts: filecontent.of_code())
    # The user that the master runs as.
    user = cached_property(lambda facts: str(facts.options.get("user") or "root"))
    # Distributions in the master's Python with another module virt.
    foreign_virt = cached_property(lambda _facts: installed.find_foreign_virt())

    # Configuration files written after the running master started.
    newer_files = cached_property(lambda facts: runningmaster.find_newer_files(facts.options))
    # The needed files that the file server has.
    served_files = cached_property(lambda facts: runningmaster.read_served(facts.options))
    # Whether this project's external pillar for certificates is loaded.
    has_pillar = cached_property(lambda facts: runningmaster.has_pillar(facts.options))
    # Whether this library came by the file server, and not by pip.
    is_synced = cached_property(lambda facts: runningmaster.is_synced(facts.options))
    # The first folder of the file server, None if there is none.
    root = cached_property(lambda facts: runningmaster.first_root(facts.options))

    # Ids of accepted keys, and of waiting ones.
    accepted = cached_property(lambda facts: compat.KeyStore(facts.options).accepted())
    waiting = cached_property(lambda facts: compat.KeyStore(facts.options).waiting())
    # The candidates by their ids.
    candidates_by_id = cached_property(
        lambda facts: candidates.find_candidates(facts.options, facts.members)
    )
    # Ids that are allowed as hosts and have no accepted key.
    keyless_hosts = cached_property(
        lambda facts: sorted(
            host for host in facts.members.named - {*facts.accepted} if facts.members.has(host)
        )
    )
    # Accepted ids with key files that a minion may have written itself.
    planted_keys = cached_property(
        lambda facts: sorted(filter(membership.may_be_planted, facts.accepted))
    )

    # The lines of autosign_file, and the files of autosign_grains_dir.
    autosign_lines = cached_property(
        lambda facts: servedfiles.read_lines(facts.options.get("autosign_file"))
    )
    autosign_grains = cached_property(
        lambda facts: servedfiles.list_names(facts.options.get("autosign_grains_dir"))
    )
    # The folders of the file server, and those of the pillar.
    roots = cached_property(lambda facts: servedfiles.list_roots(facts.options, "file_roots"))
    pillar_roots = cached_property(
        lambda facts: servedfiles.list_roots(facts.options, "pillar_roots")
    )
    # Files with private keys that any minion can read.
    served_keys = cached_property(lambda facts: servedfiles.find_served_keys(facts.roots))
    # Pillar folders inside folders of the file server, or around them.
    served_pillars = cached_property(
        lambda facts: servedfiles.find_served_pillars(facts.pillar_roots, facts.roots)
    )
    # Files of states and pillar that any user of this machine can write, by folder.
    loose_paths = cached_property(
        lambda facts: servedfiles.find_loose_paths([*facts.roots, *facts.pillar_roots])
    )
    # Reactor files that call functions of virt at libvirt's events.
    reactors = cached_property(
        lambda facts: sorted(servedfiles.find_reactors(facts.options.get("reactor"), facts.roots))
    )

    authorities = cached_property(lambda facts: Authorities(membership.folder(facts.options)))
    # The folders of the CAs and their entries.
    ca_files = cached_property(lambda facts: list(cafiles.read_files(facts.authorities)))
    # When each CA expires, by the path of its certificate.
    ca_ends = cached_property(lambda facts: dict(cafiles.read_ends(facts.authorities)))
    # The folders of hosts' keys that Salt 3006 left.
    old_keys = cached_property(
        lambda facts: list(cafiles.find_old_keys(facts.authorities.stores[LIBVIRT]))
    )
    # Foreign or damaged files in the folders of the CAs and of the records of VMs' keys.
    strange_files = cached_property(
        lambda facts: sorted(
            {*cafiles.find_strange_files(facts.authorities)}
            | {str(path) for path in minionkeys.find_foreign_files(facts.options)}
        )
    )
    # Fingerprints of the CAs by use.
    trusted_cas = cached_property(
        lambda facts: cafiles.by_use(facts.authorities, cafiles.read_fingerprints)
    )
    # Serials that each use's revocation list must have: revoked, and not yet expired.
    listed_serials = cached_property(
        lambda facts: cafiles.by_use(
            facts.authorities, lambda store: cafiles.find_revoked_serials(store, facts.now)
        )
    )
    # The host of each certificate by its serial, and the serials of revoked ones.
    issued = cached_property(
        lambda facts: {row["serial"]: row["host"] for row in facts.authorities.issued()}
    )
    revoked = cached_property(lambda facts: frozenset(facts.authorities.revoked()))
