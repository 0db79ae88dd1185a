"""
Decide which minions are hypervisors, by their ids alone.

Hypervisors are the minions that ``virt:hypervisors`` matches and those that ``salt-run virt.allow``
has listed beside the CA. An id that ``virt.disallow`` has listed there never is. What a minion
reports about itself does not count: guests are minions, too.
"""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from saltvirt.ca import store
from saltvirt.cluster.inventory import lastseen
from saltvirt.core.errors import BadArgument, BadConfig, MasterError
from saltvirt.core.jsonfile import JsonFile
from saltvirt.core.options import config

OPTION = "virt:hypervisors"
# Prefix of Salt's other kinds of target: a letter, a delimiter or none, then @.
_KIND = re.compile(r"([A-Z])\W?@")
_COMPOUND = ("and", "not", "(", ")")
_GLOB = re.compile(r"[*?\[]")
# With Salt 3008 any minion can have its master write files with this suffix, even as the key of an
# unaccepted minion. Operators do not name hosts like that.
_PLANTED_SUFFIX = ".p"
# Characters that make an id in a target more than an id.
_NOT_LISTED = re.compile(r"[\s,*?\[]")


class BadTarget(BadConfig):
    """``virt:hypervisors`` has a word that is no id; ``target`` is the whole option."""

    def __init__(
        self, word: str, target: str = "", command: str = "salt-run virt.allow HOST"
    ) -> None:
        self.word, self.target = word, target or word
        is_said = re.match(r"[GPIJST]\W?@", word)
        reason = (
            "is what minions report about themselves, and a guest can report it, too"
            if is_said
            else "is not an id, a glob or a nodegroup"
        )
        super().__init__(
            f"option {OPTION}: {word!r} {reason}; list ids, globs (hyper*) or nodegroups (N@) "
            "there, "
            f"or take it out of the master's configuration and run: {command}"
        )


def may_be_planted(minion_id: str) -> bool:
    """Return whether a minion may have planted the accepted key of an id; globs skip such ids."""
    return minion_id.casefold().endswith(_PLANTED_SUFFIX)


def is_glob(text: str) -> bool:
    """Return whether a text is a glob, not an id."""
    return _GLOB.search(text) is not None


