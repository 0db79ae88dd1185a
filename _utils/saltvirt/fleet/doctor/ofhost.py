"""Judge what hosts have: pure functions. What anything may still need is never found."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from saltvirt.fleet.doctor.leftover import Leftover, Seen, by_hand, mended
from saltvirt.fleet.findings import sync
from saltvirt.placement.doctor import DoctorFacts, LooseFile

# As on the host, which has the last word.
QUIET_S, TOKEN_S = 3600, 24 * 3600
# Seeds hold keys, and logs are written by libvirt.
_NOT_FOR_TRASH = ("seed", "console-log")
# What it is, and what settles it.
_LOCAL = {
    "unfinished": (
        "a build or a purge of VM {} was cut off",
        "settles it: what is defined stays, of what is not the files on record go into the trash",
    ),
    "lock": ("{} is a lock that no process holds", "removes it"),
    "download": ("{} is a part of a download that nobody goes on with", "removes it"),
    "mark": ("{} is a mark of a build that is on no record", "removes the mark"),
    "pool": ("pool {} was made for moves, and none that is coming needs it", "ends it; files stay"),
    "network-file": ("{} is a part of a file that nobody writes any more", "removes it"),
}


def findings(host: str, seen: Seen) -> Iterator[Leftover]:
    """Yield what is left over on a host."""
    facts = seen.hosts[host]
    yield from _code(host, facts, seen)
    yield from _local(host, facts)
    for name, why in sorted(facts.unreadable.items()):
        is_entry = name in facts.unreadable_trash
        what = f"entry {name!r} of the trash" if is_entry else f"VM {name}"
        yield by_hand(
            *("record", host, name),
            f"not all is known of {what}, so no file there is judged: {why}",
            f"on {host}: do what that says",
        )
    yield from _moves(host, facts, seen)
    if not facts.unreadable:
        for one in facts.files:
            if not is_needed(one, seen):
                yield _file(host, one)


def silent(host: str, why: str) -> Leftover:
    """Return what is said of a host that cannot be judged."""
    return by_hand(
        *("not-checked", host, host),
        f"{why}; until it answers, nothing is judged that one of its VMs may need: no file, no key",
        f"on {host}: systemctl restart salt-minion; if its code is old: {sync(host)}; if it never "
        f"comes back: salt-run virt.disallow {shlex.quote(host)}",
    )


def remembered(host: str, names: list[str]) -> Leftover:
    """Return what is said of a host that is not asked any more and had VMs when it was."""
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return by_hand(
        *("not-checked", host, host),
        f"it is not asked any more, and had VMs ({listed}): no file and no key is judged",
        f"allow it again: salt-run virt.allow {shlex.quote(host)}; if it is gone for good: "
        f"salt-run virt.disallow {shlex.quote(host)}; salt-key -d {shlex.quote(host)}",
    )


def _code(host: str, facts: DoctorFacts, seen: Seen) -> Iterator[Leftover]:
    if len(facts.copies) > 1:
        yield by_hand(
            *("code-mixed", host, host),
            f"its minion finds this project twice: {', '.join(facts.copies)}",
            f"on {host}: keep one of them: salt-pip uninstall saltext-virt, or remove what was "
            "synced from its extension_modules; then systemctl restart salt-minion",
        )
    elif facts.code != seen.master.code:
        yield by_hand("code", host, host, "its code is not that of this master", sync(host))


def _local(host: str, facts: DoctorFacts) -> Iterator[Leftover]:
    for check, subjects in sorted(facts.left.items()):
        for subject in subjects:
            if check in _LOCAL:
                what, does = _LOCAL[check]
                yield mended(check, host, subject, what.format(subject), does)
            elif check == "trash":
                yield by_hand(
                    *(check, host, subject),
                    f"what is in {subject} is in the trash by no record, so nobody empties it",
                    f"on {host}: move what is needed back, then rm -r {shlex.quote(subject)}",
                )
            elif check == "firewall":
                yield by_hand(
                    *(check, host, subject),
                    f"{subject} is half of a firewall: its rules or its unit are missing",
                    f"salt {shlex.quote(host)} state.apply hypervisor.firewall writes both anew; "
                    f"if these rules are not wanted, on {host}: rm {shlex.quote(subject)}",
                )


def _moves(host: str, facts: DoctorFacts, seen: Seen) -> Iterator[Leftover]:
    """Yield moves that nobody is at; of one that two hosts have on record its source says it."""
    live = {
        one.name for there in seen.hosts.values() for one in there.moves if one.is_live
    } | seen.master.at_work
    leaving = {
        one.name
        for there in seen.hosts.values()
        for one in there.moves
        if one.purpose == "departure"
    }
    # Its other host may be one that is silent, and at it.
    nobody = "no host that answers" if seen.silent else "nobody"
    for one in facts.moves:
        is_said = one.purpose == "arrival" and one.name in leaving
        if one.name not in live and not is_said:
            yield mended(
                *("half-move", host, one.name),
                f"a move of VM {one.name} is on record ({one.purpose}, {one.phase}), and {nobody} "
                "is at it",
                f"salt-run virt.settle {shlex.quote(one.name)}",
            )


def is_needed(one: LooseFile, seen: Seen) -> bool:
    """Return whether anything may still need a file that nothing on its host uses."""
    if not seen.is_whole or one.vm in seen.busy:
        return True
    if one.kind == "token":
        return one.quiet_s < TOKEN_S or one.vm in seen.master.authorized
    # Also of one that is this host's: it may be what others have from here over the network.
    if one.quiet_s < QUIET_S or Path(one.path).name in seen.shared:
        return True
    if one.is_shared and not seen.is_all_told:
        return True
    there = seen.uuids.get(one.uuid)
    if there is None:
        # Whoever made a VM of that name anew may have given it what the one before had.
        return one.vm in seen.names
    # Its VM is somewhere: only what that has under the same name there was left by a move.
    return one.is_shared or one.path not in there


def _file(host: str, one: LooseFile) -> Leftover:
    """
    Name a file that nothing needs.

    That no VM has it proves nothing: its definition may be lost. So it is never removed from here.
    """
    if one.kind == "token":
        return mended(
            *(one.kind, host, one.path),
            f"{one.path} is a token of VM {one.vm} that was never used, and is worth nothing",
            "removes it",
        )
    what = f"{one.kind} {one.path} of VM {one.vm}, which no host has"
    target, path = shlex.quote(host), shlex.quote(one.path)
    if one.kind in _NOT_FOR_TRASH:
        return by_hand(
            *(one.kind, host, one.path), what, f"on {host}, if VM {one.vm} is gone: rm {path}"
        )
    # On storage that other hosts see, they are asked first.
    put = f"salt-run virt.trash_put {target}" if one.is_shared else f"salt {target} virt.trash_put"
    return by_hand(
        *(one.kind, host, one.path),
        what,
        f"define its VM again; or if it is gone for good: {put} {path}",
    )
