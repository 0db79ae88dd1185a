"""Outputter ``virt_plan``: the host of a VM, or the hypervisors with the reasons against them."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)
_NAME = 16
# Seeding of a clone, before its disk was inspected.
_SEEDED = {
    "auto": "seeded by cloud-init (nocloud) if its guest has that, else in the appliance "
    "(guestfs); the host inspects its disk when it makes the clone",
}


@_text.shows_mappings
def output(data, **_kwargs):
    """
    Return the outcome or the plan of ``virt.init``, ``virt.clone`` or ``virt.migrate``.

    If no host fits, return the table of reasons.

    CLI Example:

    .. code-block:: bash

        salt-run virt.init centos1 2 512 salt://images/tiny.qcow2 dry_run=True
    """
    if "from" in data:
        return "\n".join(_move_lines(data))
    if "name" in data:
        return _deployment_text(data)
    if any("source" in row for row in data.values() if isinstance(row, dict)):
        return "\n".join(line for host, row in data.items() for line in _clone(host, row))
    if "error" not in data:
        return "\n".join(_table(data))
    hosts = data.get("hosts")
    lines = [*_error(data["error"], hosts), *_access_lines(data), *_console(data), *_warnings(data)]
    lines += [*_table(hosts or {}), *_helps(data.get("helps", ()))]
    return "\n".join([*lines, *_text.candidate_lines(data.get("candidates", {}))])


def _table(hosts):
    if hosts:
        yield f"{'HYPERVISOR':<16} {'FITS':<5} {'SCORE':>5}  WHY NOT"
    for host, row in sorted(hosts.items(), key=lambda item: _order(*item)):
        fits = "yes" if row["fits"] else "no"
        score = f"{row['score']:.2f}" if row["fits"] else "-"
        text = row.get("note", "") if row["fits"] else "; ".join(row["reasons"])
        reason_lines = _text.wrapped(text, width=max(20, _text.terminal_width() - 30)) or [""]
        if len(host) > _NAME:
            # A full name is often too long: give it a line, and keep the columns below the titles.
            yield host
            host = ""
        yield f"{host:<16} {fits:<5} {score:>5}  {reason_lines[0]}".rstrip()
        yield from (f"{'':<30}{line}" for line in reason_lines[1:])
    for host, row in hosts.items():
        if row.get("chosen"):
            yield f"{row['vm']} would go to {host}"
            yield from _warnings(row)


def _clone(host, plan):
    yield f"{host} would clone {plan['source']} as {plan['name']}"
    for disk in plan["disks"]:
        yield f"  {disk['target']}: a copy, {disk['path']}"
    seed = plan.get("seed")
    yield (
        f"  {_SEEDED.get(seed['method'], 'seeded by ' + seed['method'])}"
        if seed
        else "  not seeded"
    )
    yield from _warnings(plan)


def _deployment_text(data):
    answer_text = f"; its minion answered after {data['seconds']} s" if "seconds" in data else ""
    lines = [
        f"{data['name']} is on {data['host']}{answer_text}",
        *_access_lines(data),
        *_warnings(data),
    ]
    return "\n".join(lines)


def _warnings(data):
    for warning in data.get("warnings", ()):
        yield from _text.wrapped(f"warning: {warning}")


def _access_lines(data):
    if data.get("login"):
        address = (data.get("addresses") or ["not known to its host"])[0]
        if data.get("addresses"):
            address += _text.address_source(data)
        yield f"  address: {address}"
        # A command has a line of its own at any length, so that it can be copied.
        command, bracket, note = data["login"].partition(" (")
        yield f"  log in: {command}"
        yield from _text.wrapped(f"{bracket}{note}", "    ")


def _console(data):
    if "console_command" not in data:
        return
    more_hint = f"more by: {data['console_command']}"
    if "console_error" in data:
        yield f"its console cannot be shown: {data['console_error']}"
    elif data["console"]:
        yield f"its console ends with ({more_hint}):"
        yield from (f"  {line}" for line in data["console"])
    else:
        yield f"its console is empty ({more_hint})"


def _move_lines(data):
    way = f"from {data['from']} to {data['to']}"
    if "state" in data:
        yield f"{data['name']} would move {way}"
        yield f"  {data['state']}, {data['memory_mib']} MiB of memory"
        yield from (
            f"  {disk}: {disk_action}" for disk, disk_action in sorted(data["disks"].items())
        )
        yield from _warning_lines(data)
        return
    duration = f" in {data['total_ms'] / 1000:.1f} s" if "total_ms" in data else ""
    yield f"{data['name']} moved {way}{duration}"
    if data.get("downtime_ms"):
        yield f"  its guest was paused for {data['downtime_ms']} ms"
    sent_text = ", ".join(
        f"{data[key] / 2**20:.1f} MiB of {kind}"
        for key, kind in (("memory_bytes", "memory"), ("disk_bytes", "disks"))
        if data.get(key)
    )
    if sent_text:
        yield f"  sent, encrypted: {sent_text}"
    yield from _warning_lines(data)


def _warning_lines(data):
    if data.get("warning"):
        yield from _text.wrapped(f"warning: {data['warning']}")


def _error(text, hosts):
    # The reasons stand in the table below.
    return _text.wrapped(f"error: {text.split(': ')[0] if hosts else text}")


def _helps(remedies):
    if remedies:
        yield "what helps:"
    for remedy in remedies:
        yield from _text.wrapped(f"- {remedy}", "  ", "    ")


def _order(host, row):
    return (not row["fits"], row.get("crowd", 0), -row["score"], host)