def patterns(option: Any, nodegroups: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids and globs of ``virt:hypervisors``; raise BadConfig for any other target."""
    try:
        return tuple(dict.fromkeys(_expand(option, nodegroups, ())))
    except BadTarget as error:
        option_text = option if isinstance(option, str) else " or ".join(option)
        raise BadTarget(error.word, option_text) from None


def _expand(value: Any, nodegroups: Mapping[str, Any], inside: tuple[str, ...]) -> Iterator[str]:
    for word in _split_words(value, inside):
        if word.startswith("L@"):
            yield from _ids(word)
        elif word.startswith("N@"):
            yield from _expand_group(word[2:], nodegroups, inside)
        elif _KIND.match(word) or word in _COMPOUND:
            raise BadTarget(word)
        elif word != "or":
            yield from filter(None, word.split(","))


def _split_words(value: Any, inside: tuple[str, ...]) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(item, str) for item in texts):
        where = f"nodegroups:{inside[-1]}" if inside else OPTION
        raise BadConfig(f"option {where}: expected text or a list of texts, found {value!r}")
    return [word for text in texts for word in text.split()]


def _ids(word: str) -> Iterator[str]:
    for minion_id in filter(None, word.removeprefix("L@").split(",")):
        if is_glob(minion_id):
            raise BadConfig(
                f"option {OPTION}: {word!r} lists ids; write {minion_id!r} without the L@"
            )
        yield minion_id


def _expand_group(
    name: str, nodegroups: Mapping[str, Any], inside: tuple[str, ...]
) -> Iterator[str]:
    if name not in nodegroups:
        raise BadConfig(f"option {OPTION}: this master has no nodegroup {name!r}")
    if name in inside:
        raise BadConfig(f"option {OPTION}: the nodegroup {name!r} contains itself")
    yield from _expand(nodegroups[name], nodegroups, (*inside, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """
    The master's lists that say which minions are hypervisors.

    patterns
        Ids and globs of ``virt:hypervisors``.
    allowed, disallowed
        Ids that ``virt.allow`` and ``virt.disallow`` listed.
    """

    patterns: tuple[str, ...] = ()
    allowed: frozenset[str] = field(default_factory=frozenset)
    disallowed: frozenset[str] = field(default_factory=frozenset)
    # Indexes, as there may be thousands of ids: the origin of each listed or allowed id; the same
    # ids by their case-folded form; the globs; the case-folded disallowed ids.
    _ids: dict[str, str] = field(init=False, repr=False, compare=False)
    _folded: dict[str, str] = field(init=False, repr=False, compare=False)
    _globs: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _out: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the ids."""
        ids = {pattern: f"{OPTION}: {pattern}" for pattern in self.patterns if not is_glob(pattern)}
        ids |= dict.fromkeys(self.allowed, "virt.allow")
        for name, value in (
            ("_ids", ids),
            ("_folded", {minion_id.casefold(): minion_id for minion_id in ids}),
            ("_globs", tuple(filter(is_glob, self.patterns))),
            ("_out", frozenset(map(str.casefold, self.disallowed))),
        ):
            object.__setattr__(self, name, value)

    @property
    def named(self) -> frozenset[str]:
        """The ids that are listed or allowed as such, not by a glob."""
        return frozenset(self._ids)

    def is_disallowed(self, minion_id: str) -> bool:
        """Return whether ``virt.disallow`` has listed an id, in any case."""
        return minion_id.casefold() in self._out

    def has(self, minion_id: str) -> bool:
        """Return whether the minion of this id is a hypervisor, if its key is accepted."""
        return self.why(minion_id) is not None

    def why(self, minion_id: str) -> str | None:
        """Return what makes a minion a hypervisor, or None."""
        if self.is_disallowed(minion_id):
            return None
        globs = () if may_be_planted(minion_id) else self._globs
        matching = (f"{OPTION}: {glob}" for glob in globs if fnmatchcase(minion_id, glob))
        return self._ids.get(minion_id) or next(matching, None)

    def reserved(self, name: str) -> str | None:
        """Return why a VM cannot have a name, in any case of its letters; None if it can."""
        folded_name = name.casefold()
        if folded_name in self._folded:
            return f"it is the name of the hypervisor {self._folded[folded_name]}"
        matching = (glob for glob in self._globs if fnmatchcase(folded_name, glob.casefold()))
        return next((f"{OPTION} matches it ({glob})" for glob in matching), None)

    def is_named(self, name: str) -> bool:
        """Return whether a name is the listed id of a hypervisor, in any case of its letters."""
        return name.casefold() in self._folded

    def refuse_guest(self, name: str) -> None:
        """Raise BadArgument if the minion of a VM of this name would pass for a hypervisor."""
        reason = self.reserved(name)
        if reason is not None:
            raise BadArgument(
                "name",
                f"a VM cannot be called {name!r}: {reason}, and a VM is never a hypervisor; choose "
                "another name",
            )

    def would_have(self, name: str) -> bool:
        """Return whether the minion of an existing VM would pass for a hypervisor."""
        return not self.is_disallowed(name) and self.reserved(name) is not None

    def refuse_stranger(self, minion_id: str) -> None:
        """Raise MasterError if a minion is not a hypervisor."""
        reason = self.why_not(minion_id)
        if reason is not None:
            raise MasterError(reason)

    def why_not(self, minion_id: str) -> str | None:
        """Return why a minion is not a hypervisor, with the remedy; None if it is."""
        if self.has(minion_id):
            return None
        if self.is_disallowed(minion_id):
            return (
                f"{minion_id} was shut out of the hypervisors of this master (virt.disallow); to "
                f"let it in again, run: salt-run virt.allow {shlex.quote(minion_id)}"
            )
        return (
            f"{minion_id} is not a hypervisor of this master; if it is to be one, run: salt-run "
            f"virt.allow {shlex.quote(minion_id)}"
        )


def compound_target(
    members: Members, hosts: Collection[str], accepted_ids: Collection[str]
) -> str | None:
    """
    Return a compound target for these hypervisors and no other accepted minion.

    The target is made of the operator's own ids and globs, so that a thousand ids need not go to
    every minion. Returns None if no such target is much shorter than the ids.
    """
    globs = [pattern for pattern in members.patterns if is_glob(pattern)]
    matched_ids = {
        minion_id
        for minion_id in accepted_ids
        if any(fnmatchcase(minion_id, glob) for glob in globs)
    }
    unmatched_hosts, excluded_ids = (
        sorted(set(hosts) - matched_ids),
        sorted(matched_ids.difference(hosts)),
    )
    if any(_NOT_LISTED.search(minion_id) for minion_id in (*unmatched_hosts, *excluded_ids)):
        return None
    words = " or ".join([*globs, *([f"L@{','.join(unmatched_hosts)}"] if unmatched_hosts else [])])
    out = f"( {words} ) and not L@{','.join(excluded_ids)}" if excluded_ids else words
    return out if globs and 2 * len(out) < len(",".join(hosts)) else None


def folder(opts: Mapping[str, Any]) -> Path:
    """Return the folder of the CA, which has the list of hypervisors, too."""
    return Path(opts["pki_dir"]) / "libvirt"


def _file(opts: Mapping[str, Any]) -> JsonFile[Members]:
    return JsonFile(
        path=folder(opts) / store.HYPERVISORS,
        parse=lambda content: Members(
            allowed=_parse_ids(content["allowed"]), disallowed=_parse_ids(content["disallowed"])
        ),
        plain=lambda members: {
            "allowed": sorted(members.allowed),
            "disallowed": sorted(members.disallowed),
        },
        empty=Members,
        remedy="it has which minions are hypervisors: put it back from a backup (virt_pki.export), "
        "or move it away and run salt-run virt.allow anew",
        error=MasterError,
        indent=1,
    )


def _parse_ids(ids: Any) -> frozenset[str]:
    if not all(isinstance(minion_id, str) for minion_id in ids):
        raise ValueError("it has something else than ids")
    return frozenset(ids)


def read_members(opts: Mapping[str, Any], option: Any = None) -> Members:
    """
    Return which minions are hypervisors, by this master's own files.

    option
        Replaces ``virt:hypervisors``. Defaults to the configuration's.
    """
    if option is None:
        option = config.master_settings(opts).hypervisors
    return read_listed(opts, patterns(option, opts.get("nodegroups") or {}))


def read_listed(opts: Mapping[str, Any], option_patterns: tuple[str, ...] = ()) -> Members:
    """Return the list beside the CA, with these patterns."""
    return replace(_file(opts).read(), patterns=option_patterns)


def allow(opts: Mapping[str, Any], ids: Iterable[str]) -> None:
    """List minions as hypervisors, and no longer as disallowed."""
    added = frozenset(ids)
    folded_ids = {minion_id.casefold() for minion_id in added}

    def change(members: Members) -> Members:
        still_disallowed = frozenset(
            minion_id for minion_id in members.disallowed if minion_id.casefold() not in folded_ids
        )
        return Members(allowed=members.allowed | added, disallowed=still_disallowed)

    _file(opts).change(change)


def disallow(opts: Mapping[str, Any], ids: Iterable[str]) -> None:
    """List minions as disallowed."""
    out = frozenset(ids)

    def change(members: Members) -> Members:
        return Members(allowed=members.allowed - out, disallowed=members.disallowed | out)

    _file(opts).change(change)


def find_last_seen_guests(
    opts: Mapping[str, Any], members: Members, hosts: Collection[str]
) -> dict[str, list[str]]:
    """
    Return ``{name: hosts}`` of last-seen VMs with minions that would pass for hypervisors.

    No host is asked.
    """
    names_by_host = {
        host: names for host, names in lastseen.read_all(opts).items() if host in hosts
    }
    return find_guests(members, names_by_host)


def find_guests(
    members: Members, names_by_host: Mapping[str, Iterable[str]]
) -> dict[str, list[str]]:
    """Return ``{name: hosts}`` of the VMs with minions that would pass for hypervisors."""
    out: dict[str, list[str]] = {}
    for host, names in sorted(names_by_host.items()):
        for name in names:
            if members.would_have(name):
                out.setdefault(name, []).append(host)
    return out


def refuse_guests(members: Members, hosts_by_name: Mapping[str, Sequence[str]]) -> None:
    """Raise MasterError if any VM's minion would pass for a hypervisor."""
    if not hosts_by_name:
        return
    problems = "; ".join(
        f"{name} is a VM on {' and '.join(hosts)}, and {members.reserved(name)}"
        for name, hosts in sorted(hosts_by_name.items())
    )
    # Never suggest disallowing a listed hypervisor: a VM took its name, maybe to cause just that.
    named_vms = sorted(name for name in hosts_by_name if members.is_named(name))
    matched_vms = sorted(name for name in hosts_by_name if not members.is_named(name))
    remedies = [f"rename or remove the VM {name} there" for name in named_vms]
    if matched_vms:
        remedies.append(
            f"narrow {OPTION}, or shut it out with: salt-run virt.disallow "
            f"{shlex.join(matched_vms)}"
        )
    raise MasterError(f"{problems}; a VM is never a hypervisor: {'; '.join(remedies)}")
