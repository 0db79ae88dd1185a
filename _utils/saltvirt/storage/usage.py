"""
Index the references to a host's files, to tell whether an operation may spoil a file.

The index is built under the host's lock, from the sources in :mod:`policies` that count for the
use. It answers *used by*, *free*, or *unknown because*. A host answers for itself: a file on shared
storage is *unknown* until the master has asked all hosts.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations
from saltvirt.storage import diskpaths, policies, sharing, unreadablechains
from saltvirt.storage.images import cache
from saltvirt.storage.policies import Policy
from saltvirt.storage.references import PROVIDERS, Host
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.storage.verdict import Reference, Verdict

# Writing to a hard link spoils the files of these references, too.
_CONTENT = (policies.DISK, policies.BACKING, policies.SNAPSHOT)
_CACHED = "it is a cached image, on which VMs may be based; write to a copy"
_GOLDEN = "it is a golden image, and VMs may be based on it; write to a copy"
_LINK = "it is a hard link of {}, and what is written into one is in both ({}); write to a copy"
_UNASKED = "it is on storage that other hosts see, and they were not asked"
_OPEN = "a program has it open, a VM mostly; stop that first"
_OPEN_SHARED = "all hosts share it, and another one has it open"
_CHAIN = "a VM may be based on it: {}"
_TRASH = "entry {!r} of the trash may be based on it: {}"
_RECORD = "a record of VM {!r} may name it, and cannot be read: {}"


@dataclass(kw_only=True)
class Index:
    """
    A host's references, read on demand; use it under the host's lock.

    doubt_exempt
        VMs that may have unreadable backing chains, beside those of ``host.excluded_vms``.
    other_hosts
        The other hosts' answers about files on storage that they see, from the master.
    """

    host: Host
    doubt_exempt: Collection[str] = ()
    other_hosts: OtherHostsUsage = field(default_factory=OtherHostsUsage)
    _doubts: dict[str, list[str]] = field(default_factory=dict)

    def verdict(self, policy: Policy, path: str, *aliases: str) -> Verdict:
        """
        Return the verdict on one use of a file.

        aliases
            The file's other names in references: ``POOL/VOLUME``.
        """
        names = [name for name in (path, *aliases) if name]
        elsewhere = self._doubts_elsewhere(policy, names)
        return Verdict(
            path=path,
            policy=policy,
            used_by=tuple(self._used_by(policy, names)),
            doubts=(*self._doubts_here(policy), *elsewhere.values()),
            unasked=tuple(
                name for name, (source, _) in elsewhere.items() if source == policies.ELSEWHERE
            ),
        )

    def verdicts(self, policy: Policy, paths: Iterable[str]) -> dict[str, Verdict]:
        """Return ``{path: verdict}`` of some files."""
        return {path: self.verdict(policy, path) for path in paths}

    def references(self, policy: Policy) -> Mapping[str, Reference]:
        """Return ``{path or POOL/VOLUME: reference}`` of all that a use must not spoil."""
        out: dict[str, Reference] = {}
        for source in PROVIDERS:
            if source in policy.counts:
                out = {**self.host.first_references(source), **out}
        return out

    def all_references(self, policy: Policy) -> Iterator[tuple[str, Reference]]:
        """Yield ``(path or POOL/VOLUME, reference)`` of all that a use must not spoil."""
        for source in PROVIDERS:
            if source in policy.counts:
                yield from self.host.all_references(source)

    def refuse_doubts(self, policy: Policy, outcome: str) -> None:
        """Raise StorageError if a source of doubt that counts for a use cannot be read."""
        for doubt in self._doubts_here(policy):
            Verdict(path="", policy=policy, doubts=(doubt,)).refuse(outcome)

    def _used_by(self, policy: Policy, names: list[str]) -> Iterator[Reference]:
        for source in PROVIDERS:
            if source in policy.counts and _is_asked(source, names):
                yield from self._find_references(source, names)
        paths = [name for name in names if name.startswith("/")] if self.host.is_local else []
        references = (reference for path in paths for reference in self._by_file(path))
        yield from (reference for reference in references if reference.source in policy.counts)
        if policies.ELSEWHERE in policy.doubts:
            yield from self._used_elsewhere(names)

    def _used_elsewhere(self, names: list[str]) -> Iterator[Reference]:
        reasons_by_name = self.other_hosts.used
        for name in (candidate for candidate in names if candidate in reasons_by_name):
            yield Reference(
                source=policies.USED_ELSEWHERE, owner=name, reason=reasons_by_name[name]
            )

    def _find_references(self, source: str, names: list[str]) -> Iterator[Reference]:
        references = self.host.first_references(source)
        for name in names:
            known_name = diskpaths.find_known_path(name, references)
            if known_name is not None:
                yield references[known_name]

    def _by_file(self, path: str) -> Iterator[Reference]:
        """Yield the references found from the file itself: cache, hard links, open handles."""
        settings = self.host.settings
        digest = cache.digest_of(settings, path)
        if digest is not None:
            yield Reference(source=policies.CACHED, owner=digest, reason=_CACHED)
        elif cache.is_golden_or_link(settings, path):
            yield Reference(source=policies.GOLDEN, owner=path, reason=_GOLDEN)
        yield from self._by_link(path)
        if diskpaths.is_open(path):
            yield Reference(source=policies.OPEN, owner=path, reason=_OPEN)
            if sharing.is_shared(settings, path):
                yield Reference(source=policies.OPEN_SHARED, owner=path, reason=_OPEN_SHARED)

    def _by_link(self, path: str) -> Iterator[Reference]:
        for source in _CONTENT:
            references = self.host.first_references(source)
            # A reference by the same path is no hard link.
            twin = (
                diskpaths.find_hard_link(path, references)
                if diskpaths.find_known_path(path, references) is None
                else None
            )
            if twin is not None:
                reason = _LINK.format(twin, references[twin].reason)
                yield Reference(source=policies.LINK, owner=references[twin].owner, reason=reason)
                return

    def _doubts_here(self, policy: Policy) -> Iterator[tuple[str, str]]:
        for source in policies.DOUBTS[:-1]:
            if source in policy.doubts:
                yield from ((source, reason) for reason in self._unreadable(source))

    def _doubts_elsewhere(self, policy: Policy, names: list[str]) -> dict[str, tuple[str, str]]:
        """Return ``{name: (source, reason)}`` of names that other hosts may use."""
        if policies.ELSEWHERE not in policy.doubts:
            return {}
        other_hosts, out = self.other_hosts, {}
        for name in names:
            if name in other_hosts.doubts:
                out[name] = (policies.UNSURE, other_hosts.doubts[name])
            elif not other_hosts.is_told(name) and sharing.is_shared(self.host.settings, name):
                out[name] = (policies.ELSEWHERE, _UNASKED)
        return out

    def _unreadable(self, source: str) -> list[str]:
        if source not in self._doubts:
            self._doubts[source] = list(_READERS[source](self)) if self.host.is_local else []
        return self._doubts[source]

    @cached_property
    def doubt_exempt_vms(self) -> set[str]:
        """The VMs that may have unreadable backing chains."""
        return {*self.host.excluded_vms, *self.doubt_exempt}


def _is_asked(source: str, names: list[str]) -> bool:
    """Return whether a source can have references by these names: pools only know volumes."""
    if source in (policies.POOL_DISK, policies.POOL_BACKING):
        return any(not name.startswith("/") for name in names)
    return True


def _unreadable_chains(index: Index) -> Iterator[str]:
    host = index.host
    reasons_by_vm = {} if host.conn is None else unreadablechains.reasons(host.conn, host.settings)
    yield from (
        _CHAIN.format(reason)
        for vm, reason in reasons_by_vm.items()
        if vm not in index.doubt_exempt_vms
    )


def _unreadable_trash(index: Index) -> Iterator[str]:
    for entry, reason in unreadablechains.find_unreadable_entries(index.host.settings).items():
        yield _TRASH.format(entry, reason)


def _unreadable_records(index: Index) -> Iterator[str]:
    for vm, reason in reservations.find_unreadable(index.host.settings).items():
        yield _RECORD.format(vm, reason)


_READERS = {
    policies.NO_CHAIN: _unreadable_chains,
    policies.NO_TRASH: _unreadable_trash,
    policies.NO_RECORD: _unreadable_records,
}


def index(
    conn: Any,
    settings: HostSettings,
    *,
    excluded_vms: Collection[str] = (),
    record_exempt: Collection[str] = (),
    removed_files: Collection[str] = (),
    snapshots_going: Collection[str] = (),
    doubt_exempt: Collection[str] = (),
    other_hosts: OtherHostsUsage | None = None,
    beside_files: Iterable[str] = (),
    searched_folders: Collection[Path] = (),
    uuid: str | None = None,
) -> Index:
    """
    Return the index of a host; sources are read on demand, and nothing is left out by default.

    doubt_exempt, other_hosts
        As :class:`Index` has them; the others as :class:`saltvirt.storage.references.Host`.
    beside_files
        Files in folders that are searched for overlays of no VM, too.
    """
    folders = {
        Path(os.path.realpath(path)).parent
        for path in (*beside_files, *removed_files)
        if path.startswith("/")
    }
    host = Host(
        conn=conn,
        settings=settings,
        excluded_vms=excluded_vms,
        record_exempt=record_exempt,
        removed_files=removed_files,
        snapshots_going=snapshots_going,
        folders=folders,
        searched_folders=searched_folders,
        uuid=uuid,
    )
    return Index(host=host, doubt_exempt=doubt_exempt, other_hosts=other_hosts or OtherHostsUsage())
