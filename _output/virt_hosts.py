"""Outputter ``virt_hosts``: one line for each hypervisor."""

import textwrap

_WHOLE = {"cpu", "memory", "storage", "domain_types", "vms"}
# Of what a host says; a word of megabytes would take textwrap hours.
_LONGEST = 1000
_ROW = "{:<16} {:>9} {:>15} {:>15} {:>4}  {:<5} {}"


def output(data, **_kwargs):
    """
    Return the table of an answer of ``salt-run virt.host_info``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.host_info --out=virt_hosts
    """
    if not isinstance(data, dict):
        return str(data)
    if "error" in data:
        return "\n".join([f"error: {data['error']}", *_candidates(data.get("candidates", {}))])
    titles = ("HYPERVISOR", "CPUS", "MEMORY MiB", "DISK MiB", "VMS", "TYPE", "STATE")
    lines = [_ROW.format(*titles), _ROW.format("", *("free/all",) * 3, "", "", "").rstrip()]
    for host in data:
        if host in ("unreachable", "failed", "duplicates"):
            continue
        lines.append(_row(host, data[host]))
        for _, why in sorted(data[host].get("unreadable", {}).items()):
            lines += textwrap.wrap(f"{host}: {why[:_LONGEST]}", 78, subsequent_indent="  ")
    lines += [f"{host:<16} does not answer" for host in data.get("unreachable", ())]
    lines += [f"{host:<16} {why}" for host, why in sorted(data.get("failed", {}).items())]
    for name, hosts in sorted(data.get("duplicates", {}).items()):
        line = f"VM {name!r} is on {' and '.join(hosts)}: remove all but one, on their hosts"
        lines += textwrap.wrap(line, 78, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines)


def _row(host, info):
    if not _WHOLE.issubset(info):
        # Some fields were asked for.
        return "\n".join(
            [host, *("  " + " ".join(f"{key}: {one}".split()) for key, one in sorted(info.items()))]
        )
    cpu, memory, storage = info["cpu"], info["memory"], info["storage"]
    cells = (
        _share(cpu["vcpus_limit"], cpu["vcpus_committed"]),
        _share(memory["limit_mib"], memory["committed_mib"]),
        _share(storage["limit_mib"], storage["committed_mib"]),
    )
    state = "maintenance" if info.get("maintenance") else "up"
    kind = info["domain_types"]["default"] or "none"
    if kind == "none":
        state += f"; {info['domain_types']['why']}"
    return _ROW.format(host, *cells, len(info["vms"]), kind, state)


def _share(limit, committed):
    return f"{limit - committed}/{limit}"


def _candidates(candidates):
    for minion, one in sorted(candidates.items()):
        guest = f"; but it is a VM on {', '.join(one['vm_on'])}" if one["vm_on"] else ""
        yield f"{minion:<16} {one['why']}{guest}"
        yield f"  {one['fingerprint']}"
