"""Outputter ``virt_hosts``: one line for each hypervisor."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)
_WHOLE = {"cpu", "memory", "storage", "domain_types", "vms"}
# Limit of one text from a host.
_LONGEST = 1000
# The longest value of the last column, "maintenance", ends at column 80.
_ROW = "{:<16} {:>9} {:>15} {:>15} {:>4} {:<4} {}"
_NAME = 16


@_text.shows_mappings
def output(data, **_kwargs):
    """
    Return the table of an answer of ``salt-run virt.host_info``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.host_info --out=virt_hosts
    """
    if "error" in data:
        error = _text.wrapped(f"error: {data['error']}")
        return "\n".join([*error, *_text.candidate_lines(data.get("candidates", {}))])
    titles = ("HYPERVISOR", "CPUS", "MEMORY MiB", "DISK MiB", "VMS", "TYPE", "STATE")
    lines = [_ROW.format(*titles), _ROW.format("", *("free/all",) * 3, "", "", "").rstrip()]
    for host in data:
        if host in ("unreachable", "failed", "duplicates", "last_seen"):
            continue
        lines += _rows(host, data[host])
        for _, reason in sorted(data[host].get("unreadable", {}).items()):
            lines += _host_lines(f"{host}: ", reason)
    return "\n".join([*lines, *_other_lines(data)])


def _other_lines(data):
    """Return the lines of unresponsive hosts, and of VMs that several hosts have."""
    lines = [f"{host:<16} {_text.NO_ANSWER}" for host in data.get("unreachable", ())]
    for host, reason in sorted(data.get("failed", {}).items()):
        lines += _host_lines(f"{host:<16} ", reason)
    for host, names in sorted(data.get("last_seen", {}).items()):
        lines += _host_lines(f"{host:<16} ", f"had {', '.join(names)} when it was last asked")
    for name, hosts in sorted(data.get("duplicates", {}).items()):
        line = f"VM {name!r} is on {' and '.join(hosts)}: remove all but one, on their hosts"
        lines += _text.wrapped(line, next_indent="  ")
    return lines


def _host_lines(host, reason):
    # Wrap with a placeholder of the host's width, because its name may have spaces.
    lines = _text.wrapped(str(reason)[:_LONGEST], " " * len(host), "  ") or [host]
    return [host + lines[0][len(host) :], *lines[1:]]


def _rows(host, info):
    if not _WHOLE.issubset(info):
        # The call requested some fields only.
        yield host
        yield from (
            "  " + " ".join(f"{key}: {value}".split()) for key, value in sorted(info.items())
        )
        return
    cpu, memory, storage = info["cpu"], info["memory"], info["storage"]
    cells = (
        _share(cpu["vcpus_limit"], cpu["vcpus_committed"]),
        _share(memory["limit_mib"], memory["committed_mib"]),
        _share(storage["limit_mib"], storage["committed_mib"]),
    )
    state = "maintenance" if info.get("maintenance") else "up"
    kind = info["domain_types"]["default"] or "none"
    name = host
    if len(name) > _NAME:
        # A full name is often too long: give it a line, and keep the columns below the titles.
        yield name
        name = ""
    yield _ROW.format(name, *cells, len(info["vms"]), kind, state)
    if kind == "none":
        yield from _host_lines(f"{host}: ", info["domain_types"].get("why"))


def _share(limit, committed):
    return f"{limit - committed}/{limit}"
