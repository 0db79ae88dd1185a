"""Outputter ``virt_lost``: what a lost host had, and the steps to go on without it."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)
_NAME = 16


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
    if not vms:
        yield f"no VM was seen on {host} when it last answered"
        return
    yield f"{'VM':<{_NAME}} WHAT IS LEFT OF IT"
    for name, vm in vms.items():
        parts = [f"a VM of that name is on {' and '.join(vm['also_on'])}"] if vm["also_on"] else []
        for path, hosts in vm["shared_disks"].items():
            state = ", and a program has it open" if path in vm["open"] else ""
            parts.append(f"{path}, which {' and '.join(hosts)} can see{state}")
        indent = " " * (_NAME + 1)
        lines = _text.wrapped("; ".join(parts) or "nothing that another host sees", indent)
        if len(name) > _NAME:
            yield from (name, *lines)
        else:
            yield from (f"{name:<{_NAME}} {lines[0].lstrip()}", *lines[1:])
