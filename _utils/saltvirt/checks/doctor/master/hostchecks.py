"""Judge hosts' facts: pure functions, which never report what anything may still need."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from saltvirt.checks.doctor.doctoranswer import DoctorFacts, LooseFile
from saltvirt.checks.doctor.master.leftover import (
    CloudFacts,
    Leftover,
    fixable_leftover,
    manual_leftover,
)
from saltvirt.core.findings import sync_command

# TOKEN_S must equal that of checks/doctor/host/mend.py, which enforces it.
QUIET_S, TOKEN_S = 3600, 24 * 3600
# Seeds hold keys, and libvirt writes the logs.
_NOT_FOR_TRASH = ("seed", "console-log")
# By check: the problem, and what fix=True does.
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


def findings(host: str, cloud_facts: CloudFacts) -> Iterator[Leftover]:
    """Yield the leftovers of a host."""
    facts = cloud_facts.hosts[host]
    yield from _code(host, facts, cloud_facts)
    yield from _host_leftovers(host, facts)
    for name, reason in sorted(facts.unreadable.items()):
        is_trash_entry = name in facts.unreadable_trash
        subject = f"entry {name!r} of the trash" if is_trash_entry else f"VM {name}"
        yield manual_leftover(
            *("record", host, name),
            f"not all is known of {subject}, so no file there is judged: {reason}",
            f"on {host}: do what that says",
        )
    yield from _moves(host, facts, cloud_facts)
    if not facts.unreadable:
        for file in facts.files:
            if not is_needed(file, cloud_facts):
                yield _file(host, file)


def describe_unresponsive_host(host: str, reason: str) -> Leftover:
    """Return the leftover for a host that cannot be judged."""
    return manual_leftover(
        *("not-checked", host, host),
        f"{reason}; until it answers, nothing is judged that one of its VMs may need: no file, no "
        "key",
        f"on {host}: systemctl restart salt-minion; if its code is old: {sync_command(host)}; if "
        "it never "
        f"comes back: salt-run virt.disallow {shlex.quote(host)}",
    )


def describe_remembered_host(host: str, names: list[str]) -> Leftover:
    """Return the leftover for a host that is not asked any more, and had VMs when last seen."""
    names_text = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return manual_leftover(
        *("not-checked", host, host),
        f"it is not asked any more, and had VMs ({names_text}): no file and no key is judged",
        f"allow it again: salt-run virt.allow {shlex.quote(host)}; if it is gone for good: "
        f"salt-run virt.disallow {shlex.quote(host)}; salt-key -d {shlex.quote(host)}",
    )


def _code(host: str, facts: DoctorFacts, cloud_facts: CloudFacts) -> Iterator[Leftover]:
    if len(facts.copies) > 1:
        yield manual_leftover(
            *("code-mixed", host, host),
            f"its minion finds this project twice: {', '.join(facts.copies)}",
            f"on {host}: keep one of them: salt-pip uninstall saltext-virt, or remove what was "
            "synced from its extension_modules; then systemctl restart salt-minion",
        )
    elif facts.code != cloud_facts.master.code:
        yield manual_leftover(
            "code", host, host, "its code is not that of this master", sync_command(host)
        )


def _host_leftovers(host: str, facts: DoctorFacts) -> Iterator[Leftover]:
    for check, subjects in sorted(facts.left.items()):
        for subject in subjects:
            if check in _LOCAL:
                template, action = _LOCAL[check]
                yield fixable_leftover(check, host, subject, template.format(subject), action)
            elif check == "trash":
                yield manual_leftover(
                    *(check, host, subject),
                    f"what is in {subject} is in the trash by no record, so nobody empties it",
                    f"on {host}: move what is needed back, then rm -r {shlex.quote(subject)}",
                )
            elif check == "firewall":
                yield manual_leftover(
                    *(check, host, subject),
                    f"{subject} is half of a firewall: its rules or its unit are missing",
                    f"salt {shlex.quote(host)} state.apply hypervisor.firewall writes both anew; "
                    f"if these rules are not wanted, on {host}: rm {shlex.quote(subject)}",
                )


def _moves(host: str, facts: DoctorFacts, cloud_facts: CloudFacts) -> Iterator[Leftover]:
    """Yield moves that no command works on; the source yields a move that both hosts record."""
    live_vms = {
        move.name
        for host_facts in cloud_facts.hosts.values()
        for move in host_facts.moves
        if move.is_live
    } | cloud_facts.master.at_work
    departing_vms = {
        move.name
        for host_facts in cloud_facts.hosts.values()
        for move in host_facts.moves
        if move.purpose == "departure"
    }
    # An unresponsive host may be working on the move.
    idle_text = "no host that answers" if cloud_facts.silent else "nobody"
    for move in facts.moves:
        is_reported = move.purpose == "arrival" and move.name in departing_vms
        if move.name not in live_vms and not is_reported:
            yield fixable_leftover(
                *("half-move", host, move.name),
                f"a move of VM {move.name} is on record ({move.purpose}, {move.phase}), and "
                f"{idle_text} "
                "is at it",
                f"salt-run virt.settle {shlex.quote(move.name)}",
            )


def is_needed(file: LooseFile, cloud_facts: CloudFacts) -> bool:
    """Return whether anything may still need a file that nothing on its host uses."""
    if not cloud_facts.is_whole or file.vm in cloud_facts.busy:
        return True
    if file.kind == "token":
        return file.quiet_s < TOKEN_S or file.vm in cloud_facts.master.authorized
    # Even a local file: other hosts may use it over the network.
    if file.quiet_s < QUIET_S or Path(file.path).name in cloud_facts.shared:
        return True
    if file.is_shared and not cloud_facts.is_all_told:
        return True
    vm_files = cloud_facts.uuids.get(file.uuid)
    if vm_files is None:
        # A new VM of that name may have got the files of the VM before it.
        return file.vm in cloud_facts.names
    # The VM exists. A move left a local file behind if the VM has a file of that path on its host.
    return file.is_shared or file.path not in vm_files


def _file(host: str, file: LooseFile) -> Leftover:
    """
    Return the leftover for a file that nothing needs.

    Its VM may only have lost its definition, so ``fix=True`` removes tokens, and no other files.
    """
    if file.kind == "token":
        return fixable_leftover(
            *(file.kind, host, file.path),
            f"{file.path} is a token of VM {file.vm} that was never used, and is worth nothing",
            "removes it",
        )
    problem = f"{file.kind} {file.path} of VM {file.vm}, which no host has"
    target, path = shlex.quote(host), shlex.quote(file.path)
    if file.kind in _NOT_FOR_TRASH:
        return manual_leftover(
            *(file.kind, host, file.path), problem, f"on {host}, if VM {file.vm} is gone: rm {path}"
        )
    # On shared storage the other hosts are asked first.
    put_command = (
        f"salt-run virt.trash_put {target}" if file.is_shared else f"salt {target} virt.trash_put"
    )
    return manual_leftover(
        *(file.kind, host, file.path),
        problem,
        f"define its VM again; or if it is gone for good: {put_command} {path}",
    )
