"""Outputter ``virt_lost``: what a lost host had, and the steps to go on without it."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)


@_text.shows_mappings
def output(data, **_kwargs):
    """
    Return the report of ``salt-run virt.host_lost``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.host_lost hyper3 --out=virt_lost
    """
    if "error" in data:
        return "\n".join(_text.wrapped(f"error: {data['error']}"))
    host = data.get("host", "")
    lines = _text.wrapped(f"{host}: {data.get('state', 'not known')}")
    lines += _vm_lines(host, data.get("vms", {}))
    for name, hosts in data.get("moves", {}).items():
        lines += _text.wrapped(f"a move of {name} {hosts} is not over")
    for other_host, reason in data.get("unasked", {}).items():
        lines += _text.wrapped(f"not asked: {other_host} ({reason}), which may see more disks")
    for number, step in enumerate(data.get("steps", ()), start=1):
        lines += ["", *_text.wrapped(f"{number}. {step['step']}:", next_indent="   ")]
        # A command has a line of its own at any length, so that it can be copied.
        lines += [f"   {command}" for command in step["commands"]]
        if not step["commands"]:
            lines[-1] = lines[-1].removesuffix(":") + "."
    return "\n".join(lines)


def _vm_lines(host, vms):
    """Return the table of a host's VMs, and of what is left of each."""
    if not vms:
        return [f"no VM was seen on {host} when it last answered"]
    rows = [
        (name, "; ".join(_parts(vm)) or "nothing that another host sees")
        for name, vm in vms.items()
    ]
    return _text.table(("VM", "WHAT IS LEFT OF IT"), rows)


def _parts(vm):
    """Yield what is left of a VM."""
    if vm["also_on"]:
        yield f"a VM of that name is on {' and '.join(vm['also_on'])}"
    for path, hosts in vm["shared_disks"].items():
        state = ", and a program has it open" if path in vm["open"] else ""
        yield f"{path}, which {' and '.join(hosts)} can see{state}"
