"""
The view of ``salt-run virt.status``: about ten lines, made of the answer alone.

A line that needs attention ends with the command that shows more, or mends it.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from saltvirt.cluster.progress import format_s
from saltvirt.core.findings import NO_ANSWER
from saltvirt.core.terminal import count_text, join_some

# So many hosts, VMs or keys are named in a line.
_MOST = 5
_GIB_AS_MIB = 1024
_LONGEST_REASON = 200
# By check: what its line says without findings, and with them.
_VERDICTS = {
    "doctor": ("nothing is left over", "may be left over"),
    "audit": ("nothing falls short", "short of docs/security.md"),
    "setup_check": ("nothing that VMs need is missing", "that VMs need missing"),
}
_RESOURCES = (("memory", "memory_mib"), ("disk", "disk_mib"))


def lines(answer: Mapping[str, Any]) -> list[str]:
    """Return the lines about an answer of ``virt.status``."""
    return [
        *_host_lines(answer["hosts"]),
        *_vm_lines(answer["vms"]),
        *_room_lines(answer["room"]),
        *_check_lines(answer["checks"]),
        *_certificate_lines(answer["certificates"]),
        *_open_lines(answer),
    ]


def _join(texts: Sequence[str]) -> str:
    return join_some(texts, _MOST)


def _host_lines(hosts: Mapping[str, Any]) -> Iterator[str]:
    allowed, answering = hosts["allowed"], hosts["answering"]
    if not allowed:
        yield "hosts: none is allowed yet: salt-run virt.allow"
    elif answering == allowed:
        yield f"hosts: {_all(allowed)} {'answers' if allowed == 1 else 'answer'}"
    else:
        yield f"hosts: {answering} of {allowed} answer; VMs and room below are of these"
    yield from _unanswered_lines(hosts)
    yield from _closed_lines(hosts)


def _unanswered_lines(hosts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about hosts without an answer."""
    if hosts["silent"]:
        texts = [f"{row['host']} {NO_ANSWER}{_beside(row)}" for row in hosts["silent"]]
        yield f"silent: {_join(texts)}: {_setup_check(hosts['silent'])}"
    if hosts["failed"]:
        texts = [
            f"{row['host']}{_beside(row)}: {row['reason'][:_LONGEST_REASON]}"
            for row in hosts["failed"]
        ]
        yield f"failed: {_join(texts)}: {_setup_check(hosts['failed'])}"


