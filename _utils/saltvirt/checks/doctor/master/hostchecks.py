"""Judge hosts' facts: pure functions, which never report what anything may still need."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from saltvirt.checks.doctor.doctoranswer import DoctorFacts, LooseFile
from saltvirt.checks.doctor.hostleftovers import KINDS, QUIET_S, TOKEN_S
from saltvirt.checks.doctor.master.doctorcloud import DoctorCloud, DoctorHost, fixable
from saltvirt.checks.engine import Checks, foreign_virt
from saltvirt.core.findings import Finding

# Seeds hold keys, and libvirt writes the logs.
_NOT_FOR_TRASH = ("seed", "console-log")

CHECKS: Checks[DoctorCloud, DoctorFacts] = Checks()


@CHECKS.host("code-mixed", "code")
def _code(host: DoctorHost) -> Iterator[Finding]:
    if len(host.facts.copies) > 1:
        yield Finding(
            f"its minion finds this project twice: {', '.join(host.facts.copies)}",
            f"on {host.name}: keep one of them: salt-pip uninstall saltvirt, or remove what was "
            "synced from its extension_modules; then systemctl restart salt-minion",
        )
    elif host.facts.code != host.cloud.master.code:
        yield Finding("its code is not that of this master", host.sync(), check="code")


@CHECKS.host("other-virt")
def _foreign_virt(host: DoctorHost) -> Iterator[Finding]:
    yield from foreign_virt(
        host.facts.foreign_virt,
        f"salt {host.quoted} pip.uninstall",
        f"salt {host.quoted} service.restart salt-minion no_block=True",
    )


@CHECKS.host(*KINDS)
def _local_leftovers(host: DoctorHost) -> Iterator[Finding]:
    for check, subjects in sorted(host.facts.left.items()):
        # A newer host may have more kinds.
        for subject in subjects if check in KINDS else ():
            yield local_leftover(host, check, subject)


def local_leftover(host: DoctorHost, check: str, subject: str) -> Finding:
    """Return the finding about a leftover that concerns a host alone."""
    kind = KINDS[check]
    what = kind.what.format(subject)
    finding = (
        fixable(subject, what, kind.mend)
        if kind.mend
        else Finding(
            what, kind.fix.format(host=host.quoted, subject=shlex.quote(subject)), subject=subject
        )
    )
    return replace(finding, check=check)


@CHECKS.host("record")
def _records(host: DoctorHost) -> Iterator[Finding]:
    for name, reason in sorted(host.facts.unreadable.items()):
        is_trash_entry = name in host.facts.unreadable_trash
        owner = f"entry {name!r} of the trash" if is_trash_entry else f"VM {name}"
        yield Finding(
            f"not all is known of {owner}, so no file there is judged: {reason}",
            f"on {host.name}: follow that reason",
            subject=name,
        )


@CHECKS.host("half-move")
def _moves(host: DoctorHost) -> Iterator[Finding]:
    """Yield moves that no command works on; the source yields a move that both hosts record."""
    moves = [move for facts in host.cloud.hosts.values() for move in facts.moves]
    live_vms = {move.name for move in moves if move.is_live} | host.cloud.master.busy_vms
    departing_vms = {move.name for move in moves if move.purpose == "departure"}
    # An unresponsive host may be working on the move.
    idle_text = "no host that answers" if host.cloud.failures else "no command"
    for move in host.facts.moves:
        is_reported = move.purpose == "arrival" and move.name in departing_vms
        if move.name not in live_vms and not is_reported:
            yield fixable(
                move.name,
                f"a move of VM {move.name} is on record ({move.purpose}, {move.phase}), and "
                f"{idle_text} works on it",
                f"salt-run virt.settle {shlex.quote(move.name)}",
            )


def is_needed(file: LooseFile, cloud: DoctorCloud) -> bool:
    """Return whether anything may still need a file that nothing on its host uses."""
    if not cloud.is_whole or file.vm in cloud.busy:
        return True
    if file.kind == "token":
        return file.quiet_s < TOKEN_S or file.vm in cloud.master.authorizations
    # Even a local file: other hosts may use it over the network.
    if file.quiet_s < QUIET_S or Path(file.path).name in cloud.shared:
        return True
    if file.is_shared and not cloud.are_shared_files_known:
        return True
    vm_files = cloud.uuids.get(file.uuid)
    if vm_files is None:
        # A new VM of that name may have got the files of the VM before it.
        return file.vm in cloud.names
    # The VM exists. A move left a local file behind if the VM has a file of that path on its host.
    return file.is_shared or file.path not in vm_files


@CHECKS.host("disk", "seed", "nvram", "managed-save", "console-log")
def _files(host: DoctorHost) -> Iterator[Finding]:
    for file in host.facts.files if not host.facts.unreadable else ():
        if not is_needed(file, host.cloud):
            yield (
                local_leftover(host, file.kind, file.path)
                if file.kind == "token"
                else _unneeded_file(host, file)
            )


def _unneeded_file(host: DoctorHost, file: LooseFile) -> Finding:
    """Return the finding about a VM's file; ``fix=True`` keeps it, as a definition may be lost."""
    path = shlex.quote(file.path)
    # On shared storage the other hosts are asked first.
    put_command = (
        f"salt-run virt.trash_put {host.quoted}"
        if file.is_shared
        else f"salt {host.quoted} virt.trash_put"
    )
    return Finding(
        f"{file.kind} {file.path} of VM {file.vm}, which no host has",
        f"on {host.name}, if VM {file.vm} is gone: rm {path}"
        if file.kind in _NOT_FOR_TRASH
        else f"define its VM again; or if it is gone for good: {put_command} {path}",
        check=file.kind,
        subject=file.path,
    )
