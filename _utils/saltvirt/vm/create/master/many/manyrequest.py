"""Read which VMs a call of ``virt.init_many`` asks for."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.vm.create.master import vmrequest
from saltvirt.vm.create.master.vmrequest import Terms, VmRequest

# The lock of each name is an open file until the VM is built.
MOST = 500
_PLACE = re.compile(r"\{(?::0([1-9]))?\}")
_CALL_OPTIONS = (
    "host where placement spread_over headroom force wait wait_s dry_run quiet per_host "
    "max_parallel all_or_nothing count first vms"
).split()


def number_names(pattern: object, count: object, first: object = 1) -> list[str]:
    """
    Return ``count`` names: a pattern with a number in place of ``{}``.

    pattern
        With one ``{}``, or ``{:03}`` for numbers of at least three digits.
    first
        The first number. Defaults to 1.
    """
    number = arguments.whole_number("count", count, most=MOST)
    begin = arguments.whole_number("first", first, least=0, most=10**6)
    text = str(pattern)
    places = [match[1] for match in _PLACE.finditer(text)]
    if len(places) != 1:
        places_text = "no place" if not places else f"{len(places)} places"
        raise BadArgument(
            "name",
            f"{pattern!r} has {places_text} for the number; give one, as in 'web{{}}' or "
            f"'web{{:03}}'",
        )
    width = int(places[0] or 0)
    return [
        arguments.vm_name(_PLACE.sub(f"{n:0{width}}", text)) for n in range(begin, begin + number)
    ]


def parse_list(vms: object, defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """
    Return the arguments of each VM in a list.

    vms
        Names, and mappings with ``name`` and the arguments that differ from the defaults.
    """
    if not isinstance(vms, Sequence) or isinstance(vms, str) or not vms:
        raise BadArgument("vms", f"{vms!r} is not a list of VMs")
    if len(vms) > MOST:
        raise BadArgument("vms", f"{len(vms)} VMs; at most {MOST} at once")
    return [{**defaults, **_parse_vm(vm)} for vm in vms]


def _parse_vm(vm: object) -> dict[str, Any]:
    if isinstance(vm, str):
        return {"name": vm}
    if not isinstance(vm, Mapping) or "name" not in vm:
        raise BadArgument("vms", f"{vm!r} is neither a name nor a mapping with one")
    for key in map(str, vm):
        if key in _CALL_OPTIONS:
            raise BadArgument("vms", f"{key!r} of {vm['name']!r} is said once, of all of them")
    return {str(key): value for key, value in vm.items()}


def parse_requests(vms: Sequence[Mapping[str, Any]], terms: Terms) -> list[VmRequest]:
    """
    Return the requests; raise BadArgument if one of them can be met on no host.

    vms
        Arguments of each VM: ``name``, ``cpu``, ``mem``, and keyword arguments of ``virt.init``.
    terms
        The terms of all of them.
    """
    out: dict[str, VmRequest] = {}
    for vm in vms:
        name = arguments.vm_name(vm["name"])
        if name in out:
            raise BadArgument("vms", f"{name!r} is asked for twice")
        for key in ("cpu", "mem"):
            if vm.get(key) is None:
                raise BadArgument(key, f"is missing for VM {name!r}")
        kwarg = {key: value for key, value in vm.items() if key not in ("name", "cpu", "mem")}
        try:
            out[name] = vmrequest.parse(name, vm["cpu"], vm["mem"], kwarg, terms)
        except BadArgument as error:
            raise BadArgument(f"VM {name!r}: {error}") from None
    _refuse_same_macs(out.values())
    return list(out.values())


def _refuse_same_macs(vm_requests: Iterable[VmRequest]) -> None:
    names_by_mac: dict[str, str] = {}
    for request in vm_requests:
        for nic in request.kwarg.get("interfaces") or ():
            mac = nic.get("mac") if isinstance(nic, Mapping) else None
            if mac is None:
                continue
            first_name = names_by_mac.setdefault(str(mac).lower(), request.name)
            if first_name != request.name:
                raise BadArgument(
                    "interfaces", f"{first_name!r} and {request.name!r} have MAC {mac}"
                )
