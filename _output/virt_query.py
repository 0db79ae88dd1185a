"""Outputter ``virt_query``: hypervisors and their VMs as people read them."""

import json
import textwrap

_WHOLE = {"cpu", "mem", "state", "graphics", "disks", "nics"}
_REACHED = {"addresses", "addresses_from", "login"}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
# Who told an address, where that is not the host itself: what a host knows of its neighbours on a
# bridge is what they have sent there.
_TOLD_BY = {
    "minion": "as the VM itself says",
    "agent": "as the guest's agent says",
    "neighbours": "as the VM itself tells its network",
    "arp": "as the VM itself tells its network",
}


def output(data, **_kwargs):
    """
    Return the text of an answer of ``salt-run virt.query`` or ``virt.vm_info``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.query --out=virt_query
    """
    if not isinstance(data, dict) or "error" in data:
        return _error(data)
    try:
        return _table(data)
    except (AttributeError, KeyError, TypeError, ValueError):
        # It is no answer of these functions, such as an event of the master's bus.
        return json.dumps(data, indent=2, default=str)


def _table(data):
    beside = ("unreachable", "failed", "duplicates")
    lines = [line for host in data if host not in beside for line in _host(host, data[host])]
    lines += [f"{host}: does not answer" for host in data.get("unreachable", ())]
    lines += [f"{host}: {why}" for host, why in sorted(data.get("failed", {}).items())]
    for name, hosts in sorted(data.get("duplicates", {}).items()):
        line = f"VM {name!r} is on {' and '.join(hosts)}: remove all but one, on their hosts"
        lines += textwrap.wrap(line, 78, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines)


def _error(data):
    return f"error: {data['error']}" if isinstance(data, dict) else str(data)


def _host(host, info):
    if "node_info" in info:
        yield from _whole_host(host, info)
        return
    yield host
    for name, vm in sorted(info.items()):
        yield from _named(host, name, vm)


def _whole_host(host, info):
    node = info["node_info"]
    yield host
    yield (
        f"  CPUs: {node['cpus']} ({info['freecpu']} free)  "
        f"Memory: {node['phymemory']} MiB ({info['freemem']:.0f} MiB free)"
    )
    if not info["vm_info"]:
        yield "  no VMs"
    for name, vm in sorted(info["vm_info"].items()):
        yield from _named(host, name, vm)


def _named(host, name, vm):
    yield f"  {name}"
    for line in (*_vm(host, vm), *_reached(vm)):
        yield f"    {line}"


def _vm(host, vm):
    if not _WHOLE.issubset(vm):
        # Some fields were asked for.
        yield from (_field(key, one) for key, one in sorted(vm.items()) if key not in _REACHED)
        return
    yield f"CPU: {vm['cpu']}"
    yield f"Memory: {_human(vm['mem'] * 1024)}"
    yield f"State: {vm['state']}"
    display = vm["graphics"]
    # What is within these a host may say as it likes, or not at all.
    if display.get("type", "None") != "None":
        yield f"Graphics: {display['type']} - {_console(host, display)}"
    for target, disk in sorted(vm["disks"].items()):
        yield f"Disk - {target}:"
        if isinstance(disk.get("virtual size"), int | float):
            yield f"  Size: {_human(disk['virtual size'])}"
        yield f"  File: {disk.get('file', 'unknown')}"
        yield f"  File Format: {disk.get('file format', 'unknown')}"
        if "error" in disk:
            yield f"  Error: {disk['error']}"
    for mac, nic in sorted(vm["nics"].items()):
        yield f"Nic - {mac}:"
        source = nic.get("source")
        named = list(source.values()) if isinstance(source, dict) else []
        yield f"  Source: {(*named, 'none')[0]}"
        yield f"  Type: {nic.get('type', 'unknown')}"


def _field(key, one):
    # One line each, whatever a host says.
    return " ".join(f"{key}: {one}".split())


def _reached(vm):
    addresses, login = vm.get("addresses"), vm.get("login")
    if isinstance(addresses, list):
        by = _TOLD_BY.get(str(vm.get("addresses_from")))
        note = f" ({by})" if by and addresses else ""
        said = f"Addresses: {', '.join(map(str, addresses)) or 'not known to its host'}{note}"
        yield from textwrap.wrap(said, 74, subsequent_indent="  ", break_on_hyphens=False)
    if login:
        # A command has a line of its own, however long, so that it can be copied.
        command, bracket, more = str(login).partition(" (")
        yield f"Log in: {command}"
        lines = textwrap.wrap(f"{bracket}{more}".strip(), 72, break_on_hyphens=False)
        yield from (f"  {line}" for line in lines)


def _console(host, display):
    port = display.get("port", "None")
    if port in ("-1", "None"):
        return "no port while it is off"
    local = display.get("listen") in ("127.0.0.1", "::1")
    return f"{host}:{port}" + (" (on the host itself only)" if local else "")


def _human(size):
    amount = float(size)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            return f"{amount:.1f} {unit}"
        amount /= 1024
    return ""
