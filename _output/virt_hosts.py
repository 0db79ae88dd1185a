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
_TITLES = ("HYPERVISOR", "CPUS", "MEMORY", "DISK", "VMS", "TYPE", "STATE")
_GIB_AS_MIB = 1024


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
    infos = {
        host: info
        for host, info in data.items()
        if host not in ("unreachable", "failed", "duplicates", "last_seen")
    }
    whole_infos = {host: info for host, info in infos.items() if _WHOLE.issubset(info)}
    lines = _table(whole_infos)
    for host, info in infos.items():
        lines += _host_notes(host, info) if host in whole_infos else _some_fields(host, info)
    return "\n".join([*lines, *_text.other_lines(data)])


def _table(infos):
    """Return the table of hosts with all fields; its memory and disks have one unit."""
    if not infos:
        return []
    pools = [info[key] for info in infos.values() for key in ("memory", "storage")]
    # One digit of a GiB says nothing of less than one.
    is_small = all(pool["limit_mib"] < _GIB_AS_MIB for pool in pools)
    unit = "MiB" if is_small else "GiB"
    rows = []
    for host, info in infos.items():
        cpu = info["cpu"]
        rows.append(
            (
                host,
                f"{cpu['vcpus_limit'] - cpu['vcpus_committed']}/{cpu['vcpus_limit']}",
                _share(info["memory"], is_small),
                _share(info["storage"], is_small),
                len(info["vms"]),
                info["domain_types"]["default"] or "none",
                "maintenance" if info.get("maintenance") else "up",
            )
        )
    lines = _text.table(_TITLES, rows)
    legend = f"CPUS, MEMORY and DISK ({unit}): free to promise to VMs / all that may be promised"
    return [*lines, *_text.wrapped(legend)]


def _share(pool, is_small):
    free, limit = pool["limit_mib"] - pool["committed_mib"], pool["limit_mib"]
    if is_small:
        return f"{free}/{limit}"
    return f"{free / _GIB_AS_MIB:.1f}/{limit / _GIB_AS_MIB:.1f}"


def _host_notes(host, info):
    lines = []
    if not info["domain_types"]["default"]:
        lines += _host_lines(f"{host}: ", info["domain_types"].get("why"))
    for _, reason in sorted(info.get("unreadable", {}).items()):
        lines += _host_lines(f"{host}: ", reason)
    return lines


def _some_fields(host, info):
    """Return the lines of a host of which the call requested some fields only, with units."""
    lines = [host]
    for key, value in sorted(info.items()):
        lines += _text.wrapped(f"{key}: {_with_units(value)}", "  ", "    ")
    return lines


def _with_units(value, key=""):
    """Return a value in words; sizes, whose names end with _mib, have a unit."""
    if isinstance(value, dict):
        return (
            ", ".join(f"{_label(k)} {_with_units(v, str(k))}" for k, v in value.items()) or "none"
        )
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    is_size = key.endswith("_mib") and isinstance(value, int | float)
    if is_size and abs(value) >= _GIB_AS_MIB:
        return f"{value / _GIB_AS_MIB:.1f} GiB"
    return f"{value} MiB" if is_size else str(value)


def _label(key):
    return str(key).removesuffix("_mib").replace("committed", "promised")


def _host_lines(host, reason):
    # Wrap with a placeholder of the host's width, because its name may have spaces.
    lines = _text.wrapped(str(reason)[:_LONGEST], " " * len(host), "  ") or [host]
    return [host + lines[0][len(host) :], *lines[1:]]