def _closed_lines(hosts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about hosts that get no new VMs."""
    if hosts["without_key"]:
        names = _join(hosts["without_key"])
        yield f"without a key: {names} (allowed, and no key of that id is accepted): salt-key -L"
    if hosts["maintenance"]:
        command = f"salt-run virt.maintenance {shlex.quote(hosts['maintenance'][0])} off"
        verb = "gets" if len(hosts["maintenance"]) == 1 else "get"
        yield f"maintenance: {_join(hosts['maintenance'])} {verb} no new VMs: {command}"
    if hosts["shut_out"]:
        texts = [f"{row['host']}{_beside(row)}" for row in hosts["shut_out"]]
        command = f"salt-run virt.allow {shlex.quote(hosts['shut_out'][0]['host'])}"
        yield f"shut out: {_join(texts)}: {command}"


def _all(count: int) -> str:
    return "the only one" if count == 1 else f"all {count:,}"


def _setup_check(rows: Sequence[Mapping[str, Any]]) -> str:
    names = " ".join(shlex.quote(row["host"]) for row in rows[:_MOST])
    return f"salt-run virt.setup_check {names}"


def _beside(row: Mapping[str, Any]) -> str:
    """Return since when a host is silent, and how many VMs it had, in brackets."""
    notes = []
    if row.get("silent_s"):
        notes.append(f"for {format_s(row['silent_s'])}")
    if row["last_seen"]:
        notes.append(f"{count_text(row['last_seen'], 'VM')} last seen there")
    return f" ({', '.join(notes)})" if notes else ""


def _vm_lines(vms: Mapping[str, Any]) -> Iterator[str]:
    states = [f"{count:,} {state}" for state, count in vms["by_state"].items()]
    notes = [", ".join(states)] if states else []
    if vms["coming"]:
        notes.append(f"{vms['coming']:,} on the way")
    if vms["last_seen"]:
        notes.append(f"{vms['last_seen']:,} more last seen on hosts without an answer")
    command = ": salt-run virt.list state=crashed" if vms["by_state"].get("crashed") else ""
    text = f"{vms['total']:,}: {'; '.join(notes)}" if notes else f"{vms['total']:,}"
    yield f"VMs: {text}{command}"


def _room_lines(room: Mapping[str, Any]) -> Iterator[str]:
    cpus = room["cpus"]
    command = ": salt-run virt.host_info sort=cpu" if _is_full(cpus) else ""
    yield (
        f"CPUs: {cpus['used']:,} used, {cpus['promised']:,} promised, "
        f"{cpus['free_to_promise']:,} free to promise{command}"
    )
    for label, key in _RESOURCES:
        row = room[key]
        is_small = max(row.values()) < _GIB_AS_MIB
        used, promised, free = (
            _size(row[name], is_small) for name in ("used", "promised", "free_to_promise")
        )
        command = f": salt-run virt.host_info sort={label}" if _is_full(row) else ""
        unit = "MiB" if is_small else "GiB"
        yield f"{label}: {used} {unit} used, {promised} promised, {free} free to promise{command}"


def _size(mib: int, is_small: bool) -> str:
    return f"{mib}" if is_small else f"{mib / _GIB_AS_MIB:,.1f}"


def _is_full(row: Mapping[str, int]) -> bool:
    """Return whether less than a tenth of what may be promised is left."""
    return row["limit"] > 0 and row["free_to_promise"] < row["limit"] / 10


def _check_lines(checks: Mapping[str, Any] | None) -> Iterator[str]:
    for name, verdict in (checks or {}).items():
        text, is_well = _describe_verdict(name, verdict)
        yield f"{name}: {text}" if is_well else f"{name}: {text}: salt-run virt.{name}"


def _describe_verdict(name: str, verdict: Mapping[str, Any]) -> tuple[str, bool]:
    """Return what a check has found, and whether that is nothing at all."""
    if verdict["error"] is not None:
        return f"it failed: {verdict['error'][:_LONGEST_REASON]}", False
    nothing, something = _VERDICTS[name]
    count, hints = verdict["findings"], verdict["hints"]
    text = f"{count_text(count, 'thing')} {something}" if count else nothing
    if hints:
        text += f"; {count_text(hints, 'hint')}"
    if count:
        first = verdict["first"]
        text += f", first {first['check']} of {first['where']}"
    return text, not count and not hints


def _certificate_lines(certificates: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not certificates:
        yield "certificates: none ends soon"
        return
    texts = [
        f"{row['host'] or 'the authority'}, {row['certificate']}: {_days(row['days_left'])}"
        for row in sorted(certificates, key=lambda row: row["days_left"])
    ]
    hosts = [row["host"] for row in certificates if row["host"] is not None]
    command = "salt-run virt_pki.rotate_ca"
    if len(hosts) == len(certificates):
        command = f"salt-run virt_pki.renew {shlex.quote(hosts[0])}"
    yield f"certificates: {join_some(texts, _MOST, '; ')}: {command}"


def _days(days_left: int) -> str:
    if days_left < 0:
        return "has ended"
    return "ends today" if days_left == 0 else f"ends in {count_text(days_left, 'day')}"


def _open_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about what is under way, or waits for an operator."""
    if answer["at_work"]:
        yield f"at work: commands for {_join(answer['at_work'])}"
    waiting_lines = list(_waiting_lines(answer))
    yield from waiting_lines or [
        "open: nothing is unfinished; no VM waits for a restart, and no key to be accepted"
    ]


def _waiting_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    restart, unfinished, keys = answer["restart"], answer["unfinished"], answer["keys_waiting"]
    if restart:
        texts = [f"{row['vm']} ({_join(row['changes'])})" for row in restart]
        count = count_text(len(restart), "VM")
        command = f"salt-run virt.vm_info {shlex.quote(restart[0]['vm'])}"
        yield f"restart: {count} with changes for the next start, {_join(texts)}: {command}"
    if unfinished:
        texts = [_left_text(row) for row in unfinished]
        text = join_some(texts, _MOST, "; ")
        yield f"unfinished: {text}: {_settling_command(unfinished)}"
    if keys:
        text = f"{count_text(len(keys), 'key')} waiting to be accepted ({_join(keys)})"
        yield f"keys: {text}: salt-key -l unaccepted"


def _left_text(row: Mapping[str, Any]) -> str:
    phase = f" ({row['phase']})" if row["phase"] else ""
    return f"{row['what']}{phase} of {row['vm']}" + (f" on {row['host']}" if row["host"] else "")


def _settling_command(unfinished: Sequence[Mapping[str, Any]]) -> str:
    are_moves = all(row["what"] == "move" for row in unfinished)
    return "salt-run virt.settle" if are_moves else "salt-run virt.doctor"
