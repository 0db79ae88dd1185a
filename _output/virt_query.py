"""Outputter ``virt_query``: hypervisors and their VMs in readable form."""

import importlib.util
import json
import time
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)
# Fields with a line of their own, in the order of a VM that is shown whole.
# What virt.freemem takes off for the host itself, as in the library's vm/show/host/inspect.py.
_HOST_RESERVE_MIB = 256
_ORDER = ("cpu", "cputime", "mem", "maxMem", "state", "graphics", "disks", "nics")
_WHOLE = {"cpu", "mem", "state", "graphics", "disks", "nics"}
_REACHED = {"addresses", "addresses_from", "login"}
# Fields of virt.vm_info that are shown together.
_DETAILS = {
    *("autostart", "machine", "snapshots", "affinity", "anti_affinity", "hold", "created"),
    *("uptime_s", "pending"),
}
# As in the library's cluster/progress.py: from so many seconds on, a unit's seconds and name.
_SPANS = ((2 * 86400, 86400, "days"), (2 * 3600, 3600, "h"), (120, 60, "min"), (0, 1, "s"))
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@_text.shows_mappings
def output(data, **_kwargs):
    """
    Return the text of an answer of ``salt-run virt.query`` or ``virt.vm_info``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.query --out=virt_query
    """
    if "error" in data:
        return "\n".join(_text.wrapped(f"error: {data['error']}"))
    try:
        return _table(data)
    except (AttributeError, KeyError, TypeError, ValueError):
        # Other data, such as an event of the master's bus.
        return json.dumps(data, indent=2, default=str)


def _table(data):
    other_keys = ("unreachable", "failed", "duplicates", "last_seen")
    lines = [line for host in data if host not in other_keys for line in _host(host, data[host])]
    return "\n".join([*lines, *_text.other_lines(data)])


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
    used_cpus = node["cpus"] - info["freecpu"]
    used_mib = max(0, node["phymemory"] - _HOST_RESERVE_MIB - info["freemem"])
    yield (
        f"  CPUs: {node['cpus']} ({used_cpus} used by running VMs)  "
        f"Memory: {_human(node['phymemory'] * 2**20)} ({_human(used_mib * 2**20)} used)"
    )
    if not info["vm_info"]:
        yield "  no VMs"
    for name, vm in sorted(info["vm_info"].items()):
        yield from _named(host, name, vm)


def _named(host, name, vm):
    yield f"  {name}"
    for line in (*_vm(host, vm), *_detail_lines(name, vm), *_access_lines(vm)):
        yield f"    {line}"


def _vm(host, vm):
    # If only some fields were requested, they have the labels and units of a whole VM.
    keys = _WHOLE if _WHOLE.issubset(vm) else {*vm} - _REACHED - _DETAILS
    for key in (*filter(keys.__contains__, _ORDER), *sorted(keys.difference(_ORDER))):
        is_shaped = key in _LINES and _is_shaped(key, vm[key])
        yield from _LINES[key](host, vm[key]) if is_shaped else [_field(vm, key)]


def _is_shaped(key, value):
    """Return whether a field has the type that its line needs."""
    return isinstance(value, _SHAPES.get(key, object)) and not isinstance(value, bool)


def _cpu(_host, cpu):
    yield f"CPU: {cpu}"


def _cpu_time(_host, nanoseconds):
    yield f"CPU time: {nanoseconds / 1e9:.1f} s"


def _memory(_host, kib):
    yield f"Memory: {_human(kib * 1024)}"


def _state(_host, state):
    yield f"State: {state}"


def _graphics(host, display):
    if display.get("type", "None") != "None":
        yield f"Graphics: {display['type']} - {_console(host, display)}"


def _disks(_host, disks):
    for target, disk in sorted(disks.items()):
        yield f"Disk - {target}:"
        if isinstance(disk.get("virtual size"), int | float):
            yield f"  Size: {_human(disk['virtual size'])}"
        yield f"  File: {disk.get('file', 'unknown')}"
        yield f"  File Format: {disk.get('file format', 'unknown')}"
        if "error" in disk:
            yield f"  Error: {disk['error']}"


def _nics(_host, nics):
    for mac, nic in sorted(nics.items()):
        yield f"Nic - {mac}:"
        source = nic.get("source")
        source_names = list(source.values()) if isinstance(source, dict) else []
        yield f"  Source: {(*source_names, 'none')[0]}"
        yield f"  Type: {nic.get('type', 'unknown')}"


def _max_memory(_host, kib):
    yield f"Most memory: {_human(kib * 1024)}"


_LINES = {
    "cpu": _cpu,
    "cputime": _cpu_time,
    "mem": _memory,
    "maxMem": _max_memory,
    "state": _state,
    "graphics": _graphics,
    "disks": _disks,
    "nics": _nics,
}
_SHAPES = {"cputime": int, "mem": int, "maxMem": int, "graphics": dict, "disks": dict, "nics": dict}


def _detail_lines(name, vm):
    """Yield what virt.vm_info alone shows, as far as it has the type that it should have."""
    if not _DETAILS.issubset(vm):
        return
    uptime_s, created = vm["uptime_s"], vm["created"]
    if _is_number(uptime_s):
        yield f"Running for: {_duration(uptime_s)}"
    if _is_number(created):
        yield f"Age: {_duration(max(0, time.time() - created))}"
    if isinstance(vm["machine"], str):
        yield f"Machine type: {vm['machine']}"
    yield f"Starts with its host: {'yes' if vm['autostart'] is True else 'no'}"
    groups = [
        *(f"{group} (together)" for group in _names(vm["affinity"])),
        *(f"{group} (apart)" for group in _names(vm["anti_affinity"])),
        *(["hold (stays on its host)"] if vm["hold"] is True else []),
    ]
    yield from _listed("Groups", groups)
    yield from _listed("Snapshots", _names(vm["snapshots"]))
    if _names(vm["pending"]):
        yield from _listed("From the next start", _names(vm["pending"]))
    yield f"Console: salt-run virt.console_log {name}"


def _listed(label, names):
    text = f"{label}: {', '.join(names) or 'none'}"
    yield from _text.wrapped(text, next_indent="  ", width=_text.terminal_width() - 4)


def _names(value):
    return [str(name) for name in value] if isinstance(value, list) else []


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _duration(seconds):
    _from, size, unit = next(row for row in _SPANS if seconds >= row[0])
    return f"{seconds // size:.0f} {unit}"


def _field(vm, key):
    # One line each, even if a host sends line breaks.
    return " ".join(f"{key}: {vm[key]}".split())


def _access_lines(vm):
    addresses, login = vm.get("addresses"), vm.get("login")
    if isinstance(addresses, list):
        note = _text.address_source(vm) if addresses else ""
        text = f"Addresses: {', '.join(map(str, addresses)) or 'not known to its host'}{note}"
        yield from _text.wrapped(text, next_indent="  ", width=_text.terminal_width() - 4)
    if login:
        # A command has a line of its own at any length, so that it can be copied.
        command, bracket, hint = str(login).partition(" (")
        yield f"Log in: {command}"
        yield from _text.wrapped(f"{bracket}{hint}", "  ", width=_text.terminal_width() - 4)


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
